package tune

import (
	"context"
	"slices"
)

// LeastPairs is the smallest number of pairs of runs that can show a difference. One given plan wins all of six pairs
// by chance once in 64 times.
const LeastPairs = 6

// looks is how often the pairs are evaluated: after the first n pairs and, while the result is open, after each
// further n. Each look may be wrong with probability chance (1/60), so all three together with at most 1/20.
const looks, chance = 3, 0.05 / looks

// Faster says how much faster one plan is than another, from paired runs.
type Faster struct {
	// Ratio is the median of step time of the start / step time of the other plan.
	Ratio float64 `json:"ratio"`
	// Least and Most are order statistics of the pairs' ratios. Whatever the noise, the true median is below Least with
	// probability at most 1/60, and above Most with probability at most 1/60.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Pairs int     `json:"pairs"`
}

// Certain reports whether the other plan is faster than the start, beyond chance.
func (f Faster) Certain() bool { return f.Least > 1 }

// open reports whether the other plan seems faster than the start but more pairs are needed to prove it.
func (f Faster) open() bool { return !f.Certain() && f.Ratio > 1+alike }

// pair compares two plans. It runs start and other alternately, n times each, for steps steps a run; every second pair
// begins with other. While the result is open, it does so again, up to looks times in all. Before it does so again it
// calls `more`, unless more is nil.
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

// compare returns what the ratios of at least LeastPairs pairs show. Each ratio is the step time of the start / the
// step time of the other plan.
func compare(ratios []float64) Faster {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	k := certainRank(n)
	return Faster{Ratio: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[k], Most: sorted[n-1-k], Pairs: n}
}

// certainRank returns the highest rank, from 0, at which a value among n sorted samples exceeds the true median with
// probability at most chance. It is the sign test: each sample lies below the median with probability 1/2.
func certainRank(n int) int {
	exactly, atMost := 1.0, 0.0 // P(exactly k samples below), P(at most k below)
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
