package run

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestUnreadableCheckpoint: an I/O error while reading a checkpoint ends the run with this error.
// The checkpoint counts as unknown and not as damaged, so nothing is removed or cut from the
// metrics.
func TestUnreadableCheckpoint(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const unreadable = "/proc/self/mem" // a file of which the first byte is an I/O error
	if _, err := os.ReadFile(unreadable); !errors.Is(err, syscall.EIO) {
		t.Skipf("no file that cannot be read: %v", err)
	}
	s := newScene(t, "save_steps: 3\n")
	s.mustTrain(t)
	got := s.in(t)
	for _, step := range []int{3, 6} {
		copyTree(t, filepath.Join(s.out, settings.CheckpointName(step)), filepath.Join(got.out, settings.CheckpointName(step)))
	}
	copyMetrics(t, s, got)
	manifest := filepath.Join(got.out, settings.CheckpointName(6), "manifest.json")
	kept := filepath.Join(got.root, "manifest.json")
	move(t, manifest, kept)
	testkit.NoError(t, os.Symlink(unreadable, manifest))
	before, _ := os.ReadFile(filepath.Join(got.out, settings.MetricsFile))
	for _, resume := range []string{"auto", filepath.Join(got.out, settings.CheckpointName(6))} {
		_, err := got.with("resume_from_checkpoint: "+resume+"\n").train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("memory is taken") }})
		checkError(t, err, false, "checkpoint-6", "input/output error")
	}
	if after, _ := os.ReadFile(filepath.Join(got.out, settings.MetricsFile)); string(after) != string(before) {
		t.Error("metrics.jsonl has changed")
	}
	remove(t, manifest)
	move(t, kept, manifest) // the disk is well again
	if out := got.mustTrain(t); !strings.Contains(out, "resuming from "+filepath.Dir(manifest)) {
		t.Errorf("it does not go on from step 6:\n%s", out)
	}
	sameRun(t, got, s)
}

// TestCheckpointThatDoesNotLoad: a checkpoint with correct checksums that does not fit the model is
// skipped like a damaged one. If it is the only checkpoint, or the config names it, the run ends
// with an error.
func TestCheckpointThatDoesNotLoad(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 3\n")
	s.mustTrain(t)
	got := s.in(t)
	for _, step := range []int{3, 6} {
		copyTree(t, filepath.Join(s.out, settings.CheckpointName(step)), filepath.Join(got.out, settings.CheckpointName(step)))
	}
	copyMetrics(t, s, got)
	newest := filepath.Join(got.out, settings.CheckpointName(6))
	swapLayers(t, newest)
	only := got.in(t)
	copyTree(t, newest, filepath.Join(only.out, settings.CheckpointName(6)))

	_, err := got.with("resume_from_checkpoint: "+newest+"\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, false, "resume from "+newest, "belongs to no parameter of the layer")
	out := got.mustTrain(t)
	for _, says := range []string{"note: checkpoint " + newest + " is skipped: ", "belongs to no parameter of the layer", "resuming from " + filepath.Join(got.out, settings.CheckpointName(3))} {
		if strings.Count(out, says) != 1 {
			t.Errorf("the run does not say once %q:\n%s", says, out)
		}
	}
	sameRun(t, got, s)

	_, err = only.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml: resume_from_checkpoint: no checkpoint in "+only.out+" is valid: ", "belongs to no parameter", "resume_from_checkpoint: false")
}

// swapLayers replaces the optimizer file of layer 1 by that of layer 2. It writes a manifest of
// version 1 with matching checksums; such manifests have no checksum of their own.
func swapLayers(t *testing.T, dir string) {
	t.Helper()
	file := func(layer string) string { return "optimizer/layer-0000" + layer + ".safetensors" }
	raw, err := os.ReadFile(filepath.Join(dir, file("2")))
	testkit.NoError(t, err)
	write(t, filepath.Join(dir, file("1")), string(raw))
	raw, err = os.ReadFile(filepath.Join(dir, "manifest.json"))
	testkit.NoError(t, err)
	var m map[string]any
	testkit.NoError(t, json.Unmarshal(raw, &m))
	m["version"] = 1
	delete(m, "crc32c")
	records := map[string]map[string]any{}
	for _, f := range m["files"].([]any) {
		record := f.(map[string]any)
		records[record["name"].(string)] = record
	}
	one, two := records[file("1")], records[file("2")]
	one["bytes"], one["regions"] = two["bytes"], two["regions"]
	if raw, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest.json"), string(raw))
}

// TestFinishedRunThatCannotBeRead: if the file that marks a run as finished cannot be read, the run
// does not start anew and overwrite the model.
func TestFinishedRunThatCannotBeRead(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	const unreadable = "/proc/self/mem" // a file of which the first byte is an I/O error
	if _, err := os.ReadFile(unreadable); !errors.Is(err, syscall.EIO) {
		t.Skipf("no file that cannot be read: %v", err)
	}
	s := newScene(t, "keep_checkpoints: false\n")
	s.mustTrain(t)
	remove(t, filepath.Join(s.out, settings.EndFile))
	testkit.NoError(t, os.Symlink(unreadable, filepath.Join(s.out, settings.EndFile)))
	_, err := s.train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("memory is taken") }})
	checkError(t, err, true, "run.yaml", "look for a finished run", settings.EndFile, "input/output error")
}
