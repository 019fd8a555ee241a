package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"mt/tokenizer"
)

// TestPairsOfTRL compares tokens and masks with those of TRL's DPOTrainer, which testdata/pairs.py recorded.
func TestPairsOfTRL(t *testing.T) {
	content, err := os.ReadFile("testdata/pairs.json")
	if err != nil {
		t.Fatal(err)
	}
	type side struct{ IDs, Mask []int32 }
	var recorded struct {
		Tokenizers map[string]map[string]string
		Cases      []struct {
			Name, Tokenizer string
			MaxLength       int `json:"max_length"`
			Rows            []json.RawMessage
			Want            []struct{ Chosen, Rejected side }
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil || len(recorded.Cases) < 17 {
		t.Fatalf("%d cases, %v", len(recorded.Cases), err)
	}
	dir := t.TempDir()
	for name, files := range recorded.Tokenizers {
		for file, text := range files {
			write(t, filepath.Join(dir, name), file, text)
		}
	}
	for i, c := range recorded.Cases {
		lines := ""
		for _, row := range c.Rows {
			lines += string(row) + "\n"
		}
		s := pairSpec(t, small, write(t, dir, "rows.jsonl", lines))
		s.Template, s.ModelDir = "", filepath.Join(dir, c.Tokenizer)
		if s.MaxSeqLen = c.MaxLength; s.MaxSeqLen == 0 {
			s.MaxSeqLen = 4096
		}
		if s.Tokenizer, err = tokenizer.Load(s.ModelDir, 1<<20); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, s)
		if d.Rows() != len(c.Want) || int(d.Stats().Dropped) != len(c.Rows)-len(c.Want) {
			t.Errorf("case %d, %s: %d rows, want %d; %d dropped", i, c.Name, d.Rows(), len(c.Want), d.Stats().Dropped)
			continue
		}
		for k, want := range c.Want {
			r := d.Row(k)
			first := 0
			for j, w := range []side{want.Chosen, want.Rejected} {
				n := int(r.Docs[j])
				got := side{r.IDs[first : first+n], make([]int32, n)}
				for x, l := range r.Labels[first : first+n] {
					if l == r.IDs[first+x] {
						got.Mask[x] = 1
					}
				}
				if !reflect.DeepEqual(got, w) {
					t.Errorf("case %d, %s, row %d, document %d:\n%q\n%v, want\n%q\n%v", i, c.Name, k, j, s.Tokenizer.DecodeSpecial(got.IDs), got, s.Tokenizer.DecodeSpecial(w.IDs), w)
				}
				first += n
			}
		}
	}
}
