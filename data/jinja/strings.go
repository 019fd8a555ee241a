package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textFunc computes a method of the string s that returns a string; a holds the arguments.
type textFunc func(r *run, s string, a *args) string

// text turns f into a method of strings. If the method is called on markup (a string already
// escaped for HTML), it returns markup.
func text(f textFunc) method {
	return func(r *run, self any, a *args) any {
		s, _ := asStr(self)
		r.grow(len(s))
		return like(self, f(r, s, a))
	}
}

// plainText turns f into a method of strings without arguments. name is the method's name, for
// errors.
func plainText(name string, f func(string) string) method {
	return text(func(r *run, s string, a *args) string {
		a.bind(r, name, 0)
		r.grow(2 * len(s))
		return f(s)
	})
}

// about turns f into a method of strings that takes no arguments and returns a bool, such as
// isupper. name is the method's name, for errors.
func about(name string, f func(string) bool) method {
	return func(r *run, self any, a *args) any {
		a.bind(r, name, 0)
		s, _ := asStr(self)
		r.read(s)
		return f(s)
	}
}

// all returns a function that reports whether f holds for all characters of a string; for "" it reports false.
func all(f func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	}
}

func isAlnum(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }

var stringMethods map[string]method

func init() {
	stringMethods = map[string]method{
		"upper":        plainText("upper", upper),
		"lower":        plainText("lower", lower),
		"title":        plainText("title", title),
		"capitalize":   plainText("capitalize", capitalize),
		"swapcase":     plainText("swapcase", swapcase),
		"casefold":     plainText("casefold", func(s string) string { return strings.ReplaceAll(lower(s), "ß", "ss") }),
		"strip":        stripMethod("strip", strings.TrimFunc),
		"lstrip":       stripMethod("lstrip", strings.TrimLeftFunc),
		"rstrip":       stripMethod("rstrip", strings.TrimRightFunc),
		"removeprefix": cutMethod("removeprefix", strings.TrimPrefix),
		"removesuffix": cutMethod("removesuffix", strings.TrimSuffix),
		"center":       padMethod("center"),
		"ljust":        padMethod("ljust"),
		"rjust":        padMethod("rjust"),
		"zfill":        text(zfill),
		"expandtabs":   text(expandTabs),
		"replace":      replaceMethod,
		"join":         joinMethod,
		"format":       formatMethod,
		"format_map":   formatMapMethod,
		"split":        splitMethod("split", false),
		"rsplit":       splitMethod("rsplit", true),
		"splitlines":   splitLinesMethod,
		"partition":    partitionMethod("partition", strings.Index),
		"rpartition":   partitionMethod("rpartition", strings.LastIndex),
		"startswith":   affixMethod("startswith", strings.HasPrefix),
		"endswith":     affixMethod("endswith", strings.HasSuffix),
		"find":         findMethod("find", strings.Index),
		"rfind":        findMethod("rfind", strings.LastIndex),
		"index":        findMethod("index", strings.Index),
		"rindex":       findMethod("rindex", strings.LastIndex),
		"count":        countMethod,
		"isspace":      about("isspace", all(isSpace)),
		"isalpha":      about("isalpha", all(unicode.IsLetter)),
		"isalnum":      about("isalnum", all(isAlnum)),
		"isdecimal":    about("isdecimal", all(unicode.IsDigit)),
		"isdigit":      about("isdigit", all(isDigit)),
		"isnumeric":    about("isnumeric", all(unicode.IsNumber)),
		"isascii":      about("isascii", isASCII),
		"isprintable":  about("isprintable", func(s string) bool { return s == "" || all(unicode.IsPrint)(s) }),
		"isupper":      about("isupper", isUpper),
		"islower":      about("islower", isLower),
		"istitle":      about("istitle", isTitle),
		"isidentifier": about("isidentifier", isIdentifier),
	}
}

// isDigit is Python's isdigit for one character: decimal digits, and digits such as ².
func isDigit(c rune) bool {
	return unicode.IsDigit(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉①②③④⑤⑥⑦⑧⑨", c)
}

// inName reports whether c may stand in a Python name; if first is set, whether it may begin one.
func inName(c rune, first bool) bool {
	return c == '_' || unicode.IsLetter(c) || !first && (unicode.IsDigit(c) || unicode.IsMark(c))
}

func isIdentifier(s string) bool {
	for i, c := range s {
		if !inName(c, i == 0) {
			return false
		}
	}
	return s != ""
}

func stripMethod(name string, trim func(string, func(rune) bool) string) method {
	return text(func(r *run, s string, a *args) string {
		b := a.bind(r, name, 0, "chars")
		if b.optional(0) == nil {
			return trim(s, isSpace)
		}
		chars := b.str(0, "")
		r.grow(len(s) + len(chars))
		r.grow(2 * len(chars))
		set := make(map[rune]bool, min(len(chars), 64))
		for _, c := range chars {
			set[c] = true
		}
		return trim(s, func(c rune) bool { return set[c] })
	})
}

func cutMethod(name string, cut func(s, affix string) string) method {
	return text(func(r *run, s string, a *args) string { return cut(s, a.bind(r, name, 1, "affix").str(0, "")) })
}

func padMethod(name string) method {
	return text(func(r *run, s string, a *args) string {
		b := a.bind(r, name, 1, "width", "fillchar")
		fill := b.str(1, " ")
		if runeCount(fill) != 1 {
			r.fail("%s(): the fill character must be exactly one character long", name)
		}
		return r.pad(s, b.int(0, 0), name, fill)
	})
}

// pad returns s, filled up to width characters with fill. name is the method that was called
// (ljust, rjust or center) and decides on which sides.
func (r *run) pad(s string, width int64, name, fill string) string {
	n := width - int64(runeCount(s))
	if n <= 0 {
		return s
	}
	if n > int64(r.bytes) {
		n = int64(r.bytes) + 1
	}
	r.grow(int(n) * len(fill))
	left := int64(0)
	switch name {
	case "rjust":
		left = n
	case "center":
		left = n/2 + (n & width & 1)
	}
	return strings.Repeat(fill, int(left)) + s + strings.Repeat(fill, int(n-left))
}

func zfill(r *run, s string, a *args) string {
	width := a.bind(r, "zfill", 1, "width").int(0, 0)
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	return sign + r.pad(s, width-int64(len(sign)), "rjust", "0")
}

func expandTabs(r *run, s string, a *args) string {
	size := a.bind(r, "expandtabs", 0, "tabsize").int(0, 8)
	var b strings.Builder
	column := int64(0)
	for _, c := range s {
		switch {
		case c == '\t' && size > 0:
			n := size - column%size
			r.grow(int(min(n, 1<<40)))
			b.WriteString(strings.Repeat(" ", int(n)))
			column += n
		case c == '\t':
		case c == '\n' || c == '\r':
			b.WriteRune(c)
			column = 0
		default:
			b.WriteRune(c)
			column++
		}
	}
	return b.String()
}

func replaceMethod(r *run, self any, a *args) any {
	b := a.bind(r, "replace", 2, "old", "new", "count")
	with := b.str(1, "")
	_, mark := self.(markup)
	if _, ok := b.vals[1].(markup); mark && !ok {
		with = escapeHTML(with)
	}
	s, _ := asStr(self)
	return like(self, r.replace(s, b.str(0, ""), with, b.int(2, -1)))
}

// replace is Python's s.replace(old, with, count). A negative count replaces all occurrences.
func (r *run) replace(s, old, with string, count int64) string {
	n := int64(strings.Count(s, old))
	if count >= 0 {
		n = min(n, count)
	}
	if grown := n * int64(len(with)); len(with) > 0 && grown/int64(len(with)) != n || grown > int64(r.bytes) {
		r.grow(r.bytes + 1)
	} else {
		r.grow(len(s) + int(grown))
	}
	return strings.Replace(s, old, with, int(n))
}

func joinMethod(r *run, self any, a *args) any {
	sep, _ := asStr(self)
	_, mark := self.(markup)
	var b strings.Builder
	for i, item := range r.collect(a.bind(r, "join", 1, "iterable").vals[0]) {
		s, ok := asStr(item)
		if !ok && !mark {
			r.fail("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		if _, safe := item.(markup); mark && !safe {
			s = escapeHTML(r.str(item))
		}
		if i > 0 {
			b.WriteString(sep)
		}
		r.grow(len(sep) + len(s))
		b.WriteString(s)
	}
	return like(self, b.String())
}

// listOf returns the strings parts as a template's list. If self, the value they were cut from, is
// markup, they are markup too.
func (r *run) listOf(self any, parts []string) []any {
	r.grow(32 * len(parts))
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = like(self, p)
	}
	return list
}

func splitMethod(name string, right bool) method {
	return func(r *run, self any, a *args) any {
		b := a.bind(r, name, 0, "sep", "maxsplit")
		s, _ := asStr(self)
		most := b.int(1, -1)
		if most < 0 {
			most = int64(len(s)) + 1
		}
		if b.optional(0) == nil {
			r.grow(8 * len(s))
			return r.listOf(self, splitSpace(s, int(most), right))
		}
		sep := b.str(0, "")
		if sep == "" {
			r.fail("%s(): empty separator", name)
		}
		n := min(int64(strings.Count(s, sep)), most)
		if r.grow(len(s) + 16*int(n)); right {
			return r.listOf(self, splitRight(s, sep, int(n)))
		}
		return r.listOf(self, strings.SplitN(s, sep, int(n)+1))
	}
}

// splitRight splits s at the last n occurrences of sep; s must contain sep at least n times.
func splitRight(s, sep string, n int) []string {
	parts := make([]string, n+1)
	for i := n; i > 0; i-- {
		at := strings.LastIndex(s, sep)
		if at < 0 {
			return append([]string{s}, parts[i+1:]...)
		}
		s, parts[i] = s[:at], s[at+len(sep):]
	}
	parts[0] = s
	return parts
}

// splitSpace splits s at runs of white space, from the left or, with right, from the right. `most` is the largest
// number of splits; negative: no limit.
func splitSpace(s string, most int, right bool) []string {
	var parts []string
	trim, index := strings.TrimLeftFunc, strings.IndexFunc
	if right {
		trim, index = strings.TrimRightFunc, strings.LastIndexFunc
	}
	for s = trim(s, isSpace); s != ""; s = trim(s, isSpace) {
		at := index(s, isSpace)
		if at < 0 || most == 0 {
			parts = append(parts, s)
			break
		}
		most--
		if right {
			_, n := utf8.DecodeRuneInString(s[at:])
			parts, s = append(parts, s[at+n:]), s[:at]
		} else {
			parts, s = append(parts, s[:at]), s[at:]
		}
	}
	if right {
		slices.Reverse(parts)
	}
	return parts
}

// isLineEnd reports whether c ends a line for Python's method splitlines.
func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// splitLines is Python's s.splitlines(keep). If keep is set, the lines include their line ends.
func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		end := strings.IndexFunc(s, isLineEnd)
		if end < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		if strings.HasPrefix(s[end:], "\r\n") {
			n = 2
		}
		if keep {
			lines = append(lines, s[:end+n])
		} else {
			lines = append(lines, s[:end])
		}
		s = s[end+n:]
	}
	return lines
}

func splitLinesMethod(r *run, self any, a *args) any {
	keep := a.bind(r, "splitlines", 0, "keepends").bool(0)
	s, _ := asStr(self)
	r.grow(16 * len(s))
	return r.listOf(self, splitLines(s, keep))
}

func partitionMethod(name string, index func(s, sep string) int) method {
	return func(r *run, self any, a *args) any {
		s, _ := asStr(self)
		sep := a.bind(r, name, 1, "sep").str(0, "")
		if sep == "" {
			r.fail("%s(): empty separator", name)
		}
		r.grow(len(s))
		parts := []string{s, "", ""}
		if name == "rpartition" {
			parts = []string{"", "", s}
		}
		if at := index(s, sep); at >= 0 {
			parts = []string{s[:at], sep, s[at+len(sep):]}
		}
		return tuple(r.listOf(self, parts))
	}
}

// reprOf returns Python's repr(v), the text of v as Python source code shows it.
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

// reprOther writes the repr of a value, such as a function, for which Python shows an address that
// differs from run to run.
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

// floatRepr is Python's repr of a float: the fewest digits that read back as f. It has an exponent below 1e-4 and
// from 1e16 on.
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

// reprString writes Python's repr of a string. It uses single quotes, or double quotes if s contains only single
// ones. Characters that are not printable are escaped; with ascii, so are all characters beyond ASCII.
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

// runeCount returns the number of characters of s.
func runeCount(s string) int { return utf8.RuneCountInString(s) }

// isASCII reports whether every character of s is one byte.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escapeHTML escapes the characters & > < ' and ".
func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// window returns s[start:stop] by Python's rules for slices, counted in characters, and the index of its first
// character. start and stop may be nil, for not given. ok is false if start is beyond the end of s.
func (r *run) window(s string, start, stop any) (string, int64, bool) {
	n := int64(runeCount(s))
	r.grow(len(s) / 16)
	at := r.bounds(n, [3]any{start, stop, nil})
	if start != nil && r.bound(start, 0) > n {
		return "", 0, false
	}
	if at.len() == 0 {
		return "", at.start, at.start <= at.stop
	}
	from := byteOffset(s, at.start)
	return s[from : from+byteOffset(s[from:], at.stop-at.start)], at.start, true
}

// byteOffset returns the byte offset of the n-th character of s.
func byteOffset(s string, n int64) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// affixMethod returns the string method called name: startswith or endswith. The method's argument
// is one affix or a tuple of affixes. `has` reports whether s has an affix.
func affixMethod(name string, has func(s, affix string) bool) method {
	return func(r *run, self any, a *args) any {
		b := a.bind(r, name, 1, "affix", "start", "end")
		s, _ := asStr(self)
		part, ok := s, true
		if b.optional(1) != nil || b.optional(2) != nil {
			part, _, ok = r.window(s, b.optional(1), b.optional(2))
		}
		affixes, isTuple := b.vals[0].(tuple)
		if !isTuple {
			affixes = tuple{b.vals[0]}
		}
		for _, v := range affixes {
			affix, isStr := asStr(v)
			if !isStr {
				r.usable(v)
				r.fail("%s first arg must be str or a tuple of str, not %s", name, typeName(v))
			}
			if ok && has(part, affix) {
				return true
			}
		}
		return false
	}
}

func findMethod(name string, index func(s, sub string) int) method {
	return func(r *run, self any, a *args) any {
		b := a.bind(r, name, 1, "sub", "start", "end")
		s, _ := asStr(self)
		sub := b.str(0, "")
		part, first, ok := r.window(s, b.optional(1), b.optional(2))
		at := -1
		if ok {
			at = index(part, sub)
		}
		if at < 0 {
			if strings.HasSuffix(name, "index") {
				r.fail("substring not found")
			}
			return int64(-1)
		}
		return first + int64(runeCount(part[:at]))
	}
}

func countMethod(r *run, self any, a *args) any {
	b := a.bind(r, "count", 1, "sub", "start", "end")
	s, _ := asStr(self)
	part, _, ok := r.window(s, b.optional(1), b.optional(2))
	sub := b.str(0, "")
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(part, sub))
}

// sequenceMethods are the methods of lists, tuples and ranges, by name. listMethods are the methods
// of lists: the same and some more. dictMethods are the methods of dicts.
var sequenceMethods, listMethods, dictMethods map[string]method

func init() {
	sequenceMethods = map[string]method{
		"index": func(r *run, self any, a *args) any {
			b := a.bind(r, "index", 1, "value", "start", "stop")
			items := r.collect(self)
			at := r.bounds(int64(len(items)), [3]any{b.optional(1), b.optional(2), nil})
			for i := at.start; i < at.stop; i++ {
				if r.equal(items[i], b.vals[0]) {
					return i
				}
			}
			r.fail("%s is not in list", r.reprOf(b.vals[0]))
			return nil
		},
		"count": func(r *run, self any, a *args) any {
			n := int64(0)
			want := a.bind(r, "count", 1, "value").vals[0]
			for _, item := range r.collect(self) {
				if r.equal(item, want) {
					n++
				}
			}
			return n
		},
	}
	listMethods = map[string]method{
		"copy": func(r *run, self any, a *args) any {
			a.bind(r, "copy", 0)
			return r.collect(self)
		},
	}
	for name, m := range sequenceMethods {
		listMethods[name] = m
	}
	dictMethods = map[string]method{
		"get": func(r *run, self any, a *args) any {
			b := a.bind(r, "get", 1, "key", "default")
			a.noKeywords(r, "get")
			if v, ok := self.(*Object).get(r.hash(b.vals[0])); ok {
				return v
			}
			return b.optional(1)
		},
		"copy": func(r *run, self any, a *args) any {
			a.bind(r, "copy", 0)
			r.grow(64 * self.(*Object).Len())
			return self.(*Object).clone()
		},
	}
	for _, kind := range []string{"keys", "values", "items"} {
		dictMethods[kind] = func(r *run, self any, a *args) any {
			a.bind(r, kind, 0)
			return &view{kind, self.(*Object)}
		}
	}
}
