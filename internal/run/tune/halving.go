package tune

import (
	"cmp"
	"context"
	"slices"

	"mt/actors"
)

// sample is the measurement of one short run, in seconds per step.
type sample struct {
	step    float64
	compute float64 // compute stream
	stall   [actors.NumCauses]float64
}

// runner runs plan p for some steps and measures them.
type runner func(ctx context.Context, p *Point, steps int) (sample, error)

// contestant is a plan that runs against other plans, with the measurements of its runs.
type contestant struct {
	*Point
	samples []sample
	left    int // the round in which it was eliminated; 0: none
}

// took returns the seconds per step of every run.
func (c *contestant) took() []float64 {
	out := make([]float64, len(c.samples))
	for i, s := range c.samples {
		out[i] = s.step
	}
	return out
}

// median returns the median of values; with an even number of values, the upper one of the middle two.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// turns is how often each contestant runs in one round of successive halving.
const turns = 2

// rounds returns the number of rounds of halving until one of n contestants is left. runsOf returns the number of runs
// that these rounds take.
func rounds(n int) (count int) {
	for ; n > 1; n = (n + 1) / 2 {
		count++
	}
	return count
}

func runsOf(n int) (runs int) {
	for ; n > 1; n = (n + 1) / 2 {
		runs += turns * n
	}
	return runs
}

// halve is successive halving (Jamieson and Talwalkar, arXiv:1502.07943). In each round all remaining contestants run
// in turns, and the faster half stays. The next round has twice the steps. It returns the last contestant. Each turn
// starts with another contestant, so that none always runs after the same one.
func halve(ctx context.Context, all []*contestant, steps int, run runner) (*contestant, error) {
	alive := slices.Clone(all)
	for round := 1; len(alive) > 1; round++ {
		for turn := range turns {
			for i := range alive {
				c := alive[(i+turn)%len(alive)]
				s, err := run(ctx, c.Point, steps<<(round-1))
				if err != nil {
					return nil, err
				}
				c.samples = append(c.samples, s)
			}
		}
		slices.SortStableFunc(alive, func(a, b *contestant) int { return cmp.Compare(median(a.took()), median(b.took())) })
		keep := (len(alive) + 1) / 2
		for _, c := range alive[keep:] {
			c.left = round
		}
		alive = alive[:keep]
	}
	if len(alive) == 0 {
		return nil, nil
	}
	return alive[0], nil
}
