package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/powercut"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// filled returns memory for a small model in which every value is v, and the model's config.
func filled(t *testing.T, v float32) (*model.Config, []checkpoint.Layer) {
	t.Helper()
	c := testkit.Must(model.FromInline(map[string]any{"model_type": "llama", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11,
		"num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6}, "test"))(t)
	var out []checkpoint.Layer
	for _, l := range c.Layouts(false) {
		layer := checkpoint.Layer{Layout: l, Tile: make([]byte, l.TileBytes)}
		for _, p := range optim.Planes(optim.AdamW{}.Planes).Of(l) {
			layer.Planes = append(layer.Planes, optim.NewState(p, l, optim.Whole(l), func(n int64) []byte {
				return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), int(n/4))
			}))
		}
		out = append(out, layer)
	}
	return c, out
}

// optionsOf returns the options of a save of layers in files of at most shard bytes.
func optionsOf(c *model.Config, layers []checkpoint.Layer, step int, shard int64, fs checkpoint.FS) checkpoint.WriterOptions {
	o := checkpoint.WriterOptions{Step: step, Config: c, Planes: optim.AdamW{}.Planes, SaveDType: checkpoint.F32, MaxShardBytes: shard, FS: fs}
	for _, l := range layers {
		o.Layouts = append(o.Layouts, l.Layout)
	}
	return o
}

// saveStep writes checkpoint-STEP with all moments set to v.
func saveStep(t *testing.T, out string, step int, v float32, fs checkpoint.FS) {
	t.Helper()
	c, layers := filled(t, v)
	w := testkit.Must(checkpoint.NewWriter(out, optionsOf(c, layers, step, 3000, fs)))(t)
	for i, l := range layers {
		testkit.NoError(t, w.WriteLayer(i, l))
	}
	testkit.NoError(t, w.Commit(checkpoint.TrainerState{Step: step}, map[string][]byte{"tokenizer.json": []byte("{}")}))
}

// cutAfterAll runs do on a simulated disk over the directory root. After each operation of do, and
// at its end, it cuts the power in every way of losing unsynced data. check then examines what is
// left; done reports that do had returned.
func cutAfterAll(t *testing.T, root string, do func(*powercut.Disk), check func(t *testing.T, left string, done bool)) {
	t.Helper()
	var d *powercut.Disk
	ops := 0
	cut := func(op string, done bool) {
		if t.Failed() {
			return
		}
		for _, loss := range powercut.Losses {
			left := filepath.Join(t.TempDir(), "left")
			testkit.NoError(t, d.Cut(loss, left))
			check(t, left, done)
			if t.Failed() {
				t.Logf("the power is cut after operation %d, %s; loss %d", ops, op, loss)
				return
			}
			testkit.NoError(t, os.RemoveAll(left))
		}
	}
	d = testkit.Must(powercut.New(root, func(op string) { ops++; cut(op, false) }))(t)
	do(d)
	cut("the end", true)
	if ops < 3 {
		t.Errorf("%d operations", ops)
	}
}

// TestPowerCut: at whatever operation the power is cut, the newest checkpoint is complete. After
// Commit has returned, it is the new one.
func TestPowerCut(t *testing.T) {
	for name, tc := range map[string]struct{ before, now int }{"the first": {0, 10}, "the second": {10, 20}, "again": {10, 10}} {
		t.Run(name, func(t *testing.T) {
			if name != "again" {
				testkit.NotShort(t)
			}
			root := t.TempDir()
			out := filepath.Join(root, "runs", "out")
			if tc.before > 0 {
				saveStep(t, out, tc.before, 1, checkpoint.OS())
			}
			cutAfterAll(t, root, func(d *powercut.Disk) { saveStep(t, out, tc.now, 2, d) }, func(t *testing.T, left string, done bool) {
				dir, state, skipped, err := checkpoint.Latest(filepath.Join(left, "runs", "out"), nil)
				damaged := slices.ContainsFunc(skipped, func(s checkpoint.Skipped) bool { return !s.Unfinished })
				switch {
				case err != nil || damaged:
					t.Errorf("%v, skipped %v", err, skipped)
				case dir == "" && tc.before == 0 && !done:
				case dir == "":
					t.Error("no checkpoint is left")
				default:
					_, layers := filled(t, 0)
					_, err := checkpoint.Load(dir, layers, nil)
					v := math.Float32frombits(binary.LittleEndian.Uint32(layers[0].Planes[0].Data))
					if err != nil || v != 2 && (done || v != 1) || v == 2 && state.Step != tc.now || v == 1 && state.Step != tc.before {
						t.Errorf("%v, moments of save %v at step %d", err, v, state.Step)
					}
				}
			})
		})
	}
}

// TestMarkSurvives: the mark that a checkpoint may have broken weights survives a power cut. A
// power cut while it is written does not damage the checkpoint.
func TestMarkSurvives(t *testing.T) {
	root := t.TempDir()
	out := filepath.Join(root, "out")
	saveStep(t, out, 10, 1, checkpoint.OS())
	saveStep(t, out, 20, 2, checkpoint.OS())
	cutAfterAll(t, root, func(d *powercut.Disk) {
		if _, _, err := checkpoint.MarkNonFinite(d, out, 20, 20, 23); err != nil {
			t.Error(err)
		}
	}, func(t *testing.T, left string, done bool) {
		_, state, skipped, err := checkpoint.Latest(filepath.Join(left, "out"), nil)
		if err != nil || state.Step != 10 && (done || state.Step != 20 || len(skipped) > 0) {
			t.Errorf("it goes on from step %d, skips %v, %v", state.Step, skipped, err)
		}
	})
}

// weigh returns layers in which every byte of the weights is v.
func weigh(t *testing.T, v byte) (*model.Config, []checkpoint.Layer) {
	t.Helper()
	c, layers := filled(t, 0)
	for _, l := range layers {
		for i := range l.Tile {
			l.Tile[i] = v
		}
	}
	return c, layers
}

// weight returns the byte that all weights in dir consist of, as set by weigh. It fails if there
// are no weights or if they differ.
func weight(dir string, layers []checkpoint.Layer) (byte, error) {
	if _, err := checkpoint.LoadModel(dir, layers, layers[0].Layout.Tensors[0].Rows, nil); err != nil {
		return 0, err
	}
	v := layers[0].Tile[0]
	for _, l := range layers {
		for _, p := range l.Layout.Tensors {
			for _, b := range l.Tile[p.TileOff:][:p.TileBytes()] {
				if b != v {
					return 0, fmt.Errorf("weights of two models, %d and %d", v, b)
				}
			}
		}
	}
	return v, nil
}

// writers are the functions that write a model, all of whose weights are v, into dir.
var writers = map[string]func(t *testing.T, dir string, v byte, shard int64, fs checkpoint.FS) error{
	"WriteModel": func(t *testing.T, dir string, v byte, shard int64, fs checkpoint.FS) error {
		c, layers := weigh(t, v)
		return checkpoint.WriteModel(dir, layers, optionsOf(c, layers, 0, shard, fs), nil)
	},
	"CopyModel": func(t *testing.T, dir string, v byte, shard int64, fs checkpoint.FS) error {
		c, layers := weigh(t, v)
		from := t.TempDir()
		if err := checkpoint.WriteModel(from, layers, optionsOf(c, layers, 0, 1<<30, nil), nil); err != nil {
			return err
		}
		w, err := checkpoint.OpenWeights(from)
		if err != nil {
			return err
		}
		defer w.Close()
		_, err = checkpoint.CopyModel(t.Context(), dir, w, checkpoint.CopyOptions{MaxShardBytes: shard, FS: fs, Files: map[string][]byte{"config.json": []byte("{}")}})
		return err
	},
}

// replacements are the sizes of shards, in bytes, of the older and of the newer model. A large size
// gives one file, a small one several.
var replacements = map[string][2]int64{
	"one by one": {1 << 30, 1 << 30}, "one by several": {1 << 30, 3000}, "several by one": {3000, 1 << 30},
	"several by as many": {3000, 3000}, "several by others": {3000, 2000},
}

// TestReplacedModel: at every moment, and after every power cut, the weights in a directory belong to one model.
func TestReplacedModel(t *testing.T) {
	for who, write := range writers {
		for how, shards := range replacements {
			t.Run(who+" "+how, func(t *testing.T) {
				if how != "several by others" {
					testkit.NotShort(t)
				}
				root := t.TempDir()
				dir := filepath.Join(root, "model")
				testkit.NoError(t, write(t, dir, 1, shards[0], nil))
				_, layers := filled(t, 0)
				replaced := false
				look := func(t *testing.T, dir string, done bool) {
					v, err := weight(dir, layers)
					if err != nil || done && v != 2 || v != 1 && v != 2 {
						t.Errorf("%v, %d", err, v)
					}
				}
				cutAfterAll(t, root, func(d *powercut.Disk) {
					testkit.NoError(t, write(t, dir, 2, shards[1], d))
				}, func(t *testing.T, left string, done bool) {
					look(t, filepath.Join(left, "model"), done)
					v, err := weight(dir, layers)
					if err != nil || v != 2 && replaced {
						t.Errorf("a reader meanwhile: %v, %d", err, v)
					}
					replaced = v == 2
				})
				// Write a model once more, over the files that the replacement has left.
				testkit.NoError(t, write(t, dir, 2, shards[1], nil))
				look(t, dir, true)
				if files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors")); shards[1] == 1<<30 && len(files) != 1 || shards[1] == 3000 && len(files) != shardsOf(t, dir) {
					t.Errorf("files of an older model are left: %v", files)
				}
			})
		}
	}
}

// shardsOf counts the files that the index in dir names.
func shardsOf(t *testing.T, dir string) int {
	t.Helper()
	named := map[string]bool{}
	for _, shard := range indexOf(t, dir) {
		named[shard] = true
	}
	return len(named)
}

func indexOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	if err == nil {
		err = json.Unmarshal(raw, &index)
	}
	testkit.NoError(t, err)
	return index.Map
}

// TestSlowReader: a reader that has read the index, and opens the shards much later, finds the
// shards unchanged or not at all.
func TestSlowReader(t *testing.T) {
	for who, write := range writers {
		t.Run(who, func(t *testing.T) {
			dir := t.TempDir()
			testkit.NoError(t, write(t, dir, 1, 3000, nil))
			was := map[string][]byte{}
			for _, shard := range indexOf(t, dir) {
				content := testkit.Must(os.ReadFile(filepath.Join(dir, shard)))(t)
				was[shard] = content
			}
			d, err := powercut.New(dir, func(op string) {
				for shard, content := range was {
					got, err := os.ReadFile(filepath.Join(dir, shard))
					if !errors.Is(err, os.ErrNotExist) && (err != nil || !bytes.Equal(got, content)) {
						t.Errorf("after %s: %s is another file, %v", op, shard, err)
					}
				}
			})
			if err == nil {
				err = write(t, dir, 2, 3000, d)
			}
			testkit.NoError(t, err)
		})
	}
}

// TestWriteFile: whenever the power is cut, the file has the older or the newer content as a whole.
// After WriteFile has returned, it has the newer one.
func TestWriteFile(t *testing.T) {
	for _, before := range []string{"", "the older"} {
		root := t.TempDir()
		name := filepath.Join(root, "config.yaml")
		if before != "" {
			testkit.NoError(t, os.WriteFile(name, []byte(before), 0o600))
		}
		cutAfterAll(t, root, func(d *powercut.Disk) {
			if err := checkpoint.WriteFile(d, name, []byte("the newer")); err != nil {
				t.Error(err)
			}
		}, func(t *testing.T, left string, done bool) {
			got, err := os.ReadFile(filepath.Join(left, "config.yaml"))
			if before == "" && !done && errors.Is(err, os.ErrNotExist) {
				return
			}
			if err != nil || string(got) != "the newer" && (done || string(got) != before) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
