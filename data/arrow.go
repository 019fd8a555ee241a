package data

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The two ways in which files of Arrow begin. A stream begins with arrowStreamStart. A file
// that can be read at any place begins with arrowFileStart, and the same stream follows.
// Source: "Arrow Columnar Format", IPC.
const (
	arrowFileStart   = "ARROW1\x00\x00"
	arrowStreamStart = "\xff\xff\xff\xff"
)

// maxArrowSchema and maxArrowBatch bound how many bytes one message may have.
const (
	maxArrowSchema = 16 << 20
	maxArrowBatch  = 2 << 30
)

// Kinds of messages, with the numbers that Message.fbs gives them.
const (
	arrowSchemaMessage = iota + 1
	arrowDictionaryMessage
	arrowBatchMessage
)

// arrowRows gives the rows of an Arrow stream as JSON, with one batch at a time in
// memory. Reading outside of a batch panics, and guarded turns that into an error.
type arrowRows struct {
	r       io.Reader
	body    bytes.Buffer // of the current message
	fields  []*arrowField
	read    []bool // for each of fields: whether it is read
	dicts   map[int64]*arrowColumn
	types   map[string]*colType
	columns []*arrowColumn // of the current batch; nil for those that are not read
	rows    int64          // of the batch
	at, n   int64          // the next row of the batch; how many rows were given so far
	done    error
}

// openArrow reads the schema of a stream, of whose columns those are read that wanted names.
// known are the types of columns that a file beside the stream tells; nil for none.
func openArrow(from io.Reader, wanted func(string) bool, known map[string]*colType) (a *arrowRows, err error) {
	b := bufio.NewReaderSize(from, 8<<10)                                         // bodies of messages are larger, and are read past this buffer
	if start, _ := b.Peek(len(arrowFileStart)); string(start) == arrowFileStart { // an error of reading comes again below
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

// message reads the next message: its kind, the table that describes it, and its body,
// which goes to a.body. The error is io.EOF at the end of the stream.
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
	if _, err := io.CopyN(&a.body, a.r, size); err != nil { // takes memory only for what is there
		return 0, flat{}, cutOff(err)
	}
	header, ok := m.table(2)
	if !ok {
		return 0, flat{}, errors.New("a message says nothing")
	}
	return int(m.number(1, 1, 0)), header, nil
}

// cutOff is err, where an io.EOF means that the file was cut off.
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

// nextBatch reads the next batch of rows, and the dictionaries in front of it.
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

// dictionary keeps the values of a dictionary, to which columns of later batches refer.
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

// dictionaryField is the field whose values are in the dictionary of that id, nil where there is
// none.
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

// arrowBatch hands out the nodes and buffers of a batch, in the order in which the
// columns have them.
type arrowBatch struct {
	flat
	body                     []byte
	rows                     int64
	nodes, buffers, variadic [2]int // for each kind: where the next one is described, and how many are left
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

// check tells whether a body of so many bytes can hold the rows: each row takes at least
// one bit.
func (b *arrowBatch) check(bytes int) error {
	if b.rows < 0 || b.rows > 8*int64(bytes) {
		return fmt.Errorf("a batch of %d rows in %d bytes", b.rows, bytes)
	}
	return nil
}

// take gives the place of the next description in at (nodes, buffers or variadic), which
// has so many bytes.
func (b *arrowBatch) take(at *[2]int, bytes int) int {
	if at[1]--; at[1] < 0 {
		panic("a batch lacks a part")
	}
	at[0] += bytes
	return at[0] - bytes
}

func (b *arrowBatch) number64(at int) int64 { return int64(binary.LittleEndian.Uint64(b.b[at:])) }

// buffer is the content of the next buffer.
func (b *arrowBatch) buffer() []byte {
	at := b.take(&b.buffers, 16)
	from, n := b.number64(at), b.number64(at+8)
	return b.body[from:][:n]
}

// column takes a field's nodes and buffers from the batch. Where the column is read, it
// checks that they are as long as they must be.
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
	if err := b.parts(c); err != nil {
		return nil, err
	}
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

// parts takes a column's buffers from the batch.
func (b *arrowBatch) parts(c *arrowColumn) error {
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
	return nil
}

// appendRow appends row i of the batch as a JSON object.
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
