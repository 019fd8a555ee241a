package doctor

import (
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"

	"mt/host"
	"mt/internal/machine"
)

// State says how a part is.
type State string

// The states. A run works with parts that are slow, and not with what is broken.
const (
	OK     State = "ok"
	Slow   State = "slow"
	Broken State = "broken"
)

// Part is what was found of one part of the machine.
type Part struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	// Remedy is what to do, a line each; commands stand by themselves, after "$ ".
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

// WriteTable prints p for people.
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

// Sources are what the checkup looks at.
type Sources struct {
	Root   fs.FS // what lies under /: proc, sys, dev
	CUDA   machine.CUDA
	Room   host.Room
	Arch   string      // runtime.GOARCH
	Levels []string    // instruction sets that mt has code for here, fastest first
	Level  string      // the one in use
	CPUs   int         // that this process may run on
	Nodes  *host.Nodes // over which arenas are laid out; nil: one
	// MemoryRate measures a copy by all cores in bytes read and written a second. It may be nil.
	MemoryRate func() (float64, error)
	// Disk tries the folder where runs would write. It may be nil.
	Disk func() DiskTrial
}

// look is one check: the parts that it found, which may be none.
type look func(Sources) []Part

// CheckUp looks at everything, in the order in which a user would.
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

// text is the content of a file without the white space around it; "" where it cannot be read.
func (s Sources) text(name string) string {
	b, err := fs.ReadFile(s.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// exists tells whether there is such a file.
func (s Sources) exists(name string) bool {
	_, err := fs.Stat(s.Root, name)
	return err == nil
}

// after is what follows key at the start of a line of a file, without the white space around it;
// "" where there is no such line.
func (s Sources) after(name, key string) string {
	for line := range strings.Lines(s.text(name)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// kib is a figure of /proc/meminfo in bytes, 0 where there is none.
func (s Sources) kib(key string) int64 {
	number, _, _ := strings.Cut(s.after("proc/meminfo", key), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// chosen is the word in brackets: "always [madvise] never" has madvise.
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// count is how many numbers a list like 0-3,8 has.
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
