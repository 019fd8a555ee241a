package data

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// parquetRows gives the rows of a Parquet file as JSON. It reads column by column, with one
// page of each column in memory at a time. A panic of the library becomes an error.
type parquetRows struct {
	src    io.ReaderAt
	file   *parquet.File
	size   int64
	wanted func(string) bool
	types  map[string]*colType // of the columns
	leaves []parquetLeaf       // the meaning of each column without columns in it
	fields []*parquetField     // of the current row group
	group  int                 // the next row group
	left   int64               // rows of the current row group that are left
	n      int64               // rows given so far
}

// parquetField is a column, or a group of columns.
type parquetField struct {
	name     string
	optional bool // a value may be null
	repeated bool
	def, rep int // the levels at which a value is not null, and at which an element repeats
	children []*parquetField
	leaf     *leafReader
	list     bool // LIST: the elements are in children[0]
	pairs    bool // MAP
	of       parquetLeaf
}

// wanted says which columns of a data set's Parquet files are read: all that some format
// has a use for.
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

// beside adds to the columns that are wanted, of a file with columns of these names, those that say
// something about them and are of no use alone.
func beside(names []string, wanted func(string) bool) func(string) bool {
	ids := slices.Contains(names, "input_ids")
	return func(name string) bool {
		return wanted(name) || ids && slices.Contains(idLists, name) || slices.Contains(notAnswers, name)
	}
}

// guarded calls f and turns a panic in it into an error.
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

// openParquet reads the file's footer. Those columns are read that wanted names.
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

// progress is about how many bytes of the file are done.
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

// advance goes on to the next row group that has rows, if the current one has none left.
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
		if r.left == 0 { // the columns of an empty group may have no pages
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

// field prepares a column of the row group that chunks are of. def and rep are the
// definition and repetition levels of what the column is in.
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

// close ends the current row group.
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

// appendRow appends a row as a JSON object.
func (r *parquetRows) appendRow(dst []byte) ([]byte, error) {
	from := len(dst)
	dst = append(dst, '{')
	for _, f := range r.fields { // all of them, so that a row that is left out leaves no column behind
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

// quote appends text as a JSON string. Bytes that are not UTF-8 are left as they are: whoever
// reads the row says what is wrong with them.
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
