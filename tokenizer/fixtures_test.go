package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// recorded is one string and what PyPI `tokenizers` made of it.
type recorded struct {
	Text         string
	IDs          []int32 // with special tokens around
	IDsPlain     []int32 `json:"ids_plain"`
	Decoded      string  // of IDsPlain
	DecodedClean string  `json:"decoded_clean"` // without special tokens
}

// check compares tok with c and tells whether they agree.
func (c *recorded) check(t *testing.T, tok Tokenizer) bool {
	ids, err := tok.Encode(nil, []byte(c.Text))
	if err != nil {
		t.Errorf("%q: %v", c.Text, err)
		return false
	}
	ok := true
	fail := func(what string, got, want any) {
		t.Errorf("%q: %s: %v, want %v", c.Text, what, got, want)
		ok = false
	}
	if !slices.Equal(ids, c.IDsPlain) {
		fail("ids", ids, c.IDsPlain)
	}
	if all := tok.AddSpecial(ids); !slices.Equal(all, c.IDs) {
		fail("with special tokens", all, c.IDs)
	}
	if got := string(tok.DecodeSpecial(c.IDsPlain)); got != c.Decoded {
		fail("decoded", got, c.Decoded)
	}
	if got := string(tok.Decode(c.IDsPlain)); got != c.DecodedClean {
		fail("decoded without special tokens", got, c.DecodedClean)
	}
	spans, starts, err := tok.EncodeSpans([]int32{7}, []int{9}, []byte(c.Text))
	switch {
	case err != nil || !slices.Equal(spans[1:], ids) || len(starts) != len(spans):
		fail("EncodeSpans", spans, ids)
	case !slices.IsSorted(starts[1:]) || len(ids) > 0 && (starts[1] < 0 || starts[len(starts)-1] >= len(c.Text)):
		fail("starts", starts[1:], "rising within the text")
	}
	return ok
}

// TestFixtures compares every recorded string of every shape of tokenizer.
// With MT_TOKENIZERS it reads another folder than the shared one, such as
// testdata/differences.py makes.
func TestFixtures(t *testing.T) {
	root := os.Getenv("MT_TOKENIZERS")
	if root == "" {
		root = "../../shared/fixtures/tokenizers"
	}
	names, err := filepath.Glob(filepath.Join(root, "*", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skip("no ../shared/fixtures/tokenizers beside the repository")
	}
	for _, name := range names {
		dir := filepath.Dir(name)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, err := Load(dir, 256)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			n, bad := 0, 0
			for lines := json.NewDecoder(bufio.NewReader(f)); lines.More() && bad < 10; n++ {
				var c recorded
				if err := lines.Decode(&c); err != nil {
					t.Fatal(err)
				}
				if !c.check(t, tok) {
					bad++
				}
			}
			t.Logf("%d strings", n)
		})
	}
}
