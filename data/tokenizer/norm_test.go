package tokenizer

import (
	"slices"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestUnicodeForms compares normalized texts with golang.org/x/text: marks out of order after several letters, and
// decomposed Hangul syllables.
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

// TestStartsOfNormalized: tokens of a normalized text start where their characters are in the original text.
func TestStartsOfNormalized(t *testing.T) {
	tok := mustParse(t, `"normalizer": {"type": "Lowercase"}`)
	ids, starts, err := tok.EncodeSpans(nil, nil, []byte("ABa b"))
	if err != nil || !slices.Equal(ids, []int32{2, 0, 3, 1}) || !slices.Equal(starts, []int{0, 2, 3, 4}) {
		t.Errorf("ids %v from %v, %v", ids, starts, err)
	}
}

// TestAddedTokensSpelledAlike: a special token comes before one that is not, whichever was added first.
func TestAddedTokensSpelledAlike(t *testing.T) {
	tok := mustParse(t, `"normalizer": {"type": "Lowercase"}, "added_tokens": [{"id": 5, "content": "xy", "normalized": true}, {"id": 6, "content": "XY", "normalized": true, "special": true}]`)
	if ids, err := tok.Encode(nil, []byte("xY")); err != nil || !slices.Equal(ids, []int32{6}) {
		t.Errorf("ids %v, %v, want that of the special token", ids, err)
	}
}
