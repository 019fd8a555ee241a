package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestCopyModel: a copy of a model has the same tensors, in shards of another size, and with other
// dtypes if the copy asks for them.
func TestCopyModel(t *testing.T) {
	c := config(t, nil)
	dir := fakeModel(t, c, "F32", counted, withOthers)
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	dtypes, data := tensorsOf(t, dir)
	for _, d := range []DType{"", F32, BF16} {
		out := t.TempDir()
		var done, total int64
		got, err := CopyModel(t.Context(), out, w, CopyOptions{DType: d, MaxShardBytes: 2500, Files: map[string][]byte{"config.json": []byte("{}")},
			Progress: func(a, b int64) { done, total = a, b }})
		if err != nil || done != total || done == 0 || got.Tensors != len(data) || len(got.Files) < 3 {
			t.Fatalf("%v: %+v, %v, %d of %d", d, got, err, done, total)
		}
		if string(read(t, filepath.Join(out, "config.json"))) != "{}" {
			t.Error("config.json differs")
		}
		if d == "" {
			sameTensors(t, "as it is", out, dtypes, data)
			continue
		}
		gotTypes, gotData := tensorsOf(t, out)
		for name, dtype := range gotTypes {
			switch p, floating := weightPlane(dtypes[name]); {
			case !floating && dtype != dtypes[name]:
				t.Errorf("%s is %s", name, dtype)
			case floating && dtype != d.plane().dtype:
				t.Errorf("%s is %s", name, dtype)
			case floating && len(gotData[name])*int(p.size()) != len(data[name])*int(d.plane().size()):
				t.Errorf("%s has %d bytes", name, len(gotData[name]))
			}
		}
		up := gotData["model.layers.1.mlp.up_proj.weight"] // values exact in bf16
		for i := range int64(14 * 11) {
			want := binary.LittleEndian.Uint32(counted(i))
			if d == F32 && binary.LittleEndian.Uint32(up[4*i:]) != want || d == BF16 && uint32(binary.LittleEndian.Uint16(up[2*i:]))<<16 != want {
				t.Fatalf("element %d differs", i)
			}
		}
	}
}

// TestCopyEnds: a copy that is stopped, has an invalid file name or lacks disk space leaves no
// files.
func TestCopyEnds(t *testing.T) {
	dir := fakeModel(t, config(t, nil), "F32", counted, nil)
	w, err := OpenWeights(dir)
	testkit.NoError(t, err)
	defer w.Close()
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	out := t.TempDir()
	_, err = CopyModel(ctx, out, w, CopyOptions{Progress: func(done, _ int64) { cancel(stop) }})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if _, err := CopyModel(t.Context(), out, w, CopyOptions{Files: map[string][]byte{"../x": nil}}); err == nil {
		t.Error("a file outside of the directory was written")
	}
	_, err = CopyModel(t.Context(), out, w, CopyOptions{FS: &faultyFS{free: 1000}})
	if err == nil || !strings.HasSuffix(err.Error(), " more is needed; free some, or choose another place or a smaller type") {
		t.Errorf("without room: %v", err)
	}
	if got := names(t, out); len(got) != 0 {
		t.Errorf("output holds %v", got)
	}
}

// overtaken is a file system that calls made as soon as a directory is made, so that another
// process can act first.
type overtaken struct {
	osFS
	made func(dir string)
}

func (o overtaken) MkdirAll(dir string) error {
	defer o.made(dir)
	return o.osFS.MkdirAll(dir)
}

// TestCopyOfTwo: while one copy writes, a second copy into the same directory fails. It removes
// nothing of the first copy, neither the directory nor a shard of the same name.
func TestCopyOfTwo(t *testing.T) {
	w, err := OpenWeights(fakeModel(t, config(t, nil), "F32", counted, nil))
	testkit.NoError(t, err)
	defer w.Close()
	out := filepath.Join(t.TempDir(), "out")
	alone, err := CopyModel(t.Context(), out, w, CopyOptions{MaxShardBytes: 2500})
	if err != nil || len(alone.Files) < 2 || os.RemoveAll(out) != nil {
		t.Fatalf("%v, %v", alone.Files, err)
	}
	shard := filepath.Join(out, alone.Files[0])
	_, err = CopyModel(t.Context(), out, w, CopyOptions{MaxShardBytes: 2500, FS: overtaken{made: func(dir string) {
		write(t, shard, []byte("another's"))
		unlock := testkit.Must(Lock(dir))(t)
		t.Cleanup(unlock)
	}}})
	if !errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(shard); string(got) != "another's" {
		t.Errorf("the other's shard is %q, %v", got, err)
	}
}

// TestCopyBehindACopy: if another copy has finished in the directory meanwhile, a copy gives its
// shards other names. The old index refers to the old shards until the copy's last step.
func TestCopyBehindACopy(t *testing.T) {
	w, err := OpenWeights(fakeModel(t, config(t, nil), "F32", counted, nil))
	testkit.NoError(t, err)
	defer w.Close()
	out := filepath.Join(t.TempDir(), "out")
	var before Copied
	after, err := CopyModel(t.Context(), out, w, CopyOptions{MaxShardBytes: 2500, FS: overtaken{made: func(dir string) {
		if before, err = CopyModel(t.Context(), dir, w, CopyOptions{MaxShardBytes: 2500}); err != nil {
			t.Fatal(err)
		}
	}}})
	if err != nil || len(after.Files) < 2 {
		t.Fatalf("%v, %v", after.Files, err)
	}
	for _, name := range after.Files {
		if slices.Contains(before.Files, name) {
			t.Errorf("%s is in both models", name)
		}
	}
	whole, err := OpenWeights(out)
	testkit.NoError(t, err)
	whole.Close()
}

// TestCopyThatEndsBehindACopy: a failing copy keeps files that another copy has written into the directory
// meanwhile.
func TestCopyThatEndsBehindACopy(t *testing.T) {
	w, err := OpenWeights(fakeModel(t, config(t, nil), "F32", counted, nil))
	testkit.NoError(t, err)
	defer w.Close()
	out := filepath.Join(t.TempDir(), "out")
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	_, err = CopyModel(ctx, out, w, CopyOptions{FS: overtaken{made: func(dir string) {
		testkit.Must(CopyModel(t.Context(), dir, w, CopyOptions{}))(t)
	}}})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	whole, err := OpenWeights(out)
	testkit.NoError(t, err)
	whole.Close()
}

// TestCopyKeepsDirectories: when a copy replaces an older model, it removes that model's files, but
// no directories.
func TestCopyKeepsDirectories(t *testing.T) {
	w := testkit.Must(OpenWeights(fakeModel(t, config(t, nil), "F32", counted, nil)))(t)
	defer w.Close()
	out := t.TempDir()
	own := filepath.Join(out, "LICENSES", "mine.txt")
	write(t, own, []byte("x"))
	write(t, filepath.Join(out, "LICENSE"), []byte("an older model's"))
	testkit.Must(CopyModel(t.Context(), out, w, CopyOptions{}))(t)
	if got, err := os.ReadFile(own); string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if got := names(t, out); !slices.Equal(got, []string{"LICENSES", singleName}) {
		t.Errorf("output holds %v", got)
	}
}

func TestWeights(t *testing.T) {
	c := config(t, nil)
	dir := fakeModel(t, c, "BF16", func(i int64) []byte { return counted(i)[2:] }, withOthers)
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	if w.Dir() != dir || len(w.Tensors()) != len(w.src.where) {
		t.Errorf("%d tensors of %d", len(w.Tensors()), len(w.src.where))
	}
	info, ok := w.Tensor("lm_head.weight")
	if !ok || info.Elems() != 37*14 || info.DType != "BF16" || info.File != singleName {
		t.Errorf("%+v", info)
	}
	dst := make([]float32, 300)
	testkit.NoError(t, w.Read("lm_head.weight", 7, dst))
	for i, v := range dst {
		if math.Float32bits(v) != binary.LittleEndian.Uint32(counted(int64(7+i))) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
	if err := w.Read("vision_tower.ids", 0, dst[:1]); err == nil || !strings.Contains(err.Error(), "its dtype is I64") {
		t.Errorf("got %v", err)
	}
	if err := w.Read("nothing", 0, dst[:1]); err == nil {
		t.Error("a tensor that is not there was read")
	}
	if _, ok := w.Tensor("nothing"); ok {
		t.Error("it is there")
	}
}

// TestCopyTidiesBehindItsLock: a failing copy removes its files before it releases the lock on the
// directory.
func TestCopyTidiesBehindItsLock(t *testing.T) {
	w := testkit.Must(OpenWeights(fakeModel(t, config(t, nil), "F32", counted, nil)))(t)
	defer w.Close()
	for what, out := range map[string]string{"a directory that was there": t.TempDir(), "a new directory": filepath.Join(t.TempDir(), "out")} {
		removed := 0
		ctx, cancel := context.WithCancel(t.Context())
		_, err := CopyModel(ctx, out, w, CopyOptions{MaxShardBytes: 2500, Progress: func(done, total int64) { cancel() },
			FS: watched{removes: func(path string) {
				removed++
				if _, err := Lock(out); !errors.Is(err, ErrLocked) {
					t.Errorf("%s: %s is removed while another could write there: %v", what, path, err)
				}
			}}})
		if !errors.Is(err, context.Canceled) || removed == 0 {
			t.Errorf("%s: %v, %d things are removed", what, err, removed)
		}
	}
}

// watched is a disk that calls removes with the path before each removal.
type watched struct {
	osFS
	removes func(path string)
}

func (w watched) RemoveAll(path string) error {
	w.removes(path)
	return w.osFS.RemoveAll(path)
}

// TestLoadVocab: LoadModel can load a directory into a model of a larger vocabulary. The
// directory's embedding and head fill the first rows of the larger tables, and the other rows stay
// unchanged. Every other tensor is read as usual.
func TestLoadVocab(t *testing.T) {
	value := func(i int64) []byte { return binary.LittleEndian.AppendUint32(nil, 0x3f800000+uint32(i)) }
	for _, tied := range []bool{false, true} {
		for _, bf16 := range []bool{false, true} {
			t.Run(fmt.Sprint(tied, bf16), func(t *testing.T) {
				c := config(t, map[string]any{"tie_word_embeddings": tied})
				dir := fakeModel(t, c, "F32", value, func(m map[string]*fakeTensor) {
					if tied { // the head is stored although it is tied
						head := *m["model.embed_tokens.weight"]
						m["lm_head.weight"] = &head
					}
				})
				small, big := newLayers(c, bf16), newLayers(c.Resized(50), bf16)
				testkit.Must(loadWhole(dir, small, nil))(t)
				testkit.Must(LoadModel(dir, big, 37, nil))(t)
				want := values(small)
				for name, got := range values(big) {
					if w := want[name]; !slices.Equal(got[:len(w)], w) || slices.ContainsFunc(got[len(w):], func(bits uint32) bool { return bits != 0 }) {
						t.Errorf("%s is not what the directory has, with zeros behind it", name)
					}
				}
				for _, tokens := range []int{36, 38} {
					if _, err := LoadModel(dir, big, tokens, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("config.json asks for [%d 14]", tokens)) {
						t.Errorf("%d tokens: %v", tokens, err)
					}
				}
				if _, err := loadWhole(dir, big, nil); err == nil || !strings.Contains(err.Error(), "config.json asks for [50 14]") {
					t.Errorf("without a word on the vocabulary: %v", err)
				}
			})
		}
	}
}
