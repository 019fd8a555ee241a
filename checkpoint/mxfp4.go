package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// This file reads and writes tensors in MXFP4 (OCP Microscaling Formats (MX) Specification 1.0). 32 neighbouring elements of a
// row share a power of two, and each element is a 4-bit code. A tensor NAME of shape (slices, rows, columns) is
// stored as two tensors:
//
//	NAME_blocks U8 (slices, rows, columns/32, 16): two codes per byte, the first in the lower half
//	NAME_scales U8 (slices, rows, columns/32): the exponent plus 127
//
// rows are the parameter's rows, even if the unpacked tensor would be transposed (model.Place.Transposed).

const (
	blocksEnd, scalesEnd = "_blocks", "_scales"
	packedLen            = 32 // elements per block
)

// fp4 holds the values of the codes: a sign, two bits of exponent, one bit of fraction.
var fp4 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// mxfp4 is a tensor in MXFP4.
type mxfp4 struct {
	blocks, scales       *shard
	inBlocks, inScales   tensor
	perLine, scalesALine int64 // elements and blocks per row
}

// mxfp4As returns the MXFP4 tensor that holds the values of e; nil: there is none. If its shape or dtype is wrong,
// it returns an error.
func (s *source) mxfp4As(e *entry) (*mxfp4, error) {
	p := &mxfp4{blocks: s.where[e.name+blocksEnd], scales: s.where[e.name+scalesEnd]}
	if e.placed == nil || e.placed[0].layout.Dims < 2 || e.placed[0].at.Place.Slices == 0 || p.blocks == nil || p.scales == nil {
		return nil, nil
	}
	p.inBlocks, p.inScales = p.blocks.tensors[e.name+blocksEnd], p.scales.tensors[e.name+scalesEnd]
	first := e.placed[0]
	at := first.at.Place
	p.perLine = int64(first.layout.Cols)
	p.scalesALine = p.perLine / packedLen
	want := []int64{int64(at.Slices), int64(at.Rows), p.scalesALine, packedLen / 2}
	for _, t := range []struct {
		in    tensor
		shape []int64
		path  string
	}{{p.inBlocks, want, p.blocks.path}, {p.inScales, want[:3], p.scales.path}} {
		if p.perLine%packedLen != 0 || t.in.dtype != "U8" || !slices.Equal(t.in.shape, t.shape) {
			return nil, fmt.Errorf("%s: tensor %q: it is %s %v, and MXFP4 of what config.json asks for would be U8 %v with rows of %d elements",
				t.path, t.in.name, t.in.dtype, t.in.shape, t.shape, p.perLine)
		}
	}
	return p, nil
}

// asStored returns a copy of e with Transposed cleared in all parts, since MXFP4 stores the parameter's rows.
func (p *mxfp4) asStored(e *entry) *entry {
	out := *e
	out.placed = slices.Clone(e.placed)
	for i := range out.placed {
		out.placed[i].at.Place.Transposed = false
	}
	return &out
}

func (p *mxfp4) line() int64  { return p.perLine }
func (p *mxfp4) path() string { return p.blocks.path }
func (p *mxfp4) bytes() int64 { return p.inBlocks.bytes + p.inScales.bytes }

// read decodes rows [from, to) of the tensor, numbered through all slices, into dst. It implements
// the interface packed.
func (p *mxfp4) read(from, to int64, dst []float32, raw []byte) ([]byte, error) {
	n := (to - from) * p.scalesALine
	raw = slices.Grow(raw[:0], int(n*(1+packedLen/2)))[:n*(1+packedLen/2)]
	codes, scales := raw[:n*packedLen/2], raw[n*packedLen/2:]
	if err := p.blocks.readAt(p.inBlocks, from*p.scalesALine*packedLen/2, codes); err != nil {
		return raw, err
	}
	if err := p.scales.readAt(p.inScales, from*p.scalesALine, scales); err != nil {
		return raw, err
	}
	for i, s := range scales {
		unpackBlock(dst[i*packedLen:][:packedLen], codes[i*packedLen/2:][:packedLen/2], s)
	}
	return raw, nil
}

// unpackBlock decodes the codes of one block into dst. scale is the exponent of the block's power
// of two plus 127; 255: NaN.
func unpackBlock(dst []float32, codes []byte, scale byte) {
	by := powerOfTwo(scale)
	for i, c := range codes {
		dst[2*i], dst[2*i+1] = by*fp4[c&15], by*fp4[c>>4]
	}
}

// saved returns the entries that save e in MXFP4 with new scales. It implements the interface
// packed.
func (p *mxfp4) saved(e *entry) []*entry {
	rows := e.elems / p.perLine
	q := &requantized{of: p.asStored(e), grid: grid{line: p.perLine, lines: rows, rows: 1, cols: packedLen, slices: 1}, settle: settleMXFP4, encode: encodeMXFP4, unused: 2}
	blocks := tensor{name: p.inBlocks.name, dtype: "U8", shape: p.inBlocks.shape, bytes: p.inBlocks.bytes}
	scales := tensor{name: p.inScales.name, dtype: "U8", shape: p.inScales.shape, bytes: p.inScales.bytes}
	return []*entry{q.entry(blocks, false), q.entry(scales, true)}
}

// settleMXFP4 computes a block's scale: absmax / 6, rounded up to a power of two. It returns the
// scale's exponent plus 127 as stored, and the scale's reciprocal as forward. In a block of zeros
// both are 0. Source: triton_kernels, downcast_to_mxfp_torch.
func settleMXFP4(absmax float32) (stored []byte, forward float32) {
	bits := (math.Float32bits(absmax/6) + 0x7fffff) & 0x7f800000
	if bits > 0 {
		forward = 1 / math.Float32frombits(bits)
	}
	return []byte{byte(bits >> 23)}, forward
}

// encodeMXFP4 appends the codes of values × forward to out, two to a byte. It rounds to nearest, ties to even.
func encodeMXFP4(out []byte, values []float32, forward float32) []byte {
	for i := 0; i < len(values); i += 2 {
		out = append(out, toFP4(values[i]*forward)|toFP4(values[i+1]*forward)<<4)
	}
	return out
}

func toFP4(x float32) byte {
	bits := math.Float32bits(x)
	sign, abs := byte(bits>>28&8), math.Float32frombits(bits&0x7fffffff)
	switch {
	case abs <= 0.25:
		return sign
	case abs < 0.75:
		return sign | 1
	case abs <= 1.25:
		return sign | 2
	case abs < 1.75:
		return sign | 3
	case abs <= 2.5:
		return sign | 4
	case abs < 3.5:
		return sign | 5
	case abs <= 5:
		return sign | 6
	}
	return sign | 7
}

// standsFor returns NAME if name is NAME_blocks or NAME_scales, the two tensors that store NAME in MXFP4. Otherwise
// it returns name.
func standsFor(name string) string {
	for _, end := range []string{blocksEnd, scalesEnd} {
		if rest, ok := strings.CutSuffix(name, end); ok {
			return rest
		}
	}
	return name
}
