package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token: a name, a number, the start of a tag and so on.
type kind uint8

const (
	tEOF kind = iota
	tData
	tBlockBegin
	tBlockEnd
	tVarBegin
	tVarEnd
	tName
	tString
	tInt
	tFloat
	tOp
)

type token struct {
	kind
	pos
	// text is a name, an operator, the value of a string, or the text between tags.
	text  string
	value any // the value of a number
}

// String returns the token as error messages show it.
func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "the end of the template"
	case tData:
		return "text"
	case tBlockBegin:
		return "'{%'"
	case tBlockEnd:
		return "'%}'"
	case tVarBegin:
		return "'{{'"
	case tVarEnd:
		return "'}}'"
	case tString:
		return "a string"
	case tInt, tFloat:
		return "a number"
	}
	return "'" + t.text + "'"
}

// syntaxError is the panic value with which the lexer and the parser report an error; Parse turns
// it into an *Error.
type syntaxError struct {
	pos
	msg string
}

func syntaxFail(at pos, format string, args ...any) {
	panic(syntaxError{at, fmt.Sprintf(format, args...)})
}

// normalize replaces all line breaks by "\n" and removes one line break at the end, as Jinja does
// before it reads a template.
func normalize(source string) string {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	return strings.TrimSuffix(source, "\n")
}

// lexer cuts the source of a template, after normalize, into tokens.
type lexer struct {
	src    string
	at     int
	tokens []token
	// lineStart reports that the text just read ends with a line break, or that nothing has been read. A tag that
	// follows then begins a line.
	lineStart bool
}

func lex(src string) []token {
	l := &lexer{src: src, lineStart: true}
	for l.at < len(src) {
		l.root()
	}
	l.add(token{kind: tEOF, pos: pos(len(src))})
	return l.tokens
}

func (l *lexer) add(t token) { l.tokens = append(l.tokens, t) }

// advance moves to the offset to. It sets lineStart to true if the text before this offset ends
// with a line break.
func (l *lexer) advance(to int) {
	if to > l.at {
		l.lineStart = l.src[to-1] == '\n'
	}
	l.at = to
}

// root reads text up to the next tag ({%, {{ or {#), and then reads the tag.
func (l *lexer) root() {
	open := l.at
	for ; open < len(l.src); open++ {
		if l.src[open] == '{' && open+1 < len(l.src) && strings.IndexByte("%{#", l.src[open+1]) >= 0 {
			break
		}
	}
	if open == len(l.src) {
		l.data(l.src[l.at:])
		l.advance(open)
		return
	}
	after, sign := l.sign(open + 2)
	l.data(l.strip(l.src[l.at:open], sign, l.src[open+1] == '{'))
	if l.src[open+1] == '%' {
		if end := l.rawBegin(after); end >= 0 {
			l.advance(end)
			l.raw(pos(open))
			return
		}
	}
	l.advance(after)
	switch l.src[open+1] {
	case '#':
		l.comment(pos(open))
	case '%':
		l.add(token{kind: tBlockBegin, pos: pos(open)})
		l.tag(true)
	default:
		l.add(token{kind: tVarBegin, pos: pos(open)})
		l.tag(false)
	}
}

// sign reads an optional + or - at the offset from, which controls white space beside a tag. It returns the offset
// after the sign, and the sign; 0: none.
func (l *lexer) sign(from int) (int, byte) {
	if from < len(l.src) && (l.src[from] == '-' || l.src[from] == '+') {
		return from + 1, l.src[from]
	}
	return from, 0
}

func (l *lexer) data(text string) {
	if text != "" {
		l.add(token{kind: tData, pos: pos(l.at), text: text})
	}
}

// strip returns text, which stands before a tag, without the white space at its end that the tag
// removes. The tag's + or - is sign. With -, all white space at the end is removed. If variable is
// set, the tag is {{. A block or comment tag without + removes the white space of its own line, if
// nothing else precedes the tag there.
func (l *lexer) strip(text string, sign byte, variable bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || variable:
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || l.lineStart) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

// skip returns the offset of the first character, at or after the offset from, that is not white space.
func (l *lexer) skip(from int) int {
	return len(l.src) - len(strings.TrimLeftFunc(l.src[from:], isSpace))
}

// rawBegin returns the offset after "raw %}", which opens a raw block, if that text stands at the
// offset from; otherwise -1. White space is allowed within.
func (l *lexer) rawBegin(from int) int {
	at := l.skip(from)
	if !strings.HasPrefix(l.src[at:], "raw") {
		return -1
	}
	at = l.skip(at + 3)
	if strings.HasPrefix(l.src[at:], "-%}") {
		return l.skip(at + 3)
	}
	if strings.HasPrefix(l.src[at:], "%}") {
		return at + 2
	}
	return -1
}

// blockEnd returns the offset after end, the closing bracket of a tag, and after the white space
// that end removes. It returns -1 if there is no such bracket at the offset from.
func (l *lexer) blockEnd(from int, end string) int {
	rest := l.src[from:]
	switch {
	case strings.HasPrefix(rest, "+"+end):
		return from + 1 + len(end)
	case strings.HasPrefix(rest, "-"+end):
		return l.skip(from + 1 + len(end))
	case strings.HasPrefix(rest, end+"\n"):
		return from + len(end) + 1
	case strings.HasPrefix(rest, end):
		return from + len(end)
	}
	return -1
}

// raw reads text unchanged up to {% endraw %}. open is where the raw block began, for errors.
func (l *lexer) raw(open pos) {
	for from := l.at; ; {
		i := strings.Index(l.src[from:], "{%")
		if l.at == len(l.src) {
			return // Jinja lets a template end like this
		}
		if i < 0 {
			syntaxFail(open, "{%% raw %%} without {%% endraw %%}")
		}
		from += i
		at, sign := l.sign(from + 2)
		if at = l.skip(at); strings.HasPrefix(l.src[at:], "endraw") {
			if end := l.blockEnd(l.skip(at+len("endraw")), "%}"); end >= 0 {
				l.data(l.strip(l.src[l.at:from], sign, false))
				l.advance(end)
				return
			}
		}
		from += 2
	}
}

func (l *lexer) comment(open pos) {
	i := strings.Index(l.src[l.at:], "#}")
	if l.at == len(l.src) {
		return // Jinja lets a template end like this
	}
	if i < 0 {
		syntaxFail(open, "a comment without '#}'")
	}
	end := l.at + i
	if i > 0 && (l.src[end-1] == '-' || l.src[end-1] == '+') {
		end--
	}
	l.advance(l.blockEnd(end, "#}"))
}

// tag reads the tokens of a tag up to its end. block tells the kind of the tag: {% if true, {{ if
// false.
func (l *lexer) tag(block bool) {
	var brackets []byte
	for {
		if l.at >= len(l.src) {
			return // the parser reports what is missing
		}
		if len(brackets) == 0 {
			if end := l.tagEnd(block); end >= 0 {
				k := tVarEnd
				if block {
					k = tBlockEnd
				}
				l.add(token{kind: k, pos: pos(l.at)})
				l.advance(end)
				return
			}
		}
		if at := l.skip(l.at); at > l.at {
			l.advance(at)
			continue
		}
		if !l.number() && !l.name() && !l.str() {
			brackets = l.operator(brackets)
		}
	}
}

func (l *lexer) tagEnd(block bool) int {
	if block {
		return l.blockEnd(l.at, "%}")
	}
	if strings.HasPrefix(l.src[l.at:], "-}}") {
		return l.skip(l.at + 3)
	}
	if strings.HasPrefix(l.src[l.at:], "}}") {
		return l.at + 2
	}
	return -1
}

func (l *lexer) name() bool {
	end := l.at
	for end < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[end:])
		if !inName(r, end == l.at) {
			break
		}
		end += n
	}
	if end == l.at {
		return false
	}
	l.add(token{kind: tName, pos: pos(l.at), text: l.src[l.at:end]})
	l.advance(end)
	return true
}

// run returns the offset after the digits at the offset from; from if there is no digit. The
// characters in digits count as digits. Single underscores may stand between two digits.
func (l *lexer) run(from int, digits string) int {
	end := from
	for i := from; i < len(l.src); i++ {
		c := l.src[i]
		if c >= 'A' && c <= 'F' {
			c |= 0x20
		}
		if strings.IndexByte(digits, c) >= 0 {
			end = i + 1
		} else if c != '_' || i == from || l.src[i-1] == '_' {
			break
		}
	}
	return end
}

const decimal = "0123456789"

func (l *lexer) number() bool {
	whole := l.run(l.at, decimal)
	if whole == l.at {
		return false
	}
	if end := l.float(whole); end > whole {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(l.src[l.at:end], "_", ""), 64)
		l.add(token{kind: tFloat, pos: pos(l.at), value: f})
		l.advance(end)
		return true
	}
	base, end := 10, whole
	if l.src[l.at] == '0' {
		end = l.run(l.at, "0") // 01 is read as 0 and 1, as in Jinja
		if l.at+1 < len(l.src) {
			base, end = l.prefixed(end)
		}
	}
	text := strings.ReplaceAll(l.src[l.at:end], "_", "")
	if base != 10 {
		text = text[2:]
	}
	if len(text) > maxJSONDigits {
		syntaxFail(pos(l.at), "a number of more than %d digits", maxJSONDigits)
	}
	b, _ := new(big.Int).SetString(text, base)
	l.add(token{kind: tInt, pos: pos(l.at), value: shrink(b)})
	l.advance(end)
	return true
}

// prefixed reads a number that begins with 0x, 0o or 0b and returns its base and the offset after it. zero is the
// offset after leading zeros, and is returned with base 10 if there is no such prefix.
func (l *lexer) prefixed(zero int) (base, end int) {
	for _, p := range []struct {
		letter byte
		base   int
		digits string
	}{{'x', 16, "0123456789abcdef"}, {'o', 8, "01234567"}, {'b', 2, "01"}} {
		if l.src[l.at+1]|0x20 == p.letter {
			from := l.at + 2
			if from < len(l.src) && l.src[from] == '_' {
				from++
			}
			if end := l.run(from, p.digits); end > from {
				return p.base, end
			}
		}
	}
	return 10, zero
}

// float returns the offset after the fraction and exponent of a number whose integer part ends at the offset whole.
// It returns whole if the number has neither.
func (l *lexer) float(whole int) int {
	if l.at > 0 && l.src[l.at-1] == '.' {
		return whole
	}
	end := whole
	if end < len(l.src) && l.src[end] == '.' {
		if e := l.run(end+1, decimal); e > end+1 {
			end = e
		}
	}
	if end < len(l.src) && l.src[end]|0x20 == 'e' {
		from, _ := l.sign(end + 1)
		if e := l.run(from, decimal); e > from {
			return e
		}
	}
	return end
}

// operators lists Jinja's operators, longest first, so that ** is not read as two *.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

var closing = map[byte]byte{'(': ')', '[': ']', '{': '}'}

func (l *lexer) operator(brackets []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(l.src[l.at:], op) {
			continue
		}
		c := op[0]
		if close := closing[c]; close != 0 {
			brackets = append(brackets, close)
		} else if c == ')' || c == ']' || c == '}' {
			n := len(brackets)
			if n == 0 {
				syntaxFail(pos(l.at), "unexpected '%s'", op)
			}
			if brackets[n-1] != c {
				syntaxFail(pos(l.at), "unexpected '%s', expected '%c'", op, brackets[n-1])
			}
			brackets = brackets[:n-1]
		}
		l.add(token{kind: tOp, pos: pos(l.at), text: op})
		l.advance(l.at + len(op))
		return brackets
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.at:])
	syntaxFail(pos(l.at), "unexpected character %q", r)
	return nil
}

// str reads a string literal as a token; false: no literal begins at l.at.
func (l *lexer) str() bool {
	quote := l.src[l.at]
	if quote != '\'' && quote != '"' {
		return false
	}
	for i := l.at + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case quote:
			l.add(token{kind: tString, pos: pos(l.at), text: unescape(l.src[l.at+1:i], pos(l.at))})
			l.advance(i + 1)
			return true
		}
	}
	syntaxFail(pos(l.at), "a string without its closing %c", quote)
	return false
}

var stringEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape returns the text of a string literal, with Python's escapes, such as \t for a tab, replaced. `at` is the
// literal's position, for errors.
func unescape(text string, at pos) string {
	if !strings.Contains(text, "\\") {
		return text
	}
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		c := text[i]
		if e, ok := stringEscapes[c]; ok {
			out = append(out, e...)
			continue
		}
		digits, base := 0, 16
		switch {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c >= '0' && c <= '7':
			base = 8
			for digits < 3 && i+digits < len(text) && text[i+digits] >= '0' && text[i+digits] <= '7' {
				digits++
			}
			i--
		case c == 'N':
			syntaxFail(at, "\\N{...} in a string is not supported: write the character or \\u and its number")
		default:
			out = append(out, '\\', c)
			continue
		}
		out = utf8.AppendRune(out, codePoint(text[i+1:], digits, base, at))
		i += digits
	}
	return string(out)
}

// codePoint returns the character whose number, in the given base, stands in the first digits bytes of text. `at` is
// its position, for errors.
func codePoint(text string, digits, base int, at pos) rune {
	if len(text) < digits {
		syntaxFail(at, "an escape in a string is cut short")
	}
	n, err := strconv.ParseUint(text[:digits], base, 32)
	if err != nil || n > utf8.MaxRune {
		syntaxFail(at, "an escape in a string has no valid number: %q", text[:digits])
	}
	if !utf8.ValidRune(rune(n)) {
		syntaxFail(at, "\\u%04x in a string is half of a surrogate pair, which UTF-8 cannot hold", n)
	}
	return rune(n)
}
