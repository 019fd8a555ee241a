package data

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	pqformat "github.com/parquet-go/parquet-go/format"
)

// parquetRows reads the rows of a Parquet file as JSON. It reads all columns side by side, with one page of each
// column in memory. A panic of the Parquet library becomes an error.
type parquetRows struct {
	src    io.ReaderAt
	file   *parquet.File
	size   int64
	wanted func(string) bool
	types  map[string]*colType // types of the columns
	leaves []parquetLeaf       // meaning of each leaf column
	fields []*parquetField     // columns of the current row group
	group  int                 // the next row group
	left   int64               // remaining rows of the current row group
	n      int64               // rows returned so far
}

// parquetField is a column of the current row group, or a group of columns such as a struct.
type parquetField struct {
	name     string
	optional bool // a value may be null
	repeated bool
	def, rep int // definition level of a value that is not null; repetition level of a further element
	children []*parquetField
	leaf     *leafReader
	list     bool // LIST: the elements are in children[0]
	pairs    bool // MAP: the entries are in children[0]
	of       parquetLeaf
}

// wanted returns a function for data set number set. The function reports whether a column of a
// Parquet file is read: either some format uses its name, or the configuration names it.
func (s *Spec) wanted(set int) func(name string) bool {
	known := map[string]bool{"chat_template_kwargs": true, questionField: true, olderTools: true}
	add := func(c *columns) {
		for _, n := range []string{c.Text, c.System, c.Tools, c.Prompt, c.Query, c.Response, c.History, c.Messages, c.Chosen, c.Rejected} {
			known[n] = true
		}
	}
	for _, c := range []*columns{s.sets[set].Columns, s.sets[set].Names} {
		if c != nil {
			add(c)
		}
	}
	for _, m := range marks {
		known[m.field] = true
		add(columnsOf(m.format))
	}
	for _, r := range responses {
		known[r] = true
	}
	return func(name string) bool { return known[name] || s.Columns.has(name) }
}

// beside returns a function that accepts all columns that wanted accepts, and columns that only
// describe others. These are the fields that mark bad answers and, if the file has input_ids, the
// other lists of such a row. The list names has the file's columns.
func beside(names []string, wanted func(string) bool) func(string) bool {
	ids := slices.Contains(names, "input_ids")
	return func(name string) bool {
		return wanted(name) || ids && slices.Contains(idLists, name) || slices.Contains(notAnswers, name)
	}
}

// guarded calls f and returns its error. If f panics, or accesses memory that it may not, guarded returns an error
// that describes the panic.
func guarded(f func() error) (err error) {
	faulting := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(faulting)
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the file is damaged (%v)", cause)
		}
	}()
	return f()
}

// openParquet reads the footer of a Parquet file of size bytes and returns a reader of its rows. wanted reports
// whether the column with this name is read.
func openParquet(f io.ReaderAt, size int64, wanted func(string) bool) (r *parquetRows, err error) {
	r = &parquetRows{src: f, size: size, wanted: wanted}
	err = guarded(func() error {
		if err := checkFooter(f, size); err != nil {
			return err
		}
		file, err := parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		if err != nil {
			return err
		}
		r.file = file
		var names []string
		for _, c := range file.Root().Columns() {
			names = append(names, c.Name())
		}
		if !slices.ContainsFunc(names, wanted) {
			return errNoColumn(names)
		}
		r.wanted = beside(names, wanted)
		r.readTypes()
		return noImageColumns(names)
	})
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	return r, nil
}

// progress returns an estimate of how many bytes of the file are done: the share of rows read, times the file's size.
func (r *parquetRows) progress() int64 {
	if all := r.file.NumRows(); all > 0 {
		return int64(float64(r.size) * min(1, float64(r.n)/float64(all)))
	}
	return 0
}

func (r *parquetRows) next(dst []byte) (row []byte, n int64, err error) {
	from, at := len(dst), r.n+1
	err = guarded(func() error {
		if err := r.advance(); err != nil {
			return err
		}
		r.n++
		r.left--
		var err error
		dst, err = r.appendRow(dst)
		return err
	})
	var bad *badRow
	if err != nil && err != io.EOF && !errors.As(err, &bad) {
		err = fmt.Errorf("parquet: row %d: %w", at, err)
	}
	if err != nil {
		dst = dst[:from]
	}
	return dst, r.n, err
}

// advance moves to the next row group with rows, if the current one has none left.
func (r *parquetRows) advance() error {
	for r.left <= 0 {
		r.close()
		groups := r.file.RowGroups()
		if r.group >= len(groups) {
			return io.EOF
		}
		g := groups[r.group]
		r.group++
		if r.left = g.NumRows(); r.left < 0 {
			return fmt.Errorf("a row group of %d rows", r.left)
		}
		if r.left == 0 { // columns of an empty group may have no pages
			continue
		}
		chunks := g.ColumnChunks()
		for _, c := range r.file.Root().Columns() {
			if !r.wanted(c.Name()) {
				continue
			}
			f, err := r.field(c, chunks, 0, 0)
			if err != nil {
				return fmt.Errorf("column %q: %w", c.Name(), err)
			}
			r.fields = append(r.fields, f)
		}
	}
	return nil
}

// field returns a column of the row group, or a group of columns, ready to read. chunks holds the data of the row
// group's leaf columns. def and rep are the definition and repetition levels of the column's parent.
func (r *parquetRows) field(c *parquet.Column, chunks []parquet.ColumnChunk, def, rep int) (*parquetField, error) {
	f := &parquetField{name: c.Name(), optional: c.Optional(), repeated: c.Repeated()}
	if f.optional || f.repeated {
		def++
	}
	if f.repeated {
		rep++
	}
	f.def, f.rep = def, rep
	kind := c.Type().String()
	if c.Leaf() {
		at := c.Index()
		if at < 0 || at >= len(chunks) {
			return nil, errors.New("its data is missing")
		}
		if err := r.checkPages(at); err != nil {
			return nil, err
		}
		if at < len(r.leaves) {
			f.of = r.leaves[at]
		}
		f.leaf = &leafReader{pages: chunks[at].Pages()}
		return f, nil
	}
	for _, child := range c.Columns() {
		k, err := r.field(child, chunks, def, rep)
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, k)
	}
	if len(f.children) == 0 {
		return nil, errors.New("a group without columns")
	}
	one := len(f.children) == 1 && f.children[0].repeated
	f.list = one && kind == "LIST"
	f.pairs = one && kind == "MAP" && len(f.children[0].children) == 2
	return f, nil
}

// close frees the pages of the current row group.
func (r *parquetRows) close() {
	_ = guarded(func() error {
		for _, f := range r.fields {
			f.close()
		}
		return nil
	})
	r.fields = nil
}

func (f *parquetField) close() {
	if f.leaf != nil {
		f.leaf.close()
	}
	for _, c := range f.children {
		c.close()
	}
}

// appendRow appends the next row to dst as a JSON object.
func (r *parquetRows) appendRow(dst []byte) ([]byte, error) {
	from := len(dst)
	dst = append(dst, '{')
	for _, f := range r.fields { // load all columns, so that a skipped row leaves none behind
		if err := f.load(); err != nil {
			return dst, fmt.Errorf("column %q: %w", f.name, err)
		}
	}
	for i, f := range r.fields {
		var err error
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quote(dst, f.name)
		dst = append(dst, ':')
		if dst, err = f.append(dst, from+maxRow); err != nil {
			return dst, inColumn(f.name, err)
		}
	}
	for _, f := range r.fields {
		if !f.empty() {
			return dst, fmt.Errorf("column %q: its columns do not fit together", f.name)
		}
	}
	return append(dst, '}'), nil
}

// quote appends text to dst as a JSON string. Invalid UTF-8 is left unchanged; the code that parses the row reports
// it.
func quote[T string | []byte](dst []byte, text T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// leafKind says how to read the values of a Parquet leaf column.
type leafKind int

const (
	leafPlain    leafKind = iota // numbers and booleans of the physical type
	leafBytes                    // bytes that may be text
	leafText                     // text
	leafJSON                     // JSON text
	leafOpaque                   // bytes in a binary format
	leafUnsigned                 // an unsigned integer
	leafHalf                     // a half-precision number
	leafDecimal
	leafDate
	leafClock
	leafInstant
	leafInterval
	leafUUID
)

// parquetLeaf says how to read the values of a leaf column: a number, for example, may be a date.
type parquetLeaf struct {
	kind      leafKind
	name      string // type name, for errors
	column    bool   // a top-level column, in no struct or list
	scale     int    // of leafDecimal: digits after the point
	perSecond int64  // of leafClock and leafInstant: units per second
	zone      bool   // of leafInstant: UTC
}

// readTypes reads the types of the columns from the file's footer into r.types and r.leaves.
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

// schemaTypes returns the types, by column name, in text: the Arrow schema that a Parquet footer holds in Base64.
// Only this schema names extension types, such as JSON. nil: text holds no schema.
func schemaTypes(text string) (types map[string]*colType) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 16 {
		return nil
	}
	_ = guarded(func() error { // if the Arrow schema is damaged, Parquet's own suffices
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

// fieldsSaid returns the types of the field called name, one for each description in said. Each
// description gives the same struct's type, from another source; nil: the source says nothing about
// it. itemsSaid does the same for the elements of a list.
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

// columnType returns the type of column c, a list if c is repeated. It also records in r.leaves how
// to read c's leaf columns. Other sources, the Arrow schema and the metadata of the library
// datasets, give the types said for c. The parameter column says whether c is a top-level column.
func (r *parquetRows) columnType(c *parquet.Column, elements []pqformat.SchemaElement, said []*colType, column bool) *colType {
	if c.Repeated() {
		return &colType{name: "list", element: r.valueType(c, elements, itemsSaid(said), false)}
	}
	return r.valueType(c, elements, said, column)
}

// valueType returns the type of one value of column c; a repeated column has several. The parameters mean the same as
// in columnType.
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
			if s.isJSON() && (leaf.kind == leafText || leaf.kind == leafBytes) {
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
	if isMap(c) { // keys may be any, and all of them are present
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

// isMap reports whether c is a MAP: its one child is repeated and has a key and a value.
func isMap(c *parquet.Column) bool {
	kids := c.Columns()
	return len(kids) == 1 && kids[0].Repeated() && c.Type().String() == "MAP" && len(kids[0].Columns()) == 2
}

// perSecond returns how many units u a second has; 1: the unit is unknown.
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

// leafOf says how to read the values of a leaf column whose type is t and whose schema element is e. Source:
// parquet-format, LogicalTypes.md.
func leafOf(t parquet.Type, e *pqformat.SchemaElement) parquetLeaf {
	leaf := parquetLeaf{name: t.String()}
	bytes := t.Kind() == parquet.ByteArray || t.Kind() == parquet.FixedLenByteArray
	if l := t.LogicalType(); l != nil {
		leaf.annotated(l.Value)
	}
	if leaf.kind == leafPlain && e.LogicalType.Value != nil { // annotations that the library does not know
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
		if leaf.kind == kind && fixed != size { // the annotation does not fit the type
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

// annotated sets the kind, and with it the scale or unit, that the logical type l gives to a column's values.
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

// appendValue appends the value v of a leaf column to dst as JSON, in the meaning that the column's logical type
// gives it.
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

// appendPlain appends the value v of a leaf column without a logical type to dst as JSON.
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

// leafReader reads the values of one leaf column, row by row. The values of a row are valid until the next row is
// loaded.
type leafReader struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    [256]parquet.Value
	at, n  int // next value in buf; number of values in buf
	row    []parquet.Value
	next   int // next value in row
}

// maxValues limits the number of values that one column has in one row.
const maxValues = 1 << 24

var errUnfit = errors.New("its columns do not fit together")

// load reads the values of the next row into l.row.
func (l *leafReader) load() error {
	l.row, l.next = l.row[:0], 0
	for {
		if l.at == l.n {
			if err := l.fill(); err == io.EOF && len(l.row) > 0 {
				return nil
			} else if err == io.EOF {
				return fmt.Errorf("%w: a column ends early", errUnfit)
			} else if err != nil {
				return err
			}
		}
		v := l.buf[l.at]
		if len(l.row) > 0 && v.RepetitionLevel() == 0 {
			return nil
		}
		if len(l.row) == 0 && v.RepetitionLevel() != 0 {
			return fmt.Errorf("%w: a row does not begin where it should", errUnfit)
		}
		if len(l.row) == maxValues {
			return fmt.Errorf("a row of more than %d values", maxValues)
		}
		l.row = append(l.row, v)
		l.at++
	}
}

// fill reads more values of the column into buf. If the current page is exhausted, it moves to the next page.
func (l *leafReader) fill() error {
	for {
		if l.values != nil {
			n, err := l.values.ReadValues(l.buf[:])
			if n > 0 {
				l.at, l.n = 0, n
				return nil
			}
			if err != nil && err != io.EOF {
				return err
			}
			for i, v := range l.row {
				l.row[i] = v.Clone() // the page's memory is about to be reused
			}
			parquet.Release(l.page)
			l.values, l.page = nil, nil
		}
		page, err := l.pages.ReadPage()
		if err != nil {
			return err
		}
		l.page, l.values = page, page.Values()
	}
}

// peek returns the next value of the row; false: the row has no more.
func (l *leafReader) peek() (parquet.Value, bool) {
	if l.next == len(l.row) {
		return parquet.Value{}, false
	}
	return l.row[l.next], true
}

func (l *leafReader) close() {
	if l.page != nil {
		parquet.Release(l.page)
	}
	_ = l.pages.Close()
}

// load reads the next row's values in all columns of f.
func (f *parquetField) load() error {
	if f.leaf != nil {
		return f.leaf.load()
	}
	for _, c := range f.children {
		if err := c.load(); err != nil {
			return err
		}
	}
	return nil
}

// empty reports whether no column of f has a value left in the current row. After the last field's
// values are read, a row must be empty.
func (f *parquetField) empty() bool {
	if f.leaf != nil {
		_, more := f.leaf.peek()
		return !more
	}
	for _, c := range f.children {
		if !c.empty() {
			return false
		}
	}
	return true
}

// first returns the first leaf column below f. Its definition and repetition levels tell which values of f are
// present.
func (f *parquetField) first() *leafReader {
	for f.leaf == nil {
		f = f.children[0]
	}
	return f.leaf
}

// pass moves every leaf column of f past one value. Its caller has found that this value is a null
// or an empty list.
func (f *parquetField) pass() error {
	if f.leaf != nil {
		if _, ok := f.leaf.peek(); !ok {
			return errUnfit
		}
		f.leaf.next++
		return nil
	}
	for _, c := range f.children {
		if err := c.pass(); err != nil {
			return err
		}
	}
	return nil
}

// append appends f's value in this row as JSON. It fails if dst becomes longer than the limit `most`, in bytes. Source:
// the record assembly of Melnik et al., "Dremel", 2010.
func (f *parquetField) append(dst []byte, most int) ([]byte, error) {
	if len(dst) > most {
		return dst, errRowSize
	}
	v, ok := f.first().peek()
	switch {
	case !ok:
		return dst, errUnfit
	case f.repeated:
		return f.elements(dst, most, "[]", f.value)
	case f.optional && v.DefinitionLevel() < f.def:
		return append(dst, "null"...), f.pass()
	case f.list:
		return f.children[0].elements(dst, most, "[]", f.children[0].element())
	case f.pairs:
		return f.children[0].elements(dst, most, "{}", f.children[0].entry)
	}
	return f.value(dst, most)
}

// element returns the function that appends one element of f, the repeated field of a LIST. By the format's rules, f
// is either the element itself or a group whose only child is the element.
func (f *parquetField) element() func([]byte, int) ([]byte, error) {
	if f.leaf == nil && len(f.children) == 1 && f.name != "array" {
		return f.children[0].append
	}
	return f.value
}

// entry appends an entry of a MAP as a member of a JSON object. An error results if dst becomes longer than most
// bytes.
func (f *parquetField) entry(dst []byte, most int) ([]byte, error) {
	from := len(dst)
	dst, err := f.children[0].append(dst, most)
	if err != nil {
		return dst, err
	}
	return f.children[1].append(append(asKey(dst, from), ':'), most)
}

// asKey turns the JSON value at the end of dst, which begins at offset from, into an object key. A
// key must be a string, so other values are put in quotes.
func asKey(dst []byte, from int) []byte {
	if dst[from] == '"' {
		return dst
	}
	text := string(dst[from:])
	return quote(dst[:from], text)
}

// elements appends all values of the repeated column f between two brackets: "[]" for a list, "{}"
// for a map. one appends a single value.
func (f *parquetField) elements(dst []byte, most int, brackets string, one func([]byte, int) ([]byte, error)) ([]byte, error) {
	dst = append(dst, brackets[0])
	first := f.first()
	if v, _ := first.peek(); v.DefinitionLevel() < f.def {
		return append(dst, brackets[1]), f.pass()
	}
	for {
		var err error
		before := first.next
		if dst, err = one(dst, most); err != nil {
			return dst, err
		}
		v, more := first.peek()
		if !more || v.RepetitionLevel() < f.rep {
			return append(dst, brackets[1]), nil
		}
		if first.next == before || v.RepetitionLevel() > f.rep {
			return dst, errUnfit
		}
		dst = append(dst, ',')
	}
}

// value appends a value of f: one value if f is a leaf column, or an object of its children's values.
func (f *parquetField) value(dst []byte, most int) ([]byte, error) {
	if f.leaf != nil {
		v, ok := f.leaf.peek()
		if !ok {
			return dst, errUnfit
		}
		f.leaf.next++
		if v.IsNull() {
			return append(dst, "null"...), nil
		}
		if k := v.Kind(); (k == parquet.ByteArray || k == parquet.FixedLenByteArray) && len(dst)+len(v.ByteArray()) > most {
			return dst, errRowSize
		}
		return f.appendValue(dst, v)
	}
	dst = append(dst, '{')
	for i, c := range f.children {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(quote(dst, c.name), ':')
		var err error
		if dst, err = c.append(dst, most); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// Limits of a Parquet page. Writers make pages of about 1 MB with at most some ten thousand values. A header of a
// few bytes can claim more, and the library would allocate memory for it.
const (
	maxPageBytes  = 1 << 30
	maxPageValues = 1 << 24
)

// checkPages checks the headers of all pages of a column in the current row group. It runs before the library
// allocates memory for the pages, so a damaged header cannot make it allocate too much.
func (r *parquetRows) checkPages(column int) error {
	groups := r.file.Metadata().RowGroups
	if r.group < 1 || r.group > len(groups) || column >= len(groups[r.group-1].Columns) {
		return errors.New("its data is missing")
	}
	m := &groups[r.group-1].Columns[column].MetaData
	if err := checkCodec(m.Codec); err != nil {
		return err
	}
	at := m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	end := at + m.TotalCompressedSize
	if at < 0 || m.TotalCompressedSize < 0 || end > r.size {
		return fmt.Errorf("its data, %d bytes at %d, lies outside the file", m.TotalCompressedSize, at)
	}
	for at < end {
		h, err := readPageHeader(r.src, at, end)
		if err != nil {
			return fmt.Errorf("page at %d: %w", at, err)
		}
		if h.packed < 0 || h.packed > r.size || h.unpacked < 0 || h.unpacked > maxPageBytes || at+h.size+h.packed > end {
			return fmt.Errorf("page at %d has %d bytes, %d uncompressed, of %d there are", at, h.packed, h.unpacked, end-at-h.size)
		}
		if h.values > maxPageValues {
			return fmt.Errorf("page at %d has %d values, more than %d", at, h.values, maxPageValues)
		}
		if err := h.checkBody(m.Codec, r.src, at); err != nil {
			return fmt.Errorf("page at %d: %w", at, err)
		}
		at += h.size + h.packed
	}
	return nil
}

// pageHeader is a parsed page header, and size is the header's own length in bytes. packed and unpacked are the bytes
// of the page with and without compression. In a data page of version 2, the first def + rep bytes hold the levels
// and are never compressed. stored reports that the page is not compressed at all.
type pageHeader struct {
	size, unpacked, packed, values int64
	kind, def, rep                 int64
	stored                         bool
}

const dataPageV2 = 3 // kind of a data page of version 2

// checkBody returns an error if a page does not decompress to the size that its header h states. In r, the header
// begins at offset at, and the page follows the header. c is the compression.
func (h *pageHeader) checkBody(c pqformat.CompressionCodec, r io.ReaderAt, at int64) error {
	plain := int64(0)
	if h.kind == dataPageV2 {
		least := min(h.packed, h.unpacked)
		if h.def < 0 || h.rep < 0 || h.def > least || h.rep > least-h.def {
			return fmt.Errorf("its levels have %d and %d bytes of %d", h.rep, h.def, least)
		}
		plain = h.def + h.rep
	}
	if h.packed == plain || h.kind == dataPageV2 && h.stored {
		return nil
	}
	return checkPacked(c, io.NewSectionReader(r, at+h.size+plain, h.packed-plain), h.unpacked-plain)
}

// maxFooter is the largest size of a Parquet footer in bytes.
const maxFooter = 1 << 28

// checkFooter returns an error if the footer of a file of size bytes is damaged. It runs before the library allocates
// memory for what the footer claims.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%d bytes are no Parquet file", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case string(tail[4:]) == "PARE":
		return errors.New("the file is encrypted; write it without encryption")
	case string(tail[4:]) != "PAR1":
		return errors.New("it does not end with PAR1: it was cut off, or is no Parquet file")
	case n > size-12 || n > maxFooter:
		return fmt.Errorf("a footer of %d bytes in a file of %d: it was cut off, or is damaged", n, size)
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return err
	}
	t := compact{b: footer}
	if t.skip(thriftStruct, 0); t.failed() {
		return errors.New("its footer is damaged")
	}
	return nil
}

// readPageHeader parses the page header that begins in r at offset at. The header must end before offset end.
func readPageHeader(r io.ReaderAt, at, end int64) (pageHeader, error) {
	for n := int64(1 << 9); ; n <<= 4 {
		buf := make([]byte, min(n, end-at))
		if _, err := r.ReadAt(buf, at); err != nil && err != io.EOF {
			return pageHeader{}, err
		}
		t := compact{b: buf}
		h := t.pageHeader()
		if !t.short || n > 1<<24 || n >= end-at {
			if t.bad || t.short {
				return h, errors.New("its header is damaged")
			}
			h.size = int64(t.at)
			return h, nil
		}
	}
}

// compact reads values from b, which are in Thrift's compact protocol. Source: thrift-compact-protocol.md of Apache
// Thrift.
type compact struct {
	b          []byte
	at         int
	short, bad bool // b ends too early; b is not valid
}

// Types of values, as the compact protocol numbers them.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

func (t *compact) failed() bool { return t.short || t.bad }

func (t *compact) byte() byte {
	if t.at >= len(t.b) {
		t.short = true
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *compact) uvarint() uint64 {
	if t.failed() {
		return 0
	}
	v, n := binary.Uvarint(t.b[t.at:])
	switch {
	case n == 0:
		t.short = true
	case n < 0:
		t.bad = true
	default:
		t.at += n
	}
	return v
}

func (t *compact) int() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// fields calls f for every field of a struct, with the field's number and type. f must read or skip the field's
// value.
func (t *compact) fields(f func(id int64, kind byte)) {
	for id := int64(0); !t.failed(); {
		b := t.byte()
		if b == 0 {
			return
		}
		if step := int64(b >> 4); step > 0 {
			id += step
		} else {
			id = t.int()
		}
		f(id, b&15)
	}
}

// skip skips a value of type kind. depth counts the structs and lists around the value; too deep a nesting is
// invalid.
func (t *compact) skip(kind byte, depth int) {
	if depth > 16 {
		t.bad = true
	}
	if t.failed() {
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftDouble:
		t.pass(8)
	case thriftBinary:
		t.pass(t.uvarint())
	case thriftStruct:
		t.fields(func(_ int64, k byte) { t.skip(k, depth+1) })
	case thriftList, thriftSet:
		b := t.byte()
		n := uint64(b >> 4)
		if n == 15 {
			n = t.uvarint()
		}
		for ; n > 0 && !t.failed(); n-- {
			if k := b & 15; k == thriftTrue || k == thriftFalse {
				t.byte() // booleans in a list take one byte
			} else {
				t.skip(k, depth+1)
			}
		}
	case thriftMap:
		t.bad = true // page headers have no maps
	default:
		if kind > thriftI64 {
			t.bad = true
		}
		t.uvarint()
	}
}

func (t *compact) pass(n uint64) {
	if n > uint64(len(t.b)-t.at) {
		t.short = true
		return
	}
	t.at += int(n)
}

// pageHeader parses a PageHeader, the struct before each page of a Parquet file. Source: parquet.thrift of Apache
// Parquet.
func (t *compact) pageHeader() (h pageHeader) {
	values := func(id int64, k byte) {
		if id == 1 && k > thriftByte && k <= thriftI64 {
			h.values = t.int()
			return
		}
		t.skip(k, 1)
	}
	second := func(id int64, k byte) { // a DataPageHeaderV2
		switch whole := k > thriftByte && k <= thriftI64; {
		case id == 5 && whole:
			h.def = t.int()
		case id == 6 && whole:
			h.rep = t.int()
		case id == 7 && (k == thriftTrue || k == thriftFalse):
			h.stored = k == thriftFalse
		default:
			values(id, k)
		}
	}
	t.fields(func(id int64, k byte) {
		switch whole := k > thriftByte && k <= thriftI64; {
		case id == 1 && whole:
			h.kind = t.int()
		case id == 2 && whole:
			h.unpacked = t.int()
		case id == 3 && whole:
			h.packed = t.int()
		case (id == 5 || id == 7) && k == thriftStruct:
			t.fields(values)
		case id == 8 && k == thriftStruct:
			h.def, h.rep, h.stored = 0, 0, false
			t.fields(second)
		default:
			t.skip(k, 0)
		}
	})
	return h
}

var errPageGrows = errors.New("it holds more than its header says")

// checkCodec returns an error for compressions whose pages could take any amount of memory. The
// library decompresses such pages without a limit, and their size cannot be checked cheaply.
func checkCodec(c pqformat.CompressionCodec) error {
	switch c {
	case pqformat.Uncompressed, pqformat.Snappy, pqformat.Gzip, pqformat.Zstd:
		return nil
	}
	return fmt.Errorf("it is compressed with %s, which mt does not read; write the file with snappy or zstd", c)
}

// checkPacked decompresses a page, drops the bytes, and returns an error if there are more than most of them. A page
// may need far more memory than its header states; checkPacked finds such pages.
func checkPacked(c pqformat.CompressionCodec, packed io.Reader, most int64) error {
	switch c {
	case pqformat.Snappy: // a page begins with its decompressed length; source: format_description.txt of Snappy
		var b [binary.MaxVarintLen64]byte
		n, _ := io.ReadFull(packed, b[:])
		if size, k := binary.Uvarint(b[:n]); n > 0 && (k <= 0 || size > uint64(most)) {
			return errPageGrows
		}
		return nil
	case pqformat.Gzip:
		z, err := gzip.NewReader(packed)
		if err != nil {
			return err
		}
		return atMost(z, most)
	case pqformat.Zstd:
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(max(most, maxWindow))))
		if err != nil {
			return err
		}
		defer z.Close()
		return atMost(z, most)
	}
	return nil
}

// atMost reads r to its end and drops the bytes. More than most bytes are an error.
func atMost(r io.Reader, most int64) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = errPageGrows
	}
	return err
}
