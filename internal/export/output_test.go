package export

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
)

// TestNothingIsLeft: a directory that was not there before a copy that failed is
// not there after it, whichever operation failed.
func TestNothingIsLeft(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), nil)
	parent := t.TempDir()
	o := Options{Format: Safetensors, Model: dir, Out: filepath.Join(parent, "a", "b"), MaxShardBytes: 9000}
	broken := errors.New("broken")
	failures := 0
	for at := 0; ; at++ {
		o.fs = &failing{FS: checkpoint.OS(), at: at, err: broken}
		_, err := Run(t.Context(), o)
		if err == nil {
			break
		}
		failures++
		if left := listDir(t, parent); !errors.Is(err, broken) || len(left) != 0 {
			t.Fatalf("operation %d: %v, and %v is left", at, err, left)
		}
	}
	if failures < 10 { // free space, four files created, written, synced, renamed
		t.Errorf("only %d operations can fail", failures)
	}
	if got := listDir(t, o.Out); !slices.Contains(got, "config.json") {
		t.Errorf("%v is there", got)
	}
}

// TestStopInTensor: the user does not wait for the end of a large tensor.
func TestStopInTensor(t *testing.T) {
	tensors := llamaTensors()
	tensors["vision_tower.x.weight"] = shape{3 << 20} // three pieces
	dir, out := makeModel(t, llamaConfig(nil), tensors, nil), t.TempDir()
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var done, total int64
	_, err := Run(ctx, Options{Format: Safetensors, Model: dir, Out: filepath.Join(out, "x"), Progress: func(a, b int64) {
		if done, total = a, b; a > 1<<20 {
			cancel(stop)
		}
	}})
	if !errors.Is(err, stop) || done >= total || done > 6<<20 || len(listDir(t, out)) != 0 {
		t.Errorf("%v after %d of %d bytes; %v is left", err, done, total, listDir(t, out))
	}
}

// TestOverwriteDirectory: what goes with an older model goes with it, and what a
// killed copy left; the user's own files stay.
func TestOverwriteDirectory(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"tokenizer.json": "{}"})
	out := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"chat_template.jinja": "old", "tokenizer.json": "old", "mine.txt": "mine"})
	if err := os.Mkdir(filepath.Join(out, "model.tmp-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Format: Safetensors, Model: dir, Out: out, Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if got := listDir(t, out); !slices.Equal(got, []string{"config.json", "mine.txt", "model.safetensors", "tokenizer.json"}) {
		t.Errorf("%v is there", got)
	}
	if text, err := os.ReadFile(filepath.Join(out, "tokenizer.json")); string(text) != "{}" {
		t.Errorf("tokenizer.json is %s, %v", text, err)
	}
}

// TestOwnFiles: the model's own files are not overwritten.
func TestOwnFiles(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), nil)
	o := Options{Format: GGUF, Model: dir, Out: filepath.Join(dir, "model.safetensors"), Overwrite: true}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is a file of the model; choose another name") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		o.Out = filepath.Join(dir, "x.GGUF")
		if _, err := Run(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// TestDevices: what is no file stays, whatever was asked for.
func TestDevices(t *testing.T) {
	dir, out := makeModel(t, llamaConfig(nil), llamaTensors(), nil), filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", out)
	if err != nil {
		t.Skipf("no socket to try it on: %v", err)
	}
	defer l.Close()
	for _, f := range []Format{GGUF, Safetensors} {
		_, err := Run(t.Context(), Options{Format: f, Model: dir, Out: out, Overwrite: true})
		if err == nil || !strings.Contains(err.Error(), out+" is a device, a pipe or a socket") {
			t.Errorf("%s: got %v", f, err)
		}
	}
	if st, err := os.Stat(out); err != nil || st.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", st, err)
	}
}

// TestPointers: Git LFS pointers in place of the small files.
func TestPointers(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
	plain := map[string]string{"tokenizer.json": `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true}}`}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"} {
		files := map[string]string{"tokenizer.json": plain["tokenizer.json"]}
		files[name] = pointer
		dir := makeModel(t, llamaConfig(nil), llamaTensors(), files)
		for _, f := range []Format{GGUF, Safetensors} {
			_, err := Run(t.Context(), Options{Format: f, Model: dir, Out: filepath.Join(t.TempDir(), "x")})
			if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)+": this is a Git LFS pointer") {
				t.Errorf("%s, %s: got %v", f, name, err)
			}
		}
	}
	if _, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, llamaConfig(nil), llamaTensors(), plain), Out: filepath.Join(t.TempDir(), "x")}); err != nil {
		t.Error(err)
	}
}

func TestModelName(t *testing.T) {
	for dir, want := range map[string]string{
		"/a/b/chat": "chat",
		"/x/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2": "Qwen3-0.6B",
		"/x/hub/models--gpt2/snapshots/607a30d7":             "gpt2",
	} {
		if got := modelName(filepath.FromSlash(dir)); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}
