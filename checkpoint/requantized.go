package checkpoint

import "math"

// requantized computes a quantized tensor anew from the weights. Two entries share it: the codes and the scales.
type requantized struct {
	of   *entry // the weights in fp32, transposed or not, as the tensor holds them
	grid grid
	// settle returns a block's scale as it is stored, and forward, the factor by which values are multiplied before
	// they become codes. absmax is the largest magnitude in the block.
	settle func(absmax float32) (stored []byte, forward float32)
	// encode appends the codes of values × forward.
	encode func(out []byte, values []float32, forward float32) []byte

	stored  []byte    // scales of all blocks; nil: not computed yet
	forward []float32 // factors of all blocks
	unused  int       // number of entries not written yet; 0: the scales can be dropped
}

// entry returns the entry that holds the scales, or the codes.
func (q *requantized) entry(t tensor, scales bool) *entry {
	return &entry{tensor: t, layer: q.of.layer, elems: t.bytes / dtypeSize[t.dtype], plane: planeAsIs, quant: q, scales: scales}
}

// pieces passes the bytes of the codes, or with scales those of the scales, to put, in order.
func (q *requantized) pieces(l Layer, scales bool, put func([]byte) error) error {
	if err := q.measure(l); err != nil {
		return err
	}
	defer q.used()
	if scales {
		return put(q.stored)
	}
	out := make([]byte, 0, min(pieceBytes, q.of.elems))
	err := q.rows(l, func(row int64, values []float32) error {
		if len(out) > 0 && len(out)+len(values) > cap(out) {
			if err := put(out); err != nil {
				return err
			}
			out = out[:0]
		}
		q.grid.blocks(row, func(from, to, scale int64) { out = q.encode(out, values[from:to], q.forward[scale]) })
		return nil
	})
	if err != nil {
		return err
	}
	return put(out)
}

// used drops the scales once both entries are written.
func (q *requantized) used() {
	if q.unused--; q.unused <= 0 {
		q.stored, q.forward = nil, nil
	}
}

// measure computes the scales of all blocks, once.
func (q *requantized) measure(l Layer) error {
	if q.stored != nil {
		return nil
	}
	absmax := make([]float32, q.grid.len())
	err := q.rows(l, func(row int64, values []float32) error {
		q.grid.blocks(row, func(from, to, scale int64) {
			most := absmax[scale]
			for _, v := range values[from:to] {
				if a := math.Float32frombits(math.Float32bits(v) & 0x7fffffff); a > most { // false for NaN
					most = a
				}
			}
			absmax[scale] = most
		})
		return nil
	})
	for _, most := range absmax {
		stored, forward := q.settle(most)
		q.stored, q.forward = append(q.stored, stored...), append(q.forward, forward)
	}
	return err
}

// rows calls use with the values of each row, in order.
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
