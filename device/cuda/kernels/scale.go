package kernels

import "mt/device/op"

func init() { add(Scale) }

var scale, scaleBlock = forAccess("scale", "scale"), forAccess("scale", "scale_block")

// scaleElems is the number of elements that one thread multiplies.
const scaleElems = 16

// Scale launches op.Scale.
func Scale(l Launcher, a *op.Scale) {
	const threads = 256
	if a.N == 0 {
		return
	}
	if a.Rows > 0 {
		wide := wideAt(a.X) && wideBy(a.X.DType, int(a.N)) && wideBy(a.X.DType, a.Stride)
		grid, block := columnBlocks(a.Rows, int(a.N), scaleElems, threads)
		l.Launch(scaleBlock.of(wide, a.X.DType), grid, block, 0, l.Params().Tensor(a.X).I32(int(a.N)).I32(a.Stride).F32(a.Factor))
		return
	}
	wide := wideAt(a.X) && a.N*a.X.DType.Size()%16 == 0
	l.Launch(scale.of(wide, a.X.DType), line(ceilDiv(a.N, threads*scaleElems)), line(threads), 0, l.Params().Tensor(a.X).I64(a.N).F32(a.Factor))
}
