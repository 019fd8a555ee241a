package kernels

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

// gradientKernels compute DQ, DK and DV of attention in one launch, for heads of up to dim
// elements. The large kernel runs if a thread block can have enough shared memory for it, otherwise
// the small one. Both add in the same order, so the bits are the same.
type gradientKernels struct {
	dim          int
	large, small gradientKernel
	round        attentionKernel // writes DQ from sums
}

type gradientKernel struct {
	attentionKernel
	queries int // in a tile
}

// attentionGradients are the kernels that compute all gradients of attention at once, sorted by head dimension.
var attentionGradients = []gradientKernels{
	gradientsFor(64, "gradients", 64, 2), gradientsFor(96, "gradients_small", 64, 1), gradientsFor(128, "gradients_small", 32, 2),
}

// gradientsFor describes the kernels for heads of dim elements. small names the smaller kernel;
// queries is its tile and buffers its number of buffers. Shared memory holds a tile of K, the
// buffers of Q, DO, LSE and Delta, two buffers of dS, and 64 bytes for numbers that all threads
// need.
func gradientsFor(dim int, small string, queries, buffers int) gradientKernels {
	module := fmt.Sprintf("attention_gradients_%d", dim)
	const keys = 128
	kernel := func(name string, queries, buffers int) gradientKernel {
		shared := keys*dim*2 + buffers*queries*(2*dim*2+8) + 2*keys*queries*2 + 64
		return gradientKernel{attentionKernel{Kernel{Module: module, Name: fmt.Sprintf("attention_%s_d%d", name, dim), Shared: shared}, keys, 256}, queries}
	}
	return gradientKernels{dim, kernel("gradients", 64, 2), kernel(small, queries, buffers), attentionKernel{Kernel{Module: module, Name: fmt.Sprintf("attention_round_d%d", dim)}, unit, 128}}
}

var attentionMarks = Kernel{Module: "attention_gradients_64", Name: "attention_marks"}

// unit is the number of consecutive queries of one head whose sums (of DQ) are kept together.
// Thread blocks add to a unit in a fixed order. Sequences are padded to whole units.
const unit = 16

// gradientsTake returns the kernels that compute all gradients of a in one launch, with five matrix
// products instead of seven; nil: there are none for a. Only the shape and the presence of Sums
// decide, so no bit depends on the device or on its free memory.
func gradientsTake(a *op.AttentionBackward) *gradientKernels {
	if a.Sums.None() || a.Q.DType != device.BF16 || !a.Summed() || a.TQ == 0 || a.TK == 0 {
		return nil
	}
	for i := range attentionGradients {
		if a.Dim <= attentionGradients[i].dim {
			return &attentionGradients[i]
		}
	}
	return nil
}

// gradients launches the kernel that computes all gradients of a; Delta must already be written. It
// returns false, and does nothing, if there is no such kernel for a.
func gradients(l Launcher, a *op.AttentionBackward) bool {
	k := gradientsTake(a)
	if k == nil {
		return false
	}
	g := &k.large
	if g.Shared > l.SharedBytes() {
		g = &k.small
	}
	launchGradients(l, a, k, g, func(p *Params) *Params { return p.Tensor(a.Q).Tensor(a.K).Tensor(a.V).Tensor(a.DO) })
	return true
}

// launchGradients launches g, and k's kernel that rounds the sums to DQ. The function inputs appends
// g's parameters for Q, K, V and DO. If Sums has room for some heads only, the kernels are launched
// for one group of heads after another.
func launchGradients(l Launcher, a *op.AttentionBackward, k *gradientKernels, g *gradientKernel, inputs func(*Params) *Params) {
	group, units := a.Heads/a.KVHeads, a.TQ/unit+a.Seqs
	some := min(int(a.Sums.Len)/(group*units*unit*k.dim), headsAtOnce(l.MostWork(a.Q.DType), a.KVHeads, 5*group, a.AttentionShape))
	some = int(ceilDiv(int64(a.KVHeads), ceilDiv(int64(a.KVHeads), int64(some)))) // split the heads evenly over the launches
	marks := l.Scratch(4*int64(1+units*group*some)).Tensor(device.I32, 0, int64(1+units*group*some))
	reads := chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K, a.V, a.DO)
	keyFlags, queryFlags := attentionFlags(reads, chunked(a.Dim, []int{a.DKStride}, a.DK, a.DV)), attentionFlags(reads, chunked(a.Dim, []int{a.DQStride}, a.DQ))
	for from := 0; from < a.KVHeads; from += some {
		n := min(some, a.KVHeads-from)
		l.Launch(&attentionMarks, line(ceilDiv(marks.Len, 256)), line(256), 0, l.Params().Tensor(marks).I32(int(marks.Len)))
		p := inputs(l.Params().Tensor(a.Sums).Tensor(marks).Tensor(a.DK).Tensor(a.DV)).Tensor(a.LSE).Tensor(a.Delta)
		launchHeads(l, &g.attentionKernel, a.TK, from, n, p.I64(int64(a.DKStride)), a.AttentionShape, a.QStride, a.KStride, keyFlags)
		p = l.Params().Tensor(a.DQ).Tensor(a.Sums).Tensor(marks).I64(int64(a.DQStride)).I32(g.queries)
		launchHeads(l, &k.round, a.TQ, from*group, n*group, p, a.AttentionShape, a.QStride, a.KStride, queryFlags)
	}
}
