package kernels

import "mt/device/op"

func init() { add(Scale) }

var scale = forAccess("scale", "scale")

// scaleElems is the number of elements that a thread takes.
const scaleElems = 16

// Scale launches op.Scale.
func Scale(l Launcher, a *op.Scale) {
	const threads = 256
	if a.N == 0 {
		return
	}
	wide := wideAt(a.X) && a.N*a.X.DType.Size()%16 == 0
	l.Launch(scale.of(wide, a.X.DType), line(ceilDiv(a.N, threads*scaleElems)), line(threads), 0, l.Params().Tensor(a.X).I64(a.N).F32(a.Factor))
}
