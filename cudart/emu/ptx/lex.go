package ptx

import (
	"fmt"
	"strings"
)

// token is a word (a name, a mnemonic with its dots, a number), a string in quotes
// or a single sign.
type token struct {
	text string
	line int
}

// source is a file that is read token by token.
type source struct {
	name   string
	lines  []string
	tokens []token
	at     int
}

// fault is what the reader and the decoder panic with to report a mistake; Parse
// recovers it.
type fault struct{ err error }

// failAt ends Parse with an error that names a line.
func (s *source) failAt(line int, format string, args ...any) {
	text := ""
	if line >= 1 && line <= len(s.lines) {
		text = ": " + strings.TrimSpace(s.lines[line-1])
	}
	panic(fault{fmt.Errorf("%s:%d: %s%s", s.name, line, fmt.Sprintf(format, args...), text)})
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c == '%' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// scan splits text into tokens and drops comments.
func scan(name, text string) *source {
	s := &source{name: name, lines: strings.Split(text, "\n")}
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				s.failAt(line, "a comment without an end")
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 4
		case c == '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				s.failAt(line, "a string without an end")
			}
			s.tokens = append(s.tokens, token{text[i : i+end+2], line})
			i += end + 2
		case isWord(c):
			from := i
			for i < len(text) {
				if strings.HasPrefix(text[i:], "::") {
					i += 2 // L1::no_allocate
				} else if isWord(text[i]) {
					i++
				} else {
					break
				}
			}
			s.tokens = append(s.tokens, token{text[from:i], line})
		default:
			s.tokens = append(s.tokens, token{text[i : i+1], line})
			i++
		}
	}
	s.tokens = append(s.tokens, token{"", line})
	return s
}

// peek is the next token; its text is empty at the end of the file.
func (s *source) peek() token { return s.tokens[s.at] }

func (s *source) next() token {
	t := s.tokens[s.at]
	if t.text == "" {
		s.failAt(t.line, "the file ends too early")
	}
	s.at++
	return t
}

// accept takes the next token if it is text, and says whether it was.
func (s *source) accept(text string) bool {
	if s.peek().text != text {
		return false
	}
	s.at++
	return true
}

// expect takes the next token, which must be text.
func (s *source) expect(text string) {
	if t := s.next(); t.text != text {
		s.failAt(t.line, "%q where %q should be", t.text, text)
	}
}
