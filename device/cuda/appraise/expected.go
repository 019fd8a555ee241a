package appraise

import "container/heap"

// spread returns the number of cycles until all thread blocks have run, if places blocks run at a
// time on the GPU. Block i has the work weights[i]; a block of weight 1 takes the given cycles.
// Blocks start in order, each in the place that is free first.
func spread(places int, weights []float64, cycles float64) float64 {
	if places >= len(weights) {
		most := 0.0
		for _, w := range weights {
			most = max(most, w)
		}
		return most * cycles
	}
	h := make(freeAt, places)
	for _, w := range weights {
		h[0] += w * cycles
		heap.Fix(&h, 0)
	}
	end := 0.0
	for _, t := range h {
		end = max(end, t)
	}
	return end
}

// freeAt is a heap of the times at which the slots for blocks become free.
type freeAt []float64

func (f freeAt) Len() int           { return len(f) }
func (f freeAt) Less(i, j int) bool { return f[i] < f[j] }
func (f freeAt) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f freeAt) Push(any)           {}
func (f freeAt) Pop() any           { return nil }

// Expected returns the expected time of a launch in seconds, including the gap before it. The
// replay r simulates, instruction by instruction, copies of one traced thread block on one
// multiprocessor. Block i of the launch has the work weights[i]; 1: as much as the traced block. If
// the launch has too few blocks to fill every multiprocessor with r.Resident blocks, fewer are
// replayed at a time.
func (g *GPU) Expected(r Replay, weights []float64) float64 {
	r.Active = min(g.SMs, len(weights))
	r.Resident = min(r.Resident, (len(weights)+g.SMs-1)/g.SMs)
	most := 1 + (len(weights)-1)/(r.Active*r.Resident)
	r.Rounds = max(1, min(most, rounds, stepsReplayed/max(1, steps(r))))
	cycles := spread(r.Active*r.Resident, weights, g.Cycles(r))
	return g.Launch*1e-6 + cycles/(g.Clock*1e9)
}

// rounds is the most thread blocks that a replay (the simulation of one multiprocessor) runs in the
// same place, one after another. After several rounds the places are no longer in step, as in a
// long launch. A replay has at least one round. Beyond that, stepsReplayed limits the instructions.
const (
	rounds        = 4
	stepsReplayed = 2_000_000
)

// steps returns how many instructions a replay simulates in one round, in which every place runs
// one block.
func steps(r Replay) int {
	n := 0
	for _, w := range r.Trace.Warps {
		n += len(w)
	}
	return n * r.Resident
}
