package tokenizer

import (
	"bytes"
)

// piece is a part of a text that is being cut into words.
type piece struct {
	span
	first bool // it starts where the whole text does
}

// sub is a part of p.
func (p *piece) sub(from, to int) piece {
	out := piece{span: p.slice(from, to)}
	out.first = p.first && from == 0
	return out
}

// preTokenizer cuts pieces into smaller ones.
type preTokenizer interface {
	// split appends the parts of p to out. No part is empty.
	split(w *worker, p piece, out []piece) ([]piece, error)
}

// behavior says what becomes of the matches of a splitter.
type behavior uint8

const (
	isolated           behavior = iota // a match is a piece
	removed                            // a match is dropped
	mergedWithPrevious                 // it ends the piece before it
	mergedWithNext                     // it begins the piece behind it
	contiguous                         // matches without anything between them are one piece
)

// splitter cuts pieces at the matches of a pattern; with invert, what lies between matches
// counts as the matches.
type splitter struct {
	f        finder
	behavior behavior
	invert   bool
}

// stretch is a match, or the text between two matches.
type stretch struct {
	from, to int
	match    bool
}

func (c *splitter) split(w *worker, p piece, out []piece) ([]piece, error) {
	var all []stretch
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
			all = append(all, stretch{done, start, c.invert})
		}
		all = append(all, stretch{start, end, !c.invert})
		done = end
	}
	if done < len(p.text) {
		all = append(all, stretch{done, len(p.text), c.invert})
	}
	for _, s := range c.behavior.apply(all) {
		if s.from < s.to {
			out = append(out, p.sub(s.from, s.to))
		}
	}
	return out, nil
}

// apply joins or drops stretches as b says, in place.
func (b behavior) apply(all []stretch) []stretch {
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

// spaceBefore puts a space before pieces that do not start with one.
type spaceBefore struct{}

func (spaceBefore) split(w *worker, p piece, out []piece) ([]piece, error) {
	if bytes.HasPrefix(p.text, []byte(" ")) {
		return append(out, p), nil
	}
	s, err := prependText(" ").normalize(p.span, w.track)
	return append(out, piece{span: s, first: p.first}), err
}

// letterPieces writes each byte of a piece as the letter that stands for it.
type letterPieces struct{}

func (letterPieces) split(w *worker, p piece, out []piece) ([]piece, error) {
	s, err := byteLetters{}.normalize(p.span, w.track)
	return append(out, piece{span: s, first: p.first}), err
}

// metaspaces writes spaces as another character, puts one in front of pieces, and may cut
// pieces before each.
type metaspaces struct {
	letter        string
	always, first bool // whether one is put in front of every piece, or of that at the start of the text
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
