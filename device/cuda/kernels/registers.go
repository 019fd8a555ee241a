package kernels

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed registers.txt
var registersText string

// Use is what a kernel takes of a multiprocessor, as NVIDIA's ptxas compiles it.
type Use struct {
	Registers int // of a thread
	Static    int // bytes of shared memory of a block, beside what a launch asks for
}

// registers reads registers.txt, which check.sh writes: a line for each kernel with its static
// shared memory and, for each architecture, its registers: a dash where it is not for that.
var registers = sync.OnceValue(func() map[string]map[string]Use {
	table := map[string]map[string]Use{}
	var architectures []string
	for line := range strings.Lines(registersText) {
		cells := strings.Fields(line)
		if architectures == nil {
			architectures = cells[2:]
			continue
		}
		uses := map[string]Use{}
		for i, a := range architectures {
			if cells[2+i] == "-" {
				continue // not for this one
			}
			static, err := strconv.Atoi(cells[1])
			count, err2 := strconv.Atoi(cells[2+i])
			if err != nil || err2 != nil {
				panic("kernels: registers.txt: " + line) // cannot happen, as the file is embedded and its test reads it
			}
			uses[strings.TrimSuffix(a, "a")] = Use{count, static}
		}
		table[cells[0]] = uses
	}
	return table
})

// UseOn is what a kernel takes on GPUs of an architecture: sm_80, sm_86, sm_89, sm_90, sm_100 or
// sm_120. An error says that there is no such kernel or architecture.
func UseOn(kernel, architecture string) (Use, error) {
	uses, ok := registers()[kernel]
	if !ok {
		return Use{}, fmt.Errorf("kernels: there is no kernel %s in registers.txt", kernel)
	}
	u, ok := uses[architecture]
	if !ok {
		known := make([]string, 0, len(uses))
		for a := range uses {
			known = append(known, a)
		}
		slices.Sort(known)
		return Use{}, fmt.Errorf("kernels: nothing is known of %s on %s (known: %s)", kernel, architecture, strings.Join(known, ", "))
	}
	return u, nil
}
