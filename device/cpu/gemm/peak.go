package gemm

import (
	"time"

	"mt/base/parallel"
)

// peakRounds is how often a thread repeats the loop body in one measurement: for about a millisecond.
const peakRounds = 1 << 19

// PeakFLOPS measures how many FLOPs per second this number of threads reach together with fused multiply-adds of fp32
// registers: the limit of a product of fp32 factors. It returns the most of some measurements, which take a few tens of
// milliseconds; 0: the instruction set has no such loop.
func PeakFLOPS(threads int) (most float64) {
	if best.peak == nil {
		return 0
	}
	p := parallel.New(threads)
	defer p.Close()
	for range 20 {
		began := time.Now()
		p.Run(threads, func(int) { best.peak(peakRounds) })
		flops := float64(threads) * peakRounds * 2 * float64(best.peakElements)
		most = max(most, flops/time.Since(began).Seconds())
	}
	return most
}
