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

// Use is what a kernel occupies on a multiprocessor, as NVIDIA's ptxas allocates it.
type Use struct {
	Registers int // per thread
	Static    int // bytes of shared memory per block, without the launch's dynamic memory
}

// registers reads registers.txt, which check.sh writes. A line has a kernel's static shared memory
// and its registers on each architecture. A dash stands for an architecture that the kernel is not
// for.
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
				continue // the kernel is not for this architecture
			}
			static, err := strconv.Atoi(cells[1])
			used, _, _ := strings.Cut(cells[2+i], "!") // bytes of local memory follow the exclamation mark
			count, err2 := strconv.Atoi(used)
			if err != nil || err2 != nil {
				panic("kernels: registers.txt: " + line) // cannot happen: the file is embedded and a test reads it
			}
			uses[strings.TrimSuffix(a, "a")] = Use{count, static}
		}
		table[cells[0]] = uses
	}
	return table
})

// UseOn returns a kernel's Use on an architecture: sm_80, sm_86, sm_89, sm_90, sm_100 or sm_120. It fails for an
// unknown kernel or architecture.
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
