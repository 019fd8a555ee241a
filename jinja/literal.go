package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// str reads a string literal, where one begins here.
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

// unescape is a literal's text with Python's escapes resolved.
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

// codePoint is the character whose number stands in the first digits of text.
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
