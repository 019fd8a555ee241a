package tokenizer

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the four normal forms as `tokenizers` has them. Its tables are those
// of Unicode 9: a younger character is neither decomposed nor reordered, and none is composed.
// Source: Unicode Standard Annex 15.
type unicodeForm struct {
	form    norm.Form // NFC, NFD, NFKC or NFKD
	compose bool
}

// normRune is a character that is being normalized. change is 0 where it stands for one
// character of the text, -n where it stands for n more, and 1 where it was added.
type normRune struct {
	r      rune
	ccc    uint8
	change int
}

func (f unicodeForm) normalize(in span, track bool) (span, error) {
	n := f.form.QuickSpan(in.text)
	if n == len(in.text) {
		return in, nil
	}
	w, from := rewrite(&in, track), 0
	var runes []normRune
	for {
		w.keep(from, from+n)
		from += n
		if from == len(in.text) {
			return w.done()
		}
		end := from + 1 // up to the next ASCII character, which combines with nothing before it
		for end < len(in.text) && in.text[end] >= utf8.RuneSelf {
			end++
		}
		runes = f.decompose(runes[:0], in.text[from:end])
		if f.compose {
			runes = recompose(runes)
		}
		write(w, runes, from)
		from = end
		n = f.form.QuickSpan(in.text[from:])
	}
}

// write puts runes in place of the characters that start at i.
func write(w *rewriter, runes []normRune, i int) {
	for _, c := range runes {
		if c.change > 0 {
			w.putRune(c.r, w.in.at(max(i-1, 0)))
			continue
		}
		w.putRune(c.r, w.in.at(i))
		for range 1 - c.change {
			_, n := decodeRune(w.in.text[i:])
			i += n
		}
	}
}

const (
	hangulBase, hangulL, hangulV, hangulT = 0xac00, 0x1100, 0x1161, 0x11a7
	hangulLs, hangulVs, hangulTs          = 19, 21, 28
)

// decompose appends the parts of text's characters, marks in canonical order.
func (f unicodeForm) decompose(out []normRune, text []byte) []normRune {
	u, marks := unicodeClasses(), 0 // marks: where the marks after the last starter begin
	add := func(r rune, first bool) {
		c := normRune{r: r, change: 1}
		if first {
			c.change = 0
		}
		if u.of(r)&classInert == 0 {
			var b [utf8.UTFMax]byte
			c.ccc = f.form.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
		}
		if c.ccc == 0 {
			sortMarks(out[marks:])
			marks = len(out) + 1
		}
		out = append(out, c)
	}
	for i := 0; i < len(text); {
		r, n := decodeRune(text[i:])
		switch s := r - hangulBase; {
		case s >= 0 && s < hangulLs*hangulVs*hangulTs:
			add(hangulL+s/(hangulVs*hangulTs), true)
			add(hangulV+s/hangulTs%hangulVs, false)
			if t := s % hangulTs; t > 0 {
				add(hangulT+t, false)
			}
		case u.of(r)&classInert != 0:
			add(r, true)
		default:
			parts := f.form.Properties(text[i : i+n]).Decomposition()
			if len(parts) == 0 {
				parts = text[i : i+n]
			}
			for k := 0; k < len(parts); {
				part, m := decodeRune(parts[k:])
				add(part, k == 0)
				k += m
			}
		}
		i += n
	}
	sortMarks(out[min(marks, len(out)):])
	return out
}

func sortMarks(marks []normRune) {
	slices.SortStableFunc(marks, func(a, b normRune) int { return cmp.Compare(a.ccc, b.ccc) })
}

// recompose joins starters with the marks after them, in place.
func recompose(runes []normRune) []normRune {
	out := runes[:0]
	starter, last := -1, uint8(0) // last: the class of the mark before, behind starter
	for _, c := range runes {
		if starter >= 0 && (last < c.ccc || last == 0) {
			if r, ok := composed(out[starter].r, c.r); ok {
				out[starter].r = r
				out[starter].change += c.change - 1
				continue
			}
		}
		if last = c.ccc; c.ccc == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

// composed is the character that two make, where they make one.
func composed(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; l >= 0 && l < hangulLs && v >= 0 && v < hangulVs {
		return hangulBase + (l*hangulVs+v)*hangulTs, true
	}
	s, t := a-hangulBase, b-hangulT
	if s >= 0 && s < hangulLs*hangulVs*hangulTs && s%hangulTs == 0 && t > 0 && t < hangulTs {
		return a + t, true
	}
	var both, one [2 * utf8.UTFMax]byte
	n := utf8.EncodeRune(both[:], a)
	m := n + utf8.EncodeRune(both[n:], b)
	if norm.NFC.Properties(both[n:m]).BoundaryBefore() {
		return 0, false
	}
	joined := norm.NFC.Append(one[:0], both[:m]...)
	r, size := utf8.DecodeRune(joined)
	return r, size == len(joined) && unicodeClasses().of(r)&classInert == 0
}
