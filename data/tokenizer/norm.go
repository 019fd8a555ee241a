package tokenizer

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// rewriter builds a new span (a text with the origin of each byte) from the span in. It records
// origins only if track is set.
type rewriter struct {
	in    *span
	out   span
	track bool
	most  int // limit on the bytes of out
	over  bool
}

// fits reports whether n more bytes fit into the limit on the result's length. After it has
// returned false once, it always returns false.
func (w *rewriter) fits(n int) bool {
	w.over = w.over || len(w.out.text)+n > w.most
	return !w.over
}

// done returns the new span; if the limit on its length was exceeded, it returns ErrGrown.
func (w *rewriter) done() (span, error) {
	if w.over {
		return *w.in, ErrGrown
	}
	return w.out, nil
}

// keep appends the bytes [from, to) of the old span unchanged, with their origins.
func (w *rewriter) keep(from, to int) {
	if !w.fits(to - from) {
		return
	}
	if w.track {
		for i := from; i < to; i++ {
			w.out.origin = append(w.out.origin, w.in.at(i))
		}
	}
	w.out.text = append(w.out.text, w.in.text[from:to]...)
}

// put appends text. All its bytes have the given origin, an offset in the caller's text.
func (w *rewriter) put(text string, origin int) {
	if !w.fits(len(text)) {
		return
	}
	if w.track {
		for range len(text) {
			w.out.origin = append(w.out.origin, origin)
		}
	}
	w.out.text = append(w.out.text, text...)
}

// putRune appends one character, with the given origin, an offset in the caller's text.
func (w *rewriter) putRune(r rune, origin int) {
	if !w.fits(utf8.UTFMax) {
		return
	}
	n := len(w.out.text)
	w.out.text = utf8.AppendRune(w.out.text, r)
	if w.track {
		for range len(w.out.text) - n {
			w.out.origin = append(w.out.origin, origin)
		}
	}
}

// rewrite returns a rewriter that builds a new span from in. If track is set, it records origins.
func rewrite(in *span, track bool) *rewriter {
	w := &rewriter{in: in, track: track, most: in.left.bytes}
	w.out = span{text: make([]byte, 0, len(in.text)+len(in.text)/8+8), base: in.base, left: in.left}
	if track {
		w.out.origin = make([]int, 0, cap(w.out.text))
	}
	return w
}

// normalizer changes a text before the text is cut into words. If track is set, the result has an
// origin for each byte; the exception is a result that is in itself, unchanged.
type normalizer interface {
	normalize(in span, track bool) (span, error)
}

// prependText is a normalizer that puts this text before each text that is not empty.
type prependText string

func (p prependText) normalize(in span, track bool) (span, error) {
	if len(in.text) == 0 || p == "" {
		return in, nil
	}
	w := rewrite(&in, track)
	w.put(string(p), in.at(0))
	w.keep(0, len(in.text))
	return w.done()
}

// replaceText is a normalizer that replaces each occurrence of the text old by new.
type replaceText struct{ old, new string }

func (p replaceText) normalize(in span, track bool) (span, error) {
	i := bytes.Index(in.text, []byte(p.old))
	if i < 0 {
		return in, nil
	}
	_, last := utf8.DecodeLastRuneInString(p.old)
	w, from, old := rewrite(&in, track), 0, []byte(p.old)
	for ; i >= 0; i = bytes.Index(in.text[from:], old) {
		w.keep(from, from+i)
		from += i + len(old)
		w.put(p.new, in.at(from-last))
	}
	w.keep(from, len(in.text))
	return w.done()
}

// replacePattern is a normalizer that replaces each match of the regular expression re by new.
type replacePattern struct {
	re  *regex
	new string
}

func (p replacePattern) normalize(in span, track bool) (span, error) {
	w, from := rewrite(&in, track), 0
	m := matches{f: p.re, text: in.text, steps: &in.left.steps}
	for {
		start, end, ok, err := m.next()
		if err != nil {
			return in, err
		}
		if !ok {
			break
		}
		w.keep(from, start)
		w.put(p.new, in.at(max(end-1, 0)))
		from = end
	}
	w.keep(from, len(in.text))
	return w.done()
}

// lowercase is a normalizer that maps each character to lower case.
type lowercase struct{}

func (lowercase) normalize(in span, track bool) (span, error) {
	w := rewrite(&in, track)
	for i := 0; i < len(in.text); {
		r, n := decodeRune(in.text[i:])
		switch low := toLower(r); {
		case r == 'İ':
			w.put("i\u0307", in.at(i))
		case low == r:
			w.keep(i, i+n)
		default:
			w.putRune(low, in.at(i))
		}
		i += n
	}
	return w.done()
}

// toLower returns r in lower case. Characters that Unicode 16 and 17 added are included, though Go's tables lack
// them.
func toLower(r rune) rune {
	switch {
	case r == 0xa7cb:
		return 0x264
	case r == 0xa7dc:
		return 0x19b
	case r == 0x1c89 || r == 0xa7cc || r == 0xa7ce || r == 0xa7d2 || r == 0xa7d4 || r == 0xa7da:
		return r + 1
	case r >= 0x10d50 && r <= 0x10d65:
		return r + 0x20
	case r >= 0x16ea0 && r <= 0x16eb8:
		return r + 0x1b
	}
	return unicode.ToLower(r)
}

// stripSpace is a normalizer that removes white space at the left end, the right end or both.
type stripSpace struct{ left, right bool }

func (p stripSpace) normalize(in span, _ bool) (span, error) {
	from, to := 0, len(in.text)
	if p.left {
		from = to - len(bytes.TrimLeftFunc(in.text, isSpace))
	}
	if p.right {
		to = max(from, len(bytes.TrimRightFunc(in.text, isSpace)))
	}
	return in.slice(from, to), nil
}

// stripAccents is a normalizer that removes combining marks, such as accents after decomposition.
type stripAccents struct{}

func (stripAccents) normalize(in span, track bool) (span, error) {
	w, u := rewrite(&in, track), unicodeClasses()
	for i := 0; i < len(in.text); {
		r, n := decodeRune(in.text[i:])
		if !u.in(r, setOldM) {
			w.keep(i, i+n)
		}
		i += n
	}
	return w.done()
}

// byteLetters is a normalizer that writes each byte as a letter (byteAlphabet).
type byteLetters struct{}

func (byteLetters) normalize(in span, track bool) (span, error) {
	w := rewrite(&in, track)
	for i, b := range in.text {
		w.putRune(byteAlphabet[b], in.at(i))
	}
	return w.done()
}

// letterBytes maps each letter of byteAlphabet to its byte.
var letterBytes = func() map[rune]byte {
	m := make(map[rune]byte, byteVocab)
	for b, r := range byteAlphabet {
		m[r] = byte(b)
	}
	return m
}()

// fromLetters returns the bytes for which the letters of token stand (byteAlphabet). It returns false if a character
// stands for no byte.
func fromLetters(token string) (string, bool) {
	var b strings.Builder
	for _, r := range token {
		c, ok := letterBytes[r]
		if !ok {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// unicodeForm is a normalizer to one of the four Unicode normal forms, by the tables of Unicode 9, which `tokenizers`
// uses. Characters that are newer than Unicode 9 are left as they are. Source: Unicode Standard Annex 15.
type unicodeForm struct {
	form    norm.Form // NFC, NFD, NFKC or NFKD
	compose bool
}

// normRune is a character in the course of normalization, with its combining class ccc. change tells which characters
// of the text it comes from. 0: it replaces one character; -n: it replaces n+1 characters; 1: it was added and
// replaces none.
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
		end := from + 1 // up to the next ASCII character, which never combines with the text before it
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

// write appends runes to w. The runes are the normalized form of the text from byte i of w.in on. Each rune gets the
// origin of the character that the rune replaces.
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

// decompose appends to out the characters of text, each replaced by its decomposition in the normal form f. Combining
// marks after a character are sorted into canonical order.
func (f unicodeForm) decompose(out []normRune, text []byte) []normRune {
	u, marks := unicodeClasses(), 0 // marks: index of the first mark after the last starter
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

// recompose joins, in place, each starter (a character of combining class 0) with the marks after it, as far as
// Unicode has one character for both.
func recompose(runes []normRune) []normRune {
	out := runes[:0]
	starter, last := -1, uint8(0) // last: combining class of the previous mark after starter
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

// composed returns the character that a and b form together; false: they form none.
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
