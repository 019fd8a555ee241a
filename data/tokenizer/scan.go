package tokenizer

import "unicode/utf8"

// The split patterns of the published byte-level vocabularies, as in their tokenizer.json. Matches of each pattern
// cover a text without gaps.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// GPT-4, Llama 3.
	patternGPT4 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Qwen2, 2.5, 3.
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// GPT-4o, gpt-oss.
	patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner matches one of the patterns above with hand-written code.
type scanner struct {
	pattern string
	next    func(u *unicodeTable, text []byte, i int) int // returns the end of the match that starts at i
	// newlineEnds reports whether a match always starts after a run of white space that ends with a line feed.
	newlineEnds bool
}

var scanners = []scanner{
	{patternGPT2, nextGPT2, false},
	{patternGPT4, func(u *unicodeTable, text []byte, i int) int { return nextGPT4(u, text, i, 3) }, true},
	{patternQwen2, func(u *unicodeTable, text []byte, i int) int { return nextGPT4(u, text, i, 1) }, true},
	{patternO200K, nextO200K, true},
}

// kind is the class of a character as the patterns distinguish it; sets of kinds are bit masks.
type kind uint8

const (
	isLetter kind = 1 << iota
	isNumber
	isBlank   // white space except CR and LF
	isNewline // CR and LF
	isOther
)

// asciiKinds are the kinds of single bytes; 0 for bytes of longer characters.
var asciiKinds = func() (k [256]kind) {
	for b := range utf8.RuneSelf {
		switch c := byte(b); {
		case c|' ' >= 'a' && c|' ' <= 'z':
			k[b] = isLetter
		case c >= '0' && c <= '9':
			k[b] = isNumber
		case c == '\r' || c == '\n':
			k[b] = isNewline
		case isSpace(rune(c)):
			k[b] = isBlank
		default:
			k[b] = isOther
		}
	}
	return k
}()

// kindAt returns the kind of the character at i and its length in bytes; 0 at the end of text.
func (u *unicodeTable) kindAt(text []byte, i int) (kind, int) {
	if i >= len(text) {
		return 0, 0
	}
	if k := asciiKinds[text[i]]; k != 0 {
		return k, 1
	}
	return u.wideKind(text[i:])
}

// wideKind is kindAt for a character that is not ASCII.
func (u *unicodeTable) wideKind(text []byte) (kind, int) {
	r, n := utf8.DecodeRune(text)
	switch {
	case u.in(r, setL):
		return isLetter, n
	case u.in(r, setN):
		return isNumber, n
	case isSpace(r):
		return isBlank, n
	}
	return isOther, n
}

// run returns the end of the run of characters of kind k that starts at i.
func (u *unicodeTable) run(text []byte, i int, k kind) int {
	for i < len(text) {
		if a := asciiKinds[text[i]]; a != 0 {
			if a&k == 0 {
				return i
			}
			i++
			continue
		}
		w, n := u.wideKind(text[i:])
		if w&k == 0 {
			return i
		}
		i += n
	}
	return i
}

// runOf is run for characters whose category is in set.
func (u *unicodeTable) runOf(text []byte, i int, set categories) int {
	for i < len(text) {
		r, n := decodeRune(text[i:])
		if !u.in(r, set) {
			break
		}
		i += n
	}
	return i
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at i; 0: none. With fold, case does not matter.
func contraction(text []byte, i int, fold bool) int {
	if i+1 >= len(text) || text[i] != '\'' {
		return 0
	}
	a, b := text[i+1], byte(0)
	if i+2 < len(text) {
		b = text[i+2]
	}
	if fold {
		if a == 0xc5 && b == 0xbf { // ſ, the long s
			return 3
		}
		if a < utf8.RuneSelf {
			a |= ' '
		}
		if b < utf8.RuneSelf {
			b |= ' '
		}
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// blanks returns the end of the match of \s+(?!\S)|\s+ at i, where a white space stands. With newlines, the
// alternative \s*[\r\n]+ has precedence.
func (u *unicodeTable) blanks(text []byte, i int, newlines bool) int {
	end, last, newline := i, i, 0
	for end < len(text) {
		k, n := u.kindAt(text, end)
		if k&(isBlank|isNewline) == 0 {
			break
		}
		last = end
		if end += n; k == isNewline {
			newline = end
		}
	}
	switch {
	case newlines && newline > 0:
		return newline
	case end == len(text) || last == i:
		return end
	}
	return last
}

func nextGPT2(u *unicodeTable, text []byte, i int) int {
	if n := contraction(text, i, false); n > 0 {
		return i + n
	}
	k, n := u.kindAt(text, i)
	if text[i] == ' ' {
		if next, m := u.kindAt(text, i+1); next&(isLetter|isNumber|isOther) != 0 {
			return u.run(text, i+1+m, next)
		}
	}
	if k&(isBlank|isNewline) != 0 {
		return u.blanks(text, i, false)
	}
	return u.run(text, i+n, k)
}

func nextGPT4(u *unicodeTable, text []byte, i, digits int) int {
	k, n := u.kindAt(text, i)
	if k == isLetter {
		return u.run(text, i+n, isLetter)
	}
	if text[i] == '\'' {
		if n := contraction(text, i, true); n > 0 {
			return i + n
		}
	}
	if k&(isBlank|isOther) != 0 {
		if next, m := u.kindAt(text, i+n); next == isLetter {
			return u.run(text, i+n+m, isLetter)
		}
	}
	return u.rest(text, i, digits, false)
}

// rest returns the end of a match of the alternatives that GPT-4's pattern shares with its derivatives: numbers of at
// most digits digits, other characters, white space. With slash, slashes may follow other characters, as line ends
// may.
func (u *unicodeTable) rest(text []byte, i, digits int, slash bool) int {
	k, n := u.kindAt(text, i)
	if k == isNumber {
		for end := i + n; ; end += n {
			digits--
			if k, n = u.kindAt(text, end); k != isNumber || digits == 0 {
				return end
			}
		}
	}
	end := i
	if text[i] == ' ' {
		k, n = u.kindAt(text, i+1)
		end++
	}
	if k != isOther {
		return u.blanks(text, i, true)
	}
	end = u.run(text, end+n, isOther)
	for end < len(text) && (asciiKinds[text[end]] == isNewline || slash && text[end] == '/') {
		end++
	}
	return end
}

func nextO200K(u *unicodeTable, text []byte, i int) int {
	k, n := u.kindAt(text, i)
	for _, word := range []func(*unicodeTable, []byte, int) int{lowerWord, upperWord} {
		if k&(isBlank|isOther) != 0 {
			if end := word(u, text, i+n); end > 0 {
				return end + contraction(text, end, true)
			}
		}
		if end := word(u, text, i); end > 0 {
			return end + contraction(text, end, true)
		}
	}
	return u.rest(text, i, 3, true)
}

// lowerWord returns the end of a word at i that consists of any number of letters of setUpper, then at least one of
// setLower. 0: no such word.
func lowerWord(u *unicodeTable, text []byte, i int) int {
	upper := u.runOf(text, i, setUpper)
	if end := u.runOf(text, upper, setLower); end > upper {
		return end
	}
	for upper > i { // backtrack to the last letter in both sets
		r, n := utf8.DecodeLastRune(text[i:upper])
		if u.in(r, setLower) {
			return upper
		}
		upper -= n
	}
	return 0
}

// upperWord returns the end of a word at i that consists of at least one letter of setUpper, then any number of
// setLower. 0: no such word.
func upperWord(u *unicodeTable, text []byte, i int) int {
	if upper := u.runOf(text, i, setUpper); upper > i {
		return u.runOf(text, upper, setLower)
	}
	return 0
}
