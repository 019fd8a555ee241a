package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape reads what follows a \ outside of a set.
func (p *parser) escape() (*node, error) {
	if p.i+1 < len(p.s) {
		switch c := p.s[p.i+1]; c {
		case 'A', 'z', 'Z', 'b', 'B':
			p.i += 2
			return &node{kind: nodeAssert, assert: c}, nil
		}
	}
	s, err := p.escaped()
	if err == nil {
		s.fold = p.fold
		if s.word { // only outside of sets, as in Oniguruma
			s.ranges = append(s.ranges, latinWords...)
		}
	}
	return &node{kind: nodeSet, set: s}, err
}

// escaped reads an escape that stands for one of a set of characters.
func (p *parser) escaped() (*charset, error) {
	p.i++
	if p.i >= len(p.s) {
		return nil, errors.New("it ends with \\")
	}
	s := &charset{}
	switch c := p.s[p.i]; {
	case strings.IndexByte("dDwWsShH", c) >= 0:
		p.i++
		s.not = c < 'a'
		switch c | ' ' {
		case 'd':
			s.cats = 1 << catNd
		case 'w':
			s.word = true
		case 's':
			s.space = true
		case 'h':
			s.ranges = []runeRange{{'0', '9'}, {'a', 'f'}, {'A', 'F'}}
		}
		return s, nil
	case c == 'p' || c == 'P':
		end := strings.IndexByte(p.s[p.i:], '}')
		if end < 2 || p.s[p.i+1] != '{' {
			return nil, fmt.Errorf("\\%c without {…}", c)
		}
		s, err := property(p.s[p.i+2 : p.i+end])
		if err != nil {
			return nil, err
		}
		p.i += end + 1
		s.not = s.not != (c == 'P')
		return s, nil
	}
	r, err := p.escapedRune()
	s.add(r, r)
	return s, err
}

// escapedRune reads an escape that stands for one character.
func (p *parser) escapedRune() (rune, error) {
	if i := strings.IndexByte("tnrfvae", p.s[p.i]); i >= 0 {
		p.i++
		return rune("\t\n\r\f\v\a\x1b"[i]), nil
	}
	hex := 0 // digits
	switch c := p.s[p.i]; {
	case p.accept("x{"):
		if hex = strings.IndexByte(p.s[p.i:], '}'); hex < 1 {
			return 0, errors.New("\\x{ without }")
		}
		r, err := strconv.ParseUint(p.s[p.i:p.i+hex], 16, 21)
		p.i += hex + 1
		return rune(r), err
	case c == 'x':
		hex = 2
	case c == 'u':
		hex = 4
	case c < utf8.RuneSelf && (c >= '0' && c <= '9' || c|' ' >= 'a' && c|' ' <= 'z'):
		return 0, fmt.Errorf("\\%c is not supported", c)
	}
	if hex == 0 {
		return p.rune(), nil
	}
	if p.i++; p.i+hex > len(p.s) {
		return 0, errors.New("hexadecimal digits are missing")
	}
	r, err := strconv.ParseUint(p.s[p.i:p.i+hex], 16, 21)
	if err == nil && hex == 2 && r >= utf8.RuneSelf {
		err = errors.New("a byte that is no character is not supported")
	}
	p.i += hex
	return rune(r), err
}

// class reads a set in [].
func (p *parser) class() (*charset, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, errors.New("sets nest too deeply")
	}
	defer func() { p.depth-- }()
	p.i++
	s := &charset{}
	not := p.accept("^")
	for first := true; ; first = false {
		if p.i >= len(p.s) {
			return nil, errors.New("a ] is missing")
		}
		switch {
		case p.peek() == ']' && !first:
			p.i++
			s.fold = s.fold || p.fold
			if s.not = not; s.and != nil { // each side folds its own case
				return &charset{parts: []*charset{{parts: s.parts, ranges: s.ranges, fold: p.fold}}, and: s.and, not: not}, nil
			}
			return s, nil
		case strings.HasPrefix(p.s[p.i:], "[:"):
			return nil, errors.New("[:…:] is not supported")
		case p.peek() == '[':
			part, err := p.class()
			if err != nil {
				return nil, err
			}
			s.parts = append(s.parts, part)
		case p.accept("&&"):
			p.i-- // the rest is read as a set of its own
			rest, err := p.class()
			if err != nil {
				return nil, err
			}
			p.i-- // at its ]
			s.and = rest
		default:
			if err := p.member(s); err != nil {
				return nil, err
			}
		}
	}
}

// member reads a character, or a range of characters, and adds it to s.
func (p *parser) member(s *charset) error {
	from, single, err := p.limit(s)
	if err != nil || !single {
		return err
	}
	if p.peek() != '-' || p.i+1 >= len(p.s) || p.s[p.i+1] == ']' {
		s.add(from, from)
		return nil
	}
	p.i++
	to, single, err := p.limit(s)
	switch {
	case err != nil:
		return err
	case !single:
		return errors.New("a range that ends with a set")
	case to < from:
		return fmt.Errorf("the range %c-%c is empty", from, to)
	}
	s.add(from, to)
	return nil
}

// limit reads one character. A set such as \d is added to s instead, and single is false.
func (p *parser) limit(s *charset) (r rune, single bool, err error) {
	if p.peek() != '\\' {
		return p.rune(), true, nil
	}
	if strings.HasPrefix(p.s[p.i:], `\b`) {
		p.i += 2
		return '\b', true, nil
	}
	part, err := p.escaped()
	if err != nil {
		return 0, false, err
	}
	if len(part.ranges) == 1 && part.ranges[0].from == part.ranges[0].to {
		return part.ranges[0].from, true, nil
	}
	s.parts = append(s.parts, part)
	return 0, false, nil
}

// latinWords are the characters of Latin-1 that \w and \b take for letters
// though [\w] does not: ² ³ ¹ ¼ ½ ¾.
var latinWords = []runeRange{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}
