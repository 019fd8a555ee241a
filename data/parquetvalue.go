package data

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// leafReader gives the values of one column, row by row. The values of a row can be used
// until the next row is loaded.
type leafReader struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    [256]parquet.Value
	at, n  int // the next value in buf, and how many there are
	row    []parquet.Value
	next   int // the next value in row
}

// maxValues bounds how many values of one column a row can have.
const maxValues = 1 << 24

var errUnfit = errors.New("its columns do not fit together")

// load reads the values of the next row.
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

// fill reads values into buf, from the next page where the current one has no more.
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
				l.row[i] = v.Clone() // the memory of the page will be reused
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

// peek is the value that pop would give; false at the end of the row.
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

// load reads the values of the next row in all columns in f.
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

// empty tells whether all columns in f are at the end of the row.
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

// first is the first column in f; its levels say what is there.
func (f *parquetField) first() *leafReader {
	for f.leaf == nil {
		f = f.children[0]
	}
	return f.leaf
}

// pass passes over one value of every column in f.
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

// append appends what f holds in this row, as JSON. It is an error where dst grows to more
// than most bytes. Source: the record assembly of Melnik and others, "Dremel", 2010.
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

// element gives the function that appends one element of a LIST. What repeats is either the
// element itself or a group with the element in it.
func (f *parquetField) element() func([]byte, int) ([]byte, error) {
	if f.leaf == nil && len(f.children) == 1 && f.name != "array" {
		return f.children[0].append
	}
	return f.value
}

// entry appends an entry of a map as a member of an object.
func (f *parquetField) entry(dst []byte, most int) ([]byte, error) {
	from := len(dst)
	dst, err := f.children[0].append(dst, most)
	if err != nil {
		return dst, err
	}
	return f.children[1].append(append(asKey(dst, from), ':'), most)
}

// asKey makes the value at the end of dst, from byte from on, the name of an object's member:
// a string.
func asKey(dst []byte, from int) []byte {
	if dst[from] == '"' {
		return dst
	}
	text := string(dst[from:])
	return quote(dst[:from], text)
}

// elements appends what repeats in a column, between brackets.
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

// value appends a value, or a group of columns as an object.
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
