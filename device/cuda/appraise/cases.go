package appraise

import (
	"fmt"
	"strings"

	"mt/device"
	"mt/device/op"
)

// Case is one operation at one shape, whose time is to be predicted.
type Case struct {
	Name  string // name of the operation
	Shape string
	DType device.DType
	make  func(r *rig) device.Op
	// alike is a hint that saves emulating all thread blocks of a kernel. heads neighbouring blocks
	// do the same work for different heads. The sequence of all blocks repeats repeats times, once
	// for each sequence. nil: no such regularity. Count verifies the hint.
	alike func(kernel string) (heads, repeats int)
	// once says that every block must run exactly once, because kernels of the case read the
	// results of earlier ones.
	once bool
	// marks is for kernels whose thread blocks wait for each other. Such blocks take a ticket
	// (their turn) from a counter in device memory, and publish their progress in marks behind it.
	// The function returns where the address of that memory lies among the kernel's parameters, in
	// bytes; 0: the blocks do not wait.
	marks func(kernel string) int
}

// Size is the model size for which the cases are made.
type Size struct {
	Tokens, Width, Heads, KVHeads, MLP, Vocabulary, Experts int
	Lengths                                                 []int // sequence lengths in attention
}

// Full is about one layer of a model with 7 billion parameters, for 8192 tokens. Small is for tests: every operation
// has few thread blocks.
var (
	Full  = Size{8192, 4096, 32, 8, 14336, 32768, 128, []int{1024, 8192}}
	Small = Size{256, 512, 4, 2, 1024, 1024, 32, []int{128, 256}}
)

// Cases returns the operations, at the shapes of a model of size z, for which kernel times are
// predicted.
func Cases(z Size) []Case {
	out := z.attention()
	out = append(out, z.products()...)
	for _, dt := range []device.DType{device.BF16, device.F32} {
		out = append(out, z.norms(dt)...)
		out = append(append(out, z.elements(dt)...), z.recurrences(dt)...)
		out = append(out, z.losses(dt)...)
		out = append(out, z.rows(dt)...)
	}
	return append(out, z.experts()...)
}

func (z Size) attention() []Case {
	var out []Case
	for _, dim := range []int{64, 128} {
		for _, length := range z.Lengths {
			out = append(out, z.attend(device.BF16, dim, length, false), z.attend(device.BF16, dim, length, true))
		}
	}
	z.Tokens /= 4 // wide heads and fp32 are slow to emulate
	for _, dim := range []int{256, 512} {
		out = append(out, z.attend(device.BF16, dim, z.Lengths[0], false), z.attend(device.BF16, dim, z.Lengths[0], true))
	}
	return append(out, z.attend(device.F32, 128, z.Lengths[0], false), z.attend(device.F32, 128, z.Lengths[0], true))
}

// attend returns a case of attention over sequences of one length, with heads of dim elements.
func (z Size) attend(dt device.DType, dim, length int, backward bool) Case {
	heads := max(1, z.Width/dim)
	kv := max(1, heads*z.KVHeads/z.Heads)
	seqs := z.Tokens / length
	name := "Attention"
	if backward {
		name = "AttentionBackward"
	}
	c := Case{Name: name, Shape: fmt.Sprintf("%d × %d tokens, %d/%d heads of %d, %s", seqs, length, heads, kv, dim, dt), DType: dt}
	c.alike = func(kernel string) (int, int) {
		switch {
		case strings.Contains(kernel, "delta"), strings.Contains(kernel, "marks"), strings.Contains(kernel, "sm90a_forward"):
			return 1, 1
		case strings.Contains(kernel, "dkdv"), strings.Contains(kernel, "gradients"):
			return kv, seqs
		}
		return heads, seqs
	}
	c.marks = func(kernel string) int {
		if strings.Contains(kernel, "gradients") {
			return 8
		}
		return 0
	}
	c.make = func(r *rig) device.Op {
		T, wide, narrow := z.Tokens, heads*dim, kv*dim
		stride := wide + 2*narrow
		cu := r.integers(seqs+1, func(i int) int { return i * length })
		qkv := r.random(dt, T*stride)
		at := func(t device.Tensor, from int) device.Tensor { return t.Slice(int64(from), t.Len-int64(from)) }
		q, k, v := qkv, at(qkv, wide), at(qkv, wide+narrow)
		shape := op.AttentionShape{CuQ: cu, CuK: cu, Seqs: seqs, TQ: T, TK: T, MaxQ: length, MaxK: length, Heads: heads, KVHeads: kv, Dim: dim, Scale: 0.09}
		o, lse := r.random(dt, T*wide), r.random(device.F32, heads*T)
		if !backward {
			return &op.Attention{AttentionShape: shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: stride, KStride: stride}
		}
		d := r.random(dt, T*stride)
		var sums device.Tensor
		if dt == device.BF16 {
			sums = r.random(device.F32, shape.SumsLen())
		}
		return &op.AttentionBackward{AttentionShape: shape, DQ: d, DK: at(d, wide), DV: at(d, wide+narrow), DO: r.random(dt, T*wide), O: o, LSE: lse,
			Q: q, K: k, V: v, QStride: stride, KStride: stride, DQStride: stride, DKStride: stride, Delta: r.random(device.F32, heads*T), Sums: sums}
	}
	return c
}

// products returns cases of matrix products with a weight in bf16 and fp32, one product with 16
// rows, and one whose rows are not multiples of 16 bytes.
func (z Size) products() []Case {
	var out []Case
	for _, dt := range []device.DType{device.BF16, device.F32} {
		tokens := z.Tokens
		out = append(out, product(dt, tokens, z.Width, z.Width, false, true, false), product(dt, tokens, z.Width, z.Width, false, false, false),
			product(dt, z.Width, z.Width, tokens, true, false, true), product(dt, z.Width/4, z.Width/4, z.Width/4, false, true, false))
	}
	return append(out, product(device.BF16, 16, z.Width, z.Width, false, true, false), product(device.BF16, z.Tokens, z.Experts/2*2-1, z.Width, false, true, false))
}

func product(dt device.DType, m, n, k int, transA, transB, accumulate bool) Case {
	letters := map[bool]string{false: "n", true: "t"}
	shape := fmt.Sprintf("%d × %d × %d, %s%s, %s", m, n, k, letters[transA], letters[transB], dt)
	if accumulate {
		shape += " added to fp32"
	}
	return Case{Name: "MatMul", Shape: shape, DType: dt, make: func(r *rig) device.Op {
		o := &op.MatMul{M: m, N: n, K: k, TransA: transA, TransB: transB, A: r.random(dt, m*k), B: r.random(dt, k*n)}
		if accumulate {
			o.D = r.random(device.F32, m*n)
			o.C = o.D
		} else {
			o.D = r.random(dt, m*n)
		}
		return o
	}}
}

func (z Size) norms(dt device.DType) []Case {
	norm := func(rows, groups, dim int, residual, backward bool) Case {
		shape := fmt.Sprintf("%d × %d × %d, %s", rows, groups, dim, dt)
		if residual {
			shape += ", residual"
		}
		name := "RMSNorm"
		if backward {
			name = "RMSNormBackward"
		}
		return Case{Name: name, Shape: shape, DType: dt, make: func(r *rig) device.Op {
			n := groups * dim
			x, w, rstd := r.random(dt, rows*n), r.random(device.F32, dim), r.random(device.F32, rows*groups)
			if backward {
				return &op.RMSNormBackward{DX: r.random(dt, rows*n), DW: r.random(device.F32, dim), DY: r.random(dt, rows*n), X: x, W: w, RStd: rstd,
					Rows: rows, Groups: groups, Dim: dim, DXStride: n, DYStride: n, XStride: n, Add: residual}
			}
			o := &op.RMSNorm{Y: r.random(dt, rows*n), RStd: rstd, X: x, W: w, Rows: rows, Groups: groups, Dim: dim, XStride: n, YStride: n, Eps: 1e-6}
			if residual {
				o.Residual = r.random(dt, rows*n)
			}
			return o
		}}
	}
	return []Case{norm(z.Tokens, 1, z.Width, false, false), norm(z.Tokens, 1, z.Width, true, true), norm(z.Tokens, z.Heads, z.Width/z.Heads, false, false),
		norm(z.Tokens, z.Heads, z.Width/z.Heads, false, true)}
}
