package appraise

import "mt/cudart/emu/ptx"

// Work is the work of all thread blocks of a launch: the counted instructions and transfers, and
// the bytes of device memory.
type Work struct {
	Counts ptx.Counts
	// Memory is the bytes of device memory that the launch must read and write, each once.
	Memory int64
}

// Busy says for how many seconds a launch keeps one resource of the GPU busy, such as the tensor
// cores or device memory.
type Busy struct {
	Resource string  `json:"resource"`
	Seconds  float64 `json:"seconds"`
}

// Bound returns for each resource of the GPU how long the launch keeps it busy, if all units of the resource are always
// busy. No launch with this work takes less than the longest of these times. Bound counts the instructions of the PTX
// without moves and parameters; ptxas may save more, but how much is unknown. The L2 cache delivers each block's reads
// once, and takes all writes and all bulk copies.
func (g *GPU) Bound(w Work) []Busy {
	var issue float64
	var busy [units]float64
	n := &w.Counts
	costs := g.costs()
	for c, k := range n.By {
		issue += float64(k) * costs[c].issue
		busy[costs[c].unit] += float64(k) * costs[c].cycles
	}
	issue += float64(n.Off) // instructions that no thread executes are issued too
	busy[unitTensor] += float64(n.Grouped) / groupedRate
	global, shared := n.Cached(), n.Shared()
	memory := path(shared.Wavefronts+n.By[ptx.ClassShuffle], global.Sectors, 0)
	l2 := 32 * float64(n.Moved())
	sm := float64(g.SMs) * g.Clock * 1e9
	each := func(resource string, cycles float64) Busy { return Busy{resource, cycles / quarters / sm} }
	return []Busy{
		each("issue", issue), each("fp32", busy[unitFloat]), each("integer", busy[unitInteger]), each("special", busy[unitSpecial]),
		each("tensor", busy[unitTensor]), each("shared memory", memory*quarters),
		{"L2", l2 / (min(g.L2, bytesToL2*float64(g.SMs)) * g.Clock * 1e9)}, {"memory", float64(w.Memory) / (g.Peak * 1e9)},
		{"launch", launchLeast},
	}
}

// launchLeast is a lower bound of the time of any kernel in seconds. Published times of empty
// kernels are longer.
const launchLeast = 1e-6

// Longest returns the resource that is busy longest. It limits the launch.
func Longest(all []Busy) Busy {
	var out Busy
	for _, b := range all {
		if b.Seconds > out.Seconds {
			out = b
		}
	}
	return out
}
