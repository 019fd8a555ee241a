package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLoadVocab: the tables of a directory fill the first rows of larger ones and
// touch nothing behind them, every other tensor is read as by LoadModel.
func TestLoadVocab(t *testing.T) {
	value := func(i int64) []byte { return binary.LittleEndian.AppendUint32(nil, 0x3f800000+uint32(i)) }
	for _, tied := range []bool{false, true} {
		for _, bf16 := range []bool{false, true} {
			t.Run(fmt.Sprint(tied, bf16), func(t *testing.T) {
				c := config(t, map[string]any{"tie_word_embeddings": tied})
				dir := fakeModel(t, c, "F32", value, func(m map[string]*fakeTensor) {
					if tied { // stored all the same
						head := *m["model.embed_tokens.weight"]
						m["lm_head.weight"] = &head
					}
				})
				small, big := newLayers(c, bf16), newLayers(c.Resized(50), bf16)
				if _, err := loadWhole(dir, small, nil); err != nil {
					t.Fatal(err)
				}
				if _, err := LoadModel(dir, big, 37, nil); err != nil {
					t.Fatal(err)
				}
				want := values(small)
				for name, got := range values(big) {
					if w := want[name]; !slices.Equal(got[:len(w)], w) || slices.ContainsFunc(got[len(w):], func(bits uint32) bool { return bits != 0 }) {
						t.Errorf("%s is not what the directory has, with zeros behind it", name)
					}
				}
				for _, tokens := range []int{36, 38} {
					if _, err := LoadModel(dir, big, tokens, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("config.json asks for [%d 14]", tokens)) {
						t.Errorf("%d tokens: %v", tokens, err)
					}
				}
				if _, err := loadWhole(dir, big, nil); err == nil || !strings.Contains(err.Error(), "config.json asks for [50 14]") {
					t.Errorf("without a word on the vocabulary: %v", err)
				}
			})
		}
	}
}
