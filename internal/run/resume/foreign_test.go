package resume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestNoCheckpoint: if resume_from_checkpoint names a directory that is no checkpoint of mt, the
// error says what it is: an unfinished save, another trainer's checkpoint, and so on.
func TestNoCheckpoint(t *testing.T) {
	for want, all := range map[string]map[string]string{
		"is a checkpoint of another trainer, such as Transformers'":                                                                      {"checkpoint-5/trainer_state.json": `{"global_step": 5, "log_history": [{"loss": NaN}]}`, "checkpoint-5/config.json": "{}"},
		"is a checkpoint of another trainer, such as Transformers', whose optimizer's state is not read: to train from its weights save": {"checkpoint-5/pytorch_model_fsdp_0/.metadata": "", "checkpoint-5/optimizer_0/x": ""},
		"is a checkpoint of another trainer, such as Transformers', whose optimizer's state is not read: it holds a LoRA adapter":        {"checkpoint-5/adapter_config.json": "{}", "checkpoint-5/trainer_state.json": `{"log_history": []}`},
		"is a checkpoint of another trainer, such as Transformers', whose optimizer's state is not read: to train from its weights set":  {"checkpoint-5/rng_state_0.pth": "", "checkpoint-5/config.json": "{}", "checkpoint-5/model.safetensors": ""},
		"is an output_dir, whose newest checkpoint ":                                                                                     {"checkpoint-5/checkpoint-7/trainer_state.json": `{"global_step": 7, "log_history": []}`},
		"is a run's output_dir, in which no checkpoint is left: to train from its weights set":                                           {"checkpoint-5/metrics.jsonl": "", "checkpoint-5/trainer_state.json": `{"global_step": 5}`, "checkpoint-5/config.json": "{}"},
		"holds no checkpoint of a run":                             {"checkpoint-5/notes.txt": ""},
		"is a model and no checkpoint of a run: to train from its": {"checkpoint-5/config.json": "{}", "checkpoint-5/model.safetensors": ""},
		"is no checkpoint: it holds a LoRA adapter":                {"checkpoint-5/adapter_config.json": "{}"},
		"is a file; give a directory":                              {"checkpoint-5": ""},
	} {
		dir := t.TempDir()
		for name, text := range all {
			testkit.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			put(t, filepath.Join(dir, name), text)
		}
		if got := noCheckpoint(filepath.Join(dir, "checkpoint-5")); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", all, got, want)
		}
	}
	ours := t.TempDir()
	put(t, filepath.Join(ours, "trainer_state.json"), `{"global_step": 5, "adam_step": 5}`)
	put(t, filepath.Join(ours, "config.json"), "{}")
	if got := noCheckpoint(ours); got != "" { // its manifest is missing: the save was not finished
		t.Error(got)
	}
	if got := noCheckpoint(filepath.Join(ours, "not there")); got != "" {
		t.Error(got)
	}
}

// put writes a file and the directories above it.
func put(t *testing.T, name, content string) {
	t.Helper()
	testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)))
}
