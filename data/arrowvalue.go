package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// arrowColumn is a column of a batch, or a column nested in one.
type arrowColumn struct {
	*arrowField
	n        int64  // how many values it has
	valid    []byte // a bit for each value, 0 where it is null; empty: none is null
	offsets  []byte // where each value begins, then where the last one ends
	data     []byte
	sizes    []byte   // of a list's view: how many elements each value has
	blocks   [][]byte // of views of texts: the texts that are longer than a view
	children []*arrowColumn
}

// offsetBytes is the width in bytes of one of a column's offsets, 0 where it has none.
func (f *arrowField) offsetBytes() int64 {
	switch f.kind {
	case arrowUtf8, arrowBinary, arrowList, arrowMap, arrowListView:
		return 4
	case arrowLargeUtf8, arrowLargeBinary, arrowLargeList, arrowLargeListView:
		return 8
	}
	return 0
}

// check tells whether a column that is to be read is of a type that is supported, and
// whether its buffers are long enough for its values.
func (c *arrowColumn) check() error {
	switch c.kind {
	case arrowUnion, arrowRunEnd:
		return fmt.Errorf("type %s of Arrow is not read; write it as JSONL or Parquet", c.typeName())
	}
	short := c.n < 0 || c.n > maxArrowBatch || len(c.valid) > 0 && int64(len(c.valid)) < (c.n+7)/8
	switch w := c.offsetBytes(); {
	case c.isListView():
		short = short || int64(len(c.offsets)) < c.n*w || int64(len(c.sizes)) < c.n*w
	case w > 0 && c.n > 0:
		short = short || int64(len(c.offsets)) < (c.n+1)*w
	case c.kind == arrowUtf8View || c.kind == arrowBinaryView:
		short = short || int64(len(c.data)) < 16*c.n
	}
	if c.bits > 0 {
		short = short || int64(len(c.data)) < (c.n*int64(c.bits)+7)/8
	}
	for _, child := range c.children {
		if c.kind == arrowStruct || c.kind == arrowFixedList {
			short = short || child.n < c.n*int64(max(1, c.size)) && c.n > 0 && (c.kind == arrowStruct || c.size > 0)
		}
	}
	if short {
		return fmt.Errorf("its %d values take more bytes than are there", c.n)
	}
	return nil
}

// append appends value i as JSON. It is an error where dst has more than most bytes.
func (c *arrowColumn) append(dst []byte, i int64, most int) ([]byte, error) {
	if len(dst) > most {
		return dst, errRowSize
	}
	if c.kind == arrowNull || len(c.valid) > 0 && c.valid[i/8]>>(i%8)&1 == 0 {
		return append(dst, "null"...), nil
	}
	if c.index != nil {
		return c.children[0].append(dst, c.index.whole(c.data, i), most)
	}
	switch c.kind {
	case arrowUtf8, arrowLargeUtf8, arrowUtf8View, arrowBinary, arrowLargeBinary, arrowBinaryView:
		switch {
		case c.json:
			return appendJSON(dst, c.bytes(i))
		case c.kind == arrowUtf8, c.kind == arrowLargeUtf8, c.kind == arrowUtf8View:
			return quote(dst, c.bytes(i)), nil
		}
	case arrowMap:
		return c.appendMap(dst, i, most)
	case arrowList, arrowLargeList, arrowListView, arrowLargeListView:
		from, to := c.span(i)
		return c.appendList(dst, from, to, most)
	case arrowFixedList:
		return c.appendList(dst, i*int64(c.size), (i+1)*int64(c.size), most)
	case arrowStruct:
		return c.appendStruct(dst, i, most)
	case arrowBool:
		return strconv.AppendBool(dst, c.data[i/8]>>(i%8)&1 == 1), nil
	case arrowFloat:
		return c.appendFloat(dst, i), nil
	}
	if c.kind != arrowInt {
		return c.appendTyped(dst, i)
	}
	if v := c.whole(c.data, i); c.unsigned && v < 0 {
		return strconv.AppendUint(dst, uint64(v), 10), nil
	} else {
		return strconv.AppendInt(dst, v, 10), nil
	}
}

// isListView reports whether the field's lists have sizes of their own.
func (f *arrowField) isListView() bool {
	return f.kind == arrowListView || f.kind == arrowLargeListView
}

// span is where value i lies: the range of bytes in data, or of elements in the child.
func (c *arrowColumn) span(i int64) (from, to int64) {
	if c.isListView() {
		at := func(b []byte) int64 {
			if c.offsetBytes() == 8 {
				return int64(binary.LittleEndian.Uint64(b[8*i:]))
			}
			return int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
		return at(c.offsets), at(c.offsets) + at(c.sizes)
	}
	if c.offsetBytes() == 8 {
		return int64(binary.LittleEndian.Uint64(c.offsets[8*i:])), int64(binary.LittleEndian.Uint64(c.offsets[8*i+8:]))
	}
	return int64(int32(binary.LittleEndian.Uint32(c.offsets[4*i:]))), int64(int32(binary.LittleEndian.Uint32(c.offsets[4*i+4:])))
}

// whole is whole number i in data. An unsigned number of 64 bits may come out negative;
// its bits are then those of the number.
func (f *arrowField) whole(data []byte, i int64) int64 {
	switch {
	case f.bits == 8 && f.unsigned:
		return int64(data[i])
	case f.bits == 8:
		return int64(int8(data[i]))
	case f.bits == 16 && f.unsigned:
		return int64(binary.LittleEndian.Uint16(data[2*i:]))
	case f.bits == 16:
		return int64(int16(binary.LittleEndian.Uint16(data[2*i:])))
	case f.bits == 32 && f.unsigned:
		return int64(binary.LittleEndian.Uint32(data[4*i:]))
	case f.bits == 32:
		return int64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	case f.bits == 64:
		return int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	panic(fmt.Sprintf("whole numbers of %d bits", f.bits))
}

// appendFloat appends number i, or null where JSON cannot write it.
func (c *arrowColumn) appendFloat(dst []byte, i int64) []byte {
	var v float64
	switch c.bits {
	case 32:
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(c.data[4*i:])))
	case 64:
		v = math.Float64frombits(binary.LittleEndian.Uint64(c.data[8*i:]))
	default:
		return appendHalf(dst, c.column, binary.LittleEndian.Uint16(c.data[2*i:]))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, c.bits)
}

func (c *arrowColumn) appendList(dst []byte, from, to int64, most int) (_ []byte, err error) {
	if values := c.children[0]; from < 0 || from > to || to > values.n {
		return dst, fmt.Errorf("a list from %d to %d of %d values", from, to, values.n)
	}
	dst = append(dst, '[')
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		if dst, err = c.children[0].append(dst, i, most); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func (c *arrowColumn) appendStruct(dst []byte, i int64, most int) (_ []byte, err error) {
	dst = append(dst, '{')
	for k, child := range c.children {
		if k > 0 {
			dst = append(dst, ',')
		}
		if dst, err = child.append(append(quote(dst, child.name), ':'), i, most); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
