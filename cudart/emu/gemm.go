package emu

import (
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
)

// matrix is a matrix in device memory. Element (i, j) lies down·i + right·j elements after the
// first one.
type matrix struct {
	bytes       []byte // empty: no matrix
	bf16        bool
	down, right int
}

func (m matrix) transpose() matrix {
	m.down, m.right = m.right, m.down
	return m
}

func (m matrix) f32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/4)
}

func (m matrix) u16() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/2)
}

// at returns element (i, j).
func (m matrix) at(i, j int) float32 {
	if m.bf16 {
		return bf16.Widen(m.u16()[i*m.down+j*m.right])
	}
	return m.f32()[i*m.down+j*m.right]
}

// set stores v as element (i, j), rounded to nearest, ties to even.
func (m matrix) set(i, j int, v float32) {
	if m.bf16 {
		m.u16()[i*m.down+j*m.right] = bf16.Round(v)
		return
	}
	m.f32()[i*m.down+j*m.right] = v
}

// gemm is the matrix product D (m, n) = alpha·A (m, k)·B (k, n) + beta·C (m, n) + bias (m), with
// the bias added to each column. The result is computed in fp32 and rounded once. D may be C.
//
// Each sum over k is split into parts, and the parts' sums are added in order, or in reverse order
// if backwards is set. So the result's bits do not depend on the number of threads.
type gemm struct {
	m, n, k     int
	parts       int
	backwards   bool
	alpha, beta float32
	a, b, c, d  matrix
	bias        matrix
}

// The product is computed in blocks of tile×tile elements of D, each from a strip of A and a strip of B. A strip is
// a copy of tile rows of A, or tile columns of B, in which the tile values of one k are contiguous.
const (
	tile     = 4
	rowStrip = 64 // rows of D per task
)

// run computes the product on a worker pool.
func (g *gemm) run(pool *parallel.Pool) {
	strips := (g.n + tile - 1) / tile
	packed := make([][tile]float32, strips*g.k)
	pool.Run((strips+15)/16, func(i int) {
		for s := 16 * i; s < min(16*i+16, strips); s++ {
			pack(packed[s*g.k:(s+1)*g.k], g.b.transpose(), s*tile, g.n)
		}
	})
	pool.Run((g.m+rowStrip-1)/rowStrip, func(i int) {
		left := make([][tile]float32, g.k)
		for row := i * rowStrip; row < min((i+1)*rowStrip, g.m); row += tile {
			pack(left, g.a, row, g.m)
			for s := range strips {
				sums := g.sum(left, packed[s*g.k:(s+1)*g.k])
				g.store(&sums, row, s*tile)
			}
		}
	})
}

// sum returns tile×tile elements of A·B, from strip a of A and strip b of B. It adds the parts of
// each sum over k in the order that g says.
func (g *gemm) sum(a, b [][tile]float32) (sums [tile][tile]float32) {
	for i := range g.parts {
		at := i
		if g.backwards {
			at = g.parts - 1 - i
		}
		from, to := at*g.k/g.parts, (at+1)*g.k/g.parts
		if i == 0 {
			multiply(&sums, a[from:to], b[from:to])
			continue
		}
		var part [tile][tile]float32
		multiply(&part, a[from:to], b[from:to])
		for r := range tile {
			for c := range tile {
				sums[r][c] += part[r][c]
			}
		}
	}
	return sums
}

// pack copies tile rows of x, from row on, into the strip out: out[k] gets the values of these rows
// in column k. The argument rows is the number of rows of x; rows past the last count as 0.
//
//go:norace
func pack(out [][tile]float32, x matrix, row, rows int) {
	for i := range tile {
		if row+i >= rows {
			for k := range out {
				out[k][i] = 0
			}
			continue
		}
		at := (row + i) * x.down
		if x.bf16 {
			src := x.u16()
			for k := range out {
				out[k][i] = bf16.Widen(src[at])
				at += x.right
			}
			continue
		}
		src := x.f32()
		for k := range out {
			out[k][i] = src[at]
			at += x.right
		}
	}
}

// multiply adds to sums the tile×tile products of two strips, or of the same range of k in both.
//
//go:norace
func multiply(sums *[tile][tile]float32, a, b [][tile]float32) {
	b = b[:len(a)]
	for half := 0; half < tile; half += 2 { // 8 accumulators fit in registers, 16 do not
		var s00, s01, s02, s03, s10, s11, s12, s13 float32
		for k := range a {
			x, y := a[k][half], a[k][half+1]
			w := &b[k]
			s00 += x * w[0]
			s01 += x * w[1]
			s02 += x * w[2]
			s03 += x * w[3]
			s10 += y * w[0]
			s11 += y * w[1]
			s12 += y * w[2]
			s13 += y * w[3]
		}
		sums[half] = [tile]float32{s00, s01, s02, s03}
		sums[half+1] = [tile]float32{s10, s11, s12, s13}
	}
}

// store computes the block of D whose first element is (row, col) from the sums of A·B, C and the
// bias, and stores it.
func (g *gemm) store(sums *[tile][tile]float32, row, col int) {
	for i := row; i < min(row+tile, g.m); i++ {
		bias := float32(0)
		if len(g.bias.bytes) > 0 {
			bias = g.bias.at(i, 0)
		}
		for j := col; j < min(col+tile, g.n); j++ {
			v := g.alpha * sums[i-row][j-col]
			if g.beta != 0 {
				v += g.beta * g.c.at(i, j)
			}
			if len(g.bias.bytes) > 0 {
				v += bias
			}
			g.d.set(i, j, v)
		}
	}
}

// workers returns the worker pool for matrix products, created on first use. Only the scheduler calls it.
func (d *Driver) workers() *parallel.Pool {
	if d.pool == nil {
		d.pool = parallel.New(d.opt.Threads)
	}
	return d.pool
}
