package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"mt/internal/long"
)

// shape is a tokenizer of testdata/shapes.json, with what PyPI `tokenizers`
// made of some strings.
type shape struct {
	Name      string
	Tokenizer map[string]any
	Cases     []struct {
		recorded
		Starts []int
	}
}

// readShapes calls f for each shape of a file that testdata/make.py wrote, with
// its tokenizer.json.
func readShapes(t testing.TB, name string, f func(s *shape, text []byte)) {
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var head struct{ Models map[string]map[string]any }
	lines := json.NewDecoder(bufio.NewReader(file))
	if err := lines.Decode(&head); err != nil {
		t.Fatal(err)
	}
	for lines.More() {
		s := &shape{}
		if err := lines.Decode(s); err != nil {
			t.Fatal(err)
		}
		model := s.Tokenizer["model"].(map[string]any)
		whole := map[string]any{}
		for k, v := range head.Models[model["name"].(string)] {
			whole[k] = v
		}
		for k, v := range model["change"].(map[string]any) {
			whole[k] = v
		}
		s.Tokenizer["model"] = whole
		text, err := json.Marshal(s.Tokenizer)
		if err != nil {
			t.Fatal(err)
		}
		f(s, text)
	}
}

// TestShapes compares ids, offsets and decoded text with those recorded. With
// MT_SHAPES it reads another file than the committed one, such as
// testdata/differences.py makes.
func TestShapes(t *testing.T) {
	long.NotShort(t)
	name := os.Getenv("MT_SHAPES")
	if name == "" {
		name = "testdata/shapes.json"
	}
	readShapes(t, name, func(s *shape, text []byte) {
		t.Run(s.Name, func(t *testing.T) {
			tok, err := parse(text)
			if err != nil {
				t.Fatal(err)
			}
			bad := 0
			for _, c := range s.Cases {
				ok := c.check(t, tok)
				ids, starts, err := tok.EncodeSpans(nil, nil, []byte(c.Text))
				if err != nil || !slices.Equal(starts, c.Starts) {
					t.Errorf("%q: ids %d start at %d, want %d", c.Text, ids, starts, c.Starts)
					ok = false
				}
				if !ok {
					if bad++; bad == 10 {
						return
					}
				}
			}
		})
	})
}
