package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textFunc is a method that makes a string of a string.
type textFunc func(r *run, s string, a *args) string

// text makes a method of f. Called on markup, it gives markup.
func text(f textFunc) method {
	return func(r *run, self any, a *args) any {
		s, _ := asStr(self)
		r.grow(len(s))
		return like(self, f(r, s, a))
	}
}

// plainText makes a method without arguments of f.
func plainText(name string, f func(string) string) method {
	return text(func(r *run, s string, a *args) string {
		a.bind(r, name, 0)
		r.grow(2 * len(s))
		return f(s)
	})
}

// about makes a method, without arguments, that answers a question about a string.
func about(name string, f func(string) bool) method {
	return func(r *run, self any, a *args) any {
		a.bind(r, name, 0)
		s, _ := asStr(self)
		r.read(s)
		return f(s)
	}
}

// all says that s is not empty and f holds for all its characters.
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

// isDigit is Python's isdigit: decimals and digits like ².
func isDigit(c rune) bool {
	return unicode.IsDigit(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉①②③④⑤⑥⑦⑧⑨", c)
}

// inName says that c may stand in a name, first that it may begin one.
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

// pad fills s up to width characters on the side, or sides, that the method name asks for.
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

// replace is Python's s.replace(old, with, count).
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

// listOf is parts as a list of strings, or of markup as self is.
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

// splitRight cuts s at the last n places where sep stands.
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

// splitSpace cuts s at up to most runs of white space.
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

// isLineEnd says that Python's splitlines cuts behind c.
func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// splitLines is Python's s.splitlines(keep).
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
