package bench

import (
	"fmt"
	"slices"
	"time"
)

// Sample summarizes repeated measurements of one quantity.
type Sample struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// String returns the median with its range.
func (s Sample) String() string { return fmt.Sprintf("%.2f [%.2f–%.2f]", s.Median, s.Min, s.Max) }

// orDash returns s.String, or "-" for a quantity that was not measured.
func (s *Sample) orDash() string {
	if s == nil {
		return "-"
	}
	return s.String()
}

// Summarize returns the median and range of values; the zero Sample if there are no values.
func Summarize(values []float64) Sample {
	if len(values) == 0 {
		return Sample{}
	}
	return Sample{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values)}
}

// Median returns the median of values. For an even number it returns the mean of the two middle values, for none 0. It
// does not modify values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Alternate runs all contestants in turns, first in one round that does not count and then in the given number of
// rounds. It returns the times of each contestant by round. The contestants take turns in beginning a round.
func Alternate(rounds int, contestants ...func()) [][]time.Duration {
	took := make([][]time.Duration, len(contestants))
	for round := -1; round < rounds; round++ {
		for i := range contestants {
			n := (i + round + 1) % len(contestants)
			start := time.Now()
			contestants[n]()
			if d := time.Since(start); round >= 0 {
				took[n] = append(took[n], d)
			}
		}
	}
	return took
}

// Rates returns amount, the work of one run, divided by the time of each run in seconds.
func Rates(amount float64, times []time.Duration) []float64 {
	rates := make([]float64, len(times))
	for i, t := range times {
		rates[i] = amount / t.Seconds()
	}
	return rates
}

// beside returns a summary of the peer's rates (of) and a summary of the ratios of mt's rate to the
// peer's rate in the same round.
func beside(ours, peer []float64) (of, ratio *Sample) {
	p, r := Summarize(peer), Summarize(Ratios(ours, peer))
	return &p, &r
}

// Ratios divides each element of over by the element of under with the same index, which comes from the same round.
func Ratios(over, under []float64) []float64 {
	out := make([]float64, len(over))
	for i := range out {
		out[i] = over[i] / under[i]
	}
	return out
}
