package kernels

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

// TensorMap is what the units that copy tiles to shared memory need to know of a tensor; see
// Launcher.TensorMap.
type TensorMap [128]byte

// BoxColumns is how many columns a box of a TensorMap has: they fill the 128 bytes of a row that are
// swizzled.
const BoxColumns = 64

// TensorMap appends a tensor map.
func (p *Params) TensorMap(m TensorMap) *Params {
	p.align(64)
	p.Bytes = append(p.Bytes, m[:]...)
	return p
}

// hopper has the kernels for sm_90a, by the elements of a head.
var hopper = map[int]*attentionKernels{64: hopperFor(64), 128: hopperFor(128)}

// The rows of their tiles: of a block, and of the queries that go through the kernel of keys' gradients.
const hopperTile, hopperQueries = 128, 64

// hopperFor names the kernels. The forward has a tile of Q and two of K and of V in shared memory; dkdv one of
// K and of V and two of Q and of DO, with LSE and Delta; dq one of Q and DO and two of K and V; and
// each up to ten barriers of 8 bytes.
func hopperFor(dim int) *attentionKernels {
	tile, queries := hopperTile*dim*2, hopperQueries*(dim*2+4)
	kernel := func(module, op string, shared int) attentionKernel {
		return attentionKernel{Kernel{Module: fmt.Sprintf("%s_%d_sm90a", module, dim), Name: fmt.Sprintf("attention_sm90a_%s_d%d", op, dim), Shared: shared + 10*8},
			hopperTile, 384}
	}
	return &attentionKernels{dim, kernel("attention", "forward", 5*tile), kernel("attention_backward", "dkdv", 2*tile+4*queries),
		kernel("attention_backward", "dq", 6*tile)}
}

// Lacking is why no kernel for sm_90a takes some attention.
type Lacking string

// What no kernel for sm_90a takes.
const (
	LackingNothing Lacking = ""
	LackingF32     Lacking = "fp32"
	LackingCap     Lacking = "a cap on scores"
	LackingDim     Lacking = "heads of that size"
	LackingRows    Lacking = "rows that do not begin at multiples of 16 bytes"
)

// Of says it of heads of dim elements.
func (l Lacking) Of(dim int) string {
	return fmt.Sprintf("attention with heads of %d elements runs on the kernels for all GPUs, slower: those for sm_90a do not take %s", dim, string(l))
}

// LackingForSM90a is why no kernel for sm_90a takes attention with heads of dim elements, as far as these, their
// type and a cap on scores tell.
func LackingForSM90a(dim int, dt device.DType, capped bool) Lacking {
	switch {
	case dt != device.BF16:
		return LackingF32
	case capped:
		return LackingCap
	case hopper[dim] == nil:
		return LackingDim
	}
	return LackingNothing
}

// hopperKernels are the kernels for sm_90a that take s, whose tensors have rows that are strides elements apart.
// It is nil where the device has none, or none for s; what is then slower than it could be it tells the
// launcher.
func hopperKernels(l Launcher, s op.AttentionShape, strides []int, tensors ...device.Tensor) *attentionKernels {
	if !l.SM90a() || s.TQ == 0 || s.TK == 0 {
		return nil
	}
	lacking := LackingForSM90a(s.Dim, tensors[0].DType, s.Softcap > 0)
	if lacking == LackingNothing && !chunked(s.Dim, strides, tensors...) {
		lacking = LackingRows
	}
	if lacking != LackingNothing {
		l.Slower(lacking, s.Dim)
		return nil
	}
	return hopper[s.Dim]
}

// hopperForward computes a by a kernel for sm_90a, or returns false.
func hopperForward(l Launcher, a *op.Attention) bool {
	k := hopperKernels(l, a.AttentionShape, []int{a.QStride, a.KStride}, a.Q, a.K, a.V, a.O)
	if k == nil {
		return false
	}
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	q := l.TensorMap(a.Q, wide, a.TQ, a.QStride, hopperTile)
	keys, values := l.TensorMap(a.K, narrow, a.TK, a.KStride, hopperTile), l.TensorMap(a.V, narrow, a.TK, a.KStride, hopperTile)
	tensors := func(p *Params) *Params {
		return p.TensorMap(q).TensorMap(keys).TensorMap(values).Tensor(a.O).Tensor(a.LSE)
	}
	launchAttention(l, &k.forward, a.TQ, a.Heads, 2, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, attentionReads|attentionWrites)
	return true
}

// hopperBackward computes a by kernels for sm_90a, all but Delta, or returns false.
func hopperBackward(l Launcher, a *op.AttentionBackward) bool {
	k := hopperKernels(l, a.AttentionShape, []int{a.QStride, a.KStride, a.DQStride, a.DKStride}, a.Q, a.K, a.V, a.DO, a.DQ, a.DK, a.DV)
	if k == nil {
		return false
	}
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	keys, values := l.TensorMap(a.K, narrow, a.TK, a.KStride, hopperTile), l.TensorMap(a.V, narrow, a.TK, a.KStride, hopperTile)
	launch := func(k *attentionKernel, total, heads, products, rows, stride int, out ...device.Tensor) {
		q, do := l.TensorMap(a.Q, wide, a.TQ, a.QStride, rows), l.TensorMap(a.DO, wide, a.TQ, wide, rows)
		tensors := func(p *Params) *Params {
			p.TensorMap(q).TensorMap(keys).TensorMap(values).TensorMap(do)
			for _, t := range out {
				p.Tensor(t)
			}
			return p.Tensor(a.LSE).Tensor(a.Delta).I64(int64(stride))
		}
		launchAttention(l, k, total, heads, products, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, attentionReads|attentionWrites)
	}
	launch(&k.keys, a.TK, a.KVHeads, 4*a.Heads/max(a.KVHeads, 1), hopperQueries, a.DKStride, a.DK, a.DV)
	launch(&k.qs, a.TQ, a.Heads, 3, hopperTile, a.DQStride, a.DQ)
	return true
}
