package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() { add(MatMul) }

// matMulTile is a set of kernels that compute a matrix product D in thread blocks of one size.
type matMulTile struct {
	kernels   [4]Kernel // nn, tn (A transposed), nt (B transposed), tt
	m, n, k   int64     // rows and columns of D in a block; k that one stage covers
	threads   uint32
	perSM     int64 // blocks that a multiprocessor runs at a time
	cycles    int64 // cycles of one stage, in which all of these blocks advance
	overheads int64 // cycles of a block before its first and after its last stage
}

func newMatMulTile(module, name string, m, n, k int64, threads uint32, shared int, perSM, cycles, overheads int64) *matMulTile {
	t := &matMulTile{m: m, n: n, k: k, threads: threads, perSM: perSM, cycles: cycles, overheads: overheads}
	for i, transposed := range []string{"_nn", "_tn", "_nt", "_tt"} {
		t.kernels[i] = Kernel{Module: module, Name: name + transposed, Shared: shared}
	}
	return t
}

// The tiles: sizes, threads and shared memory must match the CUDA C files. Cycles are estimates for
// an A100; they only serve to choose between tiles.
var (
	bf16Large  = newMatMulTile("matmul_bf16_large", "matmul_bf16_large", 128, 256, 32, 256, 96<<10, 1, 1100, 4000)
	bf16Medium = newMatMulTile("matmul_bf16_medium", "matmul_bf16_medium", 128, 128, 32, 128, 48<<10, 2, 1150, 4000)
	bf16Small  = newMatMulTile("matmul_bf16_small", "matmul_bf16_small", 64, 64, 64, 128, 48<<10, 3, 1200, 2500)
	bf16Any    = newMatMulTile("matmul_bf16_small", "matmul_bf16_any", 64, 64, 64, 128, 48<<10, 2, 4000, 2500)
	bf16Rows   = newMatMulTile("matmul_bf16_small", "matmul_bf16_rows", 16, 128, 64, 128, 72<<10, 2, 1500, 1500)
	f32Large   = newMatMulTile("matmul_f32", "matmul_f32_large", 128, 64, 8, 128, 32000, 3, 1700, 3000)
	f32Small   = newMatMulTile("matmul_f32", "matmul_f32_small", 64, 64, 8, 64, 21760, 5, 1600, 3000)

	matMulSum = Kernel{Module: "matmul_sum", Name: "matmul_sum"}
)

// Bits of the kernels' parameter flags; matmul_out.cuh defines the same bits.
const (
	matMulBF16    = 1 << iota // D and C are bf16
	matMulFour                // rows of D and C may be accessed 4 elements at a time
	matMulAChunks             // rows of A may be read 16 bytes at a time
	matMulBChunks             // rows of B may be read 16 bytes at a time
)

// rowElements is the longest row in elements that the kernels support: thread blocks compute
// addresses within a tile with 32 bits.
const rowElements = 1 << 23

// MatMul launches D = op(A)·op(B) [+ C] [+ Bias]; see op.MatMul. Every sum runs over k in order. K
// may be split into at most ScratchBytes/(4·M·N) parts, whose sums are added in order. The shapes
// and the alignment of the tensors alone determine tiles and parts. A batch takes a launch for each product.
func MatMul(l Launcher, a *op.MatMul) {
	for i := range max(1, a.Batch.N) {
		matMul(l, a.Product(i))
	}
}

func matMul(l Launcher, m op.MatMul) {
	if m.M == 0 || m.N == 0 {
		return
	}
	if m.M == 1 && m.Batch.N == 0 {
		m.TransA = false // a vector is its own transpose in memory
	}
	if m.N == 1 && m.Batch.N == 0 {
		m.TransB = true
	}
	if m.K == 0 {
		matMulParts(l, m, device.Tensor{}, 0)
		return
	}
	tiles := matMulTiles(m)
	tile, parts := cheapest(tiles, m)
	matMulWith(l, m, tile, parts)
}

// The tiles that can compute a product, for each combination of operands; matMulTiles chooses a list.
var (
	f32Tiles  = []*matMulTile{f32Large, f32Small}
	anyTiles  = []*matMulTile{bf16Any}
	rowsTiles = []*matMulTile{bf16Rows}
	bf16Tiles = []*matMulTile{bf16Large, bf16Medium, bf16Small}
)

// matMulTiles returns the tiles that can compute m.
func matMulTiles(m op.MatMul) []*matMulTile {
	switch {
	case m.A.DType == device.F32:
		return f32Tiles
	case matMulFlags(m)&(matMulAChunks|matMulBChunks) != matMulAChunks|matMulBChunks:
		return anyTiles
	case m.M <= 16 && !m.TransA:
		return rowsTiles
	}
	return bf16Tiles
}

// cheapest returns the tile with the lowest estimated cost for m, and into how many parts to split
// K. It assumes 128 multiprocessors on every GPU, so that all GPUs choose the same tile and give
// the same bits.
func cheapest(tiles []*matMulTile, m op.MatMul) (best *matMulTile, parts int) {
	const processors, launch, bytesPerCycle = 128, 4000, 2500
	M, N, K := int64(m.M), int64(m.N), int64(m.K)
	var least int64
	for _, t := range tiles {
		for _, p := range []int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64} {
			stages := ceilDiv(ceilDiv(K, t.k), p)
			if p > 1 && (stages*t.k < 256 || p*M*N*4 > ScratchBytes) {
				break
			}
			blocks := ceilDiv(M, t.m) * ceilDiv(N, t.n) * p
			cost := blocks / (processors * t.perSM) * (stages*t.cycles + t.overheads)
			if rest := blocks % (processors * t.perSM); rest > 0 {
				// If fewer blocks share a multiprocessor, less of their waiting is hidden by the
				// work of other blocks.
				cost += stages*t.cycles*(ceilDiv(rest, processors)+1)/(t.perSM+1) + t.overheads
			}
			if p > 1 {
				cost += launch + 2*p*M*N*4/bytesPerCycle
			}
			if best == nil || cost < least {
				best, parts, least = t, int(p), cost
			}
		}
	}
	return best, parts
}

// matMulWith computes m with the tile t. It splits K into about parts parts, whose results are
// added in order.
func matMulWith(l Launcher, m op.MatMul, t *matMulTile, parts int) {
	slice := ceilDiv(ceilDiv(int64(m.K), t.k), int64(parts)) * t.k
	parts = int(ceilDiv(int64(m.K), slice))
	if parts == 1 {
		matMulLaunch(l, m, t, slice, 1)
		return
	}
	n := int64(parts) * int64(m.M) * int64(m.N)
	part := l.Scratch(n*4).Tensor(device.F32, 0, n)
	of := m
	of.D, of.C, of.Bias = part, device.Tensor{}, device.Tensor{}
	of.Batch.D.Row = m.N
	matMulLaunch(l, of, t, slice, parts)
	matMulParts(l, m, part, parts)
}

func matMulLaunch(l Launcher, m op.MatMul, t *matMulTile, slice int64, parts int) {
	k := 0
	if m.TransA {
		k |= 1
	}
	if m.TransB {
		k |= 2
	}
	p := l.Params()
	p.Tensor(m.D).Tensor(m.A).Tensor(m.B).Tensor(m.C).Tensor(m.Bias)
	a, b, d := m.Stored()
	p.I32(m.M).I32(m.N).I32(m.K).I32(a.Row).I32(b.Row).I32(d.Row).I32(int(slice)).I32(matMulFlags(m))
	grid := Dim3{uint32(ceilDiv(int64(m.M), t.m) * ceilDiv(int64(m.N), t.n)), uint32(parts), 1}
	l.Launch(&t.kernels[k], grid, Dim3{t.threads, 1, 1}, t.kernels[k].Shared, p)
}

// matMulParts launches the kernel that adds up the results of the parts of K: D = Σ part + C + Bias.
func matMulParts(l Launcher, m op.MatMul, part device.Tensor, parts int) {
	const threads = 256
	p := l.Params()
	_, _, d := m.Stored()
	p.Tensor(m.D).Tensor(part).Tensor(m.C).Tensor(m.Bias).I32(m.M).I32(m.N).I32(d.Row).I32(parts).I32(matMulFlags(m))
	blocks := ceilDiv(int64(m.M)*int64(m.N), threads)
	l.Launch(&matMulSum, Dim3{uint32(blocks), 1, 1}, Dim3{threads, 1, 1}, 0, p)
}

// matMulFlags returns the flags that the type and the alignment of m's tensors allow.
func matMulFlags(m op.MatMul) int {
	flags := 0
	if m.D.DType == device.BF16 {
		flags |= matMulBF16
	}
	four := uintptr(4 * m.D.DType.Size())
	a, b, d := m.Stored()
	if m.N%4 == 0 && d.Row%4 == 0 && m.D.Addr%four == 0 && m.C.Addr%four == 0 {
		flags |= matMulFour
	}
	chunks := func(t device.Tensor, x op.Matrix) bool {
		return t.Addr%16 == 0 && (x.Row|x.Cols)%8 == 0 && x.Row < rowElements
	}
	if chunks(m.A, a) {
		flags |= matMulAChunks
	}
	if chunks(m.B, b) {
		flags |= matMulBChunks
	}
	return flags
}
