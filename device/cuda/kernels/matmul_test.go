package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// matMulCase is one matrix product to test. at is the offset of every tensor from an aligned
// address, in elements.
type matMulCase struct {
	tile           string // "": as MatMul chooses
	parts          int
	M, N, K, at    int
	transA, transB bool
	form           int // bits: D is bf16, C, C is D, Bias
}

const (
	formBF16 = 1 << iota
	formC
	formInPlace
	formBias
)

func (c matMulCase) String() string {
	return fmt.Sprintf("%dx%dx%d,%v,%v,parts %d,at %d,form %d", c.M, c.N, c.K, c.transA, c.transB, c.parts, c.at, c.form)
}

// fit rounds the lengths of rows up to 8 elements, so that kernels may read 16 bytes at a time.
func (c *matMulCase) fit() {
	up := func(n *int) { *n = (*n + 7) / 8 * 8 }
	if c.transA {
		up(&c.M)
	} else {
		up(&c.K)
	}
	if c.transB {
		up(&c.K)
	} else {
		up(&c.N)
	}
}

// TestMatMulTiles: every tile gives results within the bound for shapes at the edges of its size,
// even shapes for which MatMul would choose another tile.
func TestMatMulTiles(t *testing.T) {
	testkit.NotShort(t)
	forms := []int{0, formBF16 | formBias, formBF16 | formC, formC | formInPlace | formBias, formBF16 | formC | formInPlace, formC}
	tiles := []struct {
		name   string
		fit    bool
		shapes [][3]int
	}{
		{"bf16 large", true, [][3]int{{127, 255, 100}, {129, 257, 33}, {128, 256, 63}, {1, 1, 1}}},
		{"bf16 medium", true, [][3]int{{127, 129, 100}, {129, 127, 31}, {128, 128, 65}, {300, 1, 32}}},
		{"bf16 small", true, [][3]int{{63, 65, 129}, {65, 63, 64}, {129, 1, 33}, {1, 129, 200}}},
		{"bf16 any", false, [][3]int{{63, 65, 129}, {65, 63, 64}, {127, 1, 33}, {1, 127, 100}, {1, 1, 1}, {64, 64, 31}}},
		{"bf16 rows", true, [][3]int{{1, 129, 100}, {16, 127, 65}, {3, 257, 300}, {15, 128, 64}}},
		{"fp32 large", false, [][3]int{{127, 65, 33}, {129, 63, 7}, {128, 128, 63}, {1, 1, 1}}},
		{"fp32 small", false, [][3]int{{63, 65, 31}, {65, 127, 100}, {129, 64, 8}, {1, 3, 65}}},
	}
	dev := newRig()
	for _, tile := range tiles {
		t.Run(tile.name, func(t *testing.T) {
			i := 0
			for _, sh := range tile.shapes {
				for bits := range 4 {
					c := matMulCase{tile: tile.name, parts: 1 + i%2*2, M: sh[0], N: sh[1], K: sh[2], transA: bits&1 != 0, transB: bits&2 != 0,
						form: forms[i%len(forms)]}
					i++
					if tile.fit {
						c.fit()
					} else {
						c.at = i % 3
					}
					if tile.name == "bf16 rows" && c.transA {
						continue
					}
					t.Run(c.String(), func(t *testing.T) { c.run(t, dev) })
				}
			}
		})
	}
}

// TestMatMulForms: products are right with tensors at any address, with vectors, with a long K as
// in gradients, and with so many tiles that their order matters.
func TestMatMulForms(t *testing.T) {
	testkit.NotShort(t)
	dev := newRig()
	for i, c := range []matMulCase{
		{M: 24, N: 40, K: 64, at: 0},
		{M: 24, N: 40, K: 64, at: 1},
		{M: 24, N: 40, K: 64, at: 8},
		{M: 8, N: 16, K: 64, at: 4},
		{M: 24, N: 33, K: 64},
		{M: 24, N: 36, K: 60}, // rows that begin at multiples of 8 bytes, not of 16
		{M: 28, N: 36, K: 64, transA: true},
		{M: 33, N: 40, K: 33, transA: true},
		{M: 24, N: 40, K: 2000, transA: true},
		{M: 1, N: 33, K: 40, transA: true},
		{M: 33, N: 1, K: 40},
		{M: 20, N: 12, K: 0},
		{tile: "bf16 small", parts: 1, M: 1160, N: 136, K: 8}, // more tiles high than a patch
		{tile: "fp32 small", parts: 2, M: 2300, N: 65, K: 9},
	} {
		for _, form := range []int{formC | formInPlace, formBF16 | formBias} {
			c.form = form
			t.Run(fmt.Sprintf("%d/%s", i, c), func(t *testing.T) { c.run(t, dev) })
		}
	}
}

// run computes the product c on dev and compares every element with the oracle. It also fails if
// memory around D changes.
func (c matMulCase) run(t *testing.T, dev *rig) {
	dt := device.BF16
	if c.tile != "" && c.tile[:4] == "fp32" {
		dt = device.F32
	}
	dTo := device.F32
	if c.form&formBF16 != 0 {
		dTo = device.BF16
	}
	s, _ := dev.NewStream("")
	defer s.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	const around = 16 // elements before and after a tensor
	upload := func(dt device.DType, n int) (device.Tensor, []float64) {
		size := int(dt.Size())
		b, v := make([]byte, (n+2*around+c.at)*size), make([]float64, n)
		for i := range b {
			b[i] = 0xa5
		}
		for i := range v {
			u := math.Float32bits(float32(rng.NormFloat64()))
			if dt == device.BF16 {
				u &= 0xffff0000
				binary.LittleEndian.PutUint16(b[(around+c.at+i)*size:], uint16(u>>16))
			} else {
				binary.LittleEndian.PutUint32(b[(around+c.at+i)*size:], u)
			}
			v[i] = float64(math.Float32frombits(u))
		}
		mem, _ := dev.Alloc(accounts.Workspace, int64(len(b)))
		t.Cleanup(func() { dev.Free(mem) })
		s.CopyH2D(mem, b)
		return mem.Tensor(dt, int64((around+c.at)*size), int64(n)), v
	}
	m := op.MatMul{M: c.M, N: c.N, K: c.K, TransA: c.transA, TransB: c.transB}
	var a, b, addC, bias []float64
	m.A, a = upload(dt, c.M*c.K)
	m.B, b = upload(dt, c.K*c.N)
	m.D, _ = upload(dTo, c.M*c.N)
	if c.form&formC != 0 {
		m.C, addC = upload(dTo, c.M*c.N)
		if c.form&formInPlace != 0 {
			m.D = m.C
		}
	}
	if c.form&formBias != 0 {
		m.Bias, bias = upload(device.F32, c.N)
	}
	if c.tile == "" {
		kernels.MatMul(on(s), &m)
	} else {
		kernels.MatMulBy(on(s), m, c.tile, c.parts)
	}
	testkit.NoError(t, s.Sync())
	want, size := make([]float64, c.M*c.N), make([]float64, c.M*c.N)
	oracle.MatMul(want, a, b, addC, bias, c.M, c.N, c.K, c.transA, c.transB)
	oracle.MatMul(size, absolute(a), absolute(b), absolute(addC), absolute(bias), c.M, c.N, c.K, c.transA, c.transB)
	c.compare(t, dev, m.D, want, size, around)
}

// compare compares D with want. size[i] is the sum of the absolute values of the terms of element
// i, from which the allowed error follows.
func (c matMulCase) compare(t *testing.T, dev *rig, D device.Tensor, want, size []float64, around int) {
	t.Helper()
	get := func(i int) uint32 {
		width := uintptr(D.DType.Size())
		b := dev.bytes(device.Mem{Addr: D.Addr + uintptr(i)*width, Bytes: int64(width)})
		if width == 2 {
			return uint32(binary.LittleEndian.Uint16(b)) << 16
		}
		return binary.LittleEndian.Uint32(b)
	}
	for i := -around; i < len(want)+around; i++ {
		got := get(i)
		if i < 0 || i >= len(want) {
			if got != 0xa5a5a5a5 && got != 0xa5a50000 {
				t.Fatalf("element %d of %d was written", i, len(want))
			}
			continue
		}
		// An element has K products and three more terms. Each addition is rounded or, by tensor
		// cores, truncated to 24 bits, so its error is at most 2⁻²³ of size. A bf16 result is
		// rounded once more, to 8 bits.
		allowed := float64(c.K+3) * size[i] / (1 << 23)
		if D.DType == device.BF16 {
			allowed += (math.Abs(want[i]) + allowed) / (1 << 8)
		}
		if e := math.Abs(float64(math.Float32frombits(got)) - want[i]); !(e <= allowed) {
			t.Fatalf("row %d, column %d is %v, want %v: error %.3g, allowed %.3g", i/c.N, i%c.N, math.Float32frombits(got), want[i], e, allowed)
		}
	}
}

func absolute(v []float64) []float64 {
	if v == nil {
		return nil
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = math.Abs(x)
	}
	return out
}

// TestMatMulChoice: MatMul chooses the expected tile and number of parts for typical shapes.
func TestMatMulChoice(t *testing.T) {
	tensor := func(dt device.DType, n int) device.Tensor { return device.Tensor{Addr: 256, Len: int64(n), DType: dt} }
	for _, c := range []struct {
		dt      device.DType
		M, N, K int
		tile    string
		parts   int
	}{
		{device.BF16, 16384, 11008, 4096, "bf16 large", 1},
		{device.BF16, 4096, 4096, 16384, "bf16 large", 1},
		{device.BF16, 2048, 1024, 1024, "bf16 medium", 1},
		{device.BF16, 256, 256, 16384, "bf16 small", 16},
		{device.BF16, 1, 4096, 4096, "bf16 rows", 8},
		{device.BF16, 1, 151936, 4096, "bf16 rows", 2},
		{device.BF16, 2048, 4096, 50257, "bf16 any", 1},
		{device.BF16, 64, 64, 64, "bf16 small", 1},
		{device.F32, 4096, 4096, 4096, "fp32 large", 1},
		{device.F32, 64, 64, 64, "fp32 small", 1},
	} {
		tile, parts := kernels.MatMulChoice(op.MatMul{M: c.M, N: c.N, K: c.K,
			A: tensor(c.dt, c.M*c.K), B: tensor(c.dt, c.K*c.N), D: tensor(device.F32, c.M*c.N)})
		if tile != c.tile || parts != c.parts {
			t.Errorf("%v %dx%dx%d: %s in %d parts, want %s in %d", c.dt, c.M, c.N, c.K, tile, parts, c.tile, c.parts)
		}
	}
}
