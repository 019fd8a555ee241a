package gemm

import (
	"time"

	"mt/base/parallel"
)

// peakRounds is how often a loop body runs in one piece of a measurement, for about a quarter of a millisecond, and
// peakPieces the number of pieces for each thread. Free threads take pieces, like tasks of a product.
const peakRounds, peakPieces = 1 << 17, 16

// Peak returns a function that keeps the threads of p busy for a few milliseconds with fused multiply-adds of fp32
// registers, and how many FLOPs one call does. Its rate is the limit of a product of fp32 factors at that moment. The
// function is nil if the instruction set has no such loop.
func Peak(p *parallel.Pool) (run func(), flops float64) {
	if best.peak == nil {
		return nil, 0
	}
	pieces := p.Threads() * peakPieces
	return func() { p.Run(pieces, func(int) { best.peak(peakRounds) }) }, float64(pieces) * peakRounds * 2 * float64(best.peakElements)
}

// PeakFLOPS measures how many FLOPs per second this number of threads reach together in one call of Peak's function. It
// returns 0 if there is none.
func PeakFLOPS(threads int) float64 {
	p := parallel.New(threads)
	defer p.Close()
	run, flops := Peak(p)
	if run == nil {
		return 0
	}
	p.Run(threads, func(int) { best.peak(peakRounds) }) // starts the threads
	began := time.Now()
	run()
	return flops / time.Since(began).Seconds()
}
