package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// onDisk is what the files and directories below dir take, in blocks.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += blocks(max(info.Size(), 1))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRoom: what a save is said to take is enough, and not much more than it takes.
func TestRoom(t *testing.T) {
	extra := map[string][]byte{"tokenizer.json": make([]byte, 300_000), "config.yaml": make([]byte, 2000)}
	for name, change := range map[string]func(*WriterOptions){
		"many tensors": func(*WriterOptions) {},
		"bf16":         func(*WriterOptions) {},
		"fp32":         func(o *WriterOptions) { o.SaveDType = F32 },
		"shards":       func(o *WriterOptions) { o.MaxShardBytes = 500 },
		"model only":   func(o *WriterOptions) { o.ModelOnly = true },
	} {
		c := config(t, nil)
		if name == "many tensors" {
			c = config(t, map[string]any{"num_hidden_layers": 60})
		}
		layers := newLayers(c, true)
		o := options(c, layers, BF16)
		o.FS = &faultyFS{}
		for _, data := range extra {
			o.Extra += blocks(int64(len(data)))
		}
		change(&o)
		out := fastDir(t)
		w, err := NewWriter(out, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range layers {
			if err := w.WriteLayer(i, l); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(testState, extra); err != nil {
			t.Fatal(err)
		}
		taken, most := onDisk(t, filepath.Join(out, "checkpoint-20")), o.CheckpointBytes()
		if taken > most || most > taken+taken/3+256<<10 {
			t.Errorf("%s: a checkpoint takes %d bytes, %d are asked for", name, taken, most)
		}
		held, leftovers, err := Held(out)
		if err != nil || len(held) != 1 || held[0] > taken || held[0] < taken/3 || leftovers != 0 {
			t.Errorf("%s: held are %d and %d bytes of %d, %v", name, held, leftovers, taken, err)
		}
		model := filepath.Join(out, "model")
		if err := WriteModel(model, layers, o, extra); err != nil {
			t.Fatal(err)
		}
		if taken, most := onDisk(t, model), o.ModelBytes(); taken > most || most > taken+taken/3+256<<10 {
			t.Errorf("%s: a model takes %d bytes, %d are asked for", name, taken, most)
		}
	}
}

// TestHeld lists what is there by age.
func TestHeld(t *testing.T) {
	out := t.TempDir()
	for name, n := range map[string]int{"checkpoint-5/a": 10, "checkpoint-20/a": 30, "checkpoint-20/optimizer/b": 7, "checkpoint-3/a": 5,
		"checkpoint-7.tmp-1/a": 11, "model.tmp-1/a": 2, "model.safetensors": 9} {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held, leftovers, err := Held(out)
	if len(held) != 3 || held[0] != 5 || held[1] != 10 || held[2] != 37 || leftovers != 13 || err != nil {
		t.Errorf("held %v, left over %d, %v", held, leftovers, err)
	}
	if held, leftovers, err := Held(filepath.Join(out, "nope")); held != nil || leftovers != 0 || err != nil {
		t.Errorf("nothing: held %v, left over %d, %v", held, leftovers, err)
	}
}
