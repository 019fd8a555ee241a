package tokenizer

import (
	"slices"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestUnicodeForms: normalized texts equal those of golang.org/x/text, for marks out of order after
// several letters and for decomposed Hangul syllables.
func TestUnicodeForms(t *testing.T) {
	for _, text := range []string{"a\u0307\u0323b\u0307\u0323 \u0307\u0323", "\u1112\u1161\u11ab\u1100\u1161", "\ud55c\u11ab", "q\u0307\u0323\u0301e\u0301\u0323", "\u0307\u0323a"} {
		for form, compose := range map[norm.Form]bool{norm.NFC: true, norm.NFKC: true, norm.NFD: false, norm.NFKD: false} {
			got, err := unicodeForm{form, compose}.normalize(span{text: []byte(text), left: newBudget(len(text))}, false)
			if want := form.String(text); err != nil || string(got.text) != want {
				t.Errorf("form %d of %q: %q, %v, want %q", form, text, got.text, err, want)
			}
		}
	}
}

// TestStartsOfNormalized: after a normalizer has changed a text, EncodeSpans gives the offsets of
// the tokens' characters in the original text.
func TestStartsOfNormalized(t *testing.T) {
	tok := mustParse(t, `"normalizer": {"type": "Lowercase"}`)
	ids, starts, err := tok.EncodeSpans(nil, nil, []byte("ABa b"))
	if err != nil || !slices.Equal(ids, []int32{2, 0, 3, 1}) || !slices.Equal(starts, []int{0, 2, 3, 4}) {
		t.Errorf("ids %v from %v, %v", ids, starts, err)
	}
}

// TestAddedTokensSpelledAlike: if a special token and another added token have the same normalized
// spelling, the special token is found, whichever was added first.
func TestAddedTokensSpelledAlike(t *testing.T) {
	tok := mustParse(t, `"normalizer": {"type": "Lowercase"}, "added_tokens": [{"id": 5, "content": "xy", "normalized": true}, {"id": 6, "content": "XY", "normalized": true, "special": true}]`)
	if ids, err := tok.Encode(nil, []byte("xY")); err != nil || !slices.Equal(ids, []int32{6}) {
		t.Errorf("ids %v, %v, want that of the special token", ids, err)
	}
}
