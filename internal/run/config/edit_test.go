package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestEdit: Edit writes the settings, and all other bytes of the file stay.
func TestEdit(t *testing.T) {
	slots, buffers, threads := Setting{"pipeline.weight_slots", 4}, Setting{"pipeline.grad_buffers", 2}, Setting{"threads", 3}
	for _, tc := range []struct {
		name, src, want string
		settings        []Setting
	}{
		{"none yet", "model: tiny # a preset\n\n# the end\n", "model: tiny # a preset\n\n# the end\npipeline:\n  weight_slots: 4\n  grad_buffers: 2\n", []Setting{slots, buffers}},
		{"no last newline", "model: tiny", "model: tiny\npipeline:\n  weight_slots: 4", []Setting{slots}},
		{"empty", "", "threads: 3\n", []Setting{threads}},
		{"comments alone", "# nothing\n", "# nothing\nthreads: 3\n", []Setting{threads}},
		{"there", "pipeline:\n  # why\n  weight_slots:   auto   # was 2\n\nseed: 1\n", "pipeline:\n  # why\n  weight_slots:   4   # was 2\n\nseed: 1\n", []Setting{slots}},
		{"quoted", "pipeline:\n  weight_slots: \"auto\" # c\n", "pipeline:\n  weight_slots: 4 # c\n", []Setting{slots}},
		{"beside", "pipeline:\n    # why\n    weight_slots: 2 # c\n    # below\nseed: 1\n", "pipeline:\n    # why\n    weight_slots: 2 # c\n    grad_buffers: 2\n    # below\nseed: 1\n", []Setting{buffers}},
		{"beside, at the end", "seed: 1\npipeline:\n  weight_slots: 2", "seed: 1\npipeline:\n  weight_slots: 4\n  grad_buffers: 2", []Setting{slots, buffers}},
		{"flow", "pipeline: {weight_slots: 2, activation_slots: auto } # c\nseed: 1\n", "pipeline: {weight_slots: 4, activation_slots: auto, grad_buffers: 2 } # c\nseed: 1\n", []Setting{slots, buffers}},
		{"flow over lines", "pipeline: {\n  weight_slots: 2, # c\n  batches_ahead: 3\n}\n", "pipeline: {\n  weight_slots: 2, # c\n  batches_ahead: 3, grad_buffers: 2\n}\n", []Setting{buffers}},
		{"empty flow", "pipeline: {}\n", "pipeline: {weight_slots: 4, grad_buffers: 2}\n", []Setting{slots, buffers}},
		{"left empty", "pipeline: # later\nseed: 1\n", "pipeline: # later\n  weight_slots: 4\n  grad_buffers: 2\nseed: 1\n", []Setting{slots, buffers}},
		{"null", "pipeline: null # later\n", "pipeline: {weight_slots: 4, grad_buffers: 2} # later\n", []Setting{slots, buffers}},
		{"json", "{\"model\": \"tiny\", \"pipeline\": {\"weight_slots\": 1}}", "{\"model\": \"tiny\", \"pipeline\": {\"weight_slots\": 4, grad_buffers: 2}, threads: 3}", []Setting{slots, buffers, threads}},
		{"json without it", "{\"model\": \"tiny\", \"dataset\": [\"a\"]}\n", "{\"model\": \"tiny\", \"dataset\": [\"a\"], pipeline: {weight_slots: 4}}\n", []Setting{slots}},
		{"dotted", "pipeline.weight_slots: 1\n", "pipeline.weight_slots: 4\n", []Setting{slots}},
		{"letters", "sample_prompt: \"für ü\" # ééé\npipeline: {weight_slots: 2} # ü\n", "sample_prompt: \"für ü\" # ééé\npipeline: {weight_slots: 4} # ü\n", []Setting{slots}},
		{"Windows", "seed: 1 # c\r\npipeline:\r\n  weight_slots: 2 # d\r\nthreads: 2\r\n", "seed: 1 # c\r\npipeline:\r\n  weight_slots: 4 # d\r\n  grad_buffers: 2\r\nthreads: 3\r\n", []Setting{slots, buffers, threads}},
		{"a mark in front", "\xef\xbb\xbfthreads: 1\n", "\xef\xbb\xbfthreads: 3\n", []Setting{threads}},
		{"a text behind", "threads: 1\nsample_prompt: |\n  func\n  x\n", "threads: 1\nsample_prompt: |\n  func\n  x\npipeline:\n  weight_slots: 4\n", []Setting{slots}},
		{"the same", "threads: 3 # c\n", "threads: 3 # c\n", []Setting{threads}},
	} {
		got, err := Edit("t.yaml", []byte(tc.src), tc.settings)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %v\n%q, want\n%q", tc.name, err, got, tc.want)
		}
	}
}

// TestEditRefuses: a file that cannot be edited gives an error with the text to write by hand, never a wrong file.
func TestEditRefuses(t *testing.T) {
	for name, src := range map[string]string{
		"an end in the text": "seed: 1\n...\n", "mixed ends": "seed: 1\r\nthreads: 2\nsample_prompt: \"a\"\n...\n",
		"a value on its own": "pipeline:\n  weight_slots:\n  batches_ahead: 2\n",
	} {
		got, err := Edit("t.yaml", []byte(src), []Setting{{"pipeline.weight_slots", 4}})
		if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), "t.yaml cannot be edited (") || !strings.HasSuffix(err.Error(), "add these settings by hand: pipeline: {weight_slots: 4}") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Edit("t.yaml", []byte("seed: x\n"), nil); err == nil || !IsUsage(err) {
		t.Errorf("a file with a mistake: %v", err)
	}
	if err := checkEdit(Default(), "t.yaml", "seed: 7\nthreads: 3\n", []Setting{{"threads", 3}}); err == nil || err.Error() != "seed would be 7, not 42" {
		t.Errorf("another key: %v", err)
	}
	if err := checkEdit(Default(), "t.yaml", "threads: 2\n", []Setting{{"threads", 3}}); err == nil || err.Error() != "threads would be 2, not 3" {
		t.Errorf("another value: %v", err)
	}
}

// TestPlaces: editor.offset finds the byte offset of a line and column counted in characters, and
// returns −1 for a place behind the text.
func TestPlaces(t *testing.T) {
	e := &editor{text: "é: 1\nab"}
	for at, want := range map[[2]int]int{{1, 1}: 0, {1, 2}: 2, {2, 1}: 6, {2, 2}: 7, {2, 3}: 8, {2, 4}: -1, {3, 1}: -1} {
		if got := e.offset(at[0], at[1]); got != want {
			t.Errorf("line %d, column %d: byte %d, want %d", at[0], at[1], got, want)
		}
	}
}

func TestEditable(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "link.yaml")
	testkit.NoError(t, os.WriteFile(file, []byte("threads: 1\n"), 0o600))
	testkit.NoError(t, os.Symlink("run.yaml", link))
	if src, err := Editable(link); err != nil || string(src) != "threads: 1\n" {
		t.Fatalf("%q, %v", src, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, bad := range []string{"", dir, filepath.Join(dir, "none.yaml"), "/dev/null"} {
		if _, err := Editable(bad); !IsUsage(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
