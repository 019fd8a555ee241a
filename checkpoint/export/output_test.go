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
	"mt/checkpoint/powercut"
	"mt/internal/testkit"
)

// TestNothingIsLeft: if any file operation of a copy fails, the copy removes the directory that it
// made.
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

// TestStopInTensor: a cancelled export ends in the middle of a large tensor, not only after it.
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

// TestOverwriteDirectory: an export replaces the files of an older model and removes leftovers of killed copies.
// The user's own files stay.
func TestOverwriteDirectory(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"tokenizer.json": "{}", "additional_chat_templates/tool_use.jinja": "{{ tools }}"})
	out := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"chat_template.jinja": "old", "tokenizer.json": "old", "mine.txt": "mine",
		"additional_chat_templates/rag.jinja": "old", "additional_chat_templates/mine.txt": "mine"})
	testkit.NoError(t, os.Mkdir(filepath.Join(out, "model.tmp-1"), 0o700))
	testkit.Must(Run(t.Context(), Options{Format: Safetensors, Model: dir, Out: out, Overwrite: true}))(t)
	if got := listDir(t, out); !slices.Equal(got, []string{"additional_chat_templates", "config.json", "mine.txt", "model.safetensors", "tokenizer.json"}) {
		t.Errorf("%v is there", got)
	}
	if got := listDir(t, filepath.Join(out, "additional_chat_templates")); !slices.Equal(got, []string{"mine.txt", "tool_use.jinja"}) {
		t.Errorf("%v are the other templates", got)
	}
	if text, err := os.ReadFile(filepath.Join(out, "tokenizer.json")); string(text) != "{}" {
		t.Errorf("tokenizer.json is %s, %v", text, err)
	}
}

// TestLeftovers: an export removes leftovers of killed exports before it checks the free space. Files that another
// process is writing, and files that only look like leftovers, stay.
func TestLeftovers(t *testing.T) {
	dir, out := makeModel(t, llamaConfig(nil), llamaTensors(), nil), t.TempDir()
	stay := []string{"mine.tmp-1", "x.gguf.tmp-", "x.gguf.tmp-2", "x.gguf.tmp-mine", "y.gguf.tmp-1", "y.gguf.tmp-4"}
	for _, name := range stay {
		testkit.NoError(t, os.WriteFile(filepath.Join(out, name), nil, 0o600))
	}
	for _, name := range []string{"x.gguf.tmp-2", "y.gguf.tmp-4"} { // locked, as by other processes that write them
		testkit.NoError(t, os.WriteFile(filepath.Join(out, name), []byte("GGUF"), 0o600))
		unlock := testkit.Must(checkpoint.Lock(filepath.Join(out, name)))(t)
		defer unlock()
	}
	fill := func() {
		for name, content := range map[string]string{"x.gguf.tmp-1": "", "y.gguf.tmp-3": "GGUF and more"} {
			testkit.NoError(t, os.WriteFile(filepath.Join(out, name), []byte(content), 0o600))
		}
	}
	o := Options{Format: GGUF, Model: dir, Out: filepath.Join(out, "x.gguf"), fs: full{checkpoint.OS()}}
	fill()
	if _, err := Run(t.Context(), o); err == nil || !slices.Equal(listDir(t, out), stay) {
		t.Errorf("on a full disk: %v, %v is there", err, listDir(t, out))
	}
	o.fs = nil
	fill()
	if _, err := Run(t.Context(), o); err != nil || !slices.Equal(listDir(t, out), slices.Sorted(slices.Values(append([]string{"x.gguf"}, stay...)))) {
		t.Errorf("%v, %v is there", err, listDir(t, out))
	}
}

// TestKilledCopy: after a killed attempt the same command succeeds. It removes the leftovers before it checks the
// free space, but leaves a running copy alone.
func TestKilledCopy(t *testing.T) {
	dir, out := makeModel(t, llamaConfig(nil), llamaTensors(), nil), t.TempDir()
	leftover := filepath.Join(out, "model.tmp-7")
	o := Options{Format: Safetensors, Model: dir, Out: out}
	testkit.NoError(t, os.Mkdir(leftover, 0o700))
	unlock := testkit.Must(checkpoint.Lock(out))(t)
	if _, err := Run(t.Context(), o); !errors.Is(err, checkpoint.ErrLocked) || !slices.Equal(listDir(t, out), []string{"model.tmp-7"}) {
		t.Errorf("beside another: %v, %v is there", err, listDir(t, out))
	}
	unlock()
	o.fs = full{checkpoint.OS()}
	if _, err := Run(t.Context(), o); err == nil || len(listDir(t, out)) != 0 {
		t.Errorf("on a full disk: %v, %v is there", err, listDir(t, out))
	}
	testkit.NoError(t, os.Mkdir(leftover, 0o700))
	o.fs = nil
	if _, err := Run(t.Context(), o); err != nil || !slices.Equal(listDir(t, out), []string{"config.json", "model.safetensors"}) {
		t.Errorf("%v, %v is there", err, listDir(t, out))
	}
}

// TestFileUnderWay: an export does not take the unfinished file of another running export for a
// leftover.
func TestFileUnderWay(t *testing.T) {
	o := Options{Format: GGUF, Model: makeModel(t, llamaConfig(nil), llamaTensors(), nil), Out: filepath.Join(t.TempDir(), "x.gguf")}
	o.Progress = func(int64, int64) { removeLeftovers(checkpoint.OS(), o.Out) }
	if _, err := Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestCopiesDoNotMeet: while one copy writes into a directory, a second copy into it fails.
func TestCopiesDoNotMeet(t *testing.T) {
	dir, out := makeModel(t, llamaConfig(nil), llamaTensors(), nil), filepath.Join(t.TempDir(), "x")
	var second error
	o := Options{Format: Safetensors, Model: dir, Out: out}
	o.Progress = func(int64, int64) {
		_, second = Run(t.Context(), Options{Format: Safetensors, Model: dir, Out: out})
	}
	if _, err := Run(t.Context(), o); err != nil || !errors.Is(second, checkpoint.ErrLocked) {
		t.Errorf("%v, and the second: %v", err, second)
	}
}

// TestPowerCut: at whatever operation the power is cut, a file that an export replaces has the
// older or the newer content as a whole.
func TestPowerCut(t *testing.T) {
	dir, root := makeModel(t, llamaConfig(nil), llamaTensors(), nil), t.TempDir()
	name := filepath.Join(root, "x.gguf")
	testkit.NoError(t, os.WriteFile(name, []byte("the older"), 0o600))
	var d *powercut.Disk
	sizes := map[int64]bool{}
	cut := func(op string) {
		for _, loss := range powercut.Losses {
			left := filepath.Join(t.TempDir(), "left")
			err := d.Cut(loss, left)
			testkit.NoError(t, err)
			st, err := os.Stat(filepath.Join(left, "x.gguf"))
			if err != nil || st.Size() == 0 || op == "" && st.Size() < 1000 {
				t.Errorf("after %s, loss %d: %v, %v", op, loss, st, err)
				continue
			}
			sizes[st.Size()] = true
		}
	}
	d = testkit.Must(powercut.New(root, cut))(t)
	testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: dir, Out: name, Overwrite: true, fs: d}))(t)
	cut("")
	if len(sizes) != 2 {
		t.Errorf("files of sizes %v are left", sizes)
	}
}

// TestOwnFiles: an export never overwrites a file of the model that it reads, even with Overwrite
// set.
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

// TestDevices: an export never replaces an output that is no regular file, such as a socket, even
// with Overwrite set.
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

// TestPointers: a Git LFS pointer in place of a tokenizer's or another small file is an error that
// names the file.
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

// TestLinksOut: a safetensors export fails if a file that it copies beside the weights is a link
// out of the model's directory. A GGUF export copies no files, so it succeeds.
func TestLinksOut(t *testing.T) {
	for _, name := range []string{"config.json", "LICENSE", "tokenizer.json"} {
		files := map[string]string{"tokenizer.json": `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true}}`, "LICENSE": "x"}
		dir, away := makeModel(t, llamaConfig(nil), llamaTensors(), files), t.TempDir()
		err := errors.Join(os.Rename(filepath.Join(dir, name), filepath.Join(away, name)), os.Symlink(filepath.Join(away, name), filepath.Join(dir, name)))
		testkit.NoError(t, err)
		for _, typ := range []Type{"", BF16} {
			_, err = Run(t.Context(), Options{Format: Safetensors, Type: typ, Model: dir, Out: filepath.Join(t.TempDir(), "x")})
			if err == nil || !strings.Contains(err.Error(), name+": a link to "+filepath.Join(away, name)+", outside of the model directory") {
				t.Errorf("%s as %q: %v", name, typ, err)
			}
		}
		if _, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
