package appraise

import "mt/cudart/emu/ptx"

// Work is what a launch does as a whole.
type Work struct {
	Counts ptx.Counts
	// Memory is how many bytes of device memory it must read and write, each once.
	Memory int64
}

// Busy is how long a resource of the GPU is busy with a launch.
type Busy struct {
	Resource string  `json:"resource"`
	Seconds  float64 `json:"seconds"`
}

// Bound lists how long each resource is busy, if all of it is busy all the while: no launch that
// does this work takes less than the longest of these times. It takes PTX at its word, but for moves
// and parameters: what ptxas saves beyond them is not known. Of the L2 cache it asks for what each
// block reads once, and for all that is written and all that bulk copies move.
func (g *GPU) Bound(w Work) []Busy {
	var issue float64
	var busy [units]float64
	n := &w.Counts
	costs := g.costs()
	for c, k := range n.By {
		issue += float64(k) * costs[c].issue
		busy[costs[c].unit] += float64(k) * costs[c].cycles
	}
	issue += float64(n.Off) // these are issued all the same
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

// launchLeast is the least that a kernel takes, in seconds: an estimate, below what is reported of empty
// kernels.
const launchLeast = 1e-6

// Longest is the resource that is busy longest.
func Longest(all []Busy) Busy {
	var out Busy
	for _, b := range all {
		if b.Seconds > out.Seconds {
			out = b
		}
	}
	return out
}
