package layers

import (
	"mt/device"
	"mt/device/op"
)

// newtonSchulz has the coefficients a, b and c of one iteration (see NewtonSchulz). The first step divides the matrix
// by its Frobenius norm or, if that is smaller, by eps. Source: torch.optim.Muon.
var newtonSchulz = struct{ a, b, c, eps float32 }{3.4445, -4.775, 2.0315, 1e-7}

// NewtonSchulz brings all singular values of x (rows, cols) act near 1, in place, and keeps its singular vectors. It
// divides x by its Frobenius norm and then computes, steps times,
//
//	g = x·xᵀ,   h = b·g + c·g·g,   x = a·x + h·x
//
// With more rows than columns it computes g = xᵀ·x and x = a·x + x·hᵀ, the same for the transposed matrix. Products
// are summed in fp32; g, h and x are rounded to x's type. ws is at least NewtonSchulzBytes of memory, with undefined
// content before and after. Source: torch.optim.Muon.
func NewtonSchulz(dev device.Device, s device.Stream, x device.Tensor, rows, cols, steps int, ws device.Mem) {
	k, n, mem := newtonSchulz, min(rows, cols), newtonSchulzMemory(x.DType, rows, cols, ws, false)
	op.Do(dev, s, op.DivideByNorm{X: x, N: int64(rows) * int64(cols), Eps: k.eps})
	tall := rows > cols
	for range steps {
		op.Do(dev, s, op.MatMul{M: n, N: n, K: max(rows, cols), TransA: tall, TransB: !tall, A: x, B: x, D: mem.gram})
		op.Do(dev, s, op.MatMul{M: n, N: n, K: n, A: mem.gram, B: mem.gram, D: mem.square})
		op.Do(dev, s, op.WeightedSum{D: mem.gram, X: mem.gram, Y: mem.square, N: int64(n) * int64(n), A: k.b, B: k.c})
		p := op.MatMul{M: rows, N: cols, K: n, A: mem.gram, B: x, D: mem.product}
		if tall {
			p.A, p.B, p.TransB = x, mem.gram, true
		}
		op.Do(dev, s, p)
		op.Do(dev, s, op.WeightedSum{D: x, X: x, Y: mem.product, N: int64(rows) * int64(cols), A: k.a, B: 1})
	}
}

// NewtonSchulzBytes returns the workspace of NewtonSchulz for a matrix (rows, cols) act, in bytes.
func NewtonSchulzBytes(act device.DType, rows, cols int) int64 {
	return newtonSchulzMemory(act, rows, cols, device.Mem{}, true).bytes
}

// NewtonSchulzFLOPs returns the FLOPs of the given number of steps.
func NewtonSchulzFLOPs(rows, cols, steps int) float64 {
	n, long := float64(min(rows, cols)), float64(max(rows, cols))
	return float64(steps) * (4*n*n*long + 2*n*n*n)
}

// newtonSchulzSpace is the workspace of NewtonSchulz with n = min(rows, cols): gram (n, n) act is first g and then h;
// square (n, n) f32 is g·g; product (rows, cols) f32 is h·x.
type newtonSchulzSpace struct {
	gram, square, product device.Tensor
	bytes                 int64
}

func newtonSchulzMemory(act device.DType, rows, cols int, ws device.Mem, dry bool) newtonSchulzSpace {
	n, a := min(rows, cols), allotter{mem: ws, dry: dry}
	m := newtonSchulzSpace{gram: a.take(act, n*n), square: a.take(device.F32, n*n), product: a.take(device.F32, rows*cols)}
	m.bytes = a.used
	return m
}
