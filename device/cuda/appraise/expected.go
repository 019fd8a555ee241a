package appraise

import "container/heap"

// spread returns the cycles that blocks take on places. Blocks go in order to the place that is free first. cycles is
// the time of a block of weight 1.
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

// freeAt is a heap of the times at which places become free.
type freeAt []float64

func (f freeAt) Len() int           { return len(f) }
func (f freeAt) Less(i, j int) bool { return f[i] < f[j] }
func (f freeAt) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f freeAt) Push(any)           {}
func (f freeAt) Pop() any           { return nil }

// Expected returns the expected time of a launch in seconds: the launch itself, and blocks with the given weights
// relative to the traced block. A multiprocessor can hold r.Resident blocks. If there are fewer blocks, fewer are
// replayed.
func (g *GPU) Expected(r Replay, weights []float64) float64 {
	r.Active = min(g.SMs, len(weights))
	r.Resident = min(r.Resident, (len(weights)+g.SMs-1)/g.SMs)
	most := 1 + (len(weights)-1)/(r.Active*r.Resident)
	r.Rounds = max(1, min(most, rounds, stepsReplayed/max(1, steps(r))))
	cycles := spread(r.Active*r.Resident, weights, g.Cycles(r))
	return g.Launch*1e-6 + cycles/(g.Clock*1e9)
}

// rounds is the most consecutive blocks in a replay; after several rounds blocks are out of step. At most
// stepsReplayed steps are replayed, unless one round has more.
const (
	rounds        = 4
	stepsReplayed = 2_000_000
)

// steps returns the number of instructions of one round.
func steps(r Replay) int {
	n := 0
	for _, w := range r.Trace.Warps {
		n += len(w)
	}
	return n * r.Resident
}
