package doctor

import (
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"

	"mt/host"
	"mt/internal/run/machine"
)

// State is the condition of one part of the machine.
type State string

// The states. Runs work with slow parts, but not with broken ones.
const (
	OK     State = "ok"
	Slow   State = "slow"
	Broken State = "broken"
)

// Part is what the checkup has found about one part of the machine.
type Part struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	// Remedy is what to do, one line per entry. Commands are separate entries that begin with "$ ".
	Remedy []string `json:"remedy,omitempty"`
}

// Parts are the parts of a machine.
type Parts []Part

// Broken counts the parts that are broken.
func (p Parts) Broken() (n int) {
	for _, part := range p {
		if part.State == Broken {
			n++
		}
	}
	return n
}

// WriteTable prints p as a table.
func (p Parts) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, part := range p {
		fmt.Fprintf(t, "%s\t%s\t%s\n", part.Name, part.State, part.Found)
		for _, line := range part.Remedy {
			fmt.Fprintf(t, "\t\t  %s\n", line)
		}
	}
	return t.Flush()
}

// Sources has the inputs of the checkup.
type Sources struct {
	Root   fs.FS // the root folder: proc, sys, dev
	CUDA   machine.CUDA
	Room   host.Room
	Arch   string      // runtime.GOARCH
	Levels []string    // instruction sets that mt supports on this processor, fastest first
	Level  string      // the instruction set in use
	CPUs   int         // number of CPUs that this process may run on
	Nodes  *host.Nodes // NUMA nodes of the arenas; nil: one node
	// MemoryRate measures a copy by all cores, in bytes read plus written per second. It may be nil.
	MemoryRate func() (float64, error)
	// Disk tests the output folder of runs. It may be nil.
	Disk func() DiskTrial
}

// look is one check of the machine. It returns a finding for each part that it has checked; none if the machine has no
// such part.
type look func(Sources) []Part

// CheckUp runs all checks, in the order in which a user would look.
func CheckUp(s Sources) Parts {
	var out Parts
	for _, l := range []look{driver, blas, links, clocks, processor, quota, governor, memory, hugePages, lockedMemory, nodes, swap, memoryRate, disk} {
		out = append(out, l(s)...)
	}
	return out
}

func one(name string, state State, found string, remedy ...string) []Part {
	return []Part{{Name: name, State: state, Found: found, Remedy: remedy}}
}

// text returns the trimmed content of a file; "" if the file cannot be read.
func (s Sources) text(name string) string {
	b, err := fs.ReadFile(s.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// exists reports whether the file exists.
func (s Sources) exists(name string) bool {
	_, err := fs.Stat(s.Root, name)
	return err == nil
}

// after searches the file called name for the first line that begins with key. It returns the rest of the line,
// without spaces around it; "" if there is no such line.
func (s Sources) after(name, key string) string {
	for line := range strings.Lines(s.text(name)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// kib returns the value that /proc/meminfo gives for key, converted from KiB to bytes; 0 if the key is missing.
func (s Sources) kib(key string) int64 {
	number, _, _ := strings.Cut(s.after("proc/meminfo", key), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// chosen returns the word in brackets, as in the kernel's files: "madvise" for "always [madvise] never".
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// count returns how many numbers a list of ranges such as 0-3,8 contains; that example has five.
func count(list string) (n int) {
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		n += max(0, b-a+1)
	}
	return n
}
