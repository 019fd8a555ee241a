package emu

import (
	"fmt"
	"slices"
	"unsafe"
)

// algorithm is the content of a cublasLtMatmulAlgo_t in the emulator: one proposed algorithm, and
// the product for which the heuristic proposed it.
type algorithm struct {
	magic     uint64
	problem   uint64 // hash of types, orders, transposes, leading dimensions and epilogue
	align     [4]uint32
	workspace uint64    // required bytes
	extents   [3]uint32 // m, n, k
	parts     uint32    // number of parts of each sum over k
	inPlace   uint32    // 1: the parts are added in order of completion
	_         uint32
}

// fits reports whether the algorithm may compute the product p. The extents m, n and k must be the
// same as in the heuristic's call. If such an extent was a power of two, any extent above half of
// it fits too: mt rounds extents that depend on the data up to a power of two. The real library
// accepts any extents that the algorithm can compute.
func (a *algorithm) fits(p *problem) bool {
	for i, n := range []int{p.m, p.n, p.k} {
		if found := int(a.extents[i]); n != found && (found&(found-1) != 0 || n > found || 2*n <= found) {
			return false
		}
	}
	return a.magic == algorithmMagic && a.problem == p.hash()
}

const algorithmMagic = 0x656d7520616c676f

// heuristic is a cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algo      algorithm
	workspace uint64
	_         int32 // state: success
	waves     float32
	_         [4]int32
}

// Compile-time checks of struct sizes against the sizes in C: a wrong array length does not
// compile.
var (
	_ [64]byte = [unsafe.Sizeof(algorithm{})]byte{}
	_ [96]byte = [unsafe.Sizeof(heuristic{})]byte{}
)

// matmulCall holds the arguments of cublasLtMatmul. Arrays are in the order A, B, C, D.
type matmulCall struct {
	handle, desc    uint64
	alpha, beta     *float32
	at, layouts     [4]uint64
	algo            *algorithm
	workspace, size uint64
	stream          uint64
}

// problem describes one matrix product: D = alpha·op(A)·op(B) + beta·C, plus a bias per row.
type problem struct {
	desc    *desc
	layouts [4]*layout
	m, n, k int
}

const smallWorkspace = 64 << 10

// problem looks up the objects of a matrix product by the handles that a program has passed to a C
// function, named call. A code other than 0 says why the library cannot compute the product.
func (d *Driver) problem(call string, handle, op uint64, layouts [4]uint64) (problem, int32) {
	var p problem
	b, ok := find[*blasHandle](d, kindBlas, handle, call)
	if !ok || !d.own(call, handleName(handle), b.gpu) {
		return p, blasNotInitialized
	}
	if p.desc, ok = find[*desc](d, kindDesc, op, call); !ok {
		return p, blasInvalidValue
	}
	for i, h := range layouts {
		if p.layouts[i], ok = find[*layout](d, kindLayout, h, call); !ok {
			return p, blasInvalidValue
		}
	}
	return p, p.check()
}

// check sets m, n and k from the layouts. It returns the code with which libcublasLt rejects the
// product; 0: supported. Source of the supported types: the tables at
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmul
func (p *problem) check() int32 {
	a, b, c, o := p.layouts[0], p.layouts[1], p.layouts[2], p.layouts[3]
	for _, l := range p.layouts {
		if l.batch != o.batch || l.batch < 1 || l.rows == 0 || l.cols == 0 || l.rows >= 1<<31 || l.cols >= 1<<31 || l.ld < int64(l.rows) {
			return blasInvalidValue
		}
	}
	am, ak, aok := transposed(a, p.desc.transA)
	bk, bn, bok := transposed(b, p.desc.transB)
	if !aok || !bok || p.desc.transC != 0 || ak != bk || o.rows != am || o.cols != bn || c.rows != am || c.cols != bn {
		return blasInvalidValue
	}
	p.m, p.n, p.k = int(am), int(bn), int(ak)
	compute := p.desc.compute == compute32F || p.desc.compute == compute32FPedantic
	types := a.dtype == b.dtype && c.dtype == o.dtype &&
		(a.dtype == typeF32 && o.dtype == typeF32 || a.dtype == typeBF16 && (o.dtype == typeF32 || o.dtype == typeBF16))
	bias := p.desc.biasType < 0 || p.desc.biasType == o.dtype
	switch {
	case !compute || p.desc.scale != typeF32 || !types || p.desc.pointerMode != 0:
		return blasNotSupported
	case p.desc.epilogue != epilogueDefault && p.desc.epilogue != epilogueBias:
		return blasNotSupported
	case p.desc.epilogue == epilogueBias && !bias:
		return blasNotSupported
	}
	return 0
}

// transposed returns the shape of op(X), where X has layout l and op is the cublasOperation_t trans. ok is false
// for an unknown operation.
func transposed(l *layout, trans int32) (rows, cols uint64, ok bool) {
	switch trans {
	case 0:
		return l.rows, l.cols, true
	case 1, 2:
		return l.cols, l.rows, true
	}
	return 0, 0, false
}

// hash returns a hash of everything that an algorithm depends on, apart from the extents m, n and k.
func (p *problem) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	add := func(v uint64) { h = (h ^ v) * 1099511628211 }
	for _, l := range p.layouts {
		add(uint64(l.dtype))
		add(uint64(l.ld))
		add(uint64(l.batch))
		add(uint64(l.next))
	}
	for _, v := range []int32{p.desc.compute, p.desc.transA, p.desc.transB, p.desc.epilogue} {
		add(uint64(v))
	}
	return h
}

// inPlaceParts is into how many parts an in-place algorithm splits each sum over k. Such an
// algorithm adds the parts to the output itself, in any order.
const inPlaceParts = 3

// Reduction schemes (cublasLtReductionScheme_t).
const (
	reductionInPlace = 1
	reductionAll     = 7
)

// heuristic is cublasLtMatmulAlgoGetHeuristic. It proposes one algorithm per entry of Options.ProductTimes. The first
// sums over k in one part, the second in two parts, and so on, so their results differ in bits. If the preference
// allows in-place reduction, an in-place algorithm comes first; its result may differ from call to call. Each
// algorithm uses the whole workspace, up to 64 KiB.
func (d *Driver) heuristic(handle, op uint64, layouts [4]uint64, pref uint64, requested int32, out *heuristic, returned *int32) int32 {
	if requested <= 0 || out == nil || returned == nil {
		return blasInvalidValue
	}
	*returned = 0
	p, code := d.problem("cublasLtMatmulAlgoGetHeuristic", handle, op, layouts)
	if code != 0 {
		return code
	}
	prefs, ok := find[*preference](d, kindPreference, pref, "cublasLtMatmulAlgoGetHeuristic")
	if !ok {
		return blasInvalidValue
	}
	for i, a := range prefs.align {
		if size := p.layouts[i].size(); int64(a) < size || a&(a-1) != 0 {
			return blasInvalidValue
		}
	}
	need := min(prefs.maxWorkspace, smallWorkspace)
	algo := algorithm{magic: algorithmMagic, problem: p.hash(), align: prefs.align, workspace: need,
		extents: [3]uint32{uint32(p.m), uint32(p.n), uint32(p.k)}}
	var found []algorithm
	if prefs.reduction&reductionInPlace != 0 {
		algo.parts, algo.inPlace = inPlaceParts, 1
		found = append(found, algo)
	}
	for i := range d.opt.ProductTimes {
		algo.parts, algo.inPlace = uint32(i+1), 0
		found = append(found, algo)
	}
	found = found[:min(len(found), int(requested))]
	for i, algo := range found {
		unsafe.Slice(out, requested)[i] = heuristic{algo: algo, workspace: need, waves: 1}
	}
	*returned = int32(len(found))
	return 0
}

// size returns the bytes per element.
func (l *layout) size() int64 {
	if l.dtype == typeBF16 {
		return 2
	}
	return 4
}

// matmul is cublasLtMatmul.
func (d *Driver) matmul(c matmulCall) int32 {
	p, code := d.problem("cublasLtMatmul", c.handle, c.desc, c.layouts)
	if code != 0 {
		return code
	}
	if d.opt.RefuseProducts != 0 {
		return int32(d.opt.RefuseProducts)
	}
	s, ok := d.streamOf(c.stream, "cublasLtMatmul")
	if !ok || !d.own("cublasLtMatmul", s.name, s.gpu) || c.alpha == nil || c.beta == nil {
		return blasInvalidValue
	}
	o := &op{gpu: s.gpu, what: fmt.Sprintf("matrix product %d×%d×%d", p.m, p.n, p.k)}
	workspace, code := d.checkAlgorithm(o, &p, &c)
	if code != 0 {
		return code
	}
	g := gemm{m: p.m, n: p.n, k: p.k, parts: 1, alpha: *c.alpha, beta: *c.beta}
	if c.algo != nil {
		g.parts = int(c.algo.parts)
		if c.algo.inPlace != 0 {
			d.inPlace++
			g.backwards = d.inPlace%2 == 0
		} else {
			o.extra = d.opt.ProductTimes[g.parts-1]
		}
	}
	var operands [4]matrix
	for i, l := range p.layouts {
		if i == 2 && g.beta == 0 {
			continue // C is not read and may be null
		}
		if operands[i], code = d.matrix(o, c.at[i], l, i == 3); code != 0 {
			return blasFailed
		}
	}
	if p.desc.epilogue == epilogueBias {
		if g.bias, code = d.biasOf(o, &p); code != 0 {
			return blasFailed
		}
	}
	g.a, g.b, g.c, g.d = operands[0], operands[1], operands[2], operands[3]
	if p.desc.transA != 0 {
		g.a = g.a.transpose()
	}
	if p.desc.transB != 0 {
		g.b = g.b.transpose()
	}
	o.run = func() ([]span, error) {
		spoil(workspace)
		for i := range int(p.layouts[3].batch) {
			of := g
			for j, m := range [...]*matrix{&of.a, &of.b, &of.c, &of.d} {
				l := p.layouts[j]
				m.bytes = m.bytes[min(i*int(l.next*l.size()), len(m.bytes)):] // C may be absent
			}
			of.run(d.workers())
		}
		return nil, nil
	}
	d.enqueue(s, o)
	return 0
}

// checkAlgorithm checks that the algorithm of call c fits product p and that addresses and workspace are aligned as
// it needs. It returns the workspace, nil if none is needed, and a status code, 0 for success. If c names no
// algorithm, cuBLASLt chooses one that accepts any alignment and, here, no workspace. Nothing is checked then.
func (d *Driver) checkAlgorithm(o *op, p *problem, c *matmulCall) ([]byte, int32) {
	need := uint64(0)
	if c.algo != nil {
		most := inPlaceParts
		if c.algo.inPlace == 0 {
			most = max(1, len(d.opt.ProductTimes))
		}
		if !c.algo.fits(p) || int(c.algo.parts) > most {
			d.fault(Argument, "cublasLtMatmul %d×%d×%d with an algorithm for another problem", p.m, p.n, p.k)
			return nil, blasNotSupported
		}
		for i, align := range c.algo.align {
			if c.at[i]%uint64(align) != 0 && (i != 2 || *c.beta != 0) {
				d.fault(Argument, "cublasLtMatmul %d×%d×%d: %c at %#x is not aligned to %d bytes as the preference promised",
					p.m, p.n, p.k, "ABCD"[i], c.at[i], align)
				return nil, blasNotSupported
			}
		}
		need = c.algo.workspace
	}
	if need == 0 {
		return nil, 0
	}
	if c.size < need || c.workspace%256 != 0 {
		d.fault(Argument, "cublasLtMatmul: a workspace of %d bytes at %#x; the algorithm needs %d, aligned to 256", c.size, c.workspace, need)
		return nil, blasInvalidValue
	}
	w, _, code := d.side(o, c.workspace, need, true, true)
	if code != 0 {
		return nil, blasFailed
	}
	return w, 0
}

// matrix returns the operand with layout l at address at, and records its memory as an access of o.
// The access is a write if write is true. If the device cannot access the memory, it returns an
// error code.
func (d *Driver) matrix(o *op, at uint64, l *layout, write bool) (matrix, int32) {
	across, down := int64(l.cols), int64(l.rows) // lines in memory, elements per line
	size := l.size()
	line, step := down*size, l.ld*size
	between := l.next * size
	total := int64(l.batch-1)*between + (across-1)*step + line
	r, code := d.reach(o.what, o.gpu, at, uint64(total))
	if code != 0 {
		return matrix{}, code
	}
	if at%uint64(size) != 0 {
		return matrix{}, d.badMemory(Bounds, "%s: operand at %#x is not aligned to %d bytes", o.what, at, size)
	}
	if step == line {
		across, line = 1, across*line
	}
	o.spans = slices.Grow(o.spans, int(across)*int(l.batch))
	for i := range across * int64(l.batch) {
		o.spans = r.spans(o.spans, i%across*step+i/across*between, line, write)
	}
	return matrix{bytes: r.data, bf16: l.dtype == typeBF16, down: 1, right: int(l.ld)}, 0
}

// biasAlign is the alignment in bytes that some kernels of cuBLASLt need for a bias. A preference
// cannot state a smaller one.
const biasAlign = 16

// biasOf returns the bias vector of the product p, a column of m elements, and records its memory
// as an access of o.
func (d *Driver) biasOf(o *op, p *problem) (matrix, int32) {
	l := &layout{dtype: p.layouts[3].dtype, rows: uint64(p.m), cols: 1, ld: int64(p.m), batch: 1}
	if p.desc.biasType >= 0 {
		l.dtype = p.desc.biasType
	}
	if p.desc.biasPointer%biasAlign != 0 {
		return matrix{}, d.badMemory(Bounds, "%s: the bias at %#x is not aligned to %d bytes", o.what, p.desc.biasPointer, biasAlign)
	}
	return d.matrix(o, p.desc.biasPointer, l, false)
}
