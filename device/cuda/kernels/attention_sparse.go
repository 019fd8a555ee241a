package kernels

import (
	"fmt"

	"mt/device"
	"mt/device/op"
)

func init() {
	op.Add(&Operations, func(l Launcher, a *op.SparseAttention) error { return sparseAttention(l, a) })
	op.Add(&Operations, func(l Launcher, a *op.SparseAttentionBackward) error {
		return sparseAttentionBackward(l, a, sparseBlocks)
	})
}

// Limits of the kernels of sparse attention and sizes, as the CUDA C files have them: the most elements of a key's row and
// of its value, threads, and rows of a grain.
const MaxSparseDim, MaxSparseValues, sparseThreads, sparseGrain = 576, 512, 256, 32

// sparseKernels are the kernels of sparse attention of a compute dtype. A block has some heads of a query.
type sparseKernels struct {
	heads                       int
	forward, queries, keys, sum Kernel
}

// sparseFor has the kernels of each compute dtype. Shared memory holds tiles of rows, sums that warps exchange, weights,
// and a word a warp. For the gradient of keys, it also holds a list of rows.
var sparseFor = [2]sparseKernels{
	device.F32: sparseOf("attention_sparse_f32", "f32", 16, 89824, 89824, 91872),
	device.BF16: sparseOf("attention_sparse", "bf16", 32, 2*32*2*MaxSparseDim+8<<10+32, 2*32*2*MaxSparseDim+26<<10+32,
		32*2*(MaxSparseDim+MaxSparseValues)+28<<10+8*sparseThreads+32),
}

func sparseOf(module, dt string, heads, forward, queries, keys int) sparseKernels {
	kernel := func(name string, shared int) Kernel {
		return Kernel{Module: module, Name: fmt.Sprintf("attention_sparse_%s_%s", name, dt), Shared: shared}
	}
	return sparseKernels{heads, kernel("forward", forward), kernel("dq", queries), kernel("dk", keys), kernel("sum", 0)}
}

// sparseParams appends the parameters that all kernels have after their tensors.
func sparseParams(p *Params, s *op.SparseShape, qStride, kStride, flags int) *Params {
	p.Tensors(s.Keys, s.CuQ, s.CuK).I32(s.Seqs).I32(s.Heads).I32(s.Dim).I32(s.Values).I32(s.TopK).I64(int64(s.TQ)).I64(int64(qStride)).I64(int64(kStride))
	return p.F32(s.Scale).I32(flags)
}

// sparseQueries launches a kernel for all queries, whose blocks have some heads of a query. One launch has at most
// MostWork. The function first appends the tensors.
func sparseQueries(l Launcher, k *Kernel, s *op.SparseShape, dt device.DType, heads int, products float64, first func() *Params, qStride, kStride, flags int) {
	some := s.TQ
	if most, each := l.MostWork(dt), products*2*float64(min(s.TopK, s.MaxK))*float64(s.Heads)*float64(s.Dim); most > 0 && each > 0 {
		some = int(min(max(most/each, 1), float64(s.TQ)))
	}
	for from := 0; from < s.TQ; from += some {
		blocks := int64(min(some, s.TQ-from)) * ceilDiv(int64(s.Heads), int64(heads))
		l.Launch(k, line(blocks), line(sparseThreads), k.Shared, sparseParams(first().I32(from), s, qStride, kStride, flags))
	}
}

func sparseFits(s *op.SparseShape) error {
	if s.Dim > MaxSparseDim || s.Values > MaxSparseValues {
		return fmt.Errorf("keys' rows of %d elements with %d of the value: the kernels take at most %d and %d", s.Dim, s.Values, MaxSparseDim, MaxSparseValues)
	}
	return nil
}

// sparseAttention launches op.SparseAttention.
func sparseAttention(l Launcher, a *op.SparseAttention) error {
	if err := sparseFits(&a.SparseShape); err != nil || a.TQ == 0 || a.Seqs == 0 {
		return err
	}
	k := &sparseFor[a.Q.DType]
	wide := a.Values%8 == 0 && chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K)
	sparseQueries(l, &k.forward, &a.SparseShape, a.Q.DType, k.heads, 2, func() *Params { return l.Params().Tensors(a.O, a.LSE, a.Q, a.K) },
		a.QStride, a.KStride, attentionFlags(wide, chunked(a.Values, nil, a.O)))
	return nil
}

// sparseBlocks is the number of blocks for the gradient of keys, about as many as a large GPU runs at a time.
const sparseBlocks = 132

// sparseAttentionBackward launches op.SparseAttentionBackward: DELTA, DQ, the sums of each range of queries, and DK. The
// sums take about the given number of blocks, which changes no bit.
func sparseAttentionBackward(l Launcher, a *op.SparseAttentionBackward, blocks int) error {
	if err := sparseFits(&a.SparseShape); err != nil || a.Seqs == 0 || a.TK == 0 {
		return err
	}
	k, dt := &sparseFor[a.Q.DType], a.Q.DType
	flags := attentionFlags(a.Values%8 == 0 && chunked(a.Dim, []int{a.QStride, a.KStride}, a.Q, a.K, a.DO), chunked(a.Dim, []int{a.DQStride}, a.DQ))
	if a.TQ > 0 {
		attentionDeltas(l, a.Delta, a.O, a.DO, a.TQ, a.Heads, a.Values)
		sparseQueries(l, &k.queries, &a.SparseShape, dt, k.heads, 3, func() *Params {
			return l.Params().Tensors(a.DQ, a.DO, a.LSE, a.Delta).I64(int64(a.DQStride)).Tensors(a.Q, a.K)
		}, a.QStride, a.KStride, flags)
	}
	ranges := a.Ranges()
	segments := int(min(ceilDiv(int64(a.TK), sparseGrain), int64(max(1, blocks/ranges))))
	p := l.Params().Tensors(a.Sums, a.DO, a.LSE, a.Delta).I64(int64(a.TK)).I32(segments).Tensors(a.Q, a.K).I32(ranges)
	l.Launch(&k.keys, line(int64(segments*ranges)), line(sparseThreads), k.keys.Shared, sparseParams(p, &a.SparseShape, a.QStride, a.KStride, flags))
	p = l.Params().Tensors(a.DK, a.Sums).I64(int64(a.DKStride)).I32(ranges).I64(int64(a.TK)).I32(a.Dim).Tensor(a.CuK).I32(a.Seqs)
	l.Launch(&k.sum, line(ceilDiv(int64(a.TK), sparseThreads/32)), line(sparseThreads), 0, p)
	return nil
}
