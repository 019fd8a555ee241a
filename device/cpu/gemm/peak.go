package gemm

import (
	"time"

	"mt/base/parallel"
)

// peakRounds is how often a loop body runs in one piece of a measurement, for about a quarter of a millisecond, and
// peakPieces the number of pieces for each thread. Free threads take pieces, like tasks of a product.
const peakRounds, peakPieces = 1 << 17, 16

// PeakFLOPS measures how many FLOPs per second this number of threads reach together with fused multiply-adds of fp32
// registers in a few milliseconds: the limit of a product of fp32 factors at that moment. It returns 0 if the instruction
// set has no such loop.
func PeakFLOPS(threads int) float64 {
	if best.peak == nil {
		return 0
	}
	p := parallel.New(threads)
	defer p.Close()
	p.Run(threads, func(int) { best.peak(peakRounds) }) // starts the threads
	began := time.Now()
	p.Run(threads*peakPieces, func(int) { best.peak(peakRounds) })
	return float64(threads*peakPieces) * peakRounds * 2 * float64(best.peakElements) / time.Since(began).Seconds()
}
