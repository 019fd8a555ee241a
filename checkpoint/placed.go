package checkpoint

import (
	"fmt"

	"mt/model"
)

// This file reads and writes tensors that hold rows of several parameters, or hold them transposed (model.Place). A
// tensor of three dimensions, such as (experts, rows, columns), consists of slices; any other tensor is one slice.
// The bytes of a tensor are processed in whole lines; a line is a row of a slice as stored. In the optimizer's files
// every parameter still has its own tensors.

// placed is a range of rows of one parameter. It also gives the rows' position in a checkpoint's
// tensor, which may hold other rows too.
type placed struct {
	layout model.TensorLayout // the whole parameter, and its place in its layer
	at     model.Stored       // which rows of the parameter, and where the tensor has them
}

// line returns the number of elements in a line of p's tensor.
func (p placed) line() int64 {
	if p.at.Place.Transposed {
		return int64(p.at.Place.Rows)
	}
	return int64(p.layout.Cols)
}

// lines returns the number of lines in a slice of p's tensor.
func (p placed) lines() int64 {
	if p.at.Place.Transposed {
		return int64(p.layout.Cols)
	}
	return int64(p.at.Place.Rows)
}

// addPlaced adds t.Stored[i], a range of rows of parameter t, to the entry in out for the tensor that holds them. If
// there is no such entry, it appends one.
func addPlaced(out []*entry, layer int, t model.TensorLayout, i int, p plane) []*entry {
	piece := placed{t, t.Stored[i]}
	for _, e := range out {
		if e.name == piece.at.Tensor() {
			e.placed = append(e.placed, piece)
			return out
		}
	}
	e := &entry{tensor: tensor{name: piece.at.Tensor(), dtype: p.dtype, shape: t.TensorShape(i)}, layer: layer, elems: 1, plane: p, placed: []placed{piece}}
	for _, n := range e.shape {
		e.elems *= n
	}
	e.bytes = e.elems * p.size()
	return append(out, e)
}

// stretch is n neighbouring elements of a parameter, from its element elem on. In the stored tensor they are the
// elements first, first+stride, first+2·stride and so on. scatter and collect have only some lines of the tensor,
// in a buffer. There, first counts from the start of the buffer.
type stretch struct {
	layout        model.TensorLayout
	elem, n       int64
	first, stride int64
}

// stretches calls `do` for every stretch of p in the lines [from, to) of its tensor. Lines are numbered through all
// slices.
func (p placed) stretches(from, to int64, do func(stretch)) {
	at, lines, line, cols := p.at.Place, p.lines(), p.line(), int64(p.layout.Cols)
	base := int64(at.Slice) * lines
	from, to = max(from, base), min(to, base+lines)
	for row := range p.at.Rows {
		if from >= to {
			return
		}
		elem := int64(p.at.Row+row) * cols
		of := int64(at.First + row/at.Run*at.Step + row%at.Run) // row of the slice that holds this row of the parameter
		switch {
		case at.Transposed:
			do(stretch{p.layout, elem + from - base, to - from, from*line + of, line})
		case base+of >= from && base+of < to:
			do(stretch{p.layout, elem, cols, (base + of) * line, 1})
		}
	}
}

// chunk returns the number of bytes of the tensor to process together. These are as many whole lines as the limit
// most, in bytes, allows, but at least one. size is the bytes of an element.
func (e *entry) chunk(most, size int64) int64 {
	line := e.placed[0].line() * size
	return max(1, most/line) * line
}

// scatter stores raw in the parameters of l. raw holds whole lines of the stored tensor, with elements of plane p,
// from element elem of the tensor on.
func (e *entry) scatter(l Layer, p plane, elem int64, raw []byte) {
	size, line := p.size(), e.placed[0].line()
	var buf [stretchBytes]byte
	for _, piece := range e.placed {
		piece.stretches(elem/line, (elem+int64(len(raw))/size)/line, func(s stretch) {
			s.first -= elem
			s.parts(size, func(s stretch) { l.decode(s.layout, p, s.elem, s.gather(buf[:], raw, size)) })
		})
	}
}

// collect is the inverse of scatter. It collects n elements of the stored tensor, from element elem
// on, from the parameters of l and returns them in buf. The elements must be whole lines.
func (e *entry) collect(l Layer, elem, n int64, buf []byte) []byte {
	size, line := e.plane.size(), e.placed[0].line()
	var part [stretchBytes]byte
	for _, piece := range e.placed {
		piece.stretches(elem/line, (elem+n)/line, func(s stretch) {
			s.first -= elem
			s.parts(size, func(s stretch) { s.put(buf, l.encode(s.layout, e.plane, s.elem, s.n, part[:]), size) })
		})
	}
	return buf[:n*size]
}

// stretchBytes is the size of the buffer through which the elements of a stretch are copied.
const stretchBytes = 4096

// parts splits s into stretches of at most stretchBytes bytes and calls `do` for each. size is the
// bytes of an element.
func (s stretch) parts(size int64, do func(stretch)) {
	step := stretchBytes / size
	for at := int64(0); at < s.n; at += step {
		do(stretch{s.layout, s.elem + at, min(step, s.n-at), s.first + at*s.stride, s.stride})
	}
}

// gather returns the elements of the stretch s from raw. size is the bytes of one element. If
// stride is 1, the result is a view of raw; otherwise it is in buf.
func (s stretch) gather(buf, raw []byte, size int64) []byte {
	if s.stride == 1 {
		return raw[s.first*size:][:s.n*size]
	}
	buf = buf[:s.n*size]
	for i := range s.n {
		copy(buf[i*size:][:size], raw[(s.first+i*s.stride)*size:])
	}
	return buf
}

// put stores values as the elements of the stretch s in raw. It is the inverse of gather.
func (s stretch) put(raw, values []byte, size int64) {
	if s.stride == 1 {
		copy(raw[s.first*size:], values[:s.n*size])
		return
	}
	for i := range s.n {
		copy(raw[(s.first+i*s.stride)*size:][:size], values[i*size:])
	}
}

// ReadRows reads p.Stored[i], a range of rows of p, in the parameter's layout.
func (w *Weights) ReadRows(p model.Param, i int) ([]float32, error) {
	at := p.Stored[i]
	out := make([]float32, at.Rows*p.Cols)
	if at.Place.Tensor == "" {
		return out, w.Read(at.Name, 0, out)
	}
	// Read the slice in whole lines, and take the rows out of them.
	piece := placed{model.TensorLayout{Param: p}, at}
	packed := w.packedRows(p, i)
	if _, rows := packed.(*mxfp4); rows {
		piece.at.Place.Transposed = false
	}
	var raw []byte
	line, base := piece.line(), int64(at.Place.Slice)*piece.lines()
	step := max(1, pieceBytes/4/line)
	values := make([]float32, min(step, piece.lines())*line)
	for from := base; from < base+piece.lines(); from += step {
		to := min(from+step, base+piece.lines())
		part := values[:(to-from)*line]
		var err error
		if packed != nil {
			raw, err = packed.read(from, to, part, raw)
		} else {
			err = w.Read(at.Tensor(), from*line, part)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.Name, err)
		}
		piece.stretches(from, to, func(s stretch) {
			into := out[s.elem-int64(at.Row)*int64(p.Cols):]
			for k := range s.n {
				into[k] = values[s.first-from*line+k*s.stride]
			}
		})
	}
	return out, nil
}
