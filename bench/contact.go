package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
)

// Contact is the output of bench/gpu.sh on one machine: its whole output folder, or one file of the folder.
type Contact struct {
	Path    string
	Machine ContactMachine
	Doctor  ContactDoctor
	Parts   []ContactPart // outcome of each part of bench/gpu.sh, in the order in which the parts first ran
	// SelfTest, Copy, Attention and MatMul are nil if the contact does not have that report.
	SelfTest  *doctor.SelfTestReport
	Copy      *CopyReport
	Attention *AttentionReport
	MatMul    *MatMulReport
	Train     map[string]*TrainReport // by part
	// Unread has an error for each file that could not be read.
	Unread []error

	files map[string]string // names of the files read, by kind (contactKinds); for reports of bench train, by part
}

// ContactMachine is the content of machine.json, which describes the machine.
type ContactMachine struct {
	Date       string  `json:"date"`
	Blocks     int     `json:"blocks"`
	HostMemory float64 `json:"host_memory_available"` // bytes
	Cores      int     `json:"cores"`
	CPULimit   float64 `json:"cpu_limit"`    // CPU limit of the container, in cores; 0: none
	Limit      float64 `json:"memory_limit"` // memory limit of the container, in bytes; 0: none
	Scale      string  `json:"scale"`        // small: a trial run, whose figures are meaningless
	Processor  string  `json:"processor"`
	Version    string  `json:"mt"`
	GPU        string  `json:"gpu"`
}

// ContactDoctor has those fields of `mt doctor --json` that a Contact needs.
type ContactDoctor struct {
	Cores int `json:"cores"`
	CUDA  struct {
		Device   string       `json:"device"`
		Memory   config.Bytes `json:"memory_bytes"`
		Emulated bool         `json:"emulated"`
		// State is nil if NVML is missing or does not know the GPU.
		State *machine.GPUState `json:"state"`
	} `json:"cuda"`
}

// ContactPart is a part of bench/gpu.sh, such as selftest, and its outcome.
type ContactPart struct{ Name, Outcome string }

// small is the value of ContactMachine.Scale for a trial run.
const small = "small"

// ReadContact reads a folder that bench/gpu.sh wrote, or one file of it. For a file that cannot be read, it adds the
// error to Unread. It returns an error only if path does not exist.
func ReadContact(path string) (*Contact, error) {
	c := &Contact{Path: path, Train: map[string]*TrainReport{}, files: map[string]string{}}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w: name the folder of bench/gpu.sh --out, or a file of it", err)
	}
	if !info.IsDir() {
		c.read(path)
		return c, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), "sanitize-") { // times measured under a sanitizer are meaningless
			c.read(file)
		}
	}
	c.Parts, err = readParts(filepath.Join(path, "parts.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Unread = append(c.Unread, err)
	}
	return c, nil
}

// readParts reads parts.txt, with lines of the form PART=OUTCOME. If several lines have the same part, the last one
// counts.
func readParts(file string) ([]ContactPart, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts []ContactPart
	for line := range strings.Lines(string(raw)) {
		name, outcome, ok := strings.Cut(strings.TrimRight(line, "\n"), "=")
		if !ok {
			continue
		}
		if i := slices.IndexFunc(parts, func(p ContactPart) bool { return p.Name == name }); i >= 0 {
			parts[i].Outcome = outcome
		} else {
			parts = append(parts, ContactPart{name, outcome})
		}
	}
	return parts, nil
}

// contactKinds lists the kinds of files in a Contact. The kind of a JSON file is the first in this list whose keys are
// all in the file. The function read decodes the file's text raw and stores the result in c. The file comes from this
// part of bench/gpu.sh.
var contactKinds = []struct {
	name string
	keys []string
	read func(c *Contact, part string, raw []byte) error
}{
	{"mt doctor --selftest", []string{"checks", "rates"}, as(func(c *Contact, _ string, r *doctor.SelfTestReport) { c.SelfTest = r })},
	{benchTrain, []string{"step_seconds"}, as(func(c *Contact, part string, r *TrainReport) { c.Train[part] = r })},
	{benchCopy, []string{"rows", "launch_us"}, as(func(c *Contact, _ string, r *CopyReport) { c.Copy = r })},
	{benchMatMul, []string{"rows", "tokens"}, as(func(c *Contact, _ string, r *MatMulReport) { c.MatMul = r })},
	{benchAttention, []string{"rows", "device"}, as(func(c *Contact, _ string, r *AttentionReport) { c.Attention = r })},
	{"mt doctor", []string{"cuda", "kernels"}, as(func(c *Contact, _ string, r *ContactDoctor) { c.Doctor = *r })},
	{"machine.json", []string{"host_memory_available", "scale"}, as(func(c *Contact, _ string, r *ContactMachine) { c.Machine = *r })},
}

// Commands whose reports belong to a Contact.
const benchTrain, benchCopy, benchMatMul, benchAttention = "mt bench train", "mt bench copy", "mt bench matmul", "mt bench attention"

// as returns a function for the field read of contactKinds. The function decodes JSON into a T and passes the T to
// keep, to store it in the Contact.
func as[T any](keep func(c *Contact, part string, r *T)) func(c *Contact, part string, raw []byte) error {
	return func(c *Contact, part string, raw []byte) error {
		r := new(T)
		if err := json.Unmarshal(raw, r); err != nil {
			return err
		}
		keep(c, part, r)
		return nil
	}
}

// read reads one file and stores its content in the field of c for its kind.
func (c *Contact) read(file string) {
	refuse := func(format string, args ...any) {
		c.Unread = append(c.Unread, fmt.Errorf("%s: %w", file, fmt.Errorf(format, args...)))
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		c.Unread = append(c.Unread, err)
		return
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		refuse("%d bytes that are no JSON object (%w): the part was cut off; run it again, or remove the file", len(raw), err)
		return
	}
	part := strings.TrimSuffix(filepath.Base(file), ".json")
	for _, k := range contactKinds {
		if slices.ContainsFunc(k.keys, func(key string) bool { _, ok := keys[key]; return !ok }) {
			continue
		}
		if other := c.files[k.name]; other != "" && k.name != benchTrain {
			refuse("a second report of %s, beside %s: keep one of the two", k.name, other)
			return
		}
		if err := k.read(c, part, raw); err != nil {
			refuse("no report of %s that this mt reads (%w): another version wrote it; measure again with this one", k.name, err)
			return
		}
		c.files[k.name] = file
		if k.name == benchTrain {
			c.files[part] = file
		}
		return
	}
	refuse("no part of a report: want what mt bench copy, matmul, attention or train prints with --json, or mt doctor --selftest")
}
