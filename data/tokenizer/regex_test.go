package tokenizer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestRegexAsGo: small patterns have the same matches in all short texts as with Go's package
// regexp. That package prefers the same alternatives, but has neither lookaheads nor possessive
// repetitions.
func TestRegexAsGo(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		for _, c := range "abc\n" {
			texts = append(texts, texts[i]+string(c))
		}
	}
	for _, pattern := range []string{`(?:a|ab)*c`, `(?:a*)*b`, `(?:a?b?)*c`, `(?:(?:a|b)*c)*b`, `(?:ab?|b)*?c`, `^a|b$`, `\Aa*|c\z`, `\bab|c\B`,
		`[^\n]{2,3}c`, `[^\n]*?c`, `(?:ab){1,2}a`, `(?:a|b){2}`, `a.c`, `.+?b`} {
		re := testkit.Must(compileRegex(pattern))(t)
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

// TestHan: \p{Han} matches ideographs, also those beyond 16 bits, and no other letters or marks.
func TestHan(t *testing.T) {
	s := testkit.Must(property("Han"))(t)
	for text, want := range map[string]bool{"中日々〇\U00020000": true, "aあア가。1 ": false} {
		for _, r := range text {
			if got := s.has(unicodeClasses(), r); got != want {
				t.Errorf("%q is of the script Han: %t", r, got)
			}
		}
	}
}

// TestBrokenOff: brokenOff ends a broken character before the first byte that cannot continue it,
// as in Unicode's "maximal subparts".
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

// mustParse parses the tokenizer.json that small makes of members.
func mustParse(t *testing.T, members string) *hf {
	t.Helper()
	tok := testkit.Must(parse([]byte(small(members))))(t)
	return tok
}

// TestWordCache: a word from the cache gives the same tokens as one that is merged, for any length,
// following text and number of tokens. A zero byte at a word's end, like the cache's padding, makes
// another word.
func TestWordCache(t *testing.T) {
	const members = `"added_tokens": [], "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"},
		"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0000": 2, "ab": 3, " ": 4, "abab": 5}, "merges": ["a b", "ab ab"]}`
	idsOf := func(word string) (ids []int32) {
		for _, c := range strings.NewReplacer("abab", "d", "ab", "c").Replace(word) {
			ids = append(ids, map[rune]int32{'a': 0, 'b': 1, 0: 2, 'c': 3, ' ': 4, 'd': 5}[c])
		}
		return ids
	}
	var words []string
	for n := range cachedSize + 3 {
		for _, of := range []string{"ab", "b", "\x00", "aab"} {
			word := strings.Repeat(of, n)[:n]
			words = append(words, word, word+"\x00", "\x00"+word, word+"\x00\x00", word+"b", word+"a")
		}
	}
	tok := mustParse(t, members)
	for round := range 3 {
		for _, word := range words {
			for _, behind := range []string{"", " ", " b", " abababababababababababababababab", " \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
				want := append(idsOf(word), idsOf(behind)...)
				got, err := tok.Encode(nil, []byte(word+behind))
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("round %d: %q: %d, %v, want %d", round, word+behind, got, err, want)
				}
				spanned, _, err := tok.EncodeSpans(nil, nil, []byte(word+behind))
				if err != nil || !slices.Equal(spanned, want) {
					t.Fatalf("round %d: %q with spans: %d, %v, want %d", round, word+behind, spanned, err, want)
				}
			}
		}
	}
}

// encodings maps texts to the ids that PyPI `tokenizers` 0.23 gives them.
type encodings map[string][]int32

func (e encodings) check(t *testing.T, name string, tok *hf) {
	t.Helper()
	for text, want := range e {
		got, err := tok.Encode(nil, []byte(text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q: %d, %v, want %d", name, text, got, err, want)
		}
	}
}

// TestIgnoreMerges: with ignore_merges set, a word that is in the vocabulary becomes that one
// token, even if no merges lead to it. Other words are merged as usual.
func TestIgnoreMerges(t *testing.T) {
	const characters = `"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "▁": 5, "a▁b": 6, "b▁": 7, "<unk>": 8}, "unk_token": "<unk>", "merges": ["a b"], "ignore_merges": `
	const letters = `"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "Ġba": 5, "Ã": 6, "©": 7, "Ã©": 8}, "merges": ["a b"], "ignore_merges": `
	encodings{"abc": {4}, "ab": {3}, "abcb": {3, 2, 1}, "cabc": {2, 3, 2}, "a▁b": {6}, "b▁": {7}, "a▁ba▁b": {0, 5, 1, 0, 5, 1}, "c": {2}}.
		check(t, "characters, true", mustParse(t, characters+"true}"))
	encodings{"abc": {3, 2}, "ab": {3}, "abcb": {3, 2, 1}, "cabc": {2, 3, 2}, "a▁b": {0, 5, 1}, "b▁": {1, 5}, "c": {2}}.
		check(t, "characters, false", mustParse(t, characters+"false}"))
	encodings{" ab": {4}, " ba": {5}, "é": {8}, " ab ba ab": {4, 5, 4}, "ab": {3}}.
		check(t, "letters, true", mustParse(t, letters+"true}"))
	encodings{" ab": {2, 3}, " ba": {2, 1, 0}, "é": {6, 7}, " ab ba ab": {2, 3, 2, 1, 0, 2, 3}, "ab": {3}}.
		check(t, "letters, false", mustParse(t, letters+"false}"))
}

// TestPartialFallback: with byte fallback, a character becomes byte tokens if the vocabulary has
// all of its bytes; otherwise the whole character is unknown. Neighbouring unknown characters are
// fused up to the next known one, not up to byte tokens.
func TestPartialFallback(t *testing.T) {
	const model = `"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xA9>": 3, "<0xE2>": 4, "<0x82>": 5}, "merges": []`
	for _, c := range []struct {
		name, more string
		want       encodings
	}{
		{"each unknown apart", `, "unk_token": "<unk>", "byte_fallback": true}`, encodings{"é": {2, 3}, "è": {1}, "aéa": {0, 2, 3, 0}, "éè": {2, 3, 1}, "èé": {2, 3, 1},
			"èè": {1, 1}, "èaè": {1, 0, 1}, "€": {1}, "èéè": {2, 3, 1, 1}}},
		{"unknown ones as one", `, "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true}`, encodings{"é": {2, 3}, "è": {1}, "éè": {2, 3, 1}, "èé": {2, 3, 1},
			"èè": {1}, "èaè": {1, 0, 1}, "€": {1}, "èéè": {2, 3, 1}}},
		{"no fallback", `, "unk_token": "<unk>"}`, encodings{"é": {1}, "è": {1}, "aéa": {0, 1, 0}, "éè": {1, 1}, "€": {1}}},
		{"no unknown token", `, "byte_fallback": true}`, encodings{"é": {2, 3}, "è": {}, "aéa": {0, 2, 3, 0}, "éè": {2, 3}, "a€a": {0, 0}}},
	} {
		c.want.check(t, c.name, mustParse(t, model+c.more))
	}
}
