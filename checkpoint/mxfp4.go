package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"mt/model"
)

// This file reads tensors in MXFP4 (OCP Microscaling Formats (MX) Specification 1.0): 32 neighbouring elements of a
// row share a power of two, and each is a code of 4 bits. A tensor NAME of slices (rows, columns) is two,
//
//	NAME_blocks U8 (slices, rows, columns/32, 16): two codes a byte, the first in the lower half
//	NAME_scales U8 (slices, rows, columns/32): the exponent, plus 127
//
// with rows as the engine has them, whatever the tensor itself is like where it is not packed (model.Place.Transposed).

const (
	blocksEnd, scalesEnd = "_blocks", "_scales"
	packedLen            = 32 // elements of a block
)

// fp4 are the values of the codes: a sign, two bits of exponent, one of fraction.
var fp4 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// packed is a tensor in MXFP4.
type packed struct {
	blocks, scales       *shard
	inBlocks, inScales   tensor
	perLine, scalesALine int64 // elements, and blocks, of a row
}

// packedAs finds the two tensors that stand for e, which may not be there. An error says that they are there and have the wrong shape.
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

// asRows is e with its parts where they are in p: in rows.
func (p *packed) asRows(e *entry) *entry {
	out := *e
	out.placed = slices.Clone(e.placed)
	for i := range out.placed {
		out.placed[i].at.Place.Transposed = false
	}
	return &out
}

// bytes is the size of both tensors.
func (p *packed) bytes() int64 { return p.inBlocks.bytes + p.inScales.bytes }

// read decodes rows from to to−1 of all slices together into dst, with raw as memory.
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

// unpackBlock decodes a block whose exponent, plus 127, is scale; 255 stands for NaN.
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

// standsFor is the name of the tensor that name is half of in MXFP4; name itself where it is none.
func standsFor(name string) string {
	for _, end := range []string{blocksEnd, scalesEnd} {
		if rest, ok := strings.CutSuffix(name, end); ok {
			return rest
		}
	}
	return name
}

// packedRows is the tensor in MXFP4 that has rows i of p.Stored; nil: there is none.
func (w *Weights) packedRows(p model.Param, i int) *packed {
	entries := addPlaced(nil, 0, model.TensorLayout{Param: p}, i, planeF32)
	found, _ := w.src.packedAs(entries[0]) // shapes were checked by Check
	return found
}
