package checkpoint

import "math"

// requantized quantizes a trained weight anew when a model is saved in the quantized format that was read. Two
// entries of the saved file share it: the codes and the scales.
type requantized struct {
	of   *entry // the weights in fp32, transposed or not, as the tensor holds them
	grid grid
	// settle returns a block's scale as it is stored, and forward, the factor by which values are multiplied before
	// they become codes. absmax is the largest magnitude in the block.
	settle func(absmax float32) (stored []byte, forward float32)
	// encode appends the codes of values × forward.
	encode func(out []byte, values []float32, forward float32) []byte

	stored  []byte    // scales of all blocks, or of one row's blocks; nil: not computed yet
	forward []float32 // factors of the same blocks
	unused  int       // number of entries not written yet; 0: the scales can be dropped
}

// entry returns the entry of tensor t of the saved file: the scales if scales is set, otherwise the codes.
func (q *requantized) entry(t tensor, scales bool) *entry {
	return &entry{tensor: t, layer: q.of.layer, elems: t.bytes / dtypeSize[t.dtype], plane: planeAsIs, quant: q, scales: scales}
}

// pieces passes the bytes of the codes to put, in order. If scales is set, it passes the scales
// instead.
func (q *requantized) pieces(l Layer, scales bool, put func([]byte) error) error {
	// If every block lies in one row, each row's scales are computed with the row and not kept; MXFP4 has too many
	// scales to keep.
	byRow := q.grid.len() == q.of.elems/q.grid.line*q.grid.across()
	if !byRow {
		if err := q.measure(l); err != nil {
			return err
		}
		if scales {
			defer q.used()
			return put(q.stored)
		}
	}
	defer q.used()
	var out []byte
	err := q.rows(l, func(row int64, values []float32) error {
		if len(out) > 0 && len(out)+len(values) > pieceBytes {
			if err := put(out); err != nil {
				return err
			}
			out = out[:0]
		}
		first := int64(0)
		if byRow {
			first = q.grid.at(row)
			absmax := make([]float32, q.grid.across())
			q.largest(row, values, first, absmax)
			q.settleAll(absmax)
		}
		if scales {
			out = append(out, q.stored...)
			return nil
		}
		q.grid.blocks(row, func(from, to, scale int64) { out = q.encode(out, values[from:to], q.forward[scale-first]) })
		return nil
	})
	if err != nil {
		return err
	}
	return put(out)
}

// largest updates absmax with one row: for every block b that the row crosses, absmax[b-first]
// becomes at least the row's largest magnitude in the block. The parameter first is the index of
// absmax[0] among all blocks.
func (q *requantized) largest(row int64, values []float32, first int64, absmax []float32) {
	q.grid.blocks(row, func(from, to, scale int64) {
		most := absmax[scale-first]
		for _, v := range values[from:to] {
			if a := math.Float32frombits(math.Float32bits(v) & 0x7fffffff); a > most { // false for NaN
				most = a
			}
		}
		absmax[scale-first] = most
	})
}

// settleAll computes the scales and factors of blocks from their largest magnitudes, absmax.
func (q *requantized) settleAll(absmax []float32) {
	q.stored, q.forward = q.stored[:0], q.forward[:0]
	for _, most := range absmax {
		stored, forward := q.settle(most)
		q.stored, q.forward = append(q.stored, stored...), append(q.forward, forward)
	}
}

// used records that one of the two entries, codes or scales, has been written. After the second it
// drops the scales.
func (q *requantized) used() {
	if q.unused--; q.unused <= 0 {
		q.stored, q.forward = nil, nil
	}
}

// measure computes the scales of all blocks. Later calls do nothing until the scales are dropped.
func (q *requantized) measure(l Layer) error {
	if q.stored != nil {
		return nil
	}
	absmax := make([]float32, q.grid.len())
	err := q.rows(l, func(row int64, values []float32) error {
		q.largest(row, values, 0, absmax)
		return nil
	})
	q.settleAll(absmax)
	return err
}

// rows calls use with the number and the fp32 values of each row of the weight, in order.
func (q *requantized) rows(l Layer, use func(row int64, values []float32) error) error {
	e, line := q.of, q.grid.line
	step := min(wholeLines(line), e.elems)
	buf, values := make([]byte, 4*step), make([]float32, line)
	for at := int64(0); at < e.elems; at += step {
		n := min(step, e.elems-at)
		var raw []byte
		if e.placed != nil {
			raw = e.collect(l, at, n, buf)
		} else {
			raw = l.encode(e.layout, planeF32, e.elem+at, n, buf)
		}
		for i := int64(0); i < n; i += line {
			getFloats(values, raw[4*i:])
			if err := use((at+i)/line, values); err != nil {
				return err
			}
		}
	}
	return nil
}
