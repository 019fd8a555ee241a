package kernels

import "mt/device/op"

func init() {
	add(Sinks)
	add(SinksGrad)
}

var (
	sinks      = forAccess("sinks", "sinks")
	sinksSlice = Kernel{Module: "sinks", Name: "sinks_slice"}
)

// Sinks launches op.Sinks.
func Sinks(l Launcher, a *op.Sinks) {
	if a.T == 0 || a.Heads == 0 {
		return
	}
	wide := wideAt(a.O) && wideBy(a.O.DType, a.Dim) // a chunk belongs to one head
	threads := warps(a.Heads*a.Dim/chunkOf(wide, a.O.DType), 256)
	p := l.Params().Tensor(a.O).Tensor(a.LSE).Tensor(a.Sinks).I64(int64(a.T)).I32(a.Heads).I32(a.Dim)
	l.Launch(sinks.of(wide, a.O.DType), line(int64(a.T)), line(int64(threads)), 0, p)
}

// SinksGrad launches op.SinksGrad: first sums over slices of the rows, then the sum of the slices. The slices do not
// depend on the number of heads, so a subset of heads gets the same bits as all heads together.
func SinksGrad(l Launcher, a *op.SinksGrad) {
	const threads, leastRows, mostSlices = 256, 1024, 64
	if a.T == 0 || a.Heads == 0 {
		return
	}
	part, slices, each := slicesOf(l, int64(a.T), int64(a.Heads), leastRows, mostSlices)
	p := l.Params().Tensor(part).Tensor(a.LSE).Tensor(a.Delta).Tensor(a.Sinks).I64(int64(a.T)).I32(a.Heads).I32(each)
	l.Launch(&sinksSlice, Dim3{uint32(a.Heads), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, a.DSinks, part, slices, a.Heads)
}
