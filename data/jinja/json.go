package jinja

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter writes values as JSON, in the same form as Python's json.dumps.
type jsonWriter struct {
	r           *run
	b           *strings.Builder
	ascii, sort bool
	indent      string
	lines       bool // one item per line
	item, key   string
}

// toJSON is the filter tojson(ensure_ascii, indent, separators, sort_keys).
func toJSON(r *run, v any, a *args) any {
	b := a.bind(r, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	w := &jsonWriter{r: r, b: &strings.Builder{}, ascii: b.bool(0), sort: b.bool(3), item: ", ", key: ": "}
	switch indent := b.optional(1).(type) {
	case nil:
	case string:
		w.lines, w.indent = true, indent
	default:
		n, ok := asInt(indent)
		if !ok {
			r.fail("tojson(): 'indent' must be an integer or a string, not %s", typeName(indent))
		}
		w.lines, w.indent = true, strings.Repeat(" ", int(min(max(n, 0), 1024)))
	}
	if w.lines {
		w.item = ","
	}
	if seps := b.optional(2); seps != nil {
		items := r.collect(seps)
		if len(items) != 2 {
			r.fail("tojson(): 'separators' must be two strings")
		}
		var ok1, ok2 bool
		w.item, ok1 = asStr(items[0])
		w.key, ok2 = asStr(items[1])
		if !ok1 || !ok2 {
			r.fail("tojson(): 'separators' must be two strings")
		}
	}
	w.value(v, "\n")
	return w.b.String()
}

// value writes v. newline is a line break and the indentation of the value around v; "": everything on one line.
func (w *jsonWriter) value(v any, newline string) {
	w.r.enter()
	defer w.r.leave()
	w.r.step(1)
	from := w.b.Len()
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		w.b.WriteString(v.String())
	case float64:
		w.b.WriteString(jsonFloat(v))
	case string:
		w.text(v)
	case markup:
		w.text(string(v))
	case *Object:
		w.object(v, newline)
	default:
		items, ok := asSeq(v)
		if !ok {
			w.r.fail("object of type %s is not JSON serializable", typeName(v))
		}
		w.list(items, newline)
	}
	w.r.grow(w.b.Len() - from)
}

// EncodeJSON writes a value as Python's json.dumps(ensure_ascii=False) does. v has the types that DecodeJSON returns.
func EncodeJSON(v any) (text string, err error) {
	if v, err = (&intake{}).value(v, 0); err != nil {
		return "", err
	}
	r := &run{t: &Template{}, steps: math.MaxInt, bytes: math.MaxInt}
	w := &jsonWriter{r: r, b: &strings.Builder{}, item: ", ", key: ": "}
	w.value(v, "\n")
	return w.b.String(), nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func (w *jsonWriter) list(items []any, newline string) {
	if len(items) == 0 {
		w.b.WriteString("[]")
		return
	}
	inner := newline + w.indent
	w.b.WriteByte('[')
	for i, item := range items {
		w.between(i, inner)
		w.value(item, inner)
	}
	w.close(newline, ']')
}

// between writes the text before item i of a list or object. This is the separator, except before
// the first item, and then, with one item per line, the line break inner.
func (w *jsonWriter) between(i int, inner string) {
	if i > 0 {
		w.b.WriteString(w.item)
	}
	if w.lines {
		w.b.WriteString(inner)
		w.r.grow(len(inner))
	}
}

func (w *jsonWriter) close(newline string, c byte) {
	if w.lines {
		w.b.WriteString(newline)
	}
	w.b.WriteByte(c)
}

func (w *jsonWriter) object(o *Object, newline string) {
	if o.Len() == 0 {
		w.b.WriteString("{}")
		return
	}
	order := make([]int, o.Len())
	for i := range order {
		order[i] = i
	}
	if w.sort {
		sort.SliceStable(order, func(i, j int) bool { return w.r.less("<", o.keys[order[i]], o.keys[order[j]]) })
	}
	inner := newline + w.indent
	w.b.WriteByte('{')
	for n, i := range order {
		w.between(n, inner)
		w.keyOf(o.keys[i])
		w.b.WriteString(w.key)
		w.value(o.vals[i], inner)
	}
	w.close(newline, '}')
}

func (w *jsonWriter) keyOf(key any) {
	switch key := key.(type) {
	case nil:
		w.text("null")
	case bool:
		w.text(strconv.FormatBool(key))
	case float64:
		w.text(jsonFloat(key))
	case int64, *big.Int, string, markup:
		w.text(w.r.str(key))
	default:
		w.r.fail("keys must be str, int, float, bool or None, not %s", typeName(key))
	}
}

// text writes s as a JSON string, escaped as Python does.
func (w *jsonWriter) text(s string) {
	w.b.WriteByte('"')
	from := 0
	for i, c := range s {
		short := ""
		switch c {
		case '"':
			short = `\"`
		case '\\':
			short = `\\`
		case '\n':
			short = `\n`
		case '\r':
			short = `\r`
		case '\t':
			short = `\t`
		case '\f':
			short = `\f`
		case '\b':
			short = `\b`
		default:
			if c >= ' ' && (c < 0x7f || !w.ascii) || c == 0x7f {
				continue
			}
		}
		w.b.WriteString(s[from:i])
		from = i + len(string(c))
		if short == "" && c > 0xffff {
			high, low := utf16.EncodeRune(c)
			short = fmt.Sprintf(`\u%04x\u%04x`, high, low)
		} else if short == "" {
			short = fmt.Sprintf(`\u%04x`, c)
		}
		w.b.WriteString(short)
	}
	w.b.WriteString(s[from:])
	w.b.WriteByte('"')
}

// Limits of one JSON text: how deep values are nested, and how many digits an integer has (Python's own limit).
const (
	maxJSONDepth  = 256
	maxJSONDigits = 4300
)

// DecodeJSON reads one JSON value; only white space may follow it. It returns *Object, []any, string, bool, nil,
// int64 or float64, and *big.Int for an integer beyond int64. If a key appears twice, its last value counts. Errors
// name the byte offset.
func DecodeJSON(text []byte) (value any, err error) {
	d := &jsonReader{text: text}
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(jsonError)
			if !ok {
				panic(p)
			}
			value, err = nil, fmt.Errorf("JSON: byte %d: %s", e.at, e.what)
		}
	}()
	d.space()
	value = d.value(0)
	d.space()
	if d.at < len(text) {
		d.fail("more after the end of the value")
	}
	return value, nil
}

type jsonError struct {
	at   int
	what string
}

// jsonReader parses text, from the offset at on. If text is not valid, it panics with a jsonError.
type jsonReader struct {
	text []byte
	at   int
}

func (d *jsonReader) fail(format string, args ...any) {
	panic(jsonError{d.at, fmt.Sprintf(format, args...)})
}

func (d *jsonReader) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek returns the next byte; 0: the end of the text.
func (d *jsonReader) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *jsonReader) value(depth int) any {
	if depth > maxJSONDepth {
		d.fail("nested more than %d deep", maxJSONDepth)
	}
	switch c := d.peek(); {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		return d.str()
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for _, w := range []struct {
		word  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if bytes.HasPrefix(d.text[d.at:], []byte(w.word)) {
			d.at += len(w.word)
			return w.value
		}
	}
	if d.at >= len(d.text) {
		d.fail("the text ends where a value should be")
	}
	d.fail("%q begins no value", d.text[d.at])
	return nil
}

func (d *jsonReader) object(depth int) any {
	o := &Object{}
	d.at++
	if d.space(); d.peek() == '}' {
		d.at++
		return o
	}
	for {
		if d.space(); d.peek() != '"' {
			d.fail("a key in double quotes is missing")
		}
		key := d.str()
		if d.space(); d.peek() != ':' {
			d.fail("':' is missing after key %q", key)
		}
		d.at++
		d.space()
		o.Set(key, d.value(depth+1))
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case '}':
			d.at++
			return o
		default:
			d.fail("',' or '}' is missing after the value of %q", key)
		}
	}
}

func (d *jsonReader) array(depth int) any {
	list := []any{}
	d.at++
	if d.space(); d.peek() == ']' {
		d.at++
		return list
	}
	for {
		d.space()
		list = append(list, d.value(depth+1))
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case ']':
			d.at++
			return list
		default:
			d.fail("',' or ']' is missing")
		}
	}
}

func (d *jsonReader) number() any {
	from, whole := d.at, true
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else {
		d.digits()
	}
	if d.peek() == '.' {
		whole = false
		d.at++
		d.digits()
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		whole = false
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		d.digits()
	}
	text := string(d.text[from:d.at])
	if !whole {
		f, _ := strconv.ParseFloat(text, 64) // out of range is ±Inf or 0, as in Python
		return f
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	if len(text) > maxJSONDigits {
		d.fail("an integer of more than %d digits", maxJSONDigits)
	}
	b, _ := new(big.Int).SetString(text, 10)
	return b
}

func (d *jsonReader) digits() {
	from := d.at
	for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
		d.at++
	}
	if d.at == from {
		d.fail("a digit is missing")
	}
}

// str parses a string, whose opening quote is at the offset d.at, and returns its text.
func (d *jsonReader) str() string {
	d.at++
	s := d.plain()
	if d.peek() == '"' {
		d.at++
		return s
	}
	out := []byte(s)
	for {
		switch c := d.peek(); {
		case d.at >= len(d.text):
			d.fail("a string without an end")
		case c == '"':
			d.at++
			return string(out)
		case c == '\\':
			out = d.escape(out)
		case c < ' ':
			d.fail("control character %#02x in a string: write it as an escape", c)
		default:
			out = append(out, d.plain()...)
		}
	}
}

// plain returns the characters of a string up to the next quote or escape, and moves past them.
func (d *jsonReader) plain() string {
	from := d.at
	for d.at < len(d.text) && d.text[d.at] != '"' && d.text[d.at] != '\\' && d.text[d.at] >= ' ' {
		d.at++
	}
	return d.utf8(from)
}

// utf8 returns d.text[from:d.at]. It fails if this text is not UTF-8.
func (d *jsonReader) utf8(from int) string {
	part := d.text[from:d.at]
	if !utf8.Valid(part) {
		for i := 0; i < len(part); {
			r, n := utf8.DecodeRune(part[i:])
			if r == utf8.RuneError && n == 1 {
				d.at = from + i
				d.fail("byte %#02x is not UTF-8", part[i])
			}
			i += n
		}
	}
	return string(part)
}

var jsonEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (d *jsonReader) escape(out []byte) []byte {
	d.at++
	c := d.peek()
	if e, ok := jsonEscapes[c]; ok {
		d.at++
		return append(out, e)
	}
	if c != 'u' {
		d.fail("%q is no escape", "\\"+string(rune(c)))
	}
	d.at++
	r := d.hex4()
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r)
	}
	if d.at+1 < len(d.text) && d.text[d.at] == '\\' && d.text[d.at+1] == 'u' {
		d.at += 2
		if pair := utf16.DecodeRune(r, d.hex4()); pair != utf8.RuneError {
			return utf8.AppendRune(out, pair)
		}
	}
	d.fail("\\u%04x is half of a surrogate pair, which UTF-8 cannot hold", r)
	return nil
}

func (d *jsonReader) hex4() rune {
	if d.at+4 > len(d.text) {
		d.fail("\\u needs four hex digits")
	}
	n, err := strconv.ParseUint(string(d.text[d.at:d.at+4]), 16, 16)
	if err != nil {
		d.fail("\\u needs four hex digits")
	}
	d.at += 4
	return rune(n)
}
