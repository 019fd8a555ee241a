package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f || r > 0x7f && unicode.IsSpace(r)
}

// str is Python's str(v).
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	case *spanned:
		return v.text
	case int64:
		return strconv.FormatInt(v, 10)
	}
	b := &strings.Builder{}
	r.repr(b, v)
	return b.String()
}

// reprOf is Python's repr(v).
func (r *run) reprOf(v any) string {
	b := &strings.Builder{}
	r.repr(b, v)
	return b.String()
}

// repr writes Python's repr(v).
func (r *run) repr(b *strings.Builder, v any) {
	r.enter()
	defer r.leave()
	from := b.Len()
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		reprString(b, v, false)
	case markup:
		b.WriteString("Markup(")
		reprString(b, string(v), false)
		b.WriteString(")")
	case *undefined:
		b.WriteString("Undefined")
	case []any:
		r.reprSeq(b, "[", v, "]")
	case tuple:
		r.reprTuple(b, v)
	case group:
		r.reprTuple(b, tuple{v.grouper, v.list})
	case *Object:
		r.reprObject(b, v)
	case *namespace:
		b.WriteString("<Namespace ")
		r.repr(b, v.attrs)
		b.WriteString(">")
	case intRange:
		if fmt.Fprintf(b, "range(%d, %d", v.start, v.stop); v.step != 1 {
			fmt.Fprintf(b, ", %d", v.step)
		}
		b.WriteString(")")
	case *view:
		b.WriteString("dict_" + v.kind + "(")
		r.reprSeq(b, "[", v.items(), "])")
	default:
		r.reprOther(b, v)
	}
	r.grow(b.Len() - from)
}

// reprOther writes what has no text that a template could rely on.
func (r *run) reprOther(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *macro:
		if v.name == "" {
			b.WriteString("<Macro anonymous>")
		} else {
			b.WriteString("<Macro " + r.reprOf(v.name) + ">")
		}
	case *loop:
		fmt.Fprintf(b, "<LoopContext %d/%d>", v.index0+1, v.length())
	case *iterator:
		b.WriteString("<" + v.name + " object>")
	case *function:
		b.WriteString("<function " + v.name + ">")
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
}

func (r *run) reprSeq(b *strings.Builder, open string, items []any, end string) {
	b.WriteString(open)
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		r.repr(b, item)
	}
	b.WriteString(end)
}

func (r *run) reprTuple(b *strings.Builder, items []any) {
	if len(items) == 1 {
		r.reprSeq(b, "(", items, ",)")
	} else {
		r.reprSeq(b, "(", items, ")")
	}
}

func (r *run) reprObject(b *strings.Builder, o *Object) {
	b.WriteString("{")
	for i, k := range o.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		r.repr(b, k)
		b.WriteString(": ")
		r.repr(b, o.vals[i])
	}
	b.WriteString("}")
}

// floatRepr is Python's repr of a float: the shortest digits that read back as
// it, with an exponent below 1e-4 and from 1e16 on.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprString writes s as Python writes a string in a list: in single quotes, in
// double quotes where s has single ones alone, with what does not print escaped;
// with ascii all that is not ASCII too.
func reprString(b *strings.Builder, s string, ascii bool) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, "\"") {
		quote = '"'
	}
	b.WriteByte(quote)
	for _, c := range s {
		switch {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\\' || c == rune(quote):
			b.WriteByte('\\')
			b.WriteRune(c)
		case c >= ' ' && c < 0x7f || c > 0x7f && !ascii && unicode.IsPrint(c):
			b.WriteRune(c)
		case c <= 0xff:
			fmt.Fprintf(b, `\x%02x`, c)
		case c <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteByte(quote)
}

// runeCount is the number of characters of s.
func runeCount(s string) int { return utf8.RuneCountInString(s) }

// isASCII says that every character of s is one byte.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escapeHTML is s with the five characters replaced that mean something in HTML.
func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")
