package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonRow is a row of JSON. Its slices are reused for the next row.
type jsonRow struct {
	kind   kind
	text   []byte
	ids    []int32
	labels []int32 // nil: none are given
	ends   []int   // of a row of ids that holds several documents: where each ends; else nil
	labBuf []int32
	marks  []int32
	masks  []string // the lists of a row of ids that take tokens out of its labels
	chat   *conversation
	pair   *pair
}

// fieldsOf are the fields of a row, by name.
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

// fill reads a row whose form is known.
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

// missingField is the error of a row that lacks a field.
func missingField(name string, fields map[string]json.RawMessage) error {
	if fields[name] != nil {
		return fmt.Errorf("%s is null; remove the row", name)
	}
	return fmt.Errorf("field %q is missing; the row has %q", name, slices.Sorted(maps.Keys(fields)))
}

// given is nil for a field that is absent or null.
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
	r.ids, r.labels = r.ids[:0], nil
	r.text = unquote(r.text[:0], raw[1:len(raw)-1])
	if len(r.text) == 0 {
		return fmt.Errorf("%s is empty; remove the row", name)
	}
	return nil
}

// parseInts appends the numbers of a valid JSON value to dst.
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

// leadingInt is the number at the start of b, and its length. The length is 0 where there
// is no number, or one that needs more than 32 bits.
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

// element is b up to where the first element of its list ends, for a message.
func element(b []byte) []byte {
	if i := slices.IndexFunc(b, func(c byte) bool { return c == ',' || c == ']' }); i > 0 {
		return b[:i]
	}
	return b
}

// clip quotes a value for an error message, shortened.
func clip(b []byte) string {
	const most = 40
	s := strings.TrimSpace(string(b))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// unquote appends the text of a valid JSON string, given without its quotes. Bytes that
// are not UTF-8 stay as they are; half of a surrogate pair becomes U+FFFD.
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
		default: // a quote or a slash stands for itself
			dst = append(dst, s[i])
		}
	}
	return dst
}

// unicodeEscape is the character that the four digits at the start of s stand for, together
// with the escape after them where the two are a surrogate pair; and how long that is in s.
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
