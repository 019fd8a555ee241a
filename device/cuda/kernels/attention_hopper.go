package kernels

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

// TensorMap describes a tensor to the TMA unit, which copies tiles to shared memory (a
// CUtensorMap); see Launcher.TensorMap.
type TensorMap [128]byte

// SM90aDriver is the oldest safe driver for the kernels for sm_90a, by the CUDA version that it
// serves. The compilers of 12.1 and 12.2 misuse setmaxnreg (give_registers in CUDA C): threads of
// dkdv and dq get registers that were released, which kills the context. The script check.sh reads
// this line, and checks the compilers from this version on.
const SM90aDriver = 12040

// BoxColumns is the number of bf16 columns that one copy through a TensorMap takes. They fill the
// 128 bytes of a row in shared memory.
const BoxColumns = 64

// TensorMap appends a tensor map to a kernel's parameters, at a multiple of 64 bytes as the
// hardware requires.
func (p *Params) TensorMap(m TensorMap) *Params {
	p.align(64)
	p.Bytes = append(p.Bytes, m[:]...)
	return p
}

// TensorMaps appends several tensor maps.
func (p *Params) TensorMaps(all *[4]TensorMap) *Params {
	for i := range all {
		p.TensorMap(all[i])
	}
	return p
}

// hopper has the kernels for sm_90a by head size.
var hopper = map[int]*hopperKernels{64: hopperFor(64, 128, 128, 128), 128: hopperFor(128, 128, 128, 128), 192: hopperFor(192, 64, 64, 64), 256: hopperFor(256, 64, 64, 32)}

// hopperKernels are the attention kernels for compute capability 9.0 and one head dimension.
type hopperKernels struct {
	forward, keys, qs hopperKernel
	gradients         gradientKernel // all gradients at once; only for heads of 64 and 128 elements
}

type hopperKernel struct {
	attentionKernel
	across int // keys in a tile of the other operand, or queries if a block has keys
}

// hopperFor describes the kernels for heads of dim elements: the forward, dkdv (gradients of keys
// and values) and dq (gradient of queries). Their tiles have keys, dkdvKeys and dqKeys keys. Each
// kernel has up to ten barriers of 8 bytes, and these tiles in shared memory:
//
//   - forward: two of Q (one for heads of 256 elements), two of K and two of V, and 96 bytes for notes and further barriers
//   - dkdv: one of K and of V, two of Q and of DO, with LSE and Delta
//   - dq: one of Q and of DO, two of K and of V
//   - gradients: one of K and of V, two of Q, of DO and of dS, with LSE and Delta, and 48 bytes
func hopperFor(dim, keys, dkdvKeys, dqKeys int) *hopperKernels {
	const queries, dkdvQueries, all = 128, 64, 128
	tile := 8192 / dim // queries of a tile of gradients
	slots := 2
	if dim == 256 {
		slots = 1
	}
	kernel := func(module, op string, tile, across, rows, floats int) hopperKernel {
		k := Kernel{Module: fmt.Sprintf("%s_%d_sm90a", module, dim), Name: fmt.Sprintf("attention_sm90a_%s_d%d", op, dim), Shared: rows*dim*2 + floats*4 + 10*8, persistent: op == "forward"}
		return hopperKernel{attentionKernel{k, int64(tile), 384}, across}
	}
	return &hopperKernels{kernel("attention", "forward", queries, keys, slots*queries+4*keys, 24),
		kernel("attention_backward", "dkdv", dkdvKeys, dkdvQueries, 2*dkdvKeys+4*dkdvQueries, 4*dkdvQueries),
		kernel("attention_backward", "dq", queries, dqKeys, 2*queries+4*dqKeys, 0),
		gradientKernel{kernel("attention_gradients", "gradients", all, 0, 2*all+4*tile, 4*tile+all*tile+12).attentionKernel, tile}}
}

// Lacking is the reason why an attention runs on the kernels for all GPUs, although the GPU runs
// kernels for sm_90a (compute capability 9.0).
type Lacking string

// The properties of an attention that the kernels for sm_90a do not support.
const (
	LackingNothing Lacking = ""
	LackingF32     Lacking = "fp32"
	LackingCap     Lacking = "a cap on scores"
	LackingDim     Lacking = "heads of that size"
	LackingRows    Lacking = "rows that do not begin at multiples of 16 bytes"
)

// Of returns the reason as a sentence for the user, for heads of dim elements.
func (l Lacking) Of(dim int) string {
	return fmt.Sprintf("attention with heads of %d elements runs on the kernels for all GPUs, slower: those for sm_90a do not take %s", dim, string(l))
}

// LackingForSM90a returns the reason why there is no kernel for sm_90a for attention with heads of dim elements;
// LackingNothing: there is one. capped: the attention has a softcap. Only head dimension, type and softcap count here.
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

// hopperTakes returns the kernels for sm_90a that can compute attention of shape s; nil: the
// device, the shape or the alignment of the tensors rules them out. The distances between rows of
// the tensors are strides, in elements. If the device runs kernels for sm_90a and only the
// attention's properties rule them out, l.Slower is called, a note for the user.
func hopperTakes(l Launcher, s op.AttentionShape, strides []int, tensors ...device.Tensor) *hopperKernels {
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

// hopperForward launches a kernel for sm_90a that computes a, and returns true. If there is none
// for a, it returns false.
func hopperForward(l Launcher, a *op.Attention) bool {
	k := hopperTakes(l, a.AttentionShape, []int{a.QStride, a.KStride}, a.Q, a.K, a.V, a.O)
	if k == nil {
		return false
	}
	wide, narrow, f := a.Heads*a.Dim, a.KVHeads*a.Dim, &k.forward
	q := l.TensorMap(a.Q, wide, a.TQ, a.QStride, int(f.tile))
	keys, values := l.TensorMap(a.K, narrow, a.TK, a.KStride, f.across), l.TensorMap(a.V, narrow, a.TK, a.KStride, f.across)
	tensors := func(p *Params) *Params {
		return p.TensorMap(q).TensorMap(keys).TensorMap(values).Tensor(a.O).Tensor(a.LSE)
	}
	launchAttention(l, &f.attentionKernel, a.TQ, a.Heads, 2, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, attentionReads|attentionWrites)
	return true
}

// hopperMaps returns the tensor maps of Q, K, V and DO, with tiles of the given numbers of queries and keys.
func hopperMaps(l Launcher, a *op.AttentionBackward, queries, keys int) [4]TensorMap {
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	return [4]TensorMap{l.TensorMap(a.Q, wide, a.TQ, a.QStride, queries), l.TensorMap(a.K, narrow, a.TK, a.KStride, keys),
		l.TensorMap(a.V, narrow, a.TK, a.KStride, keys), l.TensorMap(a.DO, wide, a.TQ, wide, queries)}
}

// hopperBackward launches kernels for sm_90a that compute the gradients of a, and returns true;
// Delta must already be written. If there are none for a, it returns false.
func hopperBackward(l Launcher, a *op.AttentionBackward) bool {
	k := hopperTakes(l, a.AttentionShape, []int{a.QStride, a.KStride, a.DQStride, a.DKStride}, a.Q, a.K, a.V, a.DO, a.DQ, a.DK, a.DV)
	if k == nil {
		return false
	}
	if all := gradientsTake(a); all != nil {
		maps := hopperMaps(l, a, k.gradients.queries, int(k.gradients.tile))
		launchGradients(l, a, all, &k.gradients, func(p *Params) *Params { return p.TensorMaps(&maps) })
		return true
	}
	launch := func(k *attentionKernel, queries, keys, total, heads, products, stride int, out ...device.Tensor) {
		maps := hopperMaps(l, a, queries, keys)
		tensors := func(p *Params) *Params {
			p.TensorMaps(&maps)
			for _, t := range out {
				p.Tensor(t)
			}
			return p.Tensor(a.LSE).Tensor(a.Delta).I64(int64(stride))
		}
		launchAttention(l, k, total, heads, products, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, attentionReads|attentionWrites)
	}
	launch(&k.keys.attentionKernel, k.keys.across, int(k.keys.tile), a.TK, a.KVHeads, 4*a.Heads/max(a.KVHeads, 1), a.DKStride, a.DK, a.DV)
	launch(&k.qs.attentionKernel, int(k.qs.tile), k.qs.across, a.TQ, a.Heads, 3, a.DQStride, a.DQ)
	return true
}
