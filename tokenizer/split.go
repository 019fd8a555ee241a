package tokenizer

// splitting is an hf that can encode a long text piece by piece.
type splitting struct {
	*hf
	// cut tells whether text may be cut at i, which is neither 0 nor the end.
	cut func(text []byte, i int) bool
}

// splitter is t; it is a Splitter where texts can be cut safely.
func (t *hf) splitter() Tokenizer {
	if len(t.normal.single) > 0 && len(t.norms) > 0 {
		return t // added tokens are looked for in the normalized text, where Split cannot look
	}
	switch {
	case t.scan != nil && t.normalizesInPlace():
		newlines := t.scan.newlineEnds
		return &splitting{t, func(text []byte, i int) bool {
			switch u := unicodeClasses(); {
			case text[i] == ' ' || text[i] == '\n':
				return asciiKinds[text[i-1]]&(isLetter|isNumber) != 0
			case text[i-1] == '\n' && newlines:
				k, _ := u.kindAt(text, i)
				return k&(isLetter|isNumber) != 0
			}
			return false
		}}
	case t.model.cuts && t.onlySpaces():
		return &splitting{t, func(text []byte, i int) bool {
			return text[i] == ' ' && asciiKinds[text[i-1]]&(isLetter|isNumber) != 0 && !t.model.joins[rune(text[i-1])]
		}}
	}
	return t
}

// normalizesInPlace tells whether every normalizer is a normal form of Unicode, which changes
// nothing across a space or a line feed.
func (t *hf) normalizesInPlace() bool {
	for _, n := range t.norms {
		if _, ok := n.(unicodeForm); !ok {
			return false
		}
	}
	return true
}

// onlySpaces tells whether nothing happens to a text before merging but that its spaces are
// written as metaspaces.
func (t *hf) onlySpaces() bool {
	if len(t.norms) != 1 || t.norms[0] != (replaceText{" ", metaspace}) {
		return false
	}
	for _, p := range t.pre {
		s, ok := p.(*splitter)
		if !ok {
			return false
		}
		if lit, ok := s.f.(literal); !ok || string(lit) != " " { // a splitter at spaces does nothing, since no space is left
			return false
		}
	}
	return true
}

// Split is the length of the longest prefix of text that may be encoded apart from all that
// follows it, in text or later. It looks at a bounded number of places, and is 0 where it
// finds none.
func (s *splitting) Split(text []byte) int {
	last := len(text) - max(s.raw.long, s.normal.long, 1) // an added token may begin in text and end after it
	const most = 256                                      // places to look at closely
	for i, tries := last, 0; i > 0 && tries < most; i-- {
		if text[i] <= ' ' || text[i-1] == '\n' {
			if !s.cut(text, i) {
				continue
			}
			if tries++; !s.raw.touches(text, i) && !s.normal.touches(text, i) {
				return i
			}
		}
	}
	return 0
}
