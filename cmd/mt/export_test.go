package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

// tinyModel writes an untrained model directory of the smallest preset.
func tinyModel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "x.txt")
	testkit.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("a few words to learn. "), 50), 0o600))
	out := filepath.Join(dir, "out")
	code, _, stderr := mt(t, "", "train", "--model", "tiny", "--dataset", file, "--max-steps", "1", "--max-seq-len", "32", "--output-dir", out, "--cache-dir", dir)
	if code != exitDone {
		t.Fatal(stderr)
	}
	return out
}

func TestExport(t *testing.T) {
	model, dir := tinyModel(t), t.TempDir()
	file := filepath.Join(dir, "x.gguf")
	code, stdout, stderr := mt(t, "", "export", "--format", "gguf", "--model", model, "--out", file, "--outtype", "Q8_0")
	if code != exitDone || !strings.Contains(stdout, "architecture  llama") || !strings.Contains(stdout, "Q8_0") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if head, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(head, []byte("GGUF\x03\x00\x00\x00")) {
		t.Errorf("%.8q, %v", head, err)
	}
	other := filepath.Join(dir, "other.gguf") // with the flag names of other tools
	must(t, "export", "--format", "gguf", "--model_name_or_path", model, "--outfile", other, "--dtype", "q8_0")
	a, errA := os.ReadFile(file)
	b, errB := os.ReadFile(other)
	if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%d and %d bytes, %v", len(a), len(b), err)
	}
	code, _, stderr = mt(t, "", "export", "--format", "gguf", "--model", model, "--out", file)
	if code != exitFailed || !strings.Contains(stderr, "choose another name, or overwrite it with --overwrite") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	code, stdout, stderr = mt(t, "", "export", "--format", "safetensors", "--model", model, "--out", filepath.Join(dir, "b"), "--outtype", "fp32",
		"--max-shard-size", "50KB", "--json")
	var s struct {
		Files   []string
		Tensors int
	}
	if err := json.Unmarshal([]byte(stdout), &s); code != exitDone || err != nil || len(s.Files) < 2 || s.Tensors == 0 {
		t.Errorf("exit code %d, %v, %+v\n%s", code, err, s, stderr)
	}
}

func TestExportUsage(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"export": "export: no format: give --format gguf or --format safetensors (see mt export --help)",
		"export --format pickle --model " + dir + " --out x":                           "--format: must be gguf or safetensors, not pickle",
		"export --format gguf --out x":                                                 "export: no model: give --model DIR",
		"export --format gguf --model " + dir:                                          "export: no out: give --out PATH",
		"export --format gguf --model a/b --out x":                                     "--model: a/b: no such directory",
		"export --format gguf --model " + dir + " --out x --outtype q4":                "--outtype: must be one of [f32 f16 bf16 q8_0] with gguf, not q4",
		"export --format safetensors --model " + dir + " --out x --outtype f16":        "--outtype: must be one of [f32 bf16] with safetensors, not f16",
		"export --format safetensors --model " + dir + " --out x --max-shard-size big": "--max-shard-size: must be a size such as 5GB, not big",
	} {
		code, stdout, stderr := mt(t, "", strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("mt %s: exit code %d\n%s%s\nwant %s", args, code, stdout, stderr, want)
		}
	}
	code, _, stderr := mt(t, "", "export", "--format", "gguf", "--model", dir, "--out", filepath.Join(dir, "x.gguf"))
	if code != exitFailed || !strings.Contains(stderr, "no model.safetensors") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestExportLine(t *testing.T) {
	var w bytes.Buffer
	began := time.Unix(1000, 0)
	l := &exportLine{w: &w, live: true, began: began, now: func() time.Time { return began.Add(10 * time.Second) }}
	l.show(1<<30, 3<<30)
	if got := w.String(); !strings.Contains(got, "writing 1.0 GiB of 3.0 GiB, 102 MiB/s, 20s left") {
		t.Errorf("%q", got)
	}
	l.show(2<<30, 3<<30) // too soon for another update
	if strings.Contains(w.String(), "2.0 GiB") {
		t.Errorf("%q", w.String())
	}
	l.clear()
	if !strings.HasSuffix(w.String(), eraseLine) {
		t.Errorf("%q", w.String())
	}
}

// TestTransformersLoads runs checkpoint/testdata/roundtrip.py: Transformers loads the recorded models as mt writes
// them, computes the same results and gives the same greedy answers of 64 tokens. Without long tests it takes every
// other recording.
func TestTransformersLoads(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers", "tokenizers", "safetensors")
	t.Setenv(asCommand, "1")
	var dirs []string
	every := testkit.Every(t, 2)
	for i, dir := range testkit.Recordings(t) {
		if i%every == 0 {
			dirs = append(dirs, dir)
		}
	}
	out := testkit.RunPython(t, python, append([]string{"../../checkpoint/testdata/roundtrip.py", os.Args[0]}, dirs...)...)
	parts := map[string]int{}
	for line := range strings.Lines(string(out)) {
		words := strings.SplitN(line, " ", 4) // ok or failed, the recording, the part, figures
		if len(words) < 4 {
			t.Fatalf("roundtrip.py prints %q", line)
		}
		parts[words[1]]++
		t.Run(words[1]+"/"+words[2], func(t *testing.T) {
			if words[0] != "ok" {
				t.Error(words[3])
			}
		})
	}
	for _, dir := range dirs {
		if name := filepath.Base(dir); parts[name] != 3 {
			t.Errorf("%s: roundtrip.py checked %d parts, want 3", name, parts[name])
		}
	}
}

// TestExportIgnores: mt reports a flag that has no effect.
func TestExportIgnores(t *testing.T) {
	testkit.NotShort(t)
	code, _, stderr := mt(t, "", "export", "--format", "gguf", "--model", tinyModel(t), "--out", filepath.Join(t.TempDir(), "x.gguf"), "--max-shard-size", "1GB")
	if code != exitDone || !strings.Contains(stderr, "note: --max-shard-size has no effect with gguf") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}
