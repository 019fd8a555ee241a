package kernels

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

func init() {
	op.Add(&Operations, func(l Launcher, a *op.Attention) error { return within(MaxHeadDim, a.Dim, func() { Attention(l, a) }) })
	op.Add(&Operations, func(l Launcher, a *op.AttentionBackward) error {
		return within(MaxHeadDim, a.Dim, func() { AttentionBackward(l, a) })
	})
}

// MaxHeadDim is the largest Dim of Attention and AttentionBackward.
const MaxHeadDim = 512

func within(most, dim int, launch func()) error {
	if dim > most {
		return fmt.Errorf("heads of %d elements: the kernels take at most %d", dim, most)
	}
	launch()
	return nil
}

// attentionKernels are the kernels for heads of up to dim elements. Tile sizes (queries or keys of
// a thread block) and thread counts here must match the CUDA C files.
type attentionKernels struct {
	dim               int
	forward, keys, qs attentionKernel // keys: gradients of keys and values; qs: gradient of queries
}

type attentionKernel struct {
	Kernel
	tile    int64 // queries or keys that a block works on
	threads uint32
}

// attentionBF16 describes the bf16 kernels for heads of up to dim elements. name is attention, or attention_cap with
// a softcap. The other arguments are sizes of tiles in rows, and of shared
// memory in bytes. The forward's shared memory holds the queries and two buffers of K or V. It copies a tile of keys
// in parts parts.
func attentionBF16(name string, dim, queries, keys, parts, dkdvKeys, dkdvShared, dqQueries, dqThreads, dqShared int) attentionKernels {
	module := fmt.Sprintf("%s_%d", name, dim)
	kernel := func(op string, tile, threads, shared int) attentionKernel {
		return attentionKernel{Kernel{Module: module, Name: fmt.Sprintf("%s_%s_d%d", name, op, dim), Shared: shared}, int64(tile), uint32(threads)}
	}
	return attentionKernels{dim, kernel("forward", queries, 128, (queries+2*keys/parts)*dim*2), kernel("dkdv", dkdvKeys, 256, dkdvShared),
		kernel("dq", dqQueries, dqThreads, dqShared)}
}

func attentionF32(name string, dim int) attentionKernels {
	const operands, square = 2 * 64 * 33 * 4, 64 * 65 * 4
	module := fmt.Sprintf("%s_f32_%d", name, dim)
	kernel := func(op string, shared int) attentionKernel {
		return attentionKernel{Kernel{Module: module, Name: fmt.Sprintf("%s_%s_f32_d%d", name, op, dim), Shared: shared}, 64, 256}
	}
	return attentionKernels{dim, kernel("forward", operands+square), kernel("dkdv", operands+2*square), kernel("dq", operands+square)}
}

// attentionFor has the kernels of each compute dtype, sorted by head dimension. cappedFor has kernels with a softcap,
// for fewer dimensions, because models with a softcap have wide heads.
//
// The shared memory of dkdv holds V's tile, one or two buffers of Q, DO, LSE and Delta, and 32 bytes. It also holds
// K's tile if registers have no room for the tile. The shared memory of dq holds two buffers of K and V, or one
// buffer and Q and DO.
var (
	attentionFor = [2][]attentionKernels{
		device.F32: {attentionF32("attention", 32), attentionF32("attention", 64), attentionF32("attention", 128), attentionF32("attention", 256), attentionF32("attention", 512)},
		device.BF16: {
			attentionBF16("attention", 64, 128, 64, 1, 128, 128*64*2+2*(128*64*2+512)+32, 128, 256, 2*128*64*2),
			attentionBF16("attention", 96, 128, 64, 1, 128, 128*96*2+2*(128*96*2+512)+32, 128, 256, 2*128*96*2),
			attentionTo128("attention"), attentionTo256("attention"), attentionTo512("attention"),
		},
	}
	cappedFor = [2][]attentionKernels{
		device.F32:  {attentionF32("attention_cap", 128), attentionF32("attention_cap", 256), attentionF32("attention_cap", 512)},
		device.BF16: {attentionTo128("attention_cap"), attentionTo256("attention_cap"), attentionTo512("attention_cap")},
	}
)

func attentionTo128(name string) attentionKernels {
	return attentionBF16(name, 128, 128, 64, 2, 128, 128*128*2+2*(128*128*2+512)+32, 128, 256, 2*128*128*2)
}

func attentionTo256(name string) attentionKernels {
	return attentionBF16(name, 256, 64, 64, 4, 64, 2*64*256*2+64*256*2+256+32, 64, 128, 2*64*256*2+64*256*2)
}

// attentionTo512 returns the kernels whose warps share rows. The forward's shared memory holds a tile of K and of V,
// the products that two warps exchange, and two steps of Q. The gradients' holds two stages of two operands with LSE
// and Delta, the parts of sums that four warps exchange, P and dS, and 32 bytes.
func attentionTo512(name string) attentionKernels {
	const dim, queries, keys, rows, columns, threads = 512, 64, 32, 32, 16, 256
	const gradients = 2*columns*(2*dim*2+8) + threads*(4*16+8) + 32
	k := attentionBF16(name, dim, queries, keys, 1, rows, gradients, rows, threads, gradients)
	k.forward.threads, k.forward.Shared = threads, 2*keys*dim*2+2*queries*keys*4+threads*2*16
	return k
}

var attentionDelta = forTypes("attention_delta", "attention_delta", 0)

func attentionPick(s op.AttentionShape, dt device.DType) *attentionKernels {
	kernels := attentionFor[dt]
	if s.Softcap > 0 {
		kernels = cappedFor[dt]
	}
	for i := range kernels {
		if s.Dim <= kernels[i].dim {
			return &kernels[i]
		}
	}
	panic(fmt.Sprintf("kernels: attention heads of %d elements, at most %d", s.Dim, MaxHeadDim))
}

// Bits of the last parameter of the attention kernels, called vector in CUDA C.
const (
	attentionReads  = 1 << iota // inputs may be read 16 bytes at a time
	attentionWrites             // outputs may be written 16 bytes at a time
)

// chunked reports whether the tensors can be accessed 16 bytes at a time. For that, heads of dim
// bf16 elements, strides (distances between rows, in elements) and addresses must all be multiples
// of 16 bytes.
func chunked(dim int, strides []int, tensors ...device.Tensor) bool {
	ok := dim%8 == 0
	for _, s := range strides {
		ok = ok && s%8 == 0
	}
	for _, t := range tensors {
		ok = ok && t.Addr%16 == 0
	}
	return ok
}

func attentionFlags(reads, writes bool) (flags int) {
	if reads {
		flags |= attentionReads
	}
	if writes {
		flags |= attentionWrites
	}
	return flags
}

// launchAttention enqueues the kernel k for all heads; total is the number of queries or keys that
// it tiles. If one launch would exceed the launcher's MostWork, it splits the heads over several
// launches. A head needs products matrix products. The function first appends the parameters before
// the shape's. The split changes no bit, because no sum is over heads of two launches.
func launchAttention(l Launcher, k *attentionKernel, total, heads, products int, first func(p *Params) *Params, s op.AttentionShape, dt device.DType, qStride, kStride, flags int) {
	some := headsAtOnce(l.MostWork(dt), heads, products, s)
	for from := 0; from < heads; from += some {
		launchHeads(l, k, total, from, min(some, heads-from), first(l.Params()), s, qStride, kStride, flags)
	}
}

// headsAtOnce returns how many heads one launch may have with at most most FLOPs; most 0: all
// heads. A matrix product counts as 2·queries·keys·Dim FLOPs. That is an upper bound: how many keys
// each query sees is not known on the host.
func headsAtOnce(most float64, heads, products int, s op.AttentionShape) int {
	seen := s.MaxK
	if s.Window > 0 {
		seen = min(seen, s.Window)
	}
	each := 2 * float64(products) * float64(s.TQ) * float64(seen) * float64(s.Dim)
	if most == 0 || each == 0 {
		return heads
	}
	return int(min(max(most/each, 1), float64(heads)))
}

// launchHeads enqueues the kernel k for some consecutive heads, beginning with head from.
func launchHeads(l Launcher, k *attentionKernel, total, from, some int, params *Params, s op.AttentionShape, qStride, kStride, flags int) {
	window := s.Window
	if window >= s.TK {
		window = 0 // no limit: a position minus a window still fits in 32 bits
	}
	params.Tensor(s.CuQ).Tensor(s.CuK).I32(s.Seqs).I32(s.Heads).I32(s.KVHeads).I32(s.Dim).I32(window).I32(from).I32(some).I64(int64(s.TQ))
	params.I64(int64(qStride)).I64(int64(kStride)).F32(s.Scale).I32(flags)
	if s.Softcap > 0 {
		params.F32(s.Softcap).F32(s.Scale / s.Softcap)
	}
	blocks := (int64(total)/k.tile + int64(s.Seqs)) * int64(some)
	if most := l.Processors(); k.persistent && most > 0 {
		blocks = min(blocks, int64(most))
	}
	l.Launch(&k.Kernel, Dim3{uint32(blocks), 1, 1}, Dim3{k.threads, 1, 1}, k.Shared, params)
}

// Attention launches op.Attention. It overwrites O and LSE. Scale must be above 0, and Dim at most
// MaxHeadDim.
func Attention(l Launcher, a *op.Attention) {
	if a.TQ == 0 || a.Seqs == 0 {
		return
	}
	if hopperForward(l, a) {
		return
	}
	k := attentionPick(a.AttentionShape, a.Q.DType)
	tensors := func(p *Params) *Params { return p.Tensor(a.O).Tensor(a.LSE).Tensor(a.Q).Tensor(a.K).Tensor(a.V) }
	flags := attentionFlags(chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K, a.V), chunked(a.Dim, nil, a.O))
	launchAttention(l, &k.forward, a.TQ, a.Heads, 2, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, flags)
}

// AttentionBackward launches op.AttentionBackward. It overwrites DQ, DK, DV, Delta and Sums. Scale
// must be above 0, and Dim at most MaxHeadDim.
func AttentionBackward(l Launcher, a *op.AttentionBackward) {
	if a.Seqs == 0 {
		return
	}
	if a.TQ > 0 {
		attentionDeltas(l, a.Delta, a.O, a.DO, a.TQ, a.Heads, a.Dim)
	}
	if hopperBackward(l, a) || gradients(l, a) {
		return
	}
	k := attentionPick(a.AttentionShape, a.Q.DType)
	inputs := func(p *Params) *Params {
		return p.Tensor(a.Q).Tensor(a.K).Tensor(a.V).Tensor(a.DO).Tensor(a.LSE).Tensor(a.Delta)
	}
	reads := chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K, a.V, a.DO)
	if a.TK > 0 {
		tensors := func(p *Params) *Params { return inputs(p.Tensor(a.DK).Tensor(a.DV)).I64(int64(a.DKStride)) }
		flags := attentionFlags(reads, chunked(a.Dim, []int{a.DKStride}, a.DK, a.DV))
		launchAttention(l, &k.keys, a.TK, a.KVHeads, 4*a.Heads/max(a.KVHeads, 1), tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, flags)
	}
	if a.TQ > 0 {
		tensors := func(p *Params) *Params { return inputs(p.Tensor(a.DQ)).I64(int64(a.DQStride)) }
		flags := attentionFlags(reads, chunked(a.Dim, []int{a.DQStride}, a.DQ))
		launchAttention(l, &k.qs, a.TQ, a.Heads, 3, tensors, a.AttentionShape, a.Q.DType, a.QStride, a.KStride, flags)
	}
}

// attentionDeltas launches the kernel that writes Delta, the sum Σ DO·O of each query and head.
func attentionDeltas(l Launcher, delta, o, do device.Tensor, tq, heads, dim int) {
	const threads, rows = 256, 16 // rows of one head in a block
	p := l.Params().Tensors(delta, o, do).I64(int64(tq)).I32(heads).I32(dim).Bool(chunked(dim, nil, o, do))
	blocks := ceilDiv(int64(tq)*int64(heads), rows)
	l.Launch(&attentionDelta[o.DType], Dim3{uint32(blocks), 1, 1}, Dim3{threads, 1, 1}, 0, p)
}
