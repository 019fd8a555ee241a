package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxPattern = 16 << 10 // bytes of a regular expression
	maxNesting = 100      // of groups
	maxRepeat  = 1000     // the largest number in {}
	maxProgram = 1 << 16  // instructions
)

// nodeKind is what a node of a regular expression is.
type nodeKind uint8

const (
	nodeSet    nodeKind = iota // one character of set
	nodeCat                    // all of parts, one after the other
	nodeAlt                    // the first of parts that matches
	nodeRepeat                 // parts[0], min to max times
	nodeLook                   // parts[0] matches ahead of this place or behind it; with not, it does not
	nodeAtomic                 // parts[0], which is not tried again
	nodeAssert                 // the place is one that assert names
)

type node struct {
	kind     nodeKind
	set      *charset
	parts    []*node
	min, max int // nodeRepeat; max < 0: any number
	mode     byte
	assert   byte // '^', '$', 'A', 'z', 'Z', 'b', 'B'
	behind   bool // nodeLook
	not      bool // nodeLook
}

// The modes of a repetition.
const (
	greedy     = byte(0)
	lazy       = byte('?')
	possessive = byte('+')
)

// parser reads a regular expression in Oniguruma's syntax, which tokenizer.json uses. Source:
// oniguruma's doc/RE.
type parser struct {
	s     string
	i     int
	depth int
	fold  bool // (?i)
	all   bool // (?m): . matches line feeds too
	free  bool // (?x): white space means nothing
}

// parseRegex is the tree of pattern.
func parseRegex(pattern string) (*node, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	}
	p := &parser{s: pattern}
	n, err := p.alternatives()
	if err == nil && p.i < len(p.s) {
		err = errors.New("an unmatched )")
	}
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", p.i, err)
	}
	return n, nil
}

func (p *parser) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *parser) accept(s string) bool {
	if strings.HasPrefix(p.s[p.i:], s) {
		p.i += len(s)
		return true
	}
	return false
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.s[p.i:])
	p.i += n
	return r
}

func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, errors.New("groups nest too deeply")
	}
	defer func(fold, all, free bool) {
		p.depth--
		p.fold, p.all, p.free = fold, all, free
	}(p.fold, p.all, p.free)
	alt := &node{kind: nodeAlt}
	for {
		n, err := p.sequence()
		if err != nil {
			return nil, err
		}
		alt.parts = append(alt.parts, n)
		if !p.accept("|") {
			break
		}
	}
	if len(alt.parts) == 1 {
		return alt.parts[0], nil
	}
	return alt, nil
}

func (p *parser) sequence() (*node, error) {
	cat := &node{kind: nodeCat}
	for p.i < len(p.s) && p.peek() != '|' && p.peek() != ')' {
		if p.free && (isSpace(rune(p.peek())) || p.peek() == '#') {
			return nil, errors.New("(?x) is not supported")
		}
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n == nil { // an option like (?i)
			continue
		}
		if n, err = p.repeats(n); err != nil {
			return nil, err
		}
		cat.parts = append(cat.parts, n)
	}
	return cat, nil
}

// repeats reads the repetitions that follow n and applies them.
func (p *parser) repeats(n *node) (*node, error) {
	for p.i < len(p.s) {
		least, most, braces := 0, -1, false
		switch c := p.peek(); {
		case c == '*':
		case c == '+':
			least = 1
		case c == '?':
			most = 1
		case c == '{':
			var size int
			if least, most, size = interval(p.s[p.i:]); size == 0 {
				return n, nil // an ordinary {
			}
			braces = true
			p.i += size - 1
		default:
			return n, nil
		}
		p.i++
		if least > maxRepeat || most > maxRepeat || most >= 0 && least > most {
			return nil, fmt.Errorf("repeated %d to %d times; up to %d are supported, in order", least, most, maxRepeat)
		}
		n = &node{kind: nodeRepeat, parts: []*node{n}, min: least, max: most}
		switch {
		case p.accept("?"):
			n.mode = lazy
		case !braces && p.accept("+"):
			n.mode = possessive
		}
	}
	return n, nil
}

// interval reads {n}, {n,}, {,m} or {n,m} at the start of s. size is its length, 0 where s
// begins with none of these.
func interval(s string) (least, most, size int) {
	end := strings.IndexByte(s, '}')
	if end < 2 {
		return 0, 0, 0
	}
	a, b, both := strings.Cut(s[1:end], ",")
	number := func(s string, empty int) int {
		if s == "" {
			return empty
		}
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return math.MinInt
		}
		return int(n)
	}
	least, most = number(a, 0), number(b, -1)
	if !both {
		most = least
	}
	if least < 0 || most < -1 || both && a == "" && b == "" {
		return 0, 0, 0
	}
	return least, most, end + 1
}

func (p *parser) atom() (*node, error) {
	switch c := p.peek(); c {
	case '(':
		return p.group()
	case '[':
		s, err := p.class()
		return &node{kind: nodeSet, set: s}, err
	case '.':
		p.i++
		s := &charset{not: true}
		if !p.all {
			s.add('\n', '\n')
		}
		return &node{kind: nodeSet, set: s}, nil
	case '^', '$':
		p.i++
		return &node{kind: nodeAssert, assert: c}, nil
	case '*', '+', '?':
		return nil, errors.New("nothing to repeat")
	case '\\':
		return p.escape()
	}
	r := p.rune()
	return &node{kind: nodeSet, set: &charset{ranges: []runeRange{{r, r}}, fold: p.fold}}, nil
}

func (p *parser) group() (*node, error) {
	p.i++
	n := &node{kind: nodeCat}
	switch {
	case p.accept("?:"):
	case p.accept("?="):
		n.kind = nodeLook
	case p.accept("?!"):
		n.kind, n.not = nodeLook, true
	case p.accept("?<="):
		n.kind, n.behind = nodeLook, true
	case p.accept("?<!"):
		n.kind, n.behind, n.not = nodeLook, true, true
	case p.accept("?>"):
		n.kind = nodeAtomic
	case p.peek() == '?':
		return p.options()
	}
	return p.body(n)
}

// body reads the inside of a group into n, up to the group's ).
func (p *parser) body(n *node) (*node, error) {
	inner, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		return nil, errors.New("a ) is missing")
	}
	n.parts = []*node{inner}
	return n, nil
}

// options reads (?i), which holds to the end of the group around it, and (?i:…).
func (p *parser) options() (*node, error) {
	was := *p
	on := true
	for {
		p.i++
		switch p.peek() {
		case '-':
			on = false
		case 'i':
			p.fold = on
		case 'm':
			p.all = on
		case 'x':
			p.free = on
		case ':':
			p.i++
			n, err := p.body(&node{kind: nodeCat})
			p.fold, p.all, p.free = was.fold, was.all, was.free
			return n, err
		case ')':
			p.i++
			if p.peek() == '|' {
				return nil, errors.New("an option before | is not supported")
			}
			return nil, nil
		default:
			return nil, errors.New("this kind of group is not supported")
		}
	}
}
