package data

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// arrowMeaning is what the values of a column of Arrow mean, beside how they lie in memory.
type arrowMeaning struct {
	json      bool  // a text in JSON
	column    bool  // it is a column of its own, in no struct or list
	scale     int   // of a decimal: digits behind the point
	perSecond int64 // of times: units in a second
	zone      bool  // of a timestamp: it is UTC
	unit      int64 // of dates and intervals, as Schema.fbs numbers it
}

// arrowTypeNames are the names of Arrow's types, by kind.
var arrowTypeNames = map[int]string{
	arrowNull: "null", arrowInt: "int", arrowFloat: "float", arrowBinary: "binary", arrowUtf8: "utf8", arrowBool: "bool",
	arrowDecimal: "decimal", arrowDate: "date", arrowTime: "time", arrowTimestamp: "timestamp", arrowInterval: "interval",
	arrowList: "list", arrowStruct: "struct", arrowUnion: "union", arrowFixedBinary: "fixed_size_binary", arrowFixedList: "fixed_size_list",
	arrowMap: "map", arrowDuration: "duration", arrowLargeBinary: "large_binary", arrowLargeUtf8: "large_utf8",
	arrowLargeList: "large_list", arrowRunEnd: "run_end_encoded", arrowBinaryView: "binary_view", arrowUtf8View: "utf8_view",
	arrowListView: "list_view", arrowLargeListView: "large_list_view",
}

// typeName is the name of the field's type, for errors.
func (f *arrowField) typeName() string {
	switch name := arrowTypeNames[f.kind]; f.kind {
	case arrowFloat, arrowDecimal:
		return name + strconv.Itoa(f.bits)
	case arrowFixedBinary:
		return fmt.Sprintf("%s(%d)", name, f.bits/8)
	default:
		return name
	}
}

// isText reports whether values are texts, or bytes that may be.
func (f *arrowField) isText() bool {
	return slices.Contains([]int{arrowUtf8, arrowLargeUtf8, arrowUtf8View, arrowBinary, arrowLargeBinary, arrowBinaryView}, f.kind)
}

// means notes what values of the field's type mean; the table of describes the type. Source:
// Schema.fbs, with the defaults there.
func (f *arrowField) means(of flat) error {
	unit := int64(-1)
	switch f.kind {
	case arrowDecimal:
		f.scale = int(of.number(1, 4, 0))
		if f.scale > mostScale || f.scale < -mostScale || !slices.Contains([]int{32, 64, 128, 256}, f.bits) {
			return errors.New("a type that cannot be")
		}
	case arrowDate:
		f.unit = of.number(0, 2, 1)
	case arrowInterval:
		f.unit = of.number(0, 2, 0)
	case arrowTime, arrowDuration:
		unit = of.number(0, 2, 1)
	case arrowTimestamp:
		unit, f.zone = of.number(0, 2, 0), of.text(1) != ""
	}
	f.perSecond = 1
	for range unit {
		f.perSecond *= 1_000
	}
	if unit > 3 {
		return errors.New("a type that cannot be")
	}
	return nil
}

// meanings applies descriptions of the columns that stand beside the schema, by column, and
// marks the columns themselves.
func meanings(fields []*arrowField, said ...map[string]*colType) {
	for _, f := range fields {
		f.column = true
		for _, s := range said {
			f.take(s[f.name])
		}
	}
}

// take applies another description of a column, which may know that texts are JSON.
func (f *arrowField) take(t *colType) {
	switch {
	case t == nil:
	case t.json:
		f.json = f.json || f.isText()
	default:
		for _, c := range f.children {
			if t.element != nil {
				c.take(t.element)
			} else {
				c.take(t.field(c.name))
			}
		}
	}
}

// arrowColumnTypes describes the columns of a schema.
func arrowColumnTypes(fields []*arrowField) map[string]*colType {
	out := map[string]*colType{}
	for _, f := range fields {
		out[f.name] = f.describe()
	}
	return out
}

// describe is the field's type.
func (f *arrowField) describe() *colType {
	t := &colType{name: f.typeName(), json: f.json}
	switch f.kind {
	case arrowStruct:
		t.fields = arrowColumnTypes(f.children)
	case arrowList, arrowLargeList, arrowFixedList, arrowListView, arrowLargeListView:
		if len(f.children) == 1 {
			t.element = f.children[0].describe()
		}
	}
	return t
}

// keyed is the value of a key in field i, a vector of pairs of keys and values; "" where there
// is none.
func (t flat) keyed(i int, key string) string {
	from, n := t.vector(i, 4)
	for k := range n {
		if kv := (flat{t.b, t.follow(from + 4*k)}); kv.text(0) == key {
			return kv.text(1)
		}
	}
	return ""
}

// bytes are those of value i of a column of texts or bytes.
func (c *arrowColumn) bytes(i int64) []byte {
	switch c.kind {
	case arrowFixedBinary:
		n := int64(c.bits / 8)
		return c.data[i*n:][:n]
	case arrowUtf8View, arrowBinaryView:
		view := c.data[16*i:][:16]
		n := int64(int32(binary.LittleEndian.Uint32(view)))
		if n <= 12 {
			return view[4:][:n]
		}
		block, from := binary.LittleEndian.Uint32(view[8:]), int64(binary.LittleEndian.Uint32(view[12:]))
		return c.blocks[block][from:][:n]
	}
	from, to := c.span(i)
	return c.data[from:to]
}

// littleEndian is b the other way round.
func littleEndian(b []byte) []byte {
	out := slices.Clone(b)
	slices.Reverse(out)
	return out
}

// appendTyped appends value i of a type that JSON lacks.
func (c *arrowColumn) appendTyped(dst []byte, i int64) ([]byte, error) {
	kind := c.typeName()
	named := func(text string) ([]byte, error) { return appendNamed(dst, c.column, kind, text), nil }
	switch c.kind {
	case arrowBinary, arrowLargeBinary, arrowBinaryView:
		return appendBytes(dst, kind, c.bytes(i)), nil
	case arrowFixedBinary:
		return appendNamed(dst, true, kind+" in Base64", base64.StdEncoding.EncodeToString(c.bytes(i))), nil
	case arrowDecimal:
		n := int64(c.bits / 8)
		return appendNumber(dst, c.column, decimalText(bigEndian(littleEndian(c.data[i*n:][:n])), c.scale)), nil
	case arrowDate:
		v := c.whole(c.data, i)
		if c.unit == 1 {
			v = floorDiv(v, 86_400_000)
		}
		return named(dateText(v))
	case arrowTime:
		return named(clockText(c.whole(c.data, i), c.perSecond))
	case arrowTimestamp:
		return named(timeText(c.whole(c.data, i), c.perSecond, c.zone))
	case arrowDuration:
		v := c.whole(c.data, i)
		seconds := floorDiv(v, c.perSecond)
		return named(strconv.FormatInt(seconds, 10) + time.Unix(0, (v-seconds*c.perSecond)*(1_000_000_000/c.perSecond)).UTC().Format(".999999999") + "s")
	case arrowInterval:
		n := func(k int64) int64 { return int64(int32(binary.LittleEndian.Uint32(c.data[k:]))) }
		switch at := i * int64(c.bits/8); c.unit {
		case 0:
			return named(intervalText(n(at), 0, 0))
		case 1:
			return named(intervalText(0, n(at), n(at+4)*1_000_000))
		default:
			return named(intervalText(n(at), n(at+4), int64(binary.LittleEndian.Uint64(c.data[at+8:]))))
		}
	}
	return dst, fmt.Errorf("type %s of Arrow is not read; write it as JSONL or Parquet", kind)
}

// appendMap appends value i of a map as an object.
func (c *arrowColumn) appendMap(dst []byte, i int64, most int) (_ []byte, err error) {
	entries := c.children[0]
	from, to := c.span(i)
	if len(entries.children) != 2 || from < 0 || from > to || to > entries.n {
		return dst, fmt.Errorf("a map from %d to %d of %d entries", from, to, entries.n)
	}
	dst = append(dst, '{')
	for k := from; k < to; k++ {
		if k > from {
			dst = append(dst, ',')
		}
		at := len(dst)
		if dst, err = entries.children[0].append(dst, k, most); err != nil {
			return dst, err
		}
		if dst, err = entries.children[1].append(append(asKey(dst, at), ':'), k, most); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
