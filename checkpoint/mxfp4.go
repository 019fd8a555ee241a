package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"mt/model"
)

// This file reads tensors in MXFP4 (OCP Microscaling Formats (MX) Specification 1.0). 32 neighbouring elements of a
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

// packed is a tensor in MXFP4.
type packed struct {
	blocks, scales       *shard
	inBlocks, inScales   tensor
	perLine, scalesALine int64 // elements and blocks per row
}

// packedAs returns the MXFP4 tensor for e; nil: there is none. If its shape or dtype is wrong, it returns an error.
func (s *source) packedAs(e *entry) (*packed, error) {
	p := &packed{blocks: s.where[e.name+blocksEnd], scales: s.where[e.name+scalesEnd]}
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

// asRows returns a copy of e with Transposed cleared in all parts, since MXFP4 stores the parameter's rows.
func (p *packed) asRows(e *entry) *entry {
	out := *e
	out.placed = slices.Clone(e.placed)
	for i := range out.placed {
		out.placed[i].at.Place.Transposed = false
	}
	return &out
}

// bytes returns the size of both tensors in bytes.
func (p *packed) bytes() int64 { return p.inBlocks.bytes + p.inScales.bytes }

// read decodes rows [from, to) into dst. Rows are numbered through all slices. raw is a buffer; read returns it for
// reuse.
func (p *packed) read(from, to int64, dst []float32, raw []byte) ([]byte, error) {
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

// unpackBlock decodes a block. scale is the exponent plus 127; 255: NaN.
func unpackBlock(dst []float32, codes []byte, scale byte) {
	by := float32(math.Ldexp(1, int(scale)-127))
	if scale == 255 {
		by = float32(math.NaN())
	}
	for i, c := range codes {
		dst[2*i], dst[2*i+1] = by*fp4[c&15], by*fp4[c>>4]
	}
}

// readPacked is target.read for a tensor in MXFP4.
func (t target) readPacked(l Layer, done func(n int64)) error {
	e := t.packed.asRows(t.entry)
	lines := e.elems / t.packed.perLine
	step := max(1, pieceBytes/4/t.packed.perLine)
	values, line := make([]float32, min(step, lines)*t.packed.perLine), t.packed.perLine
	bits := make([]byte, 4*len(values))
	var raw []byte
	for from := int64(0); from < lines; from += step {
		to := min(from+step, lines)
		part := values[:(to-from)*line]
		var err error
		if raw, err = t.packed.read(from, to, part, raw); err != nil {
			return err
		}
		for i, v := range part {
			binary.LittleEndian.PutUint32(bits[4*i:], math.Float32bits(v))
		}
		e.scatter(l, planeF32, from*line, bits[:4*len(part)])
		done(int64(len(raw)))
	}
	return nil
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

// packedRows returns the MXFP4 tensor that holds p.Stored[i]; nil: there is none.
func (w *Weights) packedRows(p model.Param, i int) *packed {
	entries := addPlaced(nil, 0, model.TensorLayout{Param: p}, i, planeF32)
	found, _ := w.src.packedAs(entries[0]) // shapes were checked by Check
	return found
}
