package tune

import (
	"cmp"
	"context"
	"slices"

	"mt/actors"
)

// sample is what one short run measured: seconds of a step.
type sample struct {
	step    float64
	compute float64 // of the compute stream
	stall   [actors.NumCauses]float64
}

// runner runs p for a number of steps that count.
type runner func(ctx context.Context, p *Point, steps int) (sample, error)

// contestant is a plan that is measured.
type contestant struct {
	*Point
	samples []sample
	left    int // the round in which others went on without it; 0: none
}

// took are the seconds of a step in every run.
func (c *contestant) took() []float64 {
	out := make([]float64, len(c.samples))
	for i, s := range c.samples {
		out[i] = s.step
	}
	return out
}

// median is the middle of values, the upper of the two middle ones of an even number.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// turns is how often every contestant of a round runs.
const turns = 2

// rounds is how many rounds n contestants make until one is left, and runsOf how many runs.
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

// halve lets all run in turns, keeps the faster half, and so on with twice the steps, until one is
// left, which it returns: successive halving (Jamieson and Talwalkar, arXiv:1502.07943). Each turn
// begins with another contestant, so that none always follows the same one.
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
