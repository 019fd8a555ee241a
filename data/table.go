package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// tableRows reads the records of a CSV or TSV file as JSON objects whose values are strings; the first record holds
// the keys. It reads what Python's csv and pandas write: quoted values may contain line ends and doubled quotes.
// Unlike encoding/csv, it limits the memory that a record of a damaged file takes.
type tableRows struct {
	r      *bufio.Reader
	comma  byte
	lists  func(name string, value []byte) bool // reports whether a value may be a JSON list
	answer func(name string) bool               // reports whether a column holds answers; an empty answer is null
	header []string                             // nil: not read yet
	line   int64                                // lines read so far
	text   []byte                               // values of the current record, concatenated, without quotes
	ends   []int                                // end of each value in text
	quoted bool                                 // at least one value was quoted
	done   error
}

// maxRowValues is the largest number of values in a record; more are an error.
const maxRowValues = 1 << 16

var errRowValues = &badRow{err: fmt.Errorf("the row has more than %d values", maxRowValues)}

// newTable returns a reader for the CSV or TSV file with this name. The separator is a tab if the name ends in .tsv
// or .tab, otherwise a comma. If the first line lacks this separator, another common separator in the line is used.
// lists and answer are described at tableRows.
func newTable(r io.Reader, name string, lists func(string, []byte) bool, answer func(string) bool) *tableRows {
	t := &tableRows{r: bufio.NewReaderSize(r, 256<<10), comma: ',', lists: lists, answer: answer}
	if start, _ := t.r.Peek(3); bytes.Equal(start, []byte("\xef\xbb\xbf")) { // a read error recurs at the first row
		_, _ = t.r.Discard(3)
	}
	if strings.HasSuffix(name, ".tsv") || strings.HasSuffix(name, ".tab") {
		t.comma = '\t'
	}
	first, _ := t.r.Peek(t.r.Size())
	if end := bytes.IndexByte(first, '\n'); end >= 0 {
		first = first[:end]
	}
	if bytes.IndexByte(first, t.comma) < 0 {
		for _, c := range []byte{'\t', ';', ',', '|'} {
			if bytes.IndexByte(first, c) >= 0 {
				t.comma = c
				break
			}
		}
	}
	return t
}

func (t *tableRows) next(dst []byte) ([]byte, int64, error) {
	if t.header == nil && t.done == nil {
		t.done = t.readHeader()
	}
	if t.done != nil {
		return dst, t.line, t.done
	}
	at, err := t.record()
	var bad *badRow
	switch {
	case errors.As(err, &bad):
		return dst, at, err
	case err != nil:
		t.done = err
		return dst, at, err
	case len(t.ends) != len(t.header):
		return dst, at, &badRow{err: fmt.Errorf("the row has %d values and the header %d columns (separated by %q); put a value that holds %q or a line's end in double quotes",
			len(t.ends), len(t.header), t.comma, t.comma)}
	}
	dst = append(dst, '{')
	more := false
	for i, name := range t.header {
		if name == "" { // pandas' column of row numbers
			continue
		}
		if more {
			dst = append(dst, ',')
		}
		more = true
		dst = append(quote(dst, name), ':')
		dst = t.appendValue(dst, name, t.value(i))
	}
	return append(dst, '}'), at, nil
}

// appendValue appends the value v of the column called name to dst as JSON: a string, or the list that a column of
// lists holds. An empty value is null if the column holds lists or answers, since CSV has no null.
func (t *tableRows) appendValue(dst []byte, name string, v []byte) []byte {
	if list := bytes.TrimSpace(v); t.lists(name, list) {
		switch {
		case len(list) == 0:
			return append(dst, "null"...)
		case list[0] == '[' && json.Valid(list):
			return append(dst, list...)
		}
	}
	if len(v) == 0 && t.answer(name) {
		return append(dst, "null"...)
	}
	return quote(dst, v)
}

func (t *tableRows) value(i int) []byte {
	from := 0
	if i > 0 {
		from = t.ends[i-1]
	}
	return t.text[from:t.ends[i]]
}

// readHeader reads the first record, which holds the names of the columns.
func (t *tableRows) readHeader() error {
	at, err := t.record()
	if bad := (*badRow)(nil); errors.As(err, &bad) { // no row can be read without the names
		return fmt.Errorf("line %d: %w", at, bad.err)
	}
	if err != nil {
		return err
	}
	header, seen := make([]string, len(t.ends)), map[string]bool{}
	for i := range header {
		name := strings.TrimSpace(string(t.value(i)))
		if name != "" && seen[name] {
			return fmt.Errorf("two columns are called %q in the first line; give each a name of its own", name)
		}
		header[i], seen[name] = name, true
	}
	t.header = header
	return nil
}

// record reads the next record, skipping blank lines, and returns the number of the line it begins on. If the error
// is a *badRow, the next call reads from the following line on.
func (t *tableRows) record() (at int64, err error) {
	for {
		at = t.line + 1
		if err = t.scan(); err != nil || len(t.text) > 0 || len(t.ends) > 1 || t.quoted {
			return at, err
		}
	}
}

// scan reads to the end of a record. It stores the record's values in text and ends.
func (t *tableRows) scan() error {
	t.text, t.ends, t.quoted = t.text[:0], t.ends[:0], false
	var bad error
	size, inside, start := 0, false, true // start: b is the first byte of a value
	whole := 0                            // a \r in text belongs to a line end only at or after this offset; a separator or closing quote came before
	for {
		b, err := t.r.ReadByte()
		switch size++; {
		case size > maxRow:
			bad, t.text, t.ends = errRowSize, t.text[:0], t.ends[:0]
		case len(t.ends) > maxRowValues:
			bad, t.text, t.ends = errRowValues, t.text[:0], t.ends[:0]
		}
		switch {
		case err == io.EOF && inside:
			return &badRow{err: errors.New("a value's quote is not closed up to the end of the file; close it, and write a quote inside quotes twice")}
		case err == io.EOF && size == 1:
			return io.EOF
		case err == io.EOF:
			b = '\n'
		case err != nil:
			return err
		}
		switch {
		case inside && b == '"':
			if inside = t.doubled(); inside {
				t.text = append(t.text, '"')
				size++
			} else if whole = len(t.text); !t.atEnd() && bad == nil {
				bad = &badRow{err: fmt.Errorf("behind a closing quote stands more of value %d; write a quote inside quotes twice", len(t.ends)+1)}
			}
		case inside:
			if t.text = append(t.text, b); b == '\n' {
				t.line++
			}
		case b == '"' && start:
			inside, start, t.quoted = true, false, true
		case b == t.comma:
			whole = len(t.text)
			t.ends, start = append(t.ends, whole), true
		case b == '\n':
			t.line++
			if n := len(t.text); n > whole && t.text[n-1] == '\r' {
				t.text = t.text[:n-1]
			}
			t.ends = append(t.ends, len(t.text))
			return bad
		default:
			t.text, start = append(t.text, b), false
		}
	}
}

// doubled is called after a quote inside a quoted value. If a second quote follows, doubled reads
// it and returns true: the two together stand for one quote.
func (t *tableRows) doubled() bool {
	b, err := t.r.ReadByte()
	if err == nil && b != '"' {
		_ = t.r.UnreadByte() // cannot fail after a read
	}
	return err == nil && b == '"'
}

// atEnd reports whether the reader stands where a value ends: at a separator, a line end or the file's end.
func (t *tableRows) atEnd() bool {
	next, _ := t.r.Peek(2) // fewer bytes at the end of the file
	return len(next) == 0 || next[0] == t.comma || next[0] == '\n' || string(next) == "\r\n" || string(next) == "\r"
}

// textRows turns each line that is not blank into a row {"text": line}.
type textRows struct {
	r    *bufio.Reader
	n    int64
	line []byte
	done error
}

func (l *textRows) next(dst []byte) ([]byte, int64, error) {
	for l.done == nil {
		l.n++
		l.line, l.done = readLine(l.r, l.line[:0], maxRow)
		if l.done == errTooLong {
			l.done = nil
			return dst, l.n, errRowSize
		}
		if l.done != nil && l.done != io.EOF {
			break
		}
		if line := bytes.TrimRight(l.line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
			return append(quote(append(dst, `{"text":`...), line), '}'), l.n, nil
		}
	}
	return dst, l.n, l.done
}
