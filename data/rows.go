package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxRow is the largest row that is read, in bytes.
const maxRow = 256 << 20

// rowReader gives the rows of a file in order.
type rowReader interface {
	// next appends a row's JSON to dst; n is its number, from 1. At the end of the file
	// the error is io.EOF. A *badRow is an error of this row alone: reading can go on.
	next(dst []byte) (row []byte, n int64, err error)
}

var errRowSize = &badRow{err: fmt.Errorf("the row is larger than %d MiB; split it", maxRow>>20)}

// newJSONRows reads an array of rows, or a row on each line, whichever the file begins with.
// It sets unit to what rows are counted in.
func newJSONRows(r io.Reader, unit *string) rowReader {
	b := bufio.NewReaderSize(r, 256<<10)
	start, _ := b.Peek(4) // an error of reading comes again at the first row
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) {
		_, _ = b.Discard(3)
	}
	for n := 512; ; n *= 2 {
		start, err := b.Peek(min(n, b.Size()))
		start = bytes.TrimLeft(start, " \t\r\n")
		if len(start) > 0 && start[0] == '[' {
			*unit = unitRow
			return &arrayRows{r: b}
		}
		if len(start) > 0 || err != nil || n >= b.Size() {
			*unit = unitLine
			if err := spread(b); err != nil {
				return &lineRows{r: b, broken: err}
			}
			return &lineRows{r: b}
		}
	}
}

// spread is an error where the file begins with a JSON object that goes on over several lines. It names
// a list of objects in that object, which may be the rows.
func spread(b *bufio.Reader) error {
	start, _ := b.Peek(b.Size()) // an error of reading comes again at the first row
	var line jsonScan
	first := bytes.TrimLeft(start, " \t\r\n")
	end := bytes.IndexByte(first, '\n')
	if end < 0 || first[0] != '{' {
		return nil
	}
	if line.scan(first[:end]); line.ended {
		return nil
	}
	d, depth, key, list := json.NewDecoder(bytes.NewReader(withoutNaN(first))), 0, "", ""
	for more := true; more; {
		named := depth == 1 && d.More()
		t, err := d.Token()
		if _, broken := errors.AsType[*json.SyntaxError](err); broken {
			return nil // it is a row that was cut off, and others may follow
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if t == json.Delim('{') && depth == 2 && list == "" {
				list = key
			}
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		default:
			if text, ok := t.(string); ok && named {
				key = text
			}
		}
		more = err == nil && depth > 0
	}
	if list != "" {
		return fmt.Errorf("the file is one object over several lines, with a list of objects in its field %q: if these are the rows, write one on each line (%s)", list, jqOf(list))
	}
	return errors.New("an object goes on over several lines; write each object on one line (jq -c . FILE)")
}

// jqOf is the command that writes each element of a file's list on a line.
func jqOf(field string) string { return fmt.Sprintf("jq -c '.[%q][]' FILE", field) }

// lineRows makes a row of every line that is not blank.
type lineRows struct {
	r *bufio.Reader
	n int64
	// done is the error that next gives after the last line.
	done error
	// broken is the error of the first row, after which there is none; nil: there are rows.
	broken error
}

func (l *lineRows) next(dst []byte) ([]byte, int64, error) {
	from := len(dst)
	if l.broken != nil && l.done == nil {
		l.n, l.done = 1, io.EOF
		return dst, 1, &badRow{err: l.broken}
	}
	for l.done == nil {
		l.n++
		dst, l.done = readLine(l.r, dst[:from], from+maxRow)
		if l.done == errTooLong {
			l.done = nil
			return dst[:from], l.n, errRowSize
		}
		if l.done != nil && l.done != io.EOF {
			break
		}
		if row := bytes.TrimSpace(dst[from:]); len(row) > 0 {
			return append(dst[:from], row...), l.n, nil
		}
	}
	return dst[:from], l.n, l.done
}

var errTooLong = errors.New("a line that is too long")

// readLine appends the next line to dst. Where dst would come to have more than most bytes,
// the rest of the line is passed over.
func readLine(r *bufio.Reader, dst []byte, most int) ([]byte, error) {
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if len(dst)+len(part) > most {
			tooLong = true
		}
		if !tooLong {
			dst = append(dst, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if tooLong && (err == nil || err == io.EOF) {
			err = errTooLong
		}
		return dst, err
	}
}

// arrayRows gives the elements of a JSON array, with one in memory at a time. It only finds
// where each one ends; whoever reads them checks that they are valid JSON.
type arrayRows struct {
	r    *bufio.Reader
	n    int64
	done error
}

func (a *arrayRows) next(dst []byte) ([]byte, int64, error) {
	from := len(dst)
	if a.done == nil {
		a.done = a.begin()
	}
	if a.done != nil {
		return dst, a.n, a.done
	}
	a.n++
	var s jsonScan
	tooLong := false
	for !s.ended {
		if _, err := a.r.Peek(1); err != nil {
			a.done = err
			if err == io.EOF {
				err = &badRow{err: errors.New("the file ends inside this row; it was cut off")}
			}
			return dst[:from], a.n, err
		}
		buf, _ := a.r.Peek(a.r.Buffered())
		n := s.scan(buf)
		if tooLong = tooLong || len(dst)-from+n > maxRow; !tooLong {
			dst = append(dst, buf[:n]...)
		}
		_, _ = a.r.Discard(n)
	}
	if tooLong {
		return dst[:from], a.n, errRowSize
	}
	if len(dst) == from {
		a.done = fmt.Errorf("row %d: an element of the array is missing; it must be [row, row, ...]", a.n)
		return dst, a.n, a.done
	}
	return dst, a.n, nil
}

// begin passes over what stands before the next element. The error is io.EOF at the end of
// the array.
func (a *arrayRows) begin() error {
	b, err := a.mark()
	switch {
	case err == io.EOF:
		return fmt.Errorf("the array does not end after row %d: the file was cut off, or \"]\" is missing", a.n)
	case err != nil:
		return err
	case b == '[' && a.n == 0, b == ',' && a.n > 0:
		next, err := a.mark()
		switch {
		case err == io.EOF:
			return fmt.Errorf("the array does not end after row %d: the file was cut off", a.n)
		case err != nil:
			return err
		case next != ']':
			return a.r.UnreadByte()
		case b == ',':
			return fmt.Errorf("behind row %d stands a comma with no row behind it", a.n)
		}
		return a.end()
	case b == ']':
		return a.end()
	}
	return fmt.Errorf("behind row %d stands %q where a comma or \"]\" is due", a.n, b)
}

// end checks that nothing but white space follows the array.
func (a *arrayRows) end() error {
	b, err := a.mark()
	if err == nil {
		return fmt.Errorf("behind the array stands %q; a file holds one array, or an object a line", b)
	}
	return err
}

// mark is the next byte that is not white space.
func (a *arrayRows) mark() (byte, error) {
	for {
		if b, err := a.r.ReadByte(); err != nil || !isSpace(b) {
			return b, err
		}
	}
}

// jsonScan finds where a JSON value ends.
type jsonScan struct {
	depth           int64
	quoted, escaped bool
	scalar          bool // the value is a number or a word
	ended           bool
}

// scan is how many bytes at the start of b still belong to the value.
func (s *jsonScan) scan(b []byte) int {
	for i, c := range b {
		switch {
		case s.quoted:
			switch {
			case s.escaped:
				s.escaped = false
			case c == '\\':
				s.escaped = true
			case c == '"':
				s.quoted = false
				s.ended = s.depth == 0
			}
		case c == '"' && !s.scalar:
			s.quoted = true
		case c == '{' || c == '[':
			s.depth++
		case (c == '}' || c == ']') && s.depth > 0:
			s.depth--
			s.ended = s.depth == 0
		case s.depth == 0 && (c == ',' || c == ']' || c == '}' || isSpace(c)):
			s.ended = true
			return i
		default:
			s.scalar = s.depth == 0
		}
		if s.ended {
			return i + 1
		}
	}
	return len(b)
}
