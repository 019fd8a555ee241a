package tune

import (
	"context"
	"slices"
)

// LeastPairs is the least number of pairs that can show anything: six agree by chance once in 64
// times.
const LeastPairs = 6

// looks is how often pairs are summed up, after the first of them and, where they leave it open,
// after as many again. Each look may take chance for speed in one case of 60, so that all of them
// do so in one of 20.
const looks, chance = 3, 0.05 / looks

// Faster says how much faster one plan is than another, as found by pairs of runs.
type Faster struct {
	// Ratio is the median of the time of a step of the start over that of the other one.
	Ratio float64 `json:"ratio"`
	// Least and Most are order statistics of the pairs: the true median lies below Least, or
	// above Most, in at most one of 60 cases each, whatever the noise looks like.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Pairs int     `json:"pairs"`
}

// Certain says that it is faster, and not by chance.
func (f Faster) Certain() bool { return f.Least > 1 }

// open says that more pairs could show that it is faster, as the ones so far seem to.
func (f Faster) open() bool { return !f.Certain() && f.Ratio > 1+alike }

// pair runs start and other in turns, n times, and compares them; where that leaves it open it
// goes on, at most until there are looks times as many. Every other pair begins with the other one.
// more, unless nil, is told when n pairs follow.
func pair(ctx context.Context, start, other *contestant, n, steps int, run runner, more func()) (f Faster, err error) {
	var ratios []float64
	for look := range looks {
		if look > 0 && more != nil {
			more()
		}
		for range n {
			order := []*contestant{start, other}
			if len(ratios)%2 == 1 {
				slices.Reverse(order)
			}
			for _, c := range order {
				s, err := run(ctx, c.Point, steps)
				if err != nil {
					return f, err
				}
				c.samples = append(c.samples, s)
			}
			ratios = append(ratios, start.samples[len(start.samples)-1].step/other.samples[len(other.samples)-1].step)
		}
		if f = compare(ratios); !f.open() {
			break
		}
	}
	return f, nil
}

// compare sums up ratios, of which there are at least LeastPairs.
func compare(ratios []float64) Faster {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	k := certainRank(n)
	return Faster{Ratio: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[k], Most: sorted[n-1-k], Pairs: n}
}

// certainRank is the highest rank, from 0, of which n values in order have one above the median of
// what they are drawn from by chance alone: that at most so many lie below it, each with a
// probability of one half (the sign test).
func certainRank(n int) int {
	exactly, atMost := 1.0, 0.0 // the probability that k values lie below, and at most k
	for range n {
		exactly /= 2
	}
	for k := 0; ; k++ {
		if atMost += exactly; atMost > chance {
			return max(0, k-1)
		}
		exactly *= float64(n-k) / float64(k+1)
	}
}
