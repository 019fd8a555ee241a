package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestForeign: if a directory does not hold a model, Foreign says what it does hold and what to do.
func TestForeign(t *testing.T) {
	for want, all := range map[string]map[string]string{
		"a LoRA adapter of org/base (adapter_config.json)":         {"adapter_config.json": `{"base_model_name_or_path": "org/base", "lora_alpha": NaN}`, "adapter_model.safetensors": ""},
		"a LoRA adapter of another model":                          {"adapter_config.json": "{"},
		"an adapter (adapter_model.bin)":                           {"adapter_model.bin": ""},
		"some-q4.gguf is a GGUF file":                              {"some-q4.gguf": ""},
		"params.json, which is how Mistral and Meta":               {"params.json": "{}", "consolidated.00.pth": ""},
		"consolidated.safetensors, the weights by Mistral's own":   {"consolidated.safetensors": ""},
		"pickled weights (pytorch_model-00001-of-00002.bin)":       {"pytorch_model-00001-of-00002.bin": ""},
		"MODEL.Q8.GGUF is a GGUF file":                             {"MODEL.Q8.GGUF": ""},
		"pickled weights (consolidated.00.pth)":                    {"consolidated.00.pth": ""},
		"pickled weights (last.ckpt)":                              {"last.ckpt": "", "optimizer.pt": ""},
		"tf_model.h5, weights of another program":                  {"tf_model.h5": ""},
		"a[b]*/inner: give that directory":                         {"inner/config.json": "{}", "optimizer.pt": ""},
		"a[b]*/snapshots/12ab: give that directory":                {"snapshots/12ab/config.json": "{}", "refs/main": "12ab"},
		"a[b]*/checkpoint-5 and 1 more directories":                {"checkpoint-5/config.json": "{}", "checkpoint-6/config.json": "{}"},
		"config.json: no such file; a model directory holds confi": {"README.md": ""},
	} {
		dir := filepath.Join(t.TempDir(), "a[b]*")
		testkit.NoError(t, os.Mkdir(dir, 0o700))
		for name, text := range all {
			testkit.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		if _, err := LoadDir(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", all, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "x.GGUF")
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	if got := Foreign(file); !strings.HasPrefix(got, "x.GGUF is a GGUF file") {
		t.Error(got)
	}
	if got := Foreign(filepath.Join(file, "not there")); got != "" {
		t.Error(got)
	}
}
