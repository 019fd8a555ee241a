package tokenizer

import (
	"fmt"
	"regexp"
	"testing"
)

// TestRegexAsGo compares matches of small patterns in all short texts with those of Go's package regexp, which prefers the
// same ways but has neither lookaheads nor possessive repetitions.
func TestRegexAsGo(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		for _, c := range "abc\n" {
			texts = append(texts, texts[i]+string(c))
		}
	}
	for _, pattern := range []string{`(?:a|ab)*c`, `(?:a*)*b`, `(?:a?b?)*c`, `(?:(?:a|b)*c)*b`, `(?:ab?|b)*?c`, `^a|b$`, `\Aa*|c\z`, `\bab|c\B`,
		`[^\n]{2,3}c`, `[^\n]*?c`, `(?:ab){1,2}a`, `(?:a|b){2}`, `a.c`, `.+?b`} {
		re, err := compileRegex(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile("(?m)" + pattern)
		for _, text := range texts {
			steps := newBudget(len(text)).steps
			got := "[]"
			if start, end, ok, err := re.find([]byte(text), 0, &steps); err != nil {
				t.Fatal(err)
			} else if ok {
				got = fmt.Sprint([]int{start, end})
			}
			if w := fmt.Sprint(want.FindStringIndex(text)); got != w {
				t.Fatalf("%s in %q: %s, want %s", pattern, text, got, w)
			}
		}
	}
}

// TestHan: the script Han has ideographs, also those beyond 16 bits, and no other letters or marks.
func TestHan(t *testing.T) {
	s, err := property("Han")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"中日々〇\U00020000": true, "aあア가。1 ": false} {
		for _, r := range text {
			if got := s.has(unicodeClasses(), r); got != want {
				t.Errorf("%q is of the script Han: %t", r, got)
			}
		}
	}
}

// TestBrokenOff: a broken character ends where no character goes on like that, as in Unicode's "maximal subparts".
func TestBrokenOff(t *testing.T) {
	for text, want := range map[string]int{
		"\xff\x80": 1, "\x80\x80": 1, "\xc1\x80": 1, "\xf5\x80": 1, "\xc2": 1, "\xc2a": 1, "\xe2\x82": 2, "\xe2\x82\xe2": 2, "\xe0\x80": 1, "\xe0\xa0": 2,
		"\xed\xa0": 1, "\xed\x9f": 2, "\xf0\x8f\x80": 1, "\xf0\x90\x80": 3, "\xf4\x90\x80": 1, "\xf4\x8f\xbf": 3, "\xf1\xbf\xbf": 3,
	} {
		if got := brokenOff(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}
