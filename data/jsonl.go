package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonRow is a parsed row of JSON. The next row reuses its slices.
type jsonRow struct {
	kind   kind
	text   []byte
	ids    []int32
	labels []int32 // nil: the row has none
	ends   []int   // of a row of ids with several documents: end of each document; otherwise nil
	labBuf []int32
	marks  []int32
	masks  []string // names of the lists that mask labels of a row of ids
	chat   *conversation
	pair   *pair
}

// fieldsOf returns the fields of the row line, a JSON object, by name. Other JSON is an error with advice for the
// user.
func fieldsOf(line []byte) (map[string]json.RawMessage, error) {
	switch {
	case len(line) > 0 && line[0] == '[':
		return nil, errors.New("a JSON array; write one object a line (jq -c '.[]' makes it so)")
	case bytes.HasPrefix(line, []byte("\xff\xfe")), bytes.HasPrefix(line, []byte("\xfe\xff")):
		return nil, errors.New("UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)")
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(line, &fields)
	if plain := withoutNaN(line); err != nil && len(plain) != len(line) {
		err = json.Unmarshal(plain, &fields)
	}
	if _, mistyped := errors.AsType[*json.UnmarshalTypeError](err); mistyped || err == nil && fields == nil {
		err = fmt.Errorf("it is %s", clip(line))
	}
	if err != nil {
		return nil, fmt.Errorf("not a JSON object: %w; write one whole object a line, or set dataset_format: text", err)
	}
	return fields, nil
}

// fill parses a row of the form f into r. All token ids must be below vocab.
func (r *jsonRow) fill(f form, fields map[string]json.RawMessage, vocab int) (err error) {
	r.kind = f.format.kind()
	switch f.format {
	case fmtIDs:
		return r.parseIDs(fields, vocab)
	case fmtText:
		name := "text"
		if f.cols != nil {
			name = f.cols.Text
		}
		raw := given(fields[name])
		if raw == nil {
			return missingField(name, fields)
		}
		return r.parseText(name, raw)
	}
	if f.format == fmtPairs {
		r.pair, err = f.cols.pair(fields)
		return err
	}
	r.chat, err = f.cols.conversation(f.format, fields)
	return err
}

// missingField returns the error of a row that lacks the field called name.
func missingField(name string, fields map[string]json.RawMessage) error {
	if fields[name] != nil {
		return fmt.Errorf("%s is null; remove the row", name)
	}
	return fmt.Errorf("field %q is missing; the row has %q", name, slices.Sorted(maps.Keys(fields)))
}

// given returns raw, the JSON of a field, or nil if the field is absent or null.
func given(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (r *jsonRow) parseText(name string, raw []byte) error {
	if raw[0] != '"' {
		return fmt.Errorf("%s is %s; it must be a string", name, clip(raw))
	}
	if err := halfSurrogate(name, raw); err != nil {
		return err
	}
	r.ids, r.labels = r.ids[:0], nil
	r.text = unquote(r.text[:0], raw[1:len(raw)-1])
	if len(r.text) == 0 {
		return fmt.Errorf("%s is empty; remove the row", name)
	}
	return nil
}

// parseInts appends the integers of raw, a valid JSON list, to dst. field names the list in errors.
func parseInts(dst []int32, field string, raw []byte) ([]int32, error) {
	if raw[0] != '[' {
		return dst, fmt.Errorf("%s is %s; it must be a list of whole numbers", field, clip(raw))
	}
	at := 1
	for {
		for raw[at] == ',' || isSpace(raw[at]) {
			at++
		}
		if raw[at] == ']' {
			return dst, nil
		}
		v, n := leadingInt(raw[at:])
		if end := raw[at+n]; n == 0 || end != ',' && end != ']' && !isSpace(end) {
			return dst, fmt.Errorf("%s[%d] is %s; it must be a whole number, as in [1, 2, 3]", field, len(dst), clip(element(raw[at:])))
		}
		dst = append(dst, v)
		at += n
	}
}

// leadingInt returns the integer at the start of b and the number of bytes it takes. A length of 0 means that b
// begins with no integer, or with an integer beyond 32 bits.
func leadingInt(b []byte) (int32, int) {
	n, v, negative := 0, int64(0), b[0] == '-'
	if negative {
		n++
	}
	first := n
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		if v = v*10 + int64(b[n]-'0'); v > math.MaxInt32 {
			return 0, 0
		}
	}
	if n == first {
		return 0, 0
	}
	if negative {
		v = -v
	}
	return int32(v), n
}

// element returns the start of b, a list element, up to the next comma or bracket. It is shown in an error message.
func element(b []byte) []byte {
	if i := slices.IndexFunc(b, func(c byte) bool { return c == ',' || c == ']' }); i > 0 {
		return b[:i]
	}
	return b
}

// clip shortens a value for an error message.
func clip(b []byte) string {
	const most = 40
	s := strings.TrimSpace(string(b))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// halfSurrogate returns an error if raw, which is valid JSON, escapes one half of a surrogate pair without the other
// half. UTF-8 cannot encode such a character. name is the field, for the error.
func halfSurrogate(name string, raw []byte) error {
	for i := bytes.IndexByte(raw, '\\'); i >= 0 && i+1 < len(raw); {
		n := 2
		if raw[i+1] == 'u' {
			var r rune
			if r, n = unicodeEscape(raw[i+2:]); r == utf8.RuneError && utf16.IsSurrogate(hex4(raw[i+2:])) {
				return fmt.Errorf("%s: byte %d: %s is half of a surrogate pair, which UTF-8 cannot hold; the text was cut inside a character: mend it, or remove the row", name, i, raw[i:i+6])
			}
			n += 2
		}
		next := bytes.IndexByte(raw[i+n:], '\\')
		if next < 0 {
			break
		}
		i += n + next
	}
	return nil
}

// unquote appends to dst the text of the valid JSON string s, which is given without its quotes. Bytes that are not
// UTF-8 stay unchanged. A single half of a surrogate pair becomes U+FFFD.
func unquote(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := unicodeEscape(s[i+1:])
			dst = utf8.AppendRune(dst, r)
			i += n
		default: // a quote or a slash
			dst = append(dst, s[i])
		}
	}
	return dst
}

// unicodeEscape returns the character of a \u escape and the number of bytes it read; s begins with the escape's four
// hex digits. If another escape follows and both form a surrogate pair, it reads both.
func unicodeEscape(s []byte) (rune, int) {
	r := hex4(s)
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(s) >= 10 && s[4] == '\\' && s[5] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(s[6:])); pair != utf8.RuneError {
			return pair, 10
		}
	}
	return utf8.RuneError, 4
}

func hex4(s []byte) rune {
	v, err := strconv.ParseUint(string(s[:4]), 16, 16)
	if err != nil {
		panic("data: the string was checked: " + err.Error())
	}
	return rune(v)
}

// rowFields returns the fields of a row by name. CSV and TSV files, and string columns of other
// formats, hold a list as a string of JSON text. If the field may be a list, rowFields replaces the
// string by the list. The function `lists` decides this from the field's name and the list (see
// Spec.lists).
func rowFields(row []byte, lists func(name string, value []byte) bool) (map[string]json.RawMessage, error) {
	fields, err := fieldsOf(row)
	if err != nil {
		return nil, err
	}
	for name, raw := range fields {
		if list := listIn(raw); list != nil && lists(name, list) {
			fields[name] = list
		}
	}
	return fields, nil
}

// listIn returns the list that raw holds in another form: a string with the whole list as JSON
// text, or a list of strings with one element each. For other values it returns nil. A string with
// half of a surrogate pair gives nil too; the code that reads the field reports the error.
func listIn(raw json.RawMessage) json.RawMessage {
	if raw[0] == '"' {
		inside := bytes.TrimLeft(raw[1:], " ")
		if inside[0] != '[' || halfSurrogate("", raw) != nil {
			return nil
		}
		text := withoutNaN(bytes.TrimSpace(unquote(nil, raw[1:len(raw)-1])))
		if !json.Valid(text) {
			return nil
		}
		if list := listIn(text); list != nil {
			return list
		}
		return text
	}
	var texts []string
	if start := bytes.TrimLeft(raw[1:], " \t\r\n"); raw[0] != '[' || !bytes.HasPrefix(start, []byte(`"{`)) || halfSurrogate("", raw) != nil || json.Unmarshal(raw, &texts) != nil {
		return nil
	}
	out := []byte{'['}
	for i, text := range texts {
		object := withoutNaN([]byte(text))
		if !json.Valid(object) {
			return nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, object...)
	}
	return append(out, ']')
}

// pythonNumbers are numbers that Python's json module writes and JSON lacks.
var pythonNumbers = []string{"NaN", "-Infinity", "Infinity"}

// withoutNaN returns text, JSON written by Python, with each NaN or infinity replaced by null. Text without them is
// returned itself.
func withoutNaN(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	out := make([]byte, 0, len(text)+8)
	quoted := false
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c, text[i+1])
			i += 2
			continue
		case c == '"':
			quoted = !quoted
		case !quoted:
			if n := pythonNumber(text, i); n > 0 {
				out = append(out, "null"...)
				i += n
				continue
			}
		}
		out = append(out, text[i])
		i++
	}
	return out
}

// pythonNumber returns the length of the word of pythonNumbers that begins at offset i, if the word is a whole value
// there; otherwise 0.
func pythonNumber(text []byte, i int) int {
	for _, word := range pythonNumbers {
		end := i + len(word)
		if bytes.HasPrefix(text[i:], []byte(word)) && (end == len(text) || bytes.IndexByte([]byte(",]} \t\r\n"), text[end]) >= 0) {
			return len(word)
		}
	}
	return 0
}

// newJSONRows returns a reader for a file of JSON. If the file begins with a bracket, it is one
// array of rows; otherwise each line is a row. The string unit becomes the word for a row in
// errors: line or row.
func newJSONRows(r io.Reader, unit *string) rowReader {
	b := bufio.NewReaderSize(r, 256<<10)
	start, _ := b.Peek(4) // a read error recurs at the first row
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

// spread returns an error if the file begins with a JSON object that spans several lines, so that no line is a row.
// If the object contains a list of objects, these may be the rows, and the error names the list.
func spread(b *bufio.Reader) error {
	start, _ := b.Peek(b.Size()) // a read error recurs at the first row
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
			return nil // a truncated row; other rows may follow
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

// jqOf returns a command line of jq that writes each element of the list called field on a line of its own.
func jqOf(field string) string { return fmt.Sprintf("jq -c '.[%q][]' FILE", field) }

// lineRows reads each line that is not blank as a row.
type lineRows struct {
	r *bufio.Reader
	n int64
	// done is the error that next returns after the last line; it is io.EOF unless reading failed.
	done error
	// broken, if not nil, is the error that the first call of next returns, since the file has no rows.
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

// readLine appends the next line to dst. If dst would become longer than most bytes, it skips the rest of the line
// and returns errTooLong.
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

// arrayRows reads the elements of a JSON array one at a time. It only finds where each element ends; the caller
// checks that the element is valid JSON.
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

// begin skips the comma or bracket and the white space before the next element. It returns io.EOF at the end of the
// array.
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

// end returns an error if anything but white space follows the array.
func (a *arrayRows) end() error {
	b, err := a.mark()
	if err == nil {
		return fmt.Errorf("behind the array stands %q; a file holds one array, or an object a line", b)
	}
	return err
}

// mark skips white space, then reads and returns the next byte.
func (a *arrayRows) mark() (byte, error) {
	for {
		if b, err := a.r.ReadByte(); err != nil || !isSpace(b) {
			return b, err
		}
	}
}

// jsonScan finds the end of a JSON value that arrives in pieces.
type jsonScan struct {
	depth           int64
	quoted, escaped bool
	scalar          bool // the value is a number or a literal
	ended           bool
}

// scan reads b, the next piece of the input, and returns how many of its bytes belong to the value. ended is set when
// the value is complete.
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
