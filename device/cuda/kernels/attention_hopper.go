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

// hopperTile is how many queries, or keys, a tile of the kernels for sm_90a has.
const hopperTile = 128

// hopperForward are the forward kernels for sm_90a, by the elements of a head.
var hopperForward = map[int]*attentionKernel{64: hopperForwardFor(64), 128: hopperForwardFor(128)}

// hopperForwardFor names a kernel, whose shared memory has a tile of Q, two of K and of V, and barriers.
func hopperForwardFor(dim int) *attentionKernel {
	const barriers = 10 * 8
	return &attentionKernel{Kernel{Module: fmt.Sprintf("attention_%d_sm90a", dim), Name: fmt.Sprintf("attention_sm90a_forward_d%d", dim),
		Shared: 5*hopperTile*dim*2 + barriers}, hopperTile, 384}
}

// LackingForSM90a names attention that no kernel for sm_90a takes, by the elements of a head, its type and
// whether scores have a cap; it is empty where there is one.
func LackingForSM90a(dim int, dt device.DType, capped bool) string {
	switch {
	case dt != device.BF16:
		return "attention in fp32"
	case capped:
		return "attention with a cap on scores"
	case hopperForward[dim] == nil:
		return fmt.Sprintf("attention with heads of %d elements", dim)
	}
	return ""
}

// hopperAttention computes a by the kernels for sm_90a. It returns false where the device has none, or
// none for a; what is then slower than it could be it tells the launcher.
func hopperAttention(l Launcher, a *op.Attention) bool {
	if !l.SM90a() || a.TK == 0 {
		return false
	}
	lacking := LackingForSM90a(a.Dim, a.Q.DType, a.Softcap > 0)
	if lacking == "" && !chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K, a.V, a.O) {
		lacking = "attention on rows that do not begin at multiples of 16 bytes"
	}
	if lacking != "" {
		l.Slower(lacking)
		return false
	}
	launchHopper(l, hopperForward[a.Dim], a)
	return true
}

func launchHopper(l Launcher, k *attentionKernel, a *op.Attention) {
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	q := l.TensorMap(a.Q, wide, a.TQ, a.QStride, hopperTile)
	keys, values := l.TensorMap(a.K, narrow, a.TK, a.KStride, hopperTile), l.TensorMap(a.V, narrow, a.TK, a.KStride, hopperTile)
	tensors := func(p *Params) *Params {
		return p.TensorMap(q).TensorMap(keys).TensorMap(values).Tensor(a.O).Tensor(a.LSE)
	}
	launchAttention(l, k, a.TQ, a.Heads, 2, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, attentionFlags(true, true))
}
