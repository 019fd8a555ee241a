package jinja

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
)

// jsonWriter writes what Python's json.dumps writes.
type jsonWriter struct {
	r           *run
	b           *strings.Builder
	ascii, sort bool
	indent      string
	lines       bool // one item a line
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

// value writes v; newline is a line break and the indentation of what is around.
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

// EncodeJSON is a value that DecodeJSON gives as Python's json.dumps(ensure_ascii=False)
// writes it.
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

// between writes what stands before item i.
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

// text writes a string in double quotes.
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
