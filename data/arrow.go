package data

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// The two ways an Arrow file begins. A stream begins with arrowStreamStart. The random access format begins with
// arrowFileStart, followed by the same stream. Source: "Arrow Columnar Format", IPC.
const (
	arrowFileStart   = "ARROW1\x00\x00"
	arrowStreamStart = "\xff\xff\xff\xff"
)

// maxArrowSchema limits the bytes of a message's flatbuffer, such as a schema. maxArrowBatch limits the bytes of a
// message's body. A longer message is an error.
const (
	maxArrowSchema = 16 << 20
	maxArrowBatch  = 2 << 30
)

// The kinds of messages in an Arrow stream, as Message.fbs numbers them.
const (
	arrowSchemaMessage = iota + 1
	arrowDictionaryMessage
	arrowBatchMessage
)

// arrowRows reads the rows of an Arrow stream as JSON, with one batch (Arrow's record batch) in memory. In a damaged
// file an offset may lie outside of its buffer; the access then panics, and guarded turns the panic into an error.
type arrowRows struct {
	r       io.Reader
	body    bytes.Buffer // of the current message
	fields  []*arrowField
	read    []bool // for each field: whether it is read
	dicts   map[int64]*arrowColumn
	types   map[string]*colType
	columns []*arrowColumn // of the current batch; nil if not read
	rows    int64          // of the current batch
	at, n   int64          // number of the next row of the batch; number of rows returned so far
	done    error
}

// openArrow reads the schema of the stream from and returns a reader of its rows. wanted reports whether the column
// with this name is read. known gives types of columns by name, found in a file beside the stream; nil: none.
func openArrow(from io.Reader, wanted func(string) bool, known map[string]*colType) (a *arrowRows, err error) {
	b := bufio.NewReaderSize(from, 8<<10)                                         // message bodies are larger and bypass this buffer
	if start, _ := b.Peek(len(arrowFileStart)); string(start) == arrowFileStart { // a read error recurs below
		_, _ = b.Discard(len(arrowFileStart))
	}
	a = &arrowRows{r: b, dicts: map[int64]*arrowColumn{}}
	err = guarded(func() error { return a.begin(wanted, known) })
	if err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	return a, nil
}

func (a *arrowRows) begin(wanted func(string) bool, known map[string]*colType) error {
	kind, schema, err := a.message()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case kind != arrowSchemaMessage:
		return errors.New("it does not begin with a schema")
	}
	if a.fields, err = arrowSchema(schema); err != nil {
		return err
	}
	meanings(a.fields, featureTypes([]byte(schema.keyed(2, featuresKey))), known)
	a.types = arrowColumnTypes(a.fields)
	var names []string
	some := false
	for _, f := range a.fields {
		names = append(names, f.name)
		some = some || wanted(f.name) && f.kind != arrowNull
	}
	if !some {
		return errNoColumn(names)
	}
	for _, f := range a.fields {
		a.read = append(a.read, f.kind != arrowNull && beside(names, wanted)(f.name))
	}
	return noImageColumns(names)
}

// message reads the next message. It returns the kind and the table that describes it, and stores the body in
// a.body. err is io.EOF at the end of the stream.
func (a *arrowRows) message() (kind int, header flat, err error) {
	var start [8]byte
	if _, err := io.ReadFull(a.r, start[:]); err != nil {
		return 0, flat{}, err
	}
	n := int32(binary.LittleEndian.Uint32(start[4:]))
	switch {
	case string(start[:4]) != arrowStreamStart:
		return 0, flat{}, errors.New("a message does not begin as it must since Arrow 0.15; write the file anew, or as Parquet")
	case n == 0:
		return 0, flat{}, io.EOF
	case n < 8 || n > maxArrowSchema:
		return 0, flat{}, fmt.Errorf("a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(a.r, text); err != nil {
		return 0, flat{}, cutOff(err)
	}
	m := flatRoot(text)
	size := m.number(3, 8, 0)
	if size < 0 || size > maxArrowBatch {
		return 0, flat{}, fmt.Errorf("a batch of %d bytes, and at most %d are read", size, maxArrowBatch)
	}
	a.body.Reset()
	if _, err := io.CopyN(&a.body, a.r, size); err != nil { // allocates only for data that exists
		return 0, flat{}, cutOff(err)
	}
	header, ok := m.table(2)
	if !ok {
		return 0, flat{}, errors.New("a message says nothing")
	}
	return int(m.number(1, 1, 0)), header, nil
}

// cutOff replaces io.EOF by io.ErrUnexpectedEOF and returns other errors unchanged. message uses it
// for reads inside a message, where the file must not end.
func cutOff(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (a *arrowRows) next(dst []byte) (row []byte, n int64, err error) {
	if a.done != nil {
		return dst, a.n, a.done
	}
	from := len(dst)
	err = guarded(func() (err error) {
		for a.at >= a.rows {
			if err := a.nextBatch(); err != nil {
				return err
			}
		}
		a.n++
		a.at++
		dst, err = a.appendRow(dst, a.at-1)
		return err
	})
	switch bad := (*badRow)(nil); {
	case err == nil:
		return dst, a.n, nil
	case err == io.EOF:
		a.done = err
	case !errors.As(err, &bad):
		a.done = fmt.Errorf("arrow: behind row %d: %w", a.n, err)
		err = a.done
	}
	return dst[:from], a.n, err
}

// nextBatch reads the next record batch of rows and the dictionaries that precede it. A dictionary holds distinct
// values, which a column's rows refer to by index.
func (a *arrowRows) nextBatch() error {
	a.rows, a.at = 0, 0
	kind, m, err := a.message()
	if err != nil {
		return err
	}
	switch kind {
	case arrowBatchMessage:
		b, err := newArrowBatch(m, a.body.Bytes())
		if err != nil {
			return err
		}
		a.columns = a.columns[:0]
		for i, f := range a.fields {
			c, err := b.column(f, a.read[i], a.dicts)
			if err != nil {
				return fmt.Errorf("column %q: %w", f.name, err)
			}
			if a.read[i] && c.n != b.rows {
				return fmt.Errorf("column %q has %d values in a batch of %d rows", f.name, c.n, b.rows)
			}
			a.columns = append(a.columns, c)
		}
		if err := b.check(a.body.Len()); err != nil {
			return err
		}
		a.rows = b.rows
	case arrowDictionaryMessage:
		return a.dictionary(m)
	default:
		return fmt.Errorf("a message of kind %d, where rows are due; write the file as Parquet", kind)
	}
	return nil
}

// dictionary stores the values of the dictionary message m. Columns of later batches refer to these values by index.
func (a *arrowRows) dictionary(m flat) error {
	id := m.number(0, 8, 0)
	data, ok := m.table(1)
	f := dictionaryField(a.fields, id)
	switch {
	case !ok || f == nil:
		return fmt.Errorf("a dictionary %d that is of no column", id)
	case m.number(2, 1, 0) != 0:
		return fmt.Errorf("column %q: a dictionary that comes in parts; write it as Parquet", f.name)
	}
	b, err := newArrowBatch(data, bytes.Clone(a.body.Bytes())) // a.body is reused for the next message
	if err != nil {
		return err
	}
	values := *f
	values.index = nil
	a.dicts[id], err = b.column(&values, true, a.dicts)
	return err
}

// dictionaryField returns the field, or the field nested in one of fields, whose values are in the dictionary with
// this id; nil: there is none.
func dictionaryField(fields []*arrowField, id int64) *arrowField {
	for _, f := range fields {
		if f.index != nil && f.dict == id {
			return f
		}
		if f := dictionaryField(f.children, id); f != nil {
			return f
		}
	}
	return nil
}

// arrowBatch walks through a record batch, column by column. A node describes a column by its number of values; a
// buffer is an array of a column, such as its offsets. Nodes and buffers lie in the order of the columns.
type arrowBatch struct {
	flat
	body                     []byte
	rows                     int64
	nodes, buffers, variadic [2]int // per kind: offset of the next description; number left
}

func newArrowBatch(m flat, body []byte) (*arrowBatch, error) {
	if _, ok := m.table(3); ok {
		return nil, errors.New("its columns are compressed; write it without (compression=None), or as Parquet")
	}
	b := &arrowBatch{flat: m, body: body, rows: m.number(0, 8, 0)}
	b.nodes[0], b.nodes[1] = m.vector(1, 16)
	b.buffers[0], b.buffers[1] = m.vector(2, 16)
	b.variadic[0], b.variadic[1] = m.vector(4, 8)
	return b, nil
}

// check returns an error if a body of this many bytes cannot hold the batch's rows. Each row takes at least one bit.
func (b *arrowBatch) check(bytes int) error {
	if b.rows < 0 || b.rows > 8*int64(bytes) {
		return fmt.Errorf("a batch of %d rows in %d bytes", b.rows, bytes)
	}
	return nil
}

// take returns the offset of the next description in a list of nodes or buffers, and moves past the description. at
// points to b.nodes, b.buffers or b.variadic; each holds the next offset and the number left. bytes is the size of
// one description.
func (b *arrowBatch) take(at *[2]int, bytes int) int {
	if at[1]--; at[1] < 0 {
		panic("a batch lacks a part")
	}
	at[0] += bytes
	return at[0] - bytes
}

func (b *arrowBatch) number64(at int) int64 { return int64(binary.LittleEndian.Uint64(b.b[at:])) }

// buffer moves past the next buffer of the batch and returns its content.
func (b *arrowBatch) buffer() []byte {
	at := b.take(&b.buffers, 16)
	from, n := b.number64(at), b.number64(at+8)
	return b.body[from:][:n]
}

// column returns the batch's column of field f, and moves past its nodes and buffers. With read true it also checks
// that the buffers are long enough for the values. dicts maps a dictionary's id to its values.
func (b *arrowBatch) column(f *arrowField, read bool, dicts map[int64]*arrowColumn) (*arrowColumn, error) {
	if f.index != nil {
		index, err := b.column(f.index, read, dicts)
		if err != nil || !read {
			return index, err
		}
		values := dicts[f.dict]
		if values == nil {
			return nil, fmt.Errorf("its dictionary %d is missing", f.dict)
		}
		return &arrowColumn{arrowField: f, n: index.n, valid: index.valid, data: index.data, children: []*arrowColumn{values}}, nil
	}
	c := &arrowColumn{arrowField: f, n: b.number64(b.take(&b.nodes, 16))}
	b.parts(c)
	for _, child := range f.children {
		k, err := b.column(child, read, dicts)
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, k)
	}
	if read {
		return c, c.check()
	}
	return c, nil
}

// parts moves past the buffers of column c in the batch and stores them in c. The type decides
// which buffers there are, such as validity bits, offsets and data.
func (b *arrowBatch) parts(c *arrowColumn) {
	n := c.buffers
	if n < 0 {
		n = 2 + int(b.number64(b.take(&b.variadic, 8)))
	}
	var all [3][]byte
	for i := range n {
		switch buffer := b.buffer(); {
		case c.buffers < 0 && i >= 2:
			c.blocks = append(c.blocks, buffer)
		case i < len(all):
			all[i] = buffer
		}
	}
	switch c.kind {
	case arrowUtf8, arrowLargeUtf8, arrowBinary, arrowLargeBinary:
		c.valid, c.offsets, c.data = all[0], all[1], all[2]
	case arrowListView, arrowLargeListView:
		c.valid, c.offsets, c.sizes = all[0], all[1], all[2]
	case arrowList, arrowLargeList, arrowMap:
		c.valid, c.offsets = all[0], all[1]
	default:
		c.valid, c.data = all[0], all[1]
	}
}

// appendRow appends row i of the current batch to dst as a JSON object. A row of more than maxRow bytes is an error.
func (a *arrowRows) appendRow(dst []byte, i int64) ([]byte, error) {
	most := len(dst) + maxRow
	dst = append(dst, '{')
	more := false
	for k, c := range a.columns {
		if !a.read[k] {
			continue
		}
		if more {
			dst = append(dst, ',')
		}
		more = true
		var err error
		if dst, err = c.append(append(quote(dst, c.name), ':'), i, most); err != nil {
			return dst, inColumn(c.name, err)
		}
	}
	return append(dst, '}'), nil
}

// arrowMeaning says how to read an Arrow column's values, beyond their memory layout: for example, a 64-bit integer
// may be a time in microseconds.
type arrowMeaning struct {
	json      bool  // values are JSON text
	column    bool  // a top-level column, in no struct or list
	scale     int   // of a decimal: digits after the point
	perSecond int64 // of times: number of units in a second
	zone      bool  // of a timestamp: the time is UTC
	unit      int64 // of dates and intervals, with Schema.fbs's number
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

// typeName returns the name of the field's type, for errors.
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

// isText reports whether values are text, or bytes that may be text.
func (f *arrowField) isText() bool {
	return slices.Contains([]int{arrowUtf8, arrowLargeUtf8, arrowUtf8View, arrowBinary, arrowLargeBinary, arrowBinaryView}, f.kind)
}

// means sets f.arrowMeaning from the flatbuffer table of, which describes the field's type. If the
// table lacks a property, the property has the default of Schema.fbs.
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

// meanings marks the top-level fields as columns and adds what the schema does not say about their
// types. Each map in said gives types by column name, found outside the schema, such as in the
// metadata that Hugging Face's library datasets writes.
func meanings(fields []*arrowField, said ...map[string]*colType) {
	for _, f := range fields {
		f.column = true
		for _, s := range said {
			f.take(s[f.name])
		}
	}
}

// take applies t to the field and its children. The type t comes from a source other than the
// schema; nil: no effect. Only one property is taken: texts that t marks as JSON are read as JSON.
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

// arrowColumnTypes returns the types of a schema's columns, by column name.
func arrowColumnTypes(fields []*arrowField) map[string]*colType {
	out := map[string]*colType{}
	for _, f := range fields {
		out[f.name] = f.describe()
	}
	return out
}

// describe returns the field's type as a colType, the form that Parquet columns share.
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

// keyed returns the value stored under a key in field i of table t, a vector of key/value pairs; "": the key is
// absent.
func (t flat) keyed(i int, key string) string {
	from, n := t.vector(i, 4)
	for k := range n {
		if kv := (flat{t.b, t.follow(from + 4*k)}); kv.text(0) == key {
			return kv.text(1)
		}
	}
	return ""
}

// bytes returns the bytes of value i in a column of texts or binary values.
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

// littleEndian returns a copy of b in reverse byte order. It makes a little-endian number big-endian.
func littleEndian(b []byte) []byte {
	out := slices.Clone(b)
	slices.Reverse(out)
	return out
}

// appendTyped appends value i of a type that JSON lacks, such as a date or decimal, as a JSON string or number.
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

// appendMap appends value i of a map column to dst as a JSON object. It fails if dst becomes longer than most bytes.
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

// arrowColumn is the values of a column in one batch. The values of a struct's fields or a list's elements are
// columns too, in children.
type arrowColumn struct {
	*arrowField
	n        int64  // number of values
	valid    []byte // one bit per value, 0: null; empty: no value is null
	offsets  []byte // start of each value, then the end of the last
	data     []byte
	sizes    []byte   // of list views: number of elements of each value
	blocks   [][]byte // of text views (16-byte entries): the texts that are longer than an entry holds
	children []*arrowColumn
}

// offsetBytes returns the width in bytes of one entry in the column's offsets or sizes; 0: the type has no offsets.
func (f *arrowField) offsetBytes() int64 {
	switch f.kind {
	case arrowUtf8, arrowBinary, arrowList, arrowMap, arrowListView:
		return 4
	case arrowLargeUtf8, arrowLargeBinary, arrowLargeList, arrowLargeListView:
		return 8
	}
	return 0
}

// check returns an error if the type of a column to read is not supported, or a buffer is too short for the column's
// values.
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

// append appends value i to dst as JSON. It fails with errRowSize if dst becomes longer than most, in bytes.
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

// isListView reports whether the type is a list view. Each list then has an explicit offset and
// size; an ordinary list ends where the next begins.
func (f *arrowField) isListView() bool {
	return f.kind == arrowListView || f.kind == arrowLargeListView
}

// span returns the range that value i occupies: bytes in c.data for a text, or elements of the
// child column for a list.
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

// whole returns integer i of the array data, which has the field's width and sign. An unsigned 64-bit integer above
// the largest int64 appears negative, with the same bits.
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

// appendFloat appends floating-point number i; null if it is NaN or infinite, since JSON cannot express these.
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

// Arrow stores its schema and its messages' headers as flatbuffers: tables whose fields are found through a list of
// offsets (vtable) in front of the table. The code below reads only the parts it needs and checks every offset. A
// library would allocate as much memory as a damaged file asks for. Sources: "FlatBuffers Internals", and Message.fbs
// and Schema.fbs of Apache Arrow's format.

// flat is the flatbuffer table at offset pos of the buffer b. Access outside of the buffer panics like a slice;
// guarded turns the panic into an error.
type flat struct {
	b   []byte
	pos int
}

// flatRoot returns the root table of the flatbuffer b. The first four bytes of b hold the table's
// offset.
func flatRoot(b []byte) flat {
	return flat{b, int(binary.LittleEndian.Uint32(b))}
}

// field returns the offset of field i of the table in t.b; 0: the field is absent and has its default.
func (t flat) field(i int) int {
	vtable := t.pos - int(int32(binary.LittleEndian.Uint32(t.b[t.pos:])))
	if at := 4 + 2*i; at < int(binary.LittleEndian.Uint16(t.b[vtable:])) {
		if off := int(binary.LittleEndian.Uint16(t.b[vtable+at:])); off != 0 {
			return t.pos + off
		}
	}
	return 0
}

// number returns the integer field i, whose width is given in bytes. If the field is absent, it returns usual, the
// field's default.
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

// table returns the table that field i refers to; false: the field is absent.
func (t flat) table(i int) (flat, bool) {
	at := t.field(i)
	if at == 0 {
		return flat{}, false
	}
	return flat{t.b, t.follow(at)}, true
}

func (t flat) follow(at int) int { return at + int(binary.LittleEndian.Uint32(t.b[at:])) }

// vector returns vector field i: the offset of its first element and the number of its elements. bytes is the size of
// one element.
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

// text returns the string field i; "": the field is absent.
func (t flat) text(i int) string {
	from, n := t.vector(i, 1)
	return string(t.b[from : from+n])
}

// The kinds of Arrow types, as Schema.fbs numbers them.
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

// arrowField is a column's type and name in a schema. The fields of a struct and the elements of a list are fields
// too, in children.
type arrowField struct {
	name     string
	kind     int
	bits     int  // bits of a value; 0: no fixed width
	unsigned bool // of integers
	size     int  // elements of a fixed-size list
	buffers  int  // number of buffers in a batch, without its children's buffers; -1: each batch says how many
	children []*arrowField
	index    *arrowField // with a dictionary: type of the indices; values have the field's own type
	dict     int64
	arrowMeaning
}

// mostArrowDepth limits how deep types are nested, and mostArrowFields how many fields a schema has. Without limits a
// damaged file, whose references form a cycle, would be read forever.
const (
	mostArrowDepth  = 32
	mostArrowFields = 1 << 16
)

// arrowTypes reads a schema's fields. n counts the fields read so far, for the limit mostArrowFields.
type arrowTypes struct{ n int }

// arrowSchema returns the fields of the schema table s; an error if its byte order is big-endian, or a type is
// unknown.
func arrowSchema(s flat) ([]*arrowField, error) {
	if s.number(0, 2, 0) != 0 {
		return nil, errors.New("its numbers are big-endian; write the file on another machine")
	}
	return (&arrowTypes{}).fields(s, 1, 0)
}

// fields returns the Arrow fields that flatbuffer field i of table t lists. depth is the number of types around them,
// 0 at the top level.
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

// shape sets the memory layout of the field's values (bits, buffers, size) from of, the flatbuffer table that
// describes the type. It also checks the number of children.
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

// plainBits returns the width in bits of a date, time, decimal or similar type, which the flatbuffer table of
// describes.
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
