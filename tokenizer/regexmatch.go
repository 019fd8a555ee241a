package tokenizer

import "bytes"

// maxRetries bounds how many ways not taken a match keeps, and so its memory.
const maxRetries = 1 << 20

// match tells whether there is a match that starts at i, and where it ends.
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

// mark notes that a turn of the repetition n begins at i.
func (m *matcher) mark(n, i int) {
	for len(m.marks) <= n {
		m.marks = append(m.marks, 0)
	}
	m.stack = append(m.stack, retry{i: m.marks[n], least: -1, mark: n})
	m.marks[n] = i
}

// back goes back to the last way that was not taken; false where there is none.
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
		case m.re.code[r.pc].mode == lazy: // take one character more; least is how many there are
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

// run matches characters of one set: as many as there are, or where mode is lazy as few as it may.
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

// sub matches a group whose inside is not tried again: a lookaround or an atomic group.
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

// holds tells whether the place at i is what assert says.
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

// wordSet is \w.
var wordSet = &charset{word: true, ranges: latinWords}

// finder finds pieces of a text.
type finder interface {
	// find is the first match at or after from; steps bounds the work.
	find(text []byte, from int, steps *int) (start, end int, ok bool, err error)
}

// matches are all matches of f in text, one after the other. After an empty match the search
// goes on at the next character. An empty match directly behind another match does not count.
type matches struct {
	f     finder
	text  []byte
	from  int
	last  int // where the last match ended, plus one
	steps *int
}

// next is the next match; false after the last.
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

// literal is a finder of a text.
type literal []byte

func (l literal) find(text []byte, from int, _ *int) (start, end int, ok bool, err error) {
	if len(l) == 0 {
		return 0, 0, false, nil
	}
	i := bytes.Index(text[from:], l)
	return from + i, from + i + len(l), i >= 0, nil
}

// oneOf is a finder of single characters.
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

// find is the first match at or after from, so that a scanner is a finder.
func (s *scanner) find(text []byte, from int, _ *int) (start, end int, ok bool, err error) {
	if from >= len(text) {
		return 0, 0, false, nil
	}
	return from, s.next(unicodeClasses(), text, from), true, nil
}
