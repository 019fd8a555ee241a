package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// piece is a part of a text, between the whole text and single words. Pre-tokenizers cut it into
// smaller pieces.
type piece struct {
	span
	first bool // starts where the whole text starts
}

// sub returns the bytes [from, to) of p as a piece. It is first if p is first and from is 0.
func (p *piece) sub(from, to int) piece {
	out := piece{span: p.slice(from, to)}
	out.first = p.first && from == 0
	return out
}

// preTokenizer is a step that cuts pieces of a text into smaller pieces; the pieces after the last step are the
// words.
type preTokenizer interface {
	// split appends the parts of p to out. No part is empty.
	split(w *worker, p piece, out []piece) ([]piece, error)
}

// behavior says how a splitter treats the matches of its pattern.
type behavior uint8

const (
	isolated           behavior = iota // a match is a piece
	removed                            // a match is dropped
	mergedWithPrevious                 // a match ends the previous piece
	mergedWithNext                     // a match begins the next piece
	contiguous                         // adjacent matches form one piece
)

// splitter is a preTokenizer that cuts pieces at the matches of a pattern. If invert is set,
// matches and the text between matches change roles.
type splitter struct {
	f        finder
	behavior behavior
	invert   bool
}

// splitPiece is the bytes [from, to) of a piece that splitter cuts: a match of the pattern, or the text between two
// matches.
type splitPiece struct {
	from, to int
	match    bool
}

func (c *splitter) split(w *worker, p piece, out []piece) ([]piece, error) {
	var all []splitPiece
	m, done := matches{f: c.f, text: p.text, steps: &p.left.steps}, 0
	for len(p.text) > 0 {
		start, end, ok, err := m.next()
		if err != nil {
			return out, err
		}
		if !ok {
			break
		}
		if done < start {
			all = append(all, splitPiece{done, start, c.invert})
		}
		all = append(all, splitPiece{start, end, !c.invert})
		done = end
	}
	if done < len(p.text) {
		all = append(all, splitPiece{done, len(p.text), c.invert})
	}
	for _, s := range c.behavior.apply(all) {
		if s.from < s.to {
			out = append(out, p.sub(s.from, s.to))
		}
	}
	return out, nil
}

// apply merges or drops elements of all, in place, as the behavior b demands. all covers a piece without gaps.
func (b behavior) apply(all []splitPiece) []splitPiece {
	out := all[:0]
	switch b {
	case removed:
		for _, s := range all {
			if !s.match {
				out = append(out, s)
			}
		}
		return out
	case mergedWithPrevious, contiguous:
		was := false
		for i, s := range all {
			join := s.match && !was
			if b == contiguous {
				join = s.match == was
			}
			if was = s.match; join && i > 0 {
				out[len(out)-1].to = s.to
				continue
			}
			out = append(out, s)
		}
		return out
	case mergedWithNext:
		was, n := false, len(all)
		for i := len(all) - 1; i >= 0; i-- {
			s := all[i]
			if s.match && !was && n < len(all) {
				all[n].from = s.from
			} else {
				n--
				all[n] = s
			}
			was = s.match
		}
		return all[n:]
	}
	return all
}

// spaceBefore is a preTokenizer that puts a space before each piece that does not begin with a space.
type spaceBefore struct{}

func (spaceBefore) split(w *worker, p piece, out []piece) ([]piece, error) {
	if bytes.HasPrefix(p.text, []byte(" ")) {
		return append(out, p), nil
	}
	s, err := prependText(" ").normalize(p.span, w.track)
	return append(out, piece{span: s, first: p.first}), err
}

// letterPieces is a preTokenizer that writes each byte of a piece as a letter (byteAlphabet). It cuts nothing.
type letterPieces struct{}

func (letterPieces) split(w *worker, p piece, out []piece) ([]piece, error) {
	s, err := byteLetters{}.normalize(p.span, w.track)
	return append(out, piece{span: s, first: p.first}), err
}

// metaspaces is a preTokenizer that replaces each space by letter, usually ▁. It may also put a letter before a
// piece, and cut pieces before each letter.
type metaspaces struct {
	letter        string
	always, first bool // put a letter before every piece, or before the piece at the start of the text
	cut           bool
}

func (c *metaspaces) split(w *worker, p piece, out []piece) ([]piece, error) {
	s, err := replaceText{" ", c.letter}.normalize(p.span, w.track)
	if err == nil && (c.always || c.first && p.first) && !bytes.HasPrefix(s.text, []byte(c.letter)) {
		s, err = prependText(c.letter).normalize(s, w.track)
	}
	p.span = s
	if err != nil || !c.cut {
		return append(out, p), err
	}
	at := splitter{f: literal(c.letter), behavior: mergedWithNext}
	return at.split(w, p, out)
}

// part is a normalizer, pre-tokenizer, post-processor or decoder as tokenizer.json describes it. Its fields are the
// members that any of these may have.
type part struct {
	where string // path in tokenizer.json
	Type  string `json:"type"`

	Normalizers   []json.RawMessage `json:"normalizers"`
	PreTokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`

	Prepend        string          `json:"prepend"`
	Pattern        json.RawMessage `json:"pattern"`
	Content        string          `json:"content"`
	StripLeft      bool            `json:"strip_left"`
	StripRight     bool            `json:"strip_right"`
	Behavior       string          `json:"behavior"`
	Invert         bool            `json:"invert"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	UseRegex       *bool           `json:"use_regex"`
	Replacement    string          `json:"replacement"`
	PrependScheme  *string         `json:"prepend_scheme"`
	Split          *bool           `json:"split"`
	Individual     bool            `json:"individual_digits"`
	Delimiter      string          `json:"delimiter"`
	Start          int             `json:"start"`
	Stop           int             `json:"stop"`
	Suffix         string          `json:"suffix"`

	Single        []json.RawMessage          `json:"single"`
	SpecialTokens map[string]json.RawMessage `json:"special_tokens"`
	Sep           json.RawMessage            `json:"sep"`
	Cls           json.RawMessage            `json:"cls"`
}

// maxParts is the largest number of parts in a sequence (a part that consists of parts).
const maxParts = 256

// parts returns the parts that raw describes, with each sequence replaced by its parts. `where` is the path of raw in
// tokenizer.json, for errors. null gives no parts. depth counts the sequences around raw.
func parts(where string, raw []byte, depth int) ([]*part, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("%s: it nests too deeply", where)
	}
	p := &part{where: where}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if p.Type != "Sequence" {
		return []*part{p}, nil
	}
	var all []*part
	for _, list := range []struct {
		key   string
		parts []json.RawMessage
	}{{"normalizers", p.Normalizers}, {"pretokenizers", p.PreTokenizers}, {"processors", p.Processors}, {"decoders", p.Decoders}} {
		for i, raw := range list.parts {
			one, err := parts(fmt.Sprintf("%s.%s[%d]", where, list.key, i), raw, depth+1)
			if err != nil {
				return nil, err
			}
			if all = append(all, one...); len(all) > maxParts {
				return nil, fmt.Errorf("%s: more than %d parts", where, maxParts)
			}
		}
	}
	return all, nil
}

// readParts returns the results of read for each part that raw describes. `where` is the name of raw in tokenizer.json,
// for errors.
func readParts[T any](where string, raw []byte, read func(*part) (T, error)) ([]T, error) {
	all, err := parts(where, raw, 0)
	if err != nil {
		return nil, err
	}
	var out []T
	for _, p := range all {
		one, err := read(p)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (p *part) unknown() error {
	return fmt.Errorf("%s.type: %q is not supported; give input_ids (JSONL) that another tool has made", p.where, p.Type)
}

// pattern returns the pattern of p, {"String": …} or {"Regex": …}. For a string, lit is the string and re is nil. For
// a regular expression, lit is its source.
func (p *part) pattern() (lit string, re *regex, err error) {
	var v struct {
		String *string
		Regex  *string
	}
	if err := json.Unmarshal(p.Pattern, &v); err != nil || (v.String == nil) == (v.Regex == nil) {
		return "", nil, fmt.Errorf(`%s.pattern: it is %s, not {"String": …} or {"Regex": …}`, p.where, shorten(p.Pattern))
	}
	if v.String != nil {
		if *v.String == "" {
			err = fmt.Errorf("%s.pattern: an empty string is not supported", p.where)
		}
		return *v.String, nil, err
	}
	re, err = compileRegex(*v.Regex)
	if err != nil {
		return "", nil, describe(p.where+".pattern", *v.Regex, err)
	}
	return *v.Regex, re, nil
}

func (p *part) normalizer() (normalizer, error) {
	switch p.Type {
	case "NFC":
		return unicodeForm{norm.NFC, true}, nil
	case "NFD":
		return unicodeForm{norm.NFD, false}, nil
	case "NFKC":
		return unicodeForm{norm.NFKC, true}, nil
	case "NFKD":
		return unicodeForm{norm.NFKD, false}, nil
	case "Prepend":
		return prependText(p.Prepend), nil
	case "Lowercase":
		return lowercase{}, nil
	case "Strip":
		return stripSpace{p.StripLeft, p.StripRight}, nil
	case "StripAccents":
		return stripAccents{}, nil
	case "ByteLevel":
		return byteLetters{}, nil
	case "Replace":
		return p.replace()
	}
	return nil, p.unknown()
}

// replace returns the normalizer, or the decoder's step, that p describes: it replaces a string or the matches of a
// regular expression. A replacement that refers to groups of the match is an error.
func (p *part) replace() (normalizer, error) {
	lit, re, err := p.pattern()
	switch {
	case err != nil:
		return nil, err
	case re == nil:
		return replaceText{lit, p.Content}, nil
	case strings.Contains(p.Content, "$"):
		return nil, fmt.Errorf("%s.content: %q refers to groups, which is not supported", p.where, p.Content)
	}
	return replacePattern{re, p.Content}, nil
}

// readPreTokenizers returns the steps that raw, the value of pre_tokenizer, describes. If the last step writes the
// bytes of words as letters, the step is left out and the bool is true: the model then works on bytes directly.
func readPreTokenizers(raw []byte) ([]preTokenizer, bool, error) {
	all, err := readParts("pre_tokenizer", raw, (*part).preTokenizers)
	out := slices.Concat(all...)
	if n := len(out) - 1; n >= 0 && out[n] == (letterPieces{}) {
		return out[:n], true, err
	}
	return out, false, err
}

// preTokenizers returns the steps that the part p stands for, in order.
func (p *part) preTokenizers() (out []preTokenizer, err error) {
	at := func(f finder, b behavior) *splitter { return &splitter{f: f, behavior: b} }
	u := unicodeClasses()
	space := at(oneOf(isSpace), removed)
	switch p.Type {
	case "ByteLevel":
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			out = append(out, spaceBefore{})
		}
		if p.UseRegex == nil || *p.UseRegex {
			out = append(out, at(&scanners[0], isolated))
		}
		return append(out, letterPieces{}), nil
	case "Split":
		s, err := p.splitter()
		return append(out, s), err
	case "Metaspace":
		m, err := p.metaspaces()
		return append(out, m), err
	case "Digits":
		b := contiguous
		if p.Individual {
			b = isolated
		}
		return append(out, at(oneOf(func(r rune) bool { return u.in(r, setN) }), b)), nil
	case "Whitespace":
		re, err := compileRegex(`\w+|[^\w\s]+`)
		return append(out, &splitter{f: re, behavior: removed, invert: true}), err
	case "WhitespaceSplit":
		return append(out, space), nil
	case "CharDelimiterSplit":
		return append(out, at(literal(p.Delimiter), removed)), nil
	case "Punctuation", "BertPreTokenizer":
		b, err := p.behaviorOf()
		if p.Type == "BertPreTokenizer" {
			out = append(out, space)
		}
		return append(out, at(oneOf(func(r rune) bool { return punctuation(u, r) }), b)), err
	}
	return nil, p.unknown()
}

// punctuation reports whether `tokenizers` treats r as punctuation: Unicode punctuation and ASCII symbols.
func punctuation(u *unicodeTable, r rune) bool {
	return u.in(r, setP) || r < 0x80 && u.in(r, setS)
}

// behaviorOf returns the behavior that p's member behavior names: what a splitter does with the
// matches. Without the member it is isolated.
func (p *part) behaviorOf() (behavior, error) {
	for i, n := range []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		if p.Behavior == n {
			return behavior(i), nil
		}
	}
	if p.Behavior == "" {
		return isolated, nil
	}
	return 0, fmt.Errorf("%s.behavior: %q is not known", p.where, p.Behavior)
}

func (p *part) splitter() (*splitter, error) {
	b, err := p.behaviorOf()
	if err != nil {
		return nil, err
	}
	lit, re, err := p.pattern()
	if err != nil {
		return nil, err
	}
	s := &splitter{f: literal(lit), behavior: b, invert: p.Invert}
	if re == nil {
		return s, nil
	}
	s.f = re
	for i := range scanners {
		if scanners[i].pattern == lit {
			s.f = &scanners[i]
		}
	}
	return s, nil
}

func (p *part) metaspaces() (*metaspaces, error) {
	if len([]rune(p.Replacement)) != 1 {
		return nil, fmt.Errorf("%s.replacement: %q is not one character", p.where, p.Replacement)
	}
	m := &metaspaces{letter: p.Replacement, cut: p.Split == nil || *p.Split}
	switch s := p.scheme(); s {
	case "always":
		m.always = true
	case "first":
		m.first = true
	case "never":
	default:
		return nil, fmt.Errorf("%s.prepend_scheme: %q is none of always, first, never", p.where, s)
	}
	return m, nil
}

// scheme returns before which pieces a Metaspace part puts its letter: always, first or never. Old
// files say this with add_prefix_space.
func (p *part) scheme() string {
	switch {
	case p.PrependScheme != nil:
		return *p.PrependScheme
	case p.AddPrefixSpace != nil && !*p.AddPrefixSpace:
		return "never"
	}
	return "always"
}

// splitting is a tokenizer (hf) that can encode a long text piece by piece.
type splitting struct {
	*hf
	// cut reports whether text may be cut at i; 0 < i < len(text).
	cut func(text []byte, i int) bool
}

// splitter returns t as a Splitter, if there are offsets at which a long text can be cut without a
// change of its ids. Otherwise it returns t itself.
func (t *hf) splitter() Tokenizer {
	if len(t.normal.single) > 0 && len(t.norms) > 0 {
		return t // Split cannot see added tokens of the normalized text
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

// normalizesInPlace reports whether every normalizer of t is a Unicode normal form. A normal form never combines
// characters across a space or a line feed, so a text may be cut there.
func (t *hf) normalizesInPlace() bool {
	for _, n := range t.norms {
		if _, ok := n.(unicodeForm); !ok {
			return false
		}
	}
	return true
}

// onlySpaces reports whether the only step of t before merging is to replace spaces by metaspaces
// (▁).
func (t *hf) onlySpaces() bool {
	if len(t.norms) != 1 || t.norms[0] != (replaceText{" ", metaspace}) {
		return false
	}
	for _, p := range t.pre {
		s, ok := p.(*splitter)
		if !ok {
			return false
		}
		if lit, ok := s.f.(literal); !ok || string(lit) != " " { // no space is left, so splitting at spaces does nothing
			return false
		}
	}
	return true
}

// Split returns the length of the longest prefix of text whose ids do not depend on the text that
// follows. It checks a limited number of offsets, and returns 0 if it finds none.
func (s *splitting) Split(text []byte) int {
	last := len(text) - max(s.raw.long, s.normal.long, 1) // an added token may begin in text and end after it
	const most = 256                                      // places to check
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
