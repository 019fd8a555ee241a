package data

import (
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

// jsonRow is a row of JSONL; its slices are used again for the next.
type jsonRow struct {
	kind   kind
	text   []byte
	ids    []int32
	labels []int32 // nil: none are given
	labBuf []int32
}

// formatOf names the format that a field is typical of.
var formatOf = map[string]string{
	"messages": "messages", "conversations": "sharegpt", "instruction": "alpaca",
}

// parse reads a line, without the space around it, and checks it against a
// vocabulary of vocab ids. The error names field, value and way out.
func (r *jsonRow) parse(line []byte, vocab int) error {
	if len(line) > 0 && line[0] == '[' {
		return errors.New("a JSON array; write one object a line (jq -c '.[]' makes it so)")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("not a JSON object: %w; write one whole object a line, or set dataset_format: text", err)
	}
	text, ids := given(fields["text"]), given(fields["input_ids"])
	switch {
	case text != nil && ids != nil:
		return errors.New("both text and input_ids; keep the one to train on")
	case text != nil:
		return r.parseText(text)
	case ids != nil:
		return r.parseIDs(ids, given(fields["labels"]), vocab)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if f, ok := formatOf[name]; ok {
			return fmt.Errorf("field %q: format %s is not supported yet; give text, or input_ids and labels", name, f)
		}
	}
	return fmt.Errorf("neither text nor input_ids among the fields %q; give one of them", slices.Sorted(maps.Keys(fields)))
}

// given is nil for a field that is absent or null.
func given(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (r *jsonRow) parseText(raw []byte) error {
	if raw[0] != '"' {
		return fmt.Errorf("text is %s; it must be a string", clip(raw))
	}
	r.kind, r.ids, r.labels = kindText, r.ids[:0], nil
	r.text = unquote(r.text[:0], raw[1:len(raw)-1])
	if len(r.text) == 0 {
		return errors.New("text is empty; remove the row")
	}
	return nil
}

func (r *jsonRow) parseIDs(ids, labels []byte, vocab int) (err error) {
	r.kind, r.text, r.labels = kindIDs, r.text[:0], nil
	if r.ids, err = parseInts(r.ids[:0], "input_ids", ids); err != nil {
		return err
	}
	for i, id := range r.ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("input_ids[%d] is %d, and the model's ids go from 0 to %d; make the rows with this model's tokenizer", i, id, vocab-1)
		}
	}
	if len(r.ids) < 2 {
		return fmt.Errorf("input_ids has %d token(s); a row takes at least 2, one to see and one to predict; remove it", len(r.ids))
	}
	if labels == nil {
		return nil
	}
	if r.labBuf, err = parseInts(r.labBuf[:0], "labels", labels); err != nil {
		return err
	}
	r.labels = r.labBuf
	return r.checkLabels(vocab)
}

func (r *jsonRow) checkLabels(vocab int) error {
	if len(r.labels) != len(r.ids) {
		return fmt.Errorf("labels has %d values and input_ids %d; give every token one (%d: not supervised)", len(r.labels), len(r.ids), IgnoreIndex)
	}
	for i, l := range r.labels {
		if l != IgnoreIndex && (l < 0 || int(l) >= vocab) {
			return fmt.Errorf("labels[%d] is %d; it must be %d (not supervised) or an id from 0 to %d", i, l, IgnoreIndex, vocab-1)
		}
	}
	if supervised(r.labels) == 0 {
		return fmt.Errorf("no token is supervised: labels[1:] are all %d (labels[0] never counts); remove the row", IgnoreIndex)
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

// leadingInt is the number at the start of b and its length, which is 0 where
// there is none or it takes more than 32 bits.
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

// element is b up to where a list's simple element ends.
func element(b []byte) []byte {
	if i := slices.IndexFunc(b, func(c byte) bool { return c == ',' || c == ']' }); i > 0 {
		return b[:i]
	}
	return b
}

// clip quotes a value for an error, shortened.
func clip(b []byte) string {
	const most = 40
	s := strings.TrimSpace(string(b))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// unquote appends the text of a valid JSON string, given without its quotes.
// Bytes that are no UTF-8 stay as they are; half a surrogate pair becomes
// U+FFFD.
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

// unicodeEscape is the character of the four digits at the start of s, with the
// escape after it where the two are a surrogate pair, and their length.
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
