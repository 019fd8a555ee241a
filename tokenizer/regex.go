package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrSteps is Encode's error for a text on which a regular expression of the
// tokenizer, or the search for its added tokens, takes too long.
var ErrSteps = errors.New("a regular expression of tokenizer.json, or the search for its added tokens, takes too many steps on this text; cut it into several")

// regex is a regular expression that is matched by backtracking, as Oniguruma does. Go's own
// have no lookahead and choose other matches. The split patterns of the published
// vocabularies are not matched by it but by their scanners.
type regex struct {
	u    *unicodeTable
	code []instruction
	subs []*regex // the bodies of lookarounds and atomic groups
	size int      // how many characters it matches, if it is the body of a lookbehind
}

// op is what an instruction does.
type op uint8

const (
	opSet      op = iota // one character of set
	opRun                // min to max characters of set, as many as mode wants
	opSplit              // goes on at a, and at b if that fails
	opJump               // goes on at a
	opMark               // notes where the repetition with counter a begins
	opProgress           // fails where the repetition with counter a has not moved
	opLook               // succeeds where subs[a] matches here; with not, where it does not match
	opAtomic             // what subs[a] matches, without trying other ways later
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

// compileRegex reads pattern. The error says what is wrong with it.
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

// compiler turns a tree into instructions.
type compiler struct {
	re    *regex
	marks int
	total *int // how many instructions the whole expression has
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

// loop compiles body, repeated any number of times, but never after a turn that matched nothing.
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

// choose sets the two ways of the instruction at i: into the loop, or on behind it. mode says
// which comes first.
func (c *compiler) choose(i, in, on int, mode byte) {
	if mode == lazy {
		in, on = on, in
	}
	c.re.code[i].a, c.re.code[i].b = in, on
}

// width is how many characters n matches; it is an error where that is not always the same number.
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

// find is the first match at or after from. It counts steps down, and is an error where they are
// used up.
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

// describe says in an error which pattern it is about, and where that stands.
func describe(where, pattern string, err error) error {
	if len(pattern) > 80 {
		pattern = pattern[:80] + "…"
	}
	return fmt.Errorf("%s: the regular expression %q: %w", where, pattern, err)
}

// matcher runs a regular expression over a text.
type matcher struct {
	re    *regex
	text  []byte
	steps *int
	stack []retry
	marks []int
}

// retry is a way that was not taken, where matching goes on after a failure.
type retry struct {
	pc, i int
	least int // opRun: the least end (greedy) or the count so far (lazy); -1 for other instructions
	mark  int // opMark: the counter whose old value is in i; -1 for other instructions
}

// before is where the character that ends at i starts.
func before(text []byte, i int) int {
	_, n := utf8.DecodeLastRune(text[:i])
	return i - n
}
