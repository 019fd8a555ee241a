package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

func init() { op.Replace(&table, matMul) }

// matMul computes a product with cuBLASLt, or with mt's own kernels if cuBLASLt is absent or
// refuses the product. If the result is bf16, cuBLASLt wants the bias in bf16 too, so the bias is
// rounded once more.
func matMul(on kernels.Launcher, m *op.MatMul) error {
	l := on.(*launcher)
	d := l.stream.dev
	if m.M == 0 || m.N == 0 {
		return nil
	}
	biased := !m.Bias.None() && (m.D.DType == device.BF16 || m.Bias.Addr%biasAlign != 0)
	if d.blas.lib == nil && !d.opts.OwnMatMul {
		d.own.Add(1)
	}
	if d.blas.lib == nil || m.K == 0 || biased && m.D.DType.Size()*int64(m.N) > biasBytes {
		kernels.MatMul(l, m)
		return nil
	}
	p := *m
	if biased {
		p.Bias = l.memory(kernels.ScratchBytes, m.D.DType.Size()*int64(m.N), biasBytes).Tensor(m.D.DType, 0, int64(m.N))
		kernels.Convert(l, &op.Convert{Dst: p.Bias, Src: m.Bias, N: int64(m.N)})
	}
	workspace := l.memory(0, kernels.ScratchBytes, kernels.ScratchBytes)
	if l.err != nil {
		return l.err
	}
	err := d.blas.run(&p, workspace, l)
	switch {
	case errors.Is(err, errRefused):
		d.own.Add(1)
		d.noteOnce("products", fmt.Sprintf("%v: mt's own kernels compute such products", err))
		if takeable(&p) {
			d.fallBack(keyOf(&p).String())
		}
		kernels.MatMul(l, m)
		return nil
	case err != nil:
		return l.stream.cause(err)
	}
	return nil
}

// cause adds the device's own error to err, an error of cuBLASLt. The device's error says more,
// because cuBLASLt reports every fault of the device by the same code.
func (s *stream) cause(err error) error {
	if fault := s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda); fault != nil {
		return fmt.Errorf("%w: %w", err, fault)
	}
	return err
}

// matmulCall is the C function that computes products of cuBLASLt.
const matmulCall = "cublasLtMatmul"

// errRefused is wrapped by the error of a product that cuBLASLt does not support.
var errRefused = errors.New("cuBLASLt does not take the product")

// refusal reports whether err only means that cuBLASLt does not support this product. Any other
// error is a fault of the device or the library.
func refusal(err error) bool {
	if err == nil {
		return false
	}
	var e *cudart.Error
	return errors.As(err, &e) && e.Library == cudart.BlasLt && (errors.Is(e, cudart.ErrNotSupported) || errors.Is(e, cudart.ErrInvalidValue))
}

// productKey has every property of a product on which the choice of an algorithm may depend. If a
// size depends on the data (the tokens of an expert), the key has the next power of two, so that
// there are few keys. The algorithm chosen for such a key computes all smaller sizes too; only its
// speed may not be the best.
type productKey struct {
	m, n, k                 int
	ragged                  bool // m, or k with transA, is rounded up to a power of two
	transA, transB, c, bias bool
	in, out                 device.DType
	align                   [5]uint16 // of A, B, C, D and the bias, in bytes
	batch                   op.Batch
}

func (k productKey) String() string {
	side := func(trans bool) string {
		if trans {
			return "T"
		}
		return "N"
	}
	rows, inner := "", ""
	if k.ragged {
		*pick(k.transA, &inner, &rows) = "<="
	}
	s := fmt.Sprintf("%s%dx%dx%s%d %s%s %s->%s", rows, k.m, k.n, inner, k.k, side(k.transA), side(k.transB), k.in, k.out)
	if k.c {
		s += " +C"
	}
	if k.bias {
		s += " +bias"
	}
	if k.batch.N > 0 {
		s += fmt.Sprintf(" batch %v", k.batch)
	}
	return fmt.Sprintf("%s align %v", s, k.align)
}

// alignment returns the largest of device.Align, 16, 8, 4 and 2 that divides addr. Finer steps do
// not change which algorithm is chosen.
func alignment(addr uintptr) uint16 {
	for _, n := range []uintptr{device.Align, 16, 8, 4} {
		if addr%n == 0 {
			return uint16(n)
		}
	}
	return 2
}

func keyOf(m *op.MatMul) productKey {
	k := productKey{m: m.M, n: m.N, k: m.K, ragged: m.Ragged, transA: m.TransA, transB: m.TransB, c: !m.C.None(), bias: !m.Bias.None(),
		in: m.A.DType, out: m.D.DType, batch: m.Batch}
	if m.Ragged {
		n := pick(m.TransA, &k.k, &k.m)
		*n = 1 << bits.Len(uint(*n-1))
	}
	for i, t := range []device.Tensor{m.A, m.B, m.C, m.D, m.Bias} {
		if !t.None() {
			k.align[i] = alignment(t.Addr)
		}
	}
	return k
}

// shared returns the key that products of similar shapes share when algorithms are timed. Without
// it, each last chunk of tokens would be a new shape to time. The number of rows, or with transA
// the number of summands, is rounded up to a power of two. A product whose number is exactly a
// power of two has a key of its own.
func (k productKey) shared(m *op.MatMul) productKey {
	of := *m
	n := *pick(m.TransA, &m.K, &m.M)
	of.Ragged = m.Ragged || n&(n-1) != 0
	return keyOf(&of)
}

// takeable reports whether all tensors and rows of m begin at multiples of 16 bytes. cuBLASLt can
// compute every such product.
func takeable(m *op.MatMul) bool {
	a, b, d := m.Stored()
	for _, t := range []struct {
		tensor device.Tensor
		at     op.Matrix
	}{{m.A, a}, {m.B, b}, {m.C, d}, {m.D, d}, {m.Bias, op.Matrix{}}} {
		if !t.tensor.None() && (t.tensor.Addr%16 != 0 || int64(t.at.Row|t.at.Cols|t.at.Next)*t.tensor.DType.Size()%16 != 0) {
			return false
		}
	}
	return true
}

// pick returns yes if ok is true, else no.
func pick[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}

// product is cuBLASLt's description of the products with one key, and their algorithm.
type product struct {
	cudart.MatmulShape
	algorithm cudart.Algorithm
	proposed  []cudart.Algorithm // proposals to time first; nil: algorithm is chosen
	refused   error              // errRefused with the reason; nil: cuBLASLt computes the product
}

// mostProducts limits how many shapes of products the device remembers, because batches of many
// lengths make many shapes. At the limit it forgets all.
const mostProducts = 4096

// run enqueues the product m on cuBLASLt. A shape always runs with the same algorithm and workspace
// size, so the result has the same bits each time.
func (b *blas) run(m *op.MatMul, workspace device.Mem, l *launcher) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(m)
	if b.choices.timed {
		key = key.shared(m)
	}
	p, err := b.product(key, m)
	if err != nil {
		return err
	}
	if p.refused != nil {
		return p.refused
	}
	shape := p.MatmulShape
	if key.m != m.M || key.k != m.K { // ragged
		shape = cudart.MatmulShape{Desc: p.Desc}
		defer func() { err = errors.Join(err, b.destroyLayouts(&shape)) }()
		exact := key
		exact.m, exact.k = m.M, m.K
		if err := b.layouts(&shape, exact); err != nil {
			return err
		}
	}
	if !m.Bias.None() {
		if err := b.lib.DescSetPointer(p.Desc, cudart.DescBiasPointer, cudart.DevicePtr(m.Bias.Addr)); err != nil {
			return err
		}
	}
	// CUDA's libraries expect column-major matrices. The row-major D = A·B is the column-major Dᵀ =
	// Bᵀ·Aᵀ, so B is passed as A, and A as B.
	a := cudart.MatmulArgs{Alpha: 1, A: cudart.DevicePtr(m.B.Addr), B: cudart.DevicePtr(m.A.Addr), C: cudart.DevicePtr(m.D.Addr),
		D: cudart.DevicePtr(m.D.Addr), Algorithm: &p.algorithm, Workspace: cudart.DevicePtr(workspace.Addr), WorkspaceBytes: workspace.Bytes}
	if !m.C.None() {
		a.Beta, a.C = 1, cudart.DevicePtr(m.C.Addr)
	}
	if len(p.proposed) > 0 {
		if err := b.settle(p, key, &shape, a, m, l); err != nil {
			return err
		}
	}
	err = b.lib.Matmul(b.context, b.handle, &shape, &a, l.stream.cuda)
	switch {
	case err == nil:
		return l.launched(matmulCall)
	case refusal(err) && key.ragged: // refused for this extent only, not for all extents up to the power of two
		return refusedError(key, err)
	case refusal(err): // cuBLASLt refuses the algorithm that it proposed, and has enqueued nothing
		p.refuse(key, err)
		return p.refused
	}
	return err
}

// refusedError returns the error of a product that cuBLASLt does not compute, with the reason.
func refusedError(k productKey, why error) error { return fmt.Errorf("%w %s (%w)", errRefused, k, why) }

// refuse records that cuBLASLt does not compute the product, and why. mt's own kernels then compute it.
func (p *product) refuse(k productKey, why error) {
	p.refused, p.algorithm = refusedError(k, why), cudart.Algorithm{}
}

// product returns the product with this key. If the key is new, product creates cuBLASLt's
// descriptors and chooses an algorithm. The caller holds b.mu.
func (b *blas) product(key productKey, m *op.MatMul) (*product, error) {
	if p := b.products[key]; p != nil {
		return p, nil
	}
	if len(b.products) >= mostProducts {
		if err := b.forget(); err != nil {
			return nil, err
		}
	}
	p := &product{}
	err := b.describe(p, key, m)
	if err == nil {
		err = b.choose(p, key)
	}
	if refusal(err) {
		p.refuse(key, err)
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, b.destroy(p))
	}
	b.products[key] = p
	return p, nil
}

// describe creates cuBLASLt's descriptor and the layouts of the operands for a new product.
func (b *blas) describe(p *product, k productKey, m *op.MatMul) (err error) {
	if p.Desc, err = b.lib.DescCreate(cudart.ComputeFloat32, cudart.Float32); err != nil {
		return err
	}
	set := func(attr cudart.DescAttr, value int32) {
		if err == nil {
			err = b.lib.DescSet(p.Desc, attr, value)
		}
	}
	if k.transB {
		set(cudart.DescTransA, int32(cudart.Transposed))
	}
	if k.transA {
		set(cudart.DescTransB, int32(cudart.Transposed))
	}
	if k.bias {
		set(cudart.DescEpilogue, int32(cudart.EpilogueBias))
		set(cudart.DescBiasDataType, int32(dataType(k.out)))
		if err == nil { // the choice depends on the bias's alignment
			err = b.lib.DescSetPointer(p.Desc, cudart.DescBiasPointer, cudart.DevicePtr(m.Bias.Addr))
		}
	}
	if err != nil {
		return err
	}
	return b.layouts(&p.MatmulShape, k)
}

// layouts creates cuBLASLt's descriptions of the operands of a product, and puts them into s. After an error, s holds
// those that were created before.
func (b *blas) layouts(s *cudart.MatmulShape, k productKey) (err error) {
	layout := func(to *cudart.MatrixLayout, dt device.DType, x op.Matrix) {
		if err != nil {
			return
		}
		// A row-major matrix (rows, cols) is a column-major matrix (cols, rows).
		var made cudart.MatrixLayout
		if made, err = b.lib.LayoutCreate(dataType(dt), int64(x.Cols), int64(x.Rows), int64(x.Row)); err == nil {
			*to = made
		}
		if err == nil && k.batch.N > 0 {
			err = b.lib.LayoutBatch(made, int64(k.batch.N), int64(x.Next))
		}
	}
	left, right, out := (&op.MatMul{M: k.m, N: k.n, K: k.k, TransA: k.transA, TransB: k.transB, Batch: k.batch}).Stored()
	layout(&s.A, k.in, right)
	layout(&s.B, k.in, left)
	layout(&s.D, k.out, out)
	s.C = s.D
	return err
}

// destroyLayouts destroys those layouts of s that were created, in reverse order.
func (b *blas) destroyLayouts(s *cudart.MatmulShape) (err error) {
	for _, l := range [...]cudart.MatrixLayout{s.D, s.B, s.A} {
		if l != 0 {
			err = errors.Join(err, b.lib.LayoutDestroy(l))
		}
	}
	return err
}

// destroy destroys the layouts and the descriptor of p, in reverse order of creation.
func (b *blas) destroy(p *product) error {
	err := b.destroyLayouts(&p.MatmulShape)
	if p.Desc != 0 {
		err = errors.Join(err, b.lib.DescDestroy(p.Desc))
	}
	p.MatmulShape = cudart.MatmulShape{}
	return err
}

func dataType(dt device.DType) cudart.DataType {
	if dt == device.BF16 {
		return cudart.BFloat16
	}
	return cudart.Float32
}

// forget destroys the descriptions of all remembered products. The caller holds b.mu.
func (b *blas) forget() error {
	var err error
	for key, p := range b.products {
		delete(b.products, key)
		err = errors.Join(err, b.destroy(p))
	}
	return err
}

// Algorithm says which algorithm of cuBLASLt computes products of one shape. A run records these
// pairs, and a resumed run uses them again.
type Algorithm struct {
	Shape string    // sizes, transposes, types, alignment
	Words [8]uint64 // cublasLtMatmulAlgo_t; zeros if mt's own kernel computes all products of the shape
}

// Algorithms lists the algorithms of all remembered shapes, sorted by shape, at most mostProducts.
// The log of a run records them.
func (d *dev) Algorithms() []Algorithm {
	d.blas.mu.Lock()
	defer d.blas.mu.Unlock()
	var out []Algorithm
	for key, p := range d.blas.products {
		out = append(out, Algorithm{Shape: key.String(), Words: p.algorithm})
	}
	slices.SortFunc(out, func(a, b Algorithm) int { return strings.Compare(a.Shape, b.Shape) })
	return out
}
