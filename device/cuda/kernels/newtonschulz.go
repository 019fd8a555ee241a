package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() {
	add(WeightedSum)
	add(DivideByNorm)
}

var (
	weightedSum  = forAccess("newtonschulz", "weighted_sum")
	squareSums   = forAccess("newtonschulz", "square_sums")
	divideByNorm = forAccess("newtonschulz", "divide_by_norm")
)

const (
	pieceThreads = 256  // threads of a block
	pieceElems   = 16   // elements that a thread computes
	normSlices   = 1024 // most slices, each with a sum of squares
)

// WeightedSum launches op.WeightedSum.
func WeightedSum(l Launcher, a *op.WeightedSum) {
	if a.N == 0 {
		return
	}
	dt := a.D.DType
	wide := wideAt(a.D, a.X, a.Y) && a.N*dt.Size()%16 == 0
	p := l.Params().Tensor(a.D).Tensor(a.X).Tensor(a.Y).I64(a.N).F32(a.A).F32(a.B)
	l.Launch(weightedSum.of(wide, dt), line(ceilDiv(a.N, pieceThreads*pieceElems)), line(pieceThreads), 0, p)
}

// DivideByNorm launches op.DivideByNorm: a kernel that sums the squares of slices, then the one
// that divides.
func DivideByNorm(l Launcher, a *op.DivideByNorm) {
	if a.N == 0 {
		return
	}
	dt, block := a.X.DType, int64(pieceThreads*pieceElems)
	wide := wideAt(a.X) && a.N*dt.Size()%16 == 0
	each := ceilDiv(ceilDiv(a.N, normSlices), block) * block
	slices := ceilDiv(a.N, each)
	sums := l.Scratch(4*slices).Tensor(device.F32, 0, slices)
	l.Launch(squareSums.of(wide, dt), line(slices), line(pieceThreads), 0, l.Params().Tensor(sums).Tensor(a.X).I64(a.N).I64(each))
	p := l.Params().Tensor(a.X).Tensor(sums).I64(a.N).I32(int(slices)).F32(a.Eps)
	l.Launch(divideByNorm.of(wide, dt), line(ceilDiv(a.N, block)), line(pieceThreads), 0, p)
}
