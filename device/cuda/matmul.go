package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mt/cudart"
	"mt/device"
	"mt/device/args"
	"mt/device/cuda/kernels"
)

// MatMul is cuBLASLt's, or our own where there is no cuBLASLt or it refuses. For
// a bf16 result cuBLASLt takes the bias in bf16: it is rounded once more.
func (ops) MatMul(s device.Stream, m device.MatMul) {
	on(s).do("MatMul", args.MatMul(m), command{run: func() error { return on(s).launcher.matMul(m) }})
}

func (l *launcher) matMul(m device.MatMul) error {
	d := l.stream.dev
	if m.M == 0 || m.N == 0 {
		return nil
	}
	biased := !m.Bias.None() && (m.D.DType == device.BF16 || m.Bias.Addr%biasAlign != 0)
	if d.blas.lib == nil || m.K == 0 || biased && m.D.DType.Size()*int64(m.N) > biasBytes {
		return l.do(func(l kernels.Launcher) { kernels.MatMul(l, m) })
	}
	return l.do(func(kernels.Launcher) {
		p := m
		if biased {
			p.Bias = l.memory(kernels.ScratchBytes, m.D.DType.Size()*int64(m.N), biasBytes).Tensor(m.D.DType, 0, int64(m.N))
			kernels.Convert(l, p.Bias, m.Bias, int64(m.N))
		}
		workspace := l.memory(0, kernels.ScratchBytes, kernels.ScratchBytes)
		if l.err != nil {
			return
		}
		err := d.blas.run(p, workspace, l.stream.cuda)
		switch {
		case errors.Is(err, errRefused):
			d.noteOnce("products", fmt.Sprintf("%v: mt's own kernels compute such products", err))
			kernels.MatMul(l, m)
		case err != nil:
			l.err = l.stream.cause(err)
		}
	})
}

// cause adds to an error of cuBLASLt, which has one name for all faults of the
// device, what the device says.
func (s *stream) cause(err error) error {
	if fault := s.dev.cuda.StreamSynchronize(s.cuda); fault != nil {
		return fmt.Errorf("%w: %w", err, fault)
	}
	return err
}

// errRefused is for a product that cuBLASLt does not compute.
var errRefused = errors.New("cuBLASLt does not take the product")

// refusal says whether err is cuBLASLt's about a product, and not a fault.
func refusal(err error) bool {
	var e *cudart.Error
	return errors.As(err, &e) && e.Library == cudart.BlasLt && (errors.Is(e, cudart.ErrNotSupported) || errors.Is(e, cudart.ErrInvalidValue))
}

// productKey is all that the choice of an algorithm may depend on.
type productKey struct {
	m, n, k                 int
	transA, transB, c, bias bool
	in, out                 device.DType
	align                   [5]uint16 // in bytes, of A, B, C, D and the bias
}

func (k productKey) String() string {
	side := func(trans bool) string {
		if trans {
			return "T"
		}
		return "N"
	}
	s := fmt.Sprintf("%dx%dx%d %s%s %s->%s", k.m, k.n, k.k, side(k.transA), side(k.transB), k.in, k.out)
	if k.c {
		s += " +C"
	}
	if k.bias {
		s += " +bias"
	}
	return fmt.Sprintf("%s align %v", s, k.align)
}

// alignment is what an address is a multiple of, as far as algorithms tell
// alignments apart.
func alignment(addr uintptr) uint16 {
	for _, n := range []uintptr{device.Align, 16, 8, 4} {
		if addr%n == 0 {
			return uint16(n)
		}
	}
	return 2
}

func keyOf(m *device.MatMul) productKey {
	k := productKey{m: m.M, n: m.N, k: m.K, transA: m.TransA, transB: m.TransB, c: !m.C.None(), bias: !m.Bias.None(),
		in: m.A.DType, out: m.D.DType}
	for i, t := range []device.Tensor{m.A, m.B, m.C, m.D, m.Bias} {
		if !t.None() {
			k.align[i] = alignment(t.Addr)
		}
	}
	return k
}

// product is a shape with its algorithm.
type product struct {
	cudart.MatmulShape
	algorithm cudart.Algorithm
	refused   error          // errRefused and why, nil where cuBLASLt computes it
	undo      []func() error // destroys what the shape is made of
}

// mostProducts is how many shapes are remembered. Ragged batches make many.
const mostProducts = 4096

// run enqueues m. The same shape always runs by the same algorithm, with a
// workspace of the same size: cuBLASLt then gives the same bits each time.
func (b *blas) run(m device.MatMul, workspace device.Mem, s cudart.Stream) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.product(&m)
	if err != nil {
		return err
	}
	if p.refused != nil {
		return p.refused
	}
	if !m.Bias.None() {
		if err := b.lib.DescSetPointer(p.Desc, cudart.DescBiasPointer, cudart.DevicePtr(m.Bias.Addr)); err != nil {
			return err
		}
	}
	// Row-major D = A·B is column-major Dᵀ = Bᵀ·Aᵀ.
	a := cudart.MatmulArgs{Alpha: 1, A: cudart.DevicePtr(m.B.Addr), B: cudart.DevicePtr(m.A.Addr), C: cudart.DevicePtr(m.D.Addr),
		D: cudart.DevicePtr(m.D.Addr), Algorithm: &p.algorithm, Workspace: cudart.DevicePtr(workspace.Addr), WorkspaceBytes: workspace.Bytes}
	if !m.C.None() {
		a.Beta, a.C = 1, cudart.DevicePtr(m.C.Addr)
	}
	err = b.lib.Matmul(b.context, b.handle, &p.MatmulShape, &a, s)
	if refusal(err) { // it refuses the algorithm that it proposed: nothing is enqueued
		p.refuse(keyOf(&m), err)
		return p.refused
	}
	return err
}

// refuse keeps that and why cuBLASLt does not compute the product.
func (p *product) refuse(k productKey, why error) {
	p.refused, p.algorithm = fmt.Errorf("%w %s (%w)", errRefused, k, why), cudart.Algorithm{}
}

// product finds or makes what runs m. b.mu is held.
func (b *blas) product(m *device.MatMul) (*product, error) {
	key := keyOf(m)
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
		return nil, errors.Join(err, p.destroy())
	}
	b.products[key] = p
	return p, nil
}

// describe makes the description and the layouts of a product.
func (b *blas) describe(p *product, k productKey, m *device.MatMul) (err error) {
	if p.Desc, err = b.lib.DescCreate(cudart.ComputeFloat32, cudart.Float32); err != nil {
		return err
	}
	p.undo = append(p.undo, func() error { return b.lib.DescDestroy(p.Desc) })
	layout := func(to *cudart.MatrixLayout, dt device.DType, rows, cols int) {
		if err != nil {
			return
		}
		// Row-major (rows, cols) is column-major (cols, rows).
		var made cudart.MatrixLayout
		if made, err = b.lib.LayoutCreate(dataType(dt), int64(cols), int64(rows), int64(cols)); err == nil {
			*to = made
			p.undo = append(p.undo, func() error { return b.lib.LayoutDestroy(made) })
		}
	}
	set := func(attr cudart.DescAttr, value int32) {
		if err == nil {
			err = b.lib.DescSet(p.Desc, attr, value)
		}
	}
	if k.transB {
		layout(&p.A, k.in, k.n, k.k)
		set(cudart.DescTransA, int32(cudart.Transposed))
	} else {
		layout(&p.A, k.in, k.k, k.n)
	}
	if k.transA {
		layout(&p.B, k.in, k.k, k.m)
		set(cudart.DescTransB, int32(cudart.Transposed))
	} else {
		layout(&p.B, k.in, k.m, k.k)
	}
	layout(&p.D, k.out, k.m, k.n)
	p.C = p.D
	if k.bias {
		set(cudart.DescEpilogue, int32(cudart.EpilogueBias))
		set(cudart.DescBiasDataType, int32(dataType(k.out)))
		if err == nil { // its alignment matters to the choice
			err = b.lib.DescSetPointer(p.Desc, cudart.DescBiasPointer, cudart.DevicePtr(m.Bias.Addr))
		}
	}
	return err
}

func dataType(dt device.DType) cudart.DataType {
	if dt == device.BF16 {
		return cudart.BFloat16
	}
	return cudart.Float32
}

// choose takes the first algorithm that cuBLASLt proposes.
func (b *blas) choose(p *product, k productKey) (err error) {
	prefer, err := b.lib.PreferenceCreate()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.lib.PreferenceDestroy(prefer)) }()
	alignC := k.align[2]
	if alignC == 0 {
		alignC = k.align[3]
	}
	for _, set := range []struct {
		attr  cudart.PreferenceAttr
		value uint64
	}{
		{cudart.PreferMaxWorkspaceBytes, kernels.ScratchBytes}, {cudart.PreferReductions, cudart.ReductionFloat32},
		{cudart.PreferMinAlignmentA, uint64(k.align[1])}, {cudart.PreferMinAlignmentB, uint64(k.align[0])},
		{cudart.PreferMinAlignmentC, uint64(alignC)}, {cudart.PreferMinAlignmentD, uint64(k.align[3])},
	} {
		if err := b.lib.PreferenceSet(prefer, set.attr, set.value); err != nil {
			return err
		}
	}
	found, err := b.lib.AlgoGetHeuristic(b.context, b.handle, &p.MatmulShape, prefer, 1)
	if err == nil {
		p.algorithm = found[0].Algorithm
	}
	return err
}

func (p *product) destroy() error {
	var err error
	for _, undo := range slices.Backward(p.undo) {
		err = errors.Join(err, undo())
	}
	p.undo = nil
	return err
}

// forget destroys all products. b.mu is held.
func (b *blas) forget() error {
	var err error
	for key, p := range b.products {
		delete(b.products, key)
		err = errors.Join(err, p.destroy())
	}
	return err
}

// Algorithm is how cuBLASLt computes products of one shape.
type Algorithm struct {
	Shape string    // sizes, transposes, types, alignment
	Words [8]uint64 // cublasLtMatmulAlgo_t; zeros where our own kernel serves
}

// Algorithms lists the shapes of matrix products that are remembered, mostProducts
// at most, sorted, for the record of a run.
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
