package kernels

import "mt/device/op"

func init() { add(RoPE) }

var rope, ropePairs = forAccess("rope", "rope"), forAccess("rope", "ropepairs")

// RoPE launches op.RoPE.
func RoPE(l Launcher, a *op.RoPE) {
	const threads, heads = 256, 4 // most threads of a block; heads that a thread rotates
	half := a.Rotary / 2
	if a.T == 0 || a.Heads == 0 || half == 0 {
		return
	}
	dt := a.X.DType
	wide := wideAt(a.X, a.Cos, a.Sin) && wideBy(dt, a.Stride, a.Dim, half)
	chunks := half / chunkOf(wide, dt)
	items := chunks * int(ceilDiv(int64(a.Heads), heads))
	tokens := max(1, min(threads/items, a.T))
	sign := float32(1)
	if a.Inverse {
		sign = -1
	}
	p := l.Params().Tensor(a.X).Tensor(a.Cos).Tensor(a.Sin).Tensor(a.Pos).I64(int64(a.Stride)).I32(a.T).I32(a.Heads).I32(a.Dim)
	p.I32(half).I32(int(min(a.Cos.Len, a.Sin.Len)) / half).I32(chunks).I32(items).I32(tokens).F32(sign)
	grid := Dim3{uint32(ceilDiv(int64(a.T), int64(tokens))), uint32(ceilDiv(int64(items*tokens), threads)), 1}
	kernel := rope.of(wide, dt)
	if a.Interleaved {
		kernel = ropePairs.of(wide, dt)
	}
	l.Launch(kernel, grid, line(int64(warps(items*tokens, threads))), 0, p)
}
