package data

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	pqformat "github.com/parquet-go/parquet-go/format"
)

// leafKind is what the values of a Parquet column mean.
type leafKind int

const (
	leafPlain    leafKind = iota // numbers and booleans, as their physical type has them
	leafBytes                    // bytes, which may be a text
	leafText                     // a text
	leafJSON                     // a text in JSON
	leafOpaque                   // bytes of a format that is no text
	leafUnsigned                 // a whole number without a sign
	leafHalf                     // a number in half precision
	leafDecimal
	leafDate
	leafClock
	leafInstant
	leafInterval
	leafUUID
)

// parquetLeaf is the meaning of the values of a Parquet column, which has one of few physical
// types.
type parquetLeaf struct {
	kind      leafKind
	name      string // the type, for errors
	column    bool   // it is a column of its own, in no struct or list
	scale     int    // of leafDecimal: digits behind the point
	perSecond int64  // of leafClock and leafInstant: units in a second
	zone      bool   // of leafInstant: it is UTC
}

// readTypes reads what the footer says of the columns' types.
func (r *parquetRows) readTypes() {
	var elements []pqformat.SchemaElement
	for _, e := range r.file.Metadata().Schema {
		if e.Type.Valid {
			elements = append(elements, e)
		}
	}
	r.leaves = make([]parquetLeaf, len(elements))
	r.types = map[string]*colType{}
	features, _ := r.file.Lookup(featuresKey)
	schema, _ := r.file.Lookup(arrowSchemaKey)
	said := []*colType{{fields: featureTypes([]byte(features))}, {fields: schemaTypes(schema)}}
	for _, c := range r.file.Root().Columns() {
		r.types[c.Name()] = r.columnType(c, elements, fieldsSaid(said, c.Name()), true)
	}
}

// schemaTypes reads the schema of Arrow that a Parquet file's footer has in Base64: columns of
// an extension type are known by it alone. It returns nil where text holds none.
func schemaTypes(text string) (types map[string]*colType) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 16 {
		return nil
	}
	_ = guarded(func() error { // a damaged schema of Arrow leaves that of Parquet, which is whole
		m := flatRoot(b[8:])
		schema, ok := m.table(2)
		if !ok || m.number(1, 1, 0) != arrowSchemaMessage {
			return nil
		}
		fields, err := arrowSchema(schema)
		if err == nil {
			types = arrowColumnTypes(fields)
		}
		return err
	})
	return types
}

// fieldsSaid and itemsSaid go from several descriptions of one type to those of a field or an element.
func fieldsSaid(said []*colType, name string) []*colType {
	out := make([]*colType, len(said))
	for i, t := range said {
		out[i] = t.field(name)
	}
	return out
}

func itemsSaid(said []*colType) []*colType {
	out := make([]*colType, len(said))
	for i, t := range said {
		out[i] = t.item()
	}
	return out
}

// columnType describes a column with what repeats in it, and notes the meaning of its leaves. said
// are other descriptions of the column.
func (r *parquetRows) columnType(c *parquet.Column, elements []pqformat.SchemaElement, said []*colType, column bool) *colType {
	if c.Repeated() {
		return &colType{name: "list", element: r.valueType(c, elements, itemsSaid(said), false)}
	}
	return r.valueType(c, elements, said, column)
}

// valueType describes one value of a column.
func (r *parquetRows) valueType(c *parquet.Column, elements []pqformat.SchemaElement, said []*colType, column bool) *colType {
	if c.Leaf() {
		t := &colType{name: c.Type().String()}
		at := c.Index()
		if at < 0 || at >= len(elements) {
			return t
		}
		leaf := leafOf(c.Type(), &elements[at])
		leaf.column = column
		for _, s := range said {
			if s.saysJSON() && (leaf.kind == leafText || leaf.kind == leafBytes) {
				leaf.kind = leafJSON
			}
		}
		r.leaves[at], t.name, t.json = leaf, leaf.name, leaf.kind == leafJSON
		return t
	}
	kids := c.Columns()
	if one := len(kids) == 1 && kids[0].Repeated(); one && c.Type().String() == "LIST" {
		element := kids[0]
		if in := element.Columns(); !element.Leaf() && len(in) == 1 && element.Name() != "array" {
			return &colType{name: "list", element: r.columnType(in[0], elements, itemsSaid(said), false)}
		}
		return &colType{name: "list", element: r.valueType(element, elements, itemsSaid(said), false)}
	}
	if isMap(c) { // any keys, each of which is there
		for _, k := range kids[0].Columns() {
			r.columnType(k, elements, nil, false)
		}
		return &colType{name: "map"}
	}
	t := &colType{name: "struct", fields: map[string]*colType{}}
	for _, k := range kids {
		t.fields[k.Name()] = r.columnType(k, elements, fieldsSaid(said, k.Name()), false)
	}
	return t
}

// isMap reports whether c is a MAP, whose one column repeats and has a key and a value.
func isMap(c *parquet.Column) bool {
	kids := c.Columns()
	return len(kids) == 1 && kids[0].Repeated() && c.Type().String() == "MAP" && len(kids[0].Columns()) == 2
}

// perSecond is how many units a second has; 1 for a unit that is not known.
func perSecond(u pqformat.TimeUnit) int64 {
	switch u.Value.(type) {
	case *pqformat.MilliSeconds:
		return 1_000
	case *pqformat.MicroSeconds:
		return 1_000_000
	case *pqformat.NanoSeconds:
		return 1_000_000_000
	}
	return 1
}

// leafOf is the meaning of a column of type t, which e describes. Source: parquet-format,
// LogicalTypes.md.
func leafOf(t parquet.Type, e *pqformat.SchemaElement) parquetLeaf {
	leaf := parquetLeaf{name: t.String()}
	bytes := t.Kind() == parquet.ByteArray || t.Kind() == parquet.FixedLenByteArray
	if l := t.LogicalType(); l != nil {
		leaf.annotated(l.Value)
	}
	if leaf.kind == leafPlain && e.LogicalType.Value != nil { // the library does not know all annotations
		leaf.name = e.LogicalType.String()
		leaf.annotated(e.LogicalType.Value)
	}
	fixed := int32(0)
	if t.Kind() == parquet.FixedLenByteArray {
		fixed = e.TypeLength.V
	}
	switch {
	case e.ConvertedType.Valid && e.ConvertedType.V == deprecated.Interval:
		leaf.kind, leaf.name = leafInterval, "INTERVAL"
	case leaf.kind == leafPlain && bytes && e.LogicalType.Value != nil:
		leaf.kind = leafOpaque
	case leaf.kind == leafPlain && bytes:
		leaf.kind = leafBytes
	}
	for kind, size := range map[leafKind]int32{leafHalf: 2, leafUUID: 16, leafInterval: 12} {
		if leaf.kind == kind && fixed != size { // an annotation that does not fit the type
			leaf.kind = leafOpaque
		}
	}
	whole := t.Kind() == parquet.Int32 || t.Kind() == parquet.Int64
	switch leaf.kind {
	case leafDate, leafClock, leafInstant, leafUnsigned:
		if !whole {
			leaf.kind = leafOpaque
		}
	case leafDecimal:
		if leaf.scale > mostScale || leaf.scale < -mostScale || !whole && !bytes {
			leaf.kind = leafOpaque
		}
	case leafText, leafJSON:
		if !bytes {
			leaf.kind = leafPlain
		}
	}
	return leaf
}

// annotated takes the meaning that a logical type gives to values.
func (leaf *parquetLeaf) annotated(l pqformat.LogicalTypeValue) {
	switch l := l.(type) {
	case *pqformat.StringType, *pqformat.EnumType:
		leaf.kind = leafText
	case *pqformat.JsonType:
		leaf.kind = leafJSON
	case *pqformat.DecimalType:
		leaf.kind, leaf.scale = leafDecimal, int(l.Scale)
	case *pqformat.DateType:
		leaf.kind = leafDate
	case *pqformat.TimeType:
		leaf.kind, leaf.perSecond = leafClock, perSecond(l.Unit)
	case *pqformat.TimestampType:
		leaf.kind, leaf.perSecond, leaf.zone = leafInstant, perSecond(l.Unit), l.IsAdjustedToUTC
	case *pqformat.IntType:
		if !l.IsSigned {
			leaf.kind = leafUnsigned
		}
	case *pqformat.UUIDType:
		leaf.kind = leafUUID
	case *pqformat.Float16Type:
		leaf.kind = leafHalf
	}
}

// appendValue appends a value of a column without columns in it.
func (f *parquetField) appendValue(dst []byte, v parquet.Value) ([]byte, error) {
	l := &f.of
	whole := func() int64 {
		if v.Kind() == parquet.Int32 {
			return int64(v.Int32())
		}
		return v.Int64()
	}
	switch l.kind {
	case leafBytes:
		return appendBytes(dst, l.name, v.ByteArray()), nil
	case leafText:
		return quote(dst, v.ByteArray()), nil
	case leafJSON:
		return appendJSON(dst, v.ByteArray())
	case leafUnsigned:
		if v.Kind() == parquet.Int32 {
			return strconv.AppendUint(dst, uint64(uint32(v.Int32())), 10), nil
		}
		return strconv.AppendUint(dst, uint64(v.Int64()), 10), nil
	case leafHalf:
		return appendHalf(dst, l.column, binary.LittleEndian.Uint16(v.ByteArray())), nil
	case leafDecimal:
		unscaled := new(big.Int)
		if k := v.Kind(); k == parquet.Int32 || k == parquet.Int64 {
			unscaled.SetInt64(whole())
		} else {
			unscaled = bigEndian(v.ByteArray())
		}
		return appendNumber(dst, l.column, decimalText(unscaled, l.scale)), nil
	case leafDate:
		return appendNamed(dst, l.column, l.name, dateText(whole())), nil
	case leafClock:
		return appendNamed(dst, l.column, l.name, clockText(whole(), l.perSecond)), nil
	case leafInstant:
		return appendNamed(dst, l.column, l.name, timeText(whole(), l.perSecond, l.zone)), nil
	case leafInterval:
		return appendNamed(dst, l.column, l.name, parquetInterval(v.ByteArray())), nil
	case leafUUID:
		return appendNamed(dst, l.column, l.name, uuidText(v.ByteArray())), nil
	case leafOpaque:
		return appendNamed(dst, true, l.name+" in Base64", base64.StdEncoding.EncodeToString(v.ByteArray())), nil
	}
	return f.appendPlain(dst, v)
}

// appendPlain appends a value of which the physical type says all.
func (f *parquetField) appendPlain(dst []byte, v parquet.Value) ([]byte, error) {
	switch v.Kind() {
	case parquet.Boolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	case parquet.Int32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case parquet.Int64:
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case parquet.Float, parquet.Double:
		x := v.Double()
		if v.Kind() == parquet.Float {
			x = float64(v.Float())
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return append(dst, "null"...), nil
		}
		return strconv.AppendFloat(dst, x, 'g', -1, 64), nil
	case parquet.Int96:
		return appendNamed(dst, f.of.column, "INT96", deprecated.Int96(v.Int96()).String()), nil
	}
	return dst, fmt.Errorf("values of kind %s", v.Kind())
}
