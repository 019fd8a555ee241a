package jinja

import (
	"strings"
	"unicode"
)

// upper is Python's s.upper(): s in upper case. One character may become several, as ß becomes SS.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, c := range s {
		if special, ok := specialUpper[c]; ok {
			b.WriteString(special)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

// lower is Python's s.lower(): s in lower case. A Greek sigma at the end of a word becomes ς, otherwise σ.
func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return lowerFrom([]rune(s), 0)
}

// lowerFrom returns chars[from:] in lower case. The characters before from only decide whether a sigma stands at the
// end of a word.
func lowerFrom(chars []rune, from int) string {
	var b strings.Builder
	for i := from; i < len(chars); i++ {
		switch c := chars[i]; {
		case c == 'Σ' && endsWord(chars, i):
			b.WriteRune('ς')
		case c == 'İ':
			b.WriteString("i̇")
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// endsWord reports whether the character at index at ends a word: a letter precedes it and no letter follows.
// Characters that ignore case, such as apostrophes, are skipped.
func endsWord(chars []rune, at int) bool {
	i := at - 1
	for i >= 0 && ignoresCase(chars[i]) {
		i--
	}
	if i < 0 || !isCased(chars[i]) {
		return false
	}
	i = at + 1
	for i < len(chars) && ignoresCase(chars[i]) {
		i++
	}
	return i == len(chars) || !isCased(chars[i])
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}

func ignoresCase(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:·’‘․‧︓﹒﹕＇．：", c)
}

// titleRune returns c in title case, the form that begins a word.
func titleRune(c rune) string {
	if special, ok := specialTitle[c]; ok {
		return special
	}
	return string(unicode.ToTitle(c))
}

// title is Python's s.title(): each word begins with an upper-case letter, all other letters are lower case.
func title(s string) string {
	chars := []rune(s)
	var b strings.Builder
	inWord := false
	for i, c := range chars {
		switch {
		case !inWord:
			b.WriteString(titleRune(c))
		case c == 'Σ' && endsWord(chars, i):
			b.WriteRune('ς')
		default:
			b.WriteString(lowerFrom([]rune{c}, 0))
		}
		inWord = isCased(c)
	}
	return b.String()
}

// capitalize is Python's s.capitalize(): the first character in title case, the others in lower case.
func capitalize(s string) string {
	chars := []rune(s)
	if len(chars) == 0 {
		return ""
	}
	return titleRune(chars[0]) + lowerFrom(chars, 1)
}

func swapcase(s string) string {
	chars := []rune(s)
	var b strings.Builder
	for i, c := range chars {
		switch {
		case unicode.IsUpper(c) && c == 'Σ' && endsWord(chars, i):
			b.WriteRune('ς')
		case unicode.IsUpper(c):
			b.WriteString(lowerFrom([]rune{c}, 0))
		case unicode.IsLower(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isUpper is Python's s.isupper(): s has at least one cased letter, and no lower-case or title-case letter.
func isUpper(s string) bool {
	cased := false
	for _, c := range s {
		if isLowerRune(c) || unicode.IsTitle(c) {
			return false
		}
		cased = cased || isUpperRune(c)
	}
	return cased
}

func isLower(s string) bool {
	cased := false
	for _, c := range s {
		if isUpperRune(c) || unicode.IsTitle(c) {
			return false
		}
		cased = cased || isLowerRune(c)
	}
	return cased
}

func isUpperRune(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

func isLowerRune(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

func isTitle(s string) bool {
	cased, inWord := false, false
	for _, c := range s {
		switch {
		case isUpperRune(c) || unicode.IsTitle(c):
			if inWord {
				return false
			}
			cased, inWord = true, true
		case isLowerRune(c):
			if !inWord {
				return false
			}
			cased = true
		default:
			inWord = false
		}
	}
	return cased
}
