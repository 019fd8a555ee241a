package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/model"
)

// This file reads tensors in E4M3: a sign, four bits of exponent, three bits of fraction, no infinities
// (arXiv:2209.05433). A value is code × scale, rounded once to fp32. A scale covers a block, a row, a slice or the
// whole tensor. A tensor NAME of shape (rows, columns) or (slices, rows, columns) has its scales in NAME_scale_inv
// (Transformers) or NAME_scale (compressed-tensors, vLLM), of dtype F32, BF16, F16 or F8_E8M0.

const (
	e4m3    = "F8_E4M3"
	e8m0    = "F8_E8M0" // a power of two: the exponent plus 127; 255: NaN
	e4m3Max = 448
)

// scaleEnds are the two endings that turn a weight's name into the name of its scales.
var scaleEnds = []string{"_scale_inv", "_scale"}

// e4m3Values maps every E4M3 code, a byte, to its value.
var e4m3Values = func() (out [256]float32) {
	for i := range 128 {
		exponent, fraction := i>>3, float64(i&7)
		v := math.Ldexp(1+fraction/8, exponent-7)
		switch {
		case i == 127:
			v = math.NaN()
		case exponent == 0:
			v = math.Ldexp(fraction/8, -6)
		}
		out[i], out[i+128] = float32(v), float32(math.Copysign(v, -1))
	}
	return out
}()

// toE4M3 rounds x, at most 448 in magnitude, to the nearest E4M3 value, ties to even, and returns its code.
func toE4M3(x float32) byte {
	bits := math.Float32bits(x)
	sign, abs := byte(bits>>24&0x80), bits&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7f
	case abs < (127-6)<<23: // a subnormal: a multiple of 2^-9
		return sign | byte(math.RoundToEven(float64(math.Float32frombits(abs))*512))
	}
	abs += 1<<19 - 1 + abs>>20&1
	return sign | byte(abs>>20-(127-7)<<3)
}

// grid is the layout of a tensor's scales. A tensor consists of slices (matrices), and a slice is cut into blocks
// of rows × cols elements with one scale each.
type grid struct {
	line, lines int64 // elements of a tensor's row, rows of a slice
	rows, cols  int64 // of a block
	slices      int64 // slices with scales of their own; 1: all slices share theirs
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// across returns the number of blocks, and so of scales, in a row of blocks of a slice. down
// returns the number of rows of blocks.
func (g grid) across() int64 { return ceilDiv(g.line, g.cols) }
func (g grid) down() int64   { return ceilDiv(g.lines, g.rows) }

func (g grid) len() int64 { return g.slices * g.down() * g.across() }

// at returns the index, among all scales, of the scale for the first block of a row. Rows are
// numbered through all slices.
func (g grid) at(row int64) int64 {
	return (min(row/g.lines, g.slices-1)*g.down() + row%g.lines/g.rows) * g.across()
}

// blocks calls `do` for each part of a row that lies in one block. The part is the row's elements [from, to); scale
// is the index of the block's scale.
func (g grid) blocks(row int64, do func(from, to, scale int64)) {
	scale := g.at(row)
	for from := int64(0); from < g.line; from += g.cols {
		do(from, min(from+g.cols, g.line), scale)
		scale++
	}
}

// gridOf returns the layout of a tensor's scales. shape is the tensor's shape, scale the shape of its scales. q
// gives the size of a block; nil: 128 × 128. ok is false if the two shapes do not belong together.
func gridOf(shape, scale []int64, q *model.Quantized) (g grid, ok bool) {
	n := len(shape)
	if n < 2 || slices.Contains(shape, 0) {
		return g, false
	}
	if q == nil {
		q = &model.Quantized{BlockRows: 128, BlockCols: 128}
	}
	g = grid{line: shape[n-1], lines: shape[n-2], rows: int64(q.BlockRows), cols: int64(q.BlockCols), slices: 1}
	for _, s := range shape[:n-2] {
		g.slices *= s
	}
	is := func(rows, cols int64) bool { return slices.Equal(scale, append(slices.Clone(shape[:n-2]), rows, cols)) }
	if g.rows > 0 && is(g.down(), g.across()) {
		return g, true
	}
	g.rows, g.cols = g.lines, g.line
	all := int64(1)
	for _, s := range scale {
		all *= s
	}
	switch {
	case all == 1:
		g.slices = 1
	case n > 2 && (is(1, 1) || slices.Equal(scale, shape[:n-2])):
	case is(g.lines, 1), n == 2 && slices.Equal(scale, shape[:1]):
		g.rows = 1
	default:
		return g, false
	}
	return g, true
}

// scaled is a tensor in E4M3. The tensor inCodes of the file codes holds its codes, and the tensor
// inScales of the file by holds its scales. If powersOfTwo is set, every scale must be a power of
// two.
type scaled struct {
	grid
	codes, by         *shard
	inCodes, inScales tensor
	powersOfTwo       bool
	scales            []float32 // nil: not read yet
}

// scaledOf returns the tensor with this name if it is in E4M3; nil: it is not.
func (s *source) scaledOf(name string) (*scaled, error) {
	if !s.isE4M3(name) {
		return nil, nil
	}
	t := &scaled{codes: s.where[name]}
	t.inCodes = t.codes.tensors[name]
	for _, end := range scaleEnds {
		if t.by = s.where[name+end]; t.by != nil {
			t.inScales = t.by.tensors[name+end]
			break
		}
	}
	if t.by == nil {
		return nil, fmt.Errorf("%s: tensor %q: its dtype is %s, and its scales are missing: neither %q nor %q is there; quantized weights cannot be trained without scales",
			t.codes.path, name, e4m3, name+scaleEnds[0], name+scaleEnds[1])
	}
	q, err := s.quantized()
	if err != nil {
		return nil, err
	}
	if q != nil {
		t.powersOfTwo = q.PowersOfTwo
	}
	var ok bool
	if t.grid, ok = gridOf(t.inCodes.shape, t.inScales.shape, q); !ok {
		blocks := "128 × 128"
		if q != nil {
			blocks = fmt.Sprintf("%d × %d", q.BlockRows, q.BlockCols)
		}
		return nil, fmt.Errorf("%s: tensor %q: its shape is %v, and %q is %v: scales are neither one for each block (%s in config.json), nor for each row, nor for the tensor",
			t.by.path, t.inScales.name, t.inScales.shape, name, t.inCodes.shape, blocks)
	}
	if _, ok := weightPlane(t.inScales.dtype); !ok && t.inScales.dtype != e8m0 || t.inScales.dtype == planeF64.dtype {
		return nil, fmt.Errorf("%s: tensor %q: its dtype is %s; scales are F32, BF16, F16 or %s", t.by.path, t.inScales.name, t.inScales.dtype, e8m0)
	}
	t.powersOfTwo = t.powersOfTwo || t.inScales.dtype == e8m0
	return t, nil
}

func (t *scaled) line() int64              { return t.grid.line }
func (t *scaled) bytes() int64             { return t.inCodes.bytes + t.inScales.bytes }
func (t *scaled) path() string             { return t.codes.path }
func (t *scaled) asStored(e *entry) *entry { return e }

// readScales reads all scales of the tensor into t.scales, once.
func (t *scaled) readScales() error {
	if t.scales != nil {
		return nil
	}
	raw, out := make([]byte, t.inScales.bytes), make([]float32, t.len())
	if err := t.by.readAt(t.inScales, 0, raw); err != nil {
		return err
	}
	if t.inScales.dtype == e8m0 {
		for i, b := range raw {
			out[i] = powerOfTwo(b)
		}
	} else {
		plane, _ := weightPlane(t.inScales.dtype) // scaledOf has checked the dtype
		bits := make([]uint32, len(out))
		widen(bits, plane, raw)
		for i, b := range bits {
			out[i] = math.Float32frombits(b)
		}
	}
	t.scales = out
	return nil
}

// powerOfTwo returns the scale of a block in MXFP4 or of dtype F8_E8M0. b is the exponent plus 127; 255: NaN.
func powerOfTwo(b byte) float32 {
	if b == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(b)-127))
}

// read decodes rows [from, to) of the tensor, numbered through all slices, into dst. It implements
// the interface packed.
func (t *scaled) read(from, to int64, dst []float32, raw []byte) ([]byte, error) {
	if err := t.readScales(); err != nil {
		return raw, err
	}
	n := (to - from) * t.grid.line
	raw = slices.Grow(raw[:0], int(n))[:n]
	if err := t.codes.readAt(t.inCodes, from*t.grid.line, raw); err != nil {
		return raw, err
	}
	for row := from; row < to; row++ {
		codes, values := raw[(row-from)*t.grid.line:][:t.grid.line], dst[(row-from)*t.grid.line:][:t.grid.line]
		t.blocks(row, func(a, b, scale int64) {
			by := t.scales[scale]
			for i, c := range codes[a:b] {
				values[a:b][i] = e4m3Values[c] * by
			}
		})
	}
	return raw, nil
}

// saved returns the entries that save the weight e in E4M3 again: codes and scales. The number of
// rows comes from e, since a vocabulary may have grown since the tensor was read. It implements the
// interface packed.
func (t *scaled) saved(e *entry) []*entry {
	q := &requantized{of: e, grid: t.grid, settle: t.settle, encode: encodeE4M3, unused: 2}
	shape := slices.Clone(t.inScales.shape)
	if lines := e.shape[len(e.shape)-2]; lines != t.lines {
		if q.grid.lines = lines; t.rows == t.lines {
			q.grid.rows = lines
		} else {
			shape[0] = q.grid.down()
		}
	}
	return []*entry{
		q.entry(tensor{name: e.name, dtype: e4m3, shape: e.shape, bytes: e.elems}, false),
		q.entry(tensor{name: t.inScales.name, dtype: t.inScales.dtype, shape: shape, bytes: q.grid.len() * dtypeSize[t.inScales.dtype]}, true),
	}
}

// settle returns a block's new scale as its bytes in the file. It also returns forward, the factor
// that turns values into codes: 448 / absmax, with absmax the largest magnitude in the block. The
// scale is the reciprocal of forward. A block of zeros has the scale 1. If the file stores scales
// as powers of two or in bf16, the scale is rounded first, and forward is the reciprocal of the
// rounded scale. Source: transformers.integrations.finegrained_fp8.Fp8Quantize.
func (t *scaled) settle(absmax float32) (stored []byte, forward float32) {
	forward = 1
	if absmax > 0 {
		forward = min(e4m3Max*(1/absmax), math.MaxFloat32) // PyTorch computes 448 / absmax in this way
	}
	inverse := 1 / forward
	if t.powersOfTwo {
		inverse = math.Float32frombits((max(math.Float32bits(inverse), 1<<23) + 1<<23 - 1) & 0x7f800000)
		forward = 1 / inverse
	}
	bits := math.Float32bits(inverse)
	switch t.inScales.dtype {
	case e8m0:
		return []byte{byte(bits >> 23)}, forward
	case planeBF16.dtype:
		bits = (bits + 0x7fff + bits>>16&1) &^ 0xffff
		return binary.LittleEndian.AppendUint16(nil, uint16(bits>>16)), min(1/math.Float32frombits(bits), math.MaxFloat32)
	}
	return binary.LittleEndian.AppendUint32(nil, bits), forward
}

// encodeE4M3 appends the codes of values × forward to out. Magnitudes above 448, the largest E4M3
// value, become 448.
func encodeE4M3(out []byte, values []float32, forward float32) []byte {
	for _, v := range values {
		out = append(out, toE4M3(max(-e4m3Max, min(e4m3Max, v*forward))))
	}
	return out
}
