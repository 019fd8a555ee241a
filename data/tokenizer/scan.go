package tokenizer

import "unicode/utf8"

// The patterns with which published byte-level vocabularies cut a text into words, as in their tokenizer.json. The
// matches of each pattern cover any text without gaps.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// The pattern of GPT-4 and Llama 3.
	patternGPT4 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// The pattern of Qwen2, 2.5 and 3.
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// The pattern of GPT-4o and gpt-oss.
	patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner matches one of the patterns above with code written for it, which is much faster than regex.
type scanner struct {
	pattern string
	next    func(u *unicodeTable, text []byte, i int) int // returns the end of the match that starts at i
	// newlineEnds reports whether one match always ends, and the next begins, after white space that ends with a
	// line feed. A text may then be cut there.
	newlineEnds bool
}

var scanners = []scanner{
	{patternGPT2, nextGPT2, false},
	{patternGPT4, func(u *unicodeTable, text []byte, i int) int { return nextGPT4(u, text, i, 3) }, true},
	{patternQwen2, func(u *unicodeTable, text []byte, i int) int { return nextGPT4(u, text, i, 1) }, true},
	{patternO200K, nextO200K, true},
}

// kind is the class of a character (letter, number, …), as far as the patterns distinguish classes. A set of kinds is
// a bit mask.
type kind uint8

const (
	isLetter kind = 1 << iota
	isNumber
	isBlank   // white space except CR and LF
	isNewline // CR and LF
	isOther
)

// asciiKinds has the kind of each ASCII character; 0 for bytes that belong to longer characters.
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

// kindAt returns the kind of the character at offset i and its length in bytes; both are 0 at the end of text.
func (u *unicodeTable) kindAt(text []byte, i int) (kind, int) {
	if i >= len(text) {
		return 0, 0
	}
	if k := asciiKinds[text[i]]; k != 0 {
		return k, 1
	}
	return u.wideKind(text[i:])
}

// wideKind returns the kind and length, like kindAt, of the first character of text, which is not
// ASCII.
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

// run returns the offset after the characters of kind k that begin at offset i; i itself if there
// are none.
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

// runOf returns the offset after the characters from offset i on whose category is in set; i itself
// if there are none.
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

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at offset i; 0: there is none.
// If fold is set, upper case counts too.
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

// blanks returns the end of the match of \s+(?!\S)|\s+ at offset i, which is white space. If
// newlines is set, the pattern has one more alternative, \s*[\r\n]+, which is tried first.
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

// rest returns the end of the match at offset i of the alternatives that GPT-4's pattern shares
// with patterns derived from it. These match numbers of at most digits digits, other characters,
// and white space. If slash is set, slashes may follow other characters, as line ends may.
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

// lowerWord returns the end of a word at offset i: any number of letters in setUpper, then at least
// one in setLower. 0: no such word begins there.
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

// upperWord returns the end of a word at offset i: at least one letter in setUpper, then any number
// in setLower. 0: no such word begins there.
func upperWord(u *unicodeTable, text []byte, i int) int {
	if upper := u.runOf(text, i, setUpper); upper > i {
		return u.runOf(text, upper, setLower)
	}
	return 0
}
