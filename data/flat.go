package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Arrow describes itself in flatbuffers: tables whose fields are found through a vtable,
// which lies before the table. Only the little that is needed is read here, and every
// place is checked, since a library would allocate whatever a damaged file asks for.
// Sources: "FlatBuffers Internals", and Message.fbs and Schema.fbs of Apache Arrow's format.

// flat is a table in the buffer b, at pos. Reading outside of the buffer panics, as slices
// do; guarded turns that into an error.
type flat struct {
	b   []byte
	pos int
}

// flatRoot is the table to which the start of a buffer refers.
func flatRoot(b []byte) flat {
	return flat{b, int(binary.LittleEndian.Uint32(b))}
}

// field is the place of field i of the table, 0 where the field is absent and has its default.
func (t flat) field(i int) int {
	vtable := t.pos - int(int32(binary.LittleEndian.Uint32(t.b[t.pos:])))
	if at := 4 + 2*i; at < int(binary.LittleEndian.Uint16(t.b[vtable:])) {
		if off := int(binary.LittleEndian.Uint16(t.b[vtable+at:])); off != 0 {
			return t.pos + off
		}
	}
	return 0
}

// number is field i, an integer of so many bytes, or usual where the field is absent.
func (t flat) number(i, bytes int, usual int64) int64 {
	at := t.field(i)
	switch {
	case at == 0:
		return usual
	case bytes == 1:
		return int64(t.b[at])
	case bytes == 2:
		return int64(int16(binary.LittleEndian.Uint16(t.b[at:])))
	case bytes == 4:
		return int64(int32(binary.LittleEndian.Uint32(t.b[at:])))
	}
	return int64(binary.LittleEndian.Uint64(t.b[at:]))
}

// table is the table that field i refers to; false where the field is absent.
func (t flat) table(i int) (flat, bool) {
	at := t.field(i)
	if at == 0 {
		return flat{}, false
	}
	return flat{t.b, t.follow(at)}, true
}

func (t flat) follow(at int) int { return at + int(binary.LittleEndian.Uint32(t.b[at:])) }

// vector is field i, a vector: n elements of so many bytes each, the first at from.
func (t flat) vector(i, bytes int) (from, n int) {
	at := t.field(i)
	if at == 0 {
		return 0, 0
	}
	at = t.follow(at)
	n = int(binary.LittleEndian.Uint32(t.b[at:]))
	_ = t.b[at+4 : at+4+n*bytes]
	return at + 4, n
}

// text is field i, a string.
func (t flat) text(i int) string {
	from, n := t.vector(i, 1)
	return string(t.b[from : from+n])
}

// Kinds of Arrow types, with the numbers that Schema.fbs gives them.
const (
	arrowNull = iota + 1
	arrowInt
	arrowFloat
	arrowBinary
	arrowUtf8
	arrowBool
	arrowDecimal
	arrowDate
	arrowTime
	arrowTimestamp
	arrowInterval
	arrowList
	arrowStruct
	arrowUnion
	arrowFixedBinary
	arrowFixedList
	arrowMap
	arrowDuration
	arrowLargeBinary
	arrowLargeUtf8
	arrowLargeList
	arrowRunEnd
	arrowBinaryView
	arrowUtf8View
	arrowListView
	arrowLargeListView
)

// arrowField is a column of a schema, or one that is nested in a column.
type arrowField struct {
	name     string
	kind     int
	bits     int  // width of a value; 0: values have no fixed width
	unsigned bool // for whole numbers
	size     int  // elements of a list of fixed size
	buffers  int  // how many it has in a batch, without its children's; -1: the batch says
	children []*arrowField
	index    *arrowField // with a dictionary: the type of the indices; the values are of the field's own type
	dict     int64
	arrowMeaning
}

// mostArrowDepth bounds how deep types are nested, and mostArrowFields how many there are:
// in a damaged file references can lead in a circle.
const (
	mostArrowDepth  = 32
	mostArrowFields = 1 << 16
)

// arrowTypes reads a schema's fields and counts them in n.
type arrowTypes struct{ n int }

// arrowSchema are the fields of a schema.
func arrowSchema(s flat) ([]*arrowField, error) {
	if s.number(0, 2, 0) != 0 {
		return nil, errors.New("its numbers are big-endian; write the file on another machine")
	}
	return (&arrowTypes{}).fields(s, 1, 0)
}

// fields are the Arrow fields that field i of a table lists, depth levels deep.
func (a *arrowTypes) fields(t flat, i, depth int) ([]*arrowField, error) {
	if depth > mostArrowDepth {
		return nil, fmt.Errorf("types are nested deeper than %d levels", mostArrowDepth)
	}
	from, n := t.vector(i, 4)
	if a.n += n; a.n > mostArrowFields {
		return nil, fmt.Errorf("there are more than %d columns", mostArrowFields)
	}
	fields := make([]*arrowField, n)
	for k := range fields {
		at := from + 4*k
		f, err := a.field(flat{t.b, t.follow(at)}, depth)
		if err != nil {
			return nil, err
		}
		fields[k] = f
	}
	return fields, nil
}

func (a *arrowTypes) field(t flat, depth int) (f *arrowField, err error) {
	f = &arrowField{name: t.text(0), kind: int(t.number(2, 1, 0))}
	f.json = t.keyed(6, extensionKey) == jsonExtension && f.isText()
	if f.children, err = a.fields(t, 5, depth+1); err != nil {
		return nil, err
	}
	of, _ := t.table(3)
	if err := f.shape(of); err != nil {
		return nil, fmt.Errorf("column %q: %w", f.name, err)
	}
	if d, ok := t.table(4); ok {
		f.index, f.dict = &arrowField{kind: arrowInt, bits: 32, buffers: 2}, d.number(0, 8, 0)
		if of, ok := d.table(1); ok {
			err = f.index.shape(of)
		}
	}
	return f, err
}

// shape notes how values of the field's type lie in memory; the table of describes the type.
func (f *arrowField) shape(of flat) error {
	f.buffers = 2
	children := -1 // any number
	switch f.kind {
	case arrowNull, arrowRunEnd:
		f.buffers = 0
	case arrowInt:
		f.bits, f.unsigned = int(of.number(0, 4, 0)), of.number(1, 1, 0) == 0
	case arrowFloat:
		f.bits = 16 << of.number(0, 2, 0)
	case arrowBool:
		f.bits = 1
	case arrowDate, arrowTime, arrowTimestamp, arrowDuration, arrowInterval, arrowDecimal, arrowFixedBinary:
		f.bits = f.plainBits(of)
	case arrowBinary, arrowUtf8, arrowLargeBinary, arrowLargeUtf8, arrowListView, arrowLargeListView:
		f.buffers = 3
	case arrowList, arrowLargeList, arrowMap:
		children = 1
	case arrowStruct:
		f.buffers = 1
	case arrowFixedList:
		f.buffers, f.size, children = 1, int(of.number(0, 4, 0)), 1
	case arrowUnion:
		f.buffers = 1 + int(of.number(0, 2, 0))
	case arrowBinaryView, arrowUtf8View:
		f.buffers = -1
	default:
		return fmt.Errorf("type %d of Arrow is not known", f.kind)
	}
	if children >= 0 && len(f.children) != children || f.bits < 0 || f.bits > math.MaxInt32 || f.size < 0 || f.buffers > 3 {
		return errors.New("a type that cannot be")
	}
	return f.means(of)
}

// plainBits is the width in bits of a value of a type of which no more need be known: dates,
// times, decimals and the like.
func (f *arrowField) plainBits(of flat) int {
	switch f.kind {
	case arrowDate:
		return 32 << of.number(0, 2, 1)
	case arrowTime:
		return int(of.number(1, 4, 32))
	case arrowInterval:
		return []int{32, 64, 128}[of.number(0, 2, 0)]
	case arrowDecimal:
		return int(of.number(2, 4, 128))
	case arrowFixedBinary:
		return 8 * int(of.number(0, 4, 0))
	}
	return 64
}
