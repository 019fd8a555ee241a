package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestSplits: mt train and mt eval train on a folder's train split and evaluate on its held-out split.
func TestSplits(t *testing.T) {
	testkit.NotShort(t)
	dir := t.TempDir()
	for _, name := range []string{"train", "test"} {
		text := strings.Repeat("{\"text\": \"a row of "+name+" says little\"}\n", 20)
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(text), 0o600))
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "table.csv"), []byte("question,answer\n2+2?,4\n"), 0o600))
	out, args := smallRun(t, "--dataset", dir, "--eval-dataset", dir, "--max_steps=1", "--report-to", "none", "--device", "cpu")
	for i, a := range args {
		if a == "--dataset" && args[i+1] != dir {
			args = append(args[:i:i], args[i+2:]...)
			break
		}
	}
	code, _, stderr := mt(t, "", args...)
	train := "note: " + dir + ": train is read (1 file); not test (1 file): eval_dataset takes test of the same directory; 1 other file(s) are not read\n"
	held := "note: " + dir + ": test is read (1 file); not train (1 file); 1 other file(s) are not read\n"
	if code != exitDone || !strings.Contains(stderr, train) || !strings.Contains(stderr, held) {
		t.Errorf("exit code %d, said\n%s", code, stderr)
	}
	cache := t.TempDir()
	code, _, stderr = mt(t, "", "eval", "--model", out, "--dataset", dir, "--max-seq-len", "32", "--cache-dir", cache, "--device", "cpu")
	if code != exitDone || !strings.Contains(stderr, held) || strings.Contains(stderr, train) {
		t.Errorf("eval: exit code %d, said\n%s", code, stderr)
	}
	code, stdout, stderr := mt(t, "", "data", "inspect", "--dataset", filepath.Join(dir, "table.csv"), "--prompt-column", "question", "--response-column", "answer", "--cache-dir", cache)
	if code != exitDone || !strings.Contains(stdout, "1 (prompt_completion)") {
		t.Errorf("inspect: exit code %d\n%s%s", code, stdout, stderr)
	}
	code, _, stderr = mt(t, "", "data", "inspect", "--dataset", filepath.Join(dir, "table.csv"), "--cache-dir", cache)
	if code != exitFailed || !strings.Contains(stderr, "prompt_column and response_column") {
		t.Errorf("inspect without the names: exit code %d\n%s", code, stderr)
	}
}
