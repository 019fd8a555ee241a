package config

import (
	"slices"
	"testing"
)

// TestTokens: a text of tokens is cut at every comma, a text of files not at those in
// the braces of a glob. LLaMA-Factory's name of the key is understood.
func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{`add_special_tokens: <a>, <b>`, []string{"<a>", "<b>"}},
		{`add_special_tokens: "{,<x>,}"`, []string{"{", "<x>", "}"}},
		{`new_special_tokens: ["a,b", " "]`, []string{"a,b", " "}},
		{`new_special_tokens:`, nil},
	} {
		if got := mustParse(t, tt.text).NewSpecialTokens; !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{`add_tokens: [""]`, `t.yaml:1:14: add_tokens: wants text in its list, is ""`},
		{`add_tokens: 12`, "t.yaml:1:13: add_tokens: wants text or a list, is 12"},
		{`resize_vocab: 3`, "t.yaml:1:15: resize_vocab: wants true or false, is 3"},
		{`resize_vocab_to_multiple_of: 0`, "t.yaml:1:30: resize_vocab_to_multiple_of: wants at least 1, is 0"},
	} {
		if _, err := Parse("t.yaml", []byte(tt.text), Args{}); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.text, err, tt.want)
		}
	}
	if got := mustParse(t, `dataset: "{a,b}.txt,c"`).Dataset; !slices.Equal(got, []string{"{a,b}.txt", "c"}) {
		t.Errorf("files: %q", got)
	}
}
