package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrSteps is Encode's error for a text on which a regular expression, or the search for added tokens, takes too
// many steps.
var ErrSteps = errors.New("a regular expression of tokenizer.json, or the search for its added tokens, takes too many steps on this text; cut it into several")

// regex is a compiled regular expression, matched by backtracking as in Oniguruma, which `tokenizers` uses. Go's
// package regexp has no lookahead and may prefer other matches. For the patterns of published vocabularies, the much
// faster scanner replaces regex.
type regex struct {
	u    *unicodeTable
	code []instruction
	subs []*regex // the bodies of lookarounds and atomic groups
	size int      // characters that the body of a lookbehind matches
}

// op is the operation of an instruction in a compiled regular expression.
type op uint8

const (
	opSet      op = iota // one character of set
	opRun                // min to max characters of set, as many as mode prefers
	opSplit              // tries a, then b
	opJump               // continues at a
	opMark               // records where iteration of counter a begins
	opProgress           // fails if the iteration of counter a matched nothing
	opLook               // succeeds if subs[a] matches here; with not, if it does not match
	opAtomic             // matches subs[a] without backtracking into it
	opAssert
	opMatch
)

type instruction struct {
	op       op
	mode     byte
	not      bool
	behind   bool
	set      *charset
	a, b     int
	min, max int
}

// compileRegex returns the compiled form of pattern. An error describes what in the pattern is wrong or not
// supported.
func compileRegex(pattern string) (*regex, error) {
	n, err := parseRegex(pattern)
	if err != nil {
		return nil, err
	}
	return newRegex(n, new(int), 0)
}

func newRegex(n *node, total *int, depth int) (*regex, error) {
	if depth > maxNesting {
		return nil, errors.New("groups nest too deeply")
	}
	c := &compiler{re: &regex{u: unicodeClasses()}, total: total, depth: depth}
	if err := c.node(n); err != nil {
		return nil, err
	}
	c.emit(instruction{op: opMatch})
	return c.re, nil
}

// compiler turns a syntax tree (node) into instructions.
type compiler struct {
	re    *regex
	marks int
	total *int // instructions of the whole expression
	depth int
}

func (c *compiler) emit(i instruction) int {
	c.re.code = append(c.re.code, i)
	return len(c.re.code) - 1
}

func (c *compiler) node(n *node) error {
	if *c.total++; *c.total > maxProgram {
		return errors.New("it repeats too much")
	}
	switch n.kind {
	case nodeSet:
		c.emit(instruction{op: opSet, set: n.set})
	case nodeCat:
		for _, p := range n.parts {
			if err := c.node(p); err != nil {
				return err
			}
		}
	case nodeAlt:
		return c.alternatives(n.parts)
	case nodeRepeat:
		return c.repeat(n)
	case nodeAssert:
		c.emit(instruction{op: opAssert, mode: n.assert})
	case nodeLook, nodeAtomic:
		return c.sub(n)
	}
	return nil
}

func (c *compiler) alternatives(parts []*node) error {
	var ends []int
	for i, p := range parts {
		split := -1
		if i+1 < len(parts) {
			split = c.emit(instruction{op: opSplit})
			c.re.code[split].a = split + 1
		}
		if err := c.node(p); err != nil {
			return err
		}
		if split >= 0 {
			ends = append(ends, c.emit(instruction{op: opJump}))
			c.re.code[split].b = len(c.re.code)
		}
	}
	for _, e := range ends {
		c.re.code[e].a = len(c.re.code)
	}
	return nil
}

func (c *compiler) sub(n *node) error {
	inner, err := newRegex(n.parts[0], c.total, c.depth+1)
	if err != nil {
		return err
	}
	if n.behind {
		if inner.size, err = n.parts[0].width(); err != nil {
			return err
		}
	}
	c.re.subs = append(c.re.subs, inner)
	i := instruction{op: opLook, a: len(c.re.subs) - 1, not: n.not, behind: n.behind}
	if n.kind == nodeAtomic {
		i.op = opAtomic
	}
	c.emit(i)
	return nil
}

func (c *compiler) repeat(n *node) error {
	body := n.parts[0]
	if body.kind == nodeCat && len(body.parts) == 1 {
		body = body.parts[0]
	}
	if body.kind == nodeSet {
		c.emit(instruction{op: opRun, set: body.set, min: n.min, max: n.max, mode: n.mode})
		return nil
	}
	if n.mode == possessive {
		again := *n
		again.mode = greedy
		return c.sub(&node{kind: nodeAtomic, parts: []*node{&again}})
	}
	for range n.min {
		if err := c.node(body); err != nil {
			return err
		}
	}
	if n.max < 0 {
		return c.loop(body, n.mode)
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, c.emit(instruction{op: opSplit}))
		if err := c.node(body); err != nil {
			return err
		}
	}
	for _, s := range splits {
		c.choose(s, s+1, len(c.re.code), n.mode)
	}
	return nil
}

// loop compiles body, repeated any number of times. mode says whether more or fewer repetitions are
// tried first. An iteration that matches no character fails, since it would repeat forever.
func (c *compiler) loop(body *node, mode byte) error {
	mark := c.marks
	c.marks++
	start := c.emit(instruction{op: opSplit})
	c.emit(instruction{op: opMark, a: mark})
	if err := c.node(body); err != nil {
		return err
	}
	c.emit(instruction{op: opProgress, a: mark})
	c.emit(instruction{op: opJump, a: start})
	c.choose(start, start+1, len(c.re.code), mode)
	return nil
}

// choose sets the two branches of the opSplit at index i. `in` is the instruction that begins the
// loop's body, and on the instruction after the loop. The branch in is tried first, unless mode is
// lazy.
func (c *compiler) choose(i, in, on int, mode byte) {
	if mode == lazy {
		in, on = on, in
	}
	c.re.code[i].a, c.re.code[i].b = in, on
}

// width returns the number of characters that n matches. It is an error if the number varies, since a lookbehind must
// know where to begin.
func (n *node) width() (int, error) {
	total := 0
	for i, p := range n.parts {
		w, err := p.width()
		if err != nil {
			return 0, err
		}
		if n.kind != nodeAlt {
			total += w
		} else if i == 0 {
			total = w
		} else if w != total {
			return 0, errors.New("lookbehind of different lengths is not supported")
		}
	}
	switch n.kind {
	case nodeSet:
		return 1, nil
	case nodeAssert, nodeLook:
		return 0, nil
	case nodeRepeat:
		if n.min != n.max {
			return 0, errors.New("lookbehind of no fixed length is not supported")
		}
		total *= n.min
	}
	if total > maxProgram {
		return 0, errors.New("lookbehind is too long")
	}
	return total, nil
}

// find returns the first match that begins at the offset from or later. It subtracts its work from
// steps, and returns ErrSteps when no steps are left.
func (re *regex) find(text []byte, from int, steps *int) (start, end int, ok bool, err error) {
	m := matcher{re: re, text: text, steps: steps}
	for i := from; ; {
		end, ok, err := m.match(i)
		if ok || err != nil {
			return i, end, ok, err
		}
		if i >= len(text) {
			return 0, 0, false, nil
		}
		_, n := decodeRune(text[i:])
		i += n
	}
}

// describe returns err with the pattern and with where, the path of the pattern in tokenizer.json.
func describe(where, pattern string, err error) error {
	if len(pattern) > 80 {
		pattern = pattern[:80] + "…"
	}
	return fmt.Errorf("%s: the regular expression %q: %w", where, pattern, err)
}

// matcher holds the state of matching a regular expression against a text.
type matcher struct {
	re    *regex
	text  []byte
	steps *int
	stack []retry
	marks []int
}

// retry is an alternative that was not taken yet: if matching fails, it continues with the instruction pc at offset
// i.
type retry struct {
	pc, i int
	least int // opRun: the least end (greedy) or the count so far (lazy); other instructions: -1
	mark  int // opMark: the counter whose old value is in i; other instructions: -1
}

// before returns the offset at which the character begins that ends at offset i.
func before(text []byte, i int) int {
	_, n := utf8.DecodeLastRune(text[:i])
	return i - n
}

const (
	maxPattern = 16 << 10 // bytes of a regular expression
	maxNesting = 100      // of groups
	maxRepeat  = 1000     // the largest number in {}
	maxProgram = 1 << 16  // instructions
)

// nodeKind is the kind of a node in a regular expression's syntax tree.
type nodeKind uint8

const (
	nodeSet    nodeKind = iota // one character of set
	nodeCat                    // all of parts, one after the other
	nodeAlt                    // the first of parts that matches
	nodeRepeat                 // parts[0], min to max times
	nodeLook                   // parts[0] matches ahead of or behind this position; with not, does not match
	nodeAtomic                 // parts[0], without backtracking into it
	nodeAssert                 // the assertion assert holds at this position
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

// parser reads a regular expression in Oniguruma's syntax, which tokenizer.json uses. Source: doc/RE of Oniguruma.
type parser struct {
	s     string
	i     int
	depth int
	fold  bool // (?i)
	all   bool // (?m): . matches line feeds too
	free  bool // (?x): white space is ignored
}

// parseRegex returns the syntax tree of pattern.
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

// repeats parses the quantifiers that follow n, such as * or {2,3}, and returns n with them applied.
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

// interval parses {n}, {n,}, {,m} or {n,m} at the start of s. most -1: no limit. size is the number of bytes parsed;
// 0: s begins with none of these.
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

// body parses the rest of a group, with its closing parenthesis, into the node n.
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

// options parses (?i), whose options hold up to the end of the enclosing group, or (?i:…), a group
// with options. For (?i) it returns nil.
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

// escape parses an escape, such as \d or \b, outside of brackets.
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

// escaped parses an escape that stands for any one character of a set, such as \d; an escaped single character is a
// set of one.
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

// escapedRune parses an escape that stands for one character, such as \x41, and returns the character.
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

// class parses a set of characters in square brackets.
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
			p.i-- // read the rest as another set
			rest, err := p.class()
			if err != nil {
				return nil, err
			}
			p.i-- // back to its ]
			s.and = rest
		default:
			if err := p.member(s); err != nil {
				return nil, err
			}
		}
	}
}

// member parses a character, or a range of characters such as a-z, inside square brackets, and adds it to s.
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

// limit parses one end of a range, or a single character, inside square brackets, and returns it. If it finds a set
// such as \d instead, it adds the set to s and returns single = false.
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

// latinWords are the Latin-1 characters that \w and \b treat as word characters although [\w] does not: ² ³ ¹ ¼ ½
// ¾.
var latinWords = []runeRange{{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}

// charset is a set of characters, as a regular expression describes it. A character is in the set
// if any of ranges, cats, tables, parts and so on contains it. After that, fold, and and not are
// applied to the result.
type charset struct {
	ranges []runeRange
	cats   categories
	space  bool
	word   bool
	tables []*unicode.RangeTable // scripts
	parts  []*charset            // sets within the set
	and    *charset              // intersected with this set
	not    bool                  // complement
	fold   bool                  // ignores case
}

type runeRange struct{ from, to rune }

// has reports whether r is in the set; u has the Unicode categories of characters.
func (s *charset) has(u *unicodeTable, r rune) bool {
	in := s.plain(u, r)
	if s.fold {
		for f := unicode.SimpleFold(r); f != r && !in; f = unicode.SimpleFold(f) {
			in = s.plain(u, f)
		}
	}
	if s.and != nil {
		in = in && s.and.has(u, r)
	}
	return in != s.not
}

func (s *charset) plain(u *unicodeTable, r rune) bool {
	for _, x := range s.ranges {
		if x.from <= r && r <= x.to {
			return true
		}
	}
	if c := u.of(r); s.cats>>(c&catMask)&1 != 0 || s.word && c&classWord != 0 || s.space && isSpace(r) {
		return true
	}
	for _, t := range s.tables {
		if t == unicode.Han && u.of(r)&classHan != 0 || t != unicode.Han && unicode.Is(t, r) {
			return true
		}
	}
	for _, p := range s.parts {
		if p.has(u, r) {
			return true
		}
	}
	return false
}

func (s *charset) add(from, to rune) { s.ranges = append(s.ranges, runeRange{from, to}) }

// categoryNames are the names of categories in \p{…}.
var categoryNames = map[string]categories{
	"l": setL, "m": setM, "n": setN, "p": setP, "s": setS, "z": setZ, "c": setC,
	"letter": setL, "mark": setM, "number": setN, "punctuation": setP, "punct": setP, "symbol": setS, "separator": setZ,
	"lu": 1 << catLu, "ll": 1 << catLl, "lt": 1 << catLt, "lm": 1 << catLm, "lo": 1 << catLo,
	"mn": 1<<catMn | 1<<catYoungMn, "mc": 1<<catMc | 1<<catYoungMc, "me": 1<<catMe | 1<<catYoungMe, "nd": 1 << catNd, "nl": 1 << catNl, "no": 1 << catNo,
	"pc": 1 << catPc, "pd": 1 << catPd, "ps": 1 << catPs, "pe": 1 << catPe, "pi": 1 << catPi, "pf": 1 << catPf, "po": 1 << catPo,
	"sm": 1 << catSm, "sc": 1 << catSc, "sk": 1 << catSk, "so": 1 << catSo, "zs": 1 << catZs, "zl": 1 << catZl, "zp": 1 << catZp,
	"cc": 1 << catCc, "cf": 1 << catCf, "co": 1 << catCo, "digit": 1 << catNd,
}

// property returns the set of \p{name}, a Unicode category or script. Scripts other than Han have the characters of
// the Unicode version that Go knows.
func property(name string) (*charset, error) {
	s := &charset{}
	if strings.HasPrefix(name, "^") {
		s.not, name = true, name[1:]
	}
	plain := strings.ToLower(strings.NewReplacer("_", "", " ", "", "-", "").Replace(name))
	if set, ok := categoryNames[plain]; ok {
		s.cats = set
		return s, nil
	}
	switch plain {
	case "space", "whitespace":
		s.space = true
		return s, nil
	case "word":
		s.word = true
		return s, nil
	}
	for script, table := range unicode.Scripts {
		if strings.EqualFold(strings.ReplaceAll(script, "_", ""), plain) {
			s.tables = append(s.tables, table)
			return s, nil
		}
	}
	return nil, fmt.Errorf("the property {%s} is not known here", name)
}

// maxRetries is the largest number of alternatives that a match keeps for backtracking. It limits the memory of a
// match.
const maxRetries = 1 << 20

// match reports whether the expression matches at offset i, and where the match ends.
func (m *matcher) match(i int) (end int, ok bool, err error) {
	m.stack = m.stack[:0]
	pc := 0
	for {
		if *m.steps--; *m.steps < 0 || len(m.stack) > maxRetries {
			return 0, false, ErrSteps
		}
		in := &m.re.code[pc]
		ok := true
		switch in.op {
		case opMatch:
			return i, true, nil
		case opSet:
			if ok = i < len(m.text); ok {
				r, n := decodeRune(m.text[i:])
				ok = in.set.has(m.re.u, r)
				i += n
			}
		case opRun:
			i, ok = m.run(in, pc, i)
		case opSplit:
			m.stack = append(m.stack, retry{pc: in.b, i: i, least: -1, mark: -1})
			pc = in.a - 1
		case opJump:
			pc = in.a - 1
		case opMark:
			m.mark(in.a, i)
		case opProgress:
			ok = i > m.marks[in.a]
		case opLook, opAtomic:
			i, ok, err = m.sub(in, i)
			if err != nil {
				return 0, false, err
			}
		case opAssert:
			ok = m.holds(in.mode, i)
		}
		if pc++; !ok {
			if pc, i, ok = m.back(); !ok {
				return 0, false, nil
			}
		}
	}
}

// mark records that an iteration of repetition number n begins at offset i. At the iteration's end,
// opProgress compares its offset with i.
func (m *matcher) mark(n, i int) {
	for len(m.marks) <= n {
		m.marks = append(m.marks, 0)
	}
	m.stack = append(m.stack, retry{i: m.marks[n], least: -1, mark: n})
	m.marks[n] = i
}

// back takes the alternative that was recorded last, and returns where to continue: instruction pc at offset i.
// false: there is no alternative left, and the match fails.
func (m *matcher) back() (pc, i int, ok bool) {
	for len(m.stack) > 0 {
		last := len(m.stack) - 1
		r := m.stack[last]
		switch {
		case r.mark >= 0:
			m.marks[r.mark] = r.i
			m.stack = m.stack[:last]
			continue
		case r.least < 0:
			m.stack = m.stack[:last]
			return r.pc, r.i, true
		case m.re.code[r.pc].mode == lazy: // take one more character; least is the count so far
			in := &m.re.code[r.pc]
			if r.i < len(m.text) && (in.max < 0 || r.least < in.max) {
				c, n := decodeRune(m.text[r.i:])
				if in.set.has(m.re.u, c) {
					m.stack[last].i, m.stack[last].least = r.i+n, r.least+1
					return r.pc + 1, r.i + n, true
				}
			}
			m.stack = m.stack[:last]
		default: // give one character back
			if r.i > r.least {
				m.stack[last].i = before(m.text, r.i)
				return r.pc + 1, m.stack[last].i, true
			}
			m.stack = m.stack[:last]
		}
	}
	return 0, 0, false
}

// run executes an opRun at pc: it matches characters of the instruction's set from offset i on. It
// takes as many as possible; if mode is lazy, it takes as few as allowed. It records the other
// counts as alternatives, and returns the offset after the characters; false: there are too few.
func (m *matcher) run(in *instruction, pc, i int) (int, bool) {
	most := in.max
	if in.mode == lazy {
		most = in.min
	}
	count, least := 0, i
	for i < len(m.text) && (most < 0 || count < most) {
		r, n := decodeRune(m.text[i:])
		if !in.set.has(m.re.u, r) {
			break
		}
		*m.steps--
		i += n
		if count++; count == in.min {
			least = i
		}
	}
	switch {
	case count < in.min:
		return i, false
	case in.mode == lazy:
		m.stack = append(m.stack, retry{pc: pc, i: i, least: count, mark: -1})
	case in.mode == greedy && i > least:
		m.stack = append(m.stack, retry{pc: pc, i: i, least: least, mark: -1})
	}
	return i, true
}

// sub executes a lookaround or an atomic group at offset i. Once it has matched, matching never backtracks into it.
// It returns the offset at which matching continues; false: it fails.
func (m *matcher) sub(in *instruction, i int) (int, bool, error) {
	inner := matcher{re: m.re.subs[in.a], text: m.text, steps: m.steps}
	start := i
	if in.behind {
		for range inner.re.size {
			if start == 0 {
				return i, in.not, nil
			}
			start = before(m.text, start)
		}
	}
	end, ok, err := inner.match(start)
	if in.op == opAtomic {
		return end, ok, err
	}
	return i, ok != in.not, err
}

// holds reports whether an assertion, such as ^ or \b (assert is its letter), holds at offset i.
func (m *matcher) holds(assert byte, i int) bool {
	n := len(m.text)
	word := func(i int) bool {
		r, _ := decodeRune(m.text[i:])
		return wordSet.has(m.re.u, r)
	}
	switch assert {
	case 'A':
		return i == 0
	case 'z':
		return i == n
	case 'Z':
		return i == n || i == n-1 && m.text[i] == '\n'
	case '^':
		return i == 0 || m.text[i-1] == '\n' && i < n
	case '$':
		return i == n || m.text[i] == '\n'
	}
	edge := (i > 0 && word(before(m.text, i))) != (i < n && word(i))
	return edge == (assert == 'b')
}

// wordSet is the set \w, as it is outside of square brackets.
var wordSet = &charset{word: true, ranges: latinWords}

// finder finds the matches of a pattern in a text.
type finder interface {
	// find returns the first match that begins at the offset from or later. To limit the time, the
	// work is subtracted from steps.
	find(text []byte, from int, steps *int) (start, end int, ok bool, err error)
}

// matches yields all matches of f in text, from left to right. After an empty match the search continues one
// character later. An empty match directly after another match is left out.
type matches struct {
	f     finder
	text  []byte
	from  int
	last  int // end of the last match, plus one; 0: none
	steps *int
}

// next returns the next match; false: there are no more.
func (m *matches) next() (start, end int, ok bool, err error) {
	for m.from <= len(m.text) {
		start, end, ok, err = m.f.find(m.text, m.from, m.steps)
		if !ok || err != nil {
			return 0, 0, false, err
		}
		if start < end || m.last != end+1 {
			m.from, m.last = end, end+1
			return start, end, true, nil
		}
		if m.from++; m.from < len(m.text) {
			_, n := decodeRune(m.text[m.from-1:])
			m.from += n - 1
		}
	}
	return 0, 0, false, nil
}

// literal is a finder of the occurrences of a fixed text.
type literal []byte

func (l literal) find(text []byte, from int, _ *int) (start, end int, ok bool, err error) {
	if len(l) == 0 {
		return 0, 0, false, nil
	}
	i := bytes.Index(text[from:], l)
	return from + i, from + i + len(l), i >= 0, nil
}

// oneOf is a finder of the single characters for which the function reports true.
type oneOf func(r rune) bool

func (f oneOf) find(text []byte, from int, _ *int) (start, end int, ok bool, err error) {
	for i := from; i < len(text); {
		r, n := decodeRune(text[i:])
		if f(r) {
			return i, i + n, true, nil
		}
		i += n
	}
	return 0, 0, false, nil
}

// find makes scanner a finder. The match begins exactly at the offset from, since a scanner's
// matches cover a text without gaps.
func (s *scanner) find(text []byte, from int, _ *int) (start, end int, ok bool, err error) {
	if from >= len(text) {
		return 0, 0, false, nil
	}
	return from, s.next(unicodeClasses(), text, from), true, nil
}
