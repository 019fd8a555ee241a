package train

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/model"
	"mt/tokenizer"
)

// TestStops: a text ends at every token that the tokenizer, config.json and
// generation_config.json name, and a file that says it in no way that is known is
// an error.
func TestStops(t *testing.T) {
	for content, want := range map[string]any{
		"":                          []int32{0, 7},
		`{"temperature": 1}`:        []int32{0, 7},
		`{"eos_token_id": null}`:    []int32{0, 7},
		`{"eos_token_id": 9}`:       []int32{0, 7, 9},
		`{"eos_token_id": [9, 11]}`: []int32{0, 7, 9, 11},
		`{"eos_token_id": "end"}`:   `eos_token_id is "end"; it is a token's number`,
		`{"eos_token_id"`:           "unexpected end",
		"version https://git-lfs.github.com/spec/v1\n": "this is a Git LFS pointer",
	} {
		j := &job{tok: tokenizer.Bytes(), model: &model.Config{EOS: []int{7}}, modelDir: t.TempDir()}
		if content != "" {
			write(t, filepath.Join(j.modelDir, "generation_config.json"), content)
		}
		got, err := j.stops()
		if ids, ok := want.([]int32); ok {
			if err != nil || !slices.Equal(slices.Compact(got), ids) {
				t.Errorf("%s: %v, %v, want %v", content, got, err, want)
			}
		} else if err == nil || !strings.Contains(err.Error(), want.(string)) || !strings.Contains(err.Error(), "generation_config.json") {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}

// TestGeneratingKeepsNoLowerHalves: of weights that stream in bf16 a text needs the upper halves, two bytes a parameter, and the lower
// ones where new tokens begin at the mean of others.
func TestGeneratingKeepsNoLowerHalves(t *testing.T) {
	withTokens, base := tokenScene(t, "")
	for want, scene := range map[bool]scene{false: newScene(t, "model: "+base+"\n"), true: withTokens} {
		s := &session{job: &job{c: scene.with("compute_dtype: bf16\n").config(t)}, o: Options{Stdout: io.Discard, Stderr: io.Discard}}
		err := s.openToGenerate(nil)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, l := range s.store.Layers {
			kept += len(l.Lo)
		}
		if kept > 0 != want {
			t.Errorf("new tokens %t: %d lower halves are kept", want, kept)
		}
		if s.closeAfter(&err); err != nil {
			t.Error(err)
		}
	}
}
