package run

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/generate"
	"mt/internal/run/open"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestGeneratingKeepsNoLowerHalves: generating a text with bf16 weights keeps only the high halves
// of fp32 weights, two bytes per parameter. It also keeps lower halves if rows of added tokens
// begin at the mean of other rows, because the mean needs fp32.
func TestGeneratingKeepsNoLowerHalves(t *testing.T) {
	withTokens, base := tokenScene(t, "")
	for want, scene := range map[bool]scene{false: newScene(t, "model: "+base+"\n"), true: withTokens} {
		s, err := generate.Load(&generate.TextOptions{Config: scene.with("compute_dtype: bf16\n").config(t), Options: settings.Options{Stdout: io.Discard, Stderr: io.Discard}}, nil)
		testkit.NoError(t, err)
		kept := 0
		for _, l := range s.Store.Layers {
			kept += len(l.Lo)
		}
		if kept > 0 != want {
			t.Errorf("new tokens %t: %d lower halves are kept", want, kept)
		}
		if open.CloseAfter(s, &err); err != nil {
			t.Error(err)
		}
	}
}

// TestNotesBeforeText: a note names each setting of a model's generation_config.json that mt does
// not support. The note comes before the weights are read.
func TestNotesBeforeText(t *testing.T) {
	_, base := tokenScene(t, "")
	write(t, filepath.Join(base, "generation_config.json"), `{"no_repeat_ngram_size": 3}`)
	var log bytes.Buffer
	s, err := generate.Load(&generate.TextOptions{Config: newScene(t, "model: "+base+"\n").config(t), Options: settings.Options{Stdout: io.Discard, Stderr: &log}}, nil)
	if open.CloseAfter(s, &err); err != nil || !strings.Contains(log.String(), "asks for no_repeat_ngram_size 3, which mt generate does not have") {
		t.Errorf("%v\n%s", err, log.String())
	}
}
