package checkpoint

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// config returns a small model with every kind of parameter and odd sizes. changes replace keys of
// its config.json; nil removes a key.
func config(t testing.TB, changes map[string]any) *model.Config {
	t.Helper()
	m := map[string]any{"model_type": "llama", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "attention_bias": true, "mlp_bias": true}
	for k, v := range changes {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	c := testkit.Must(model.FromInline(m, "test"))(t)
	return c
}

// small returns a model with as few tensors as possible.
func small(t testing.TB) *model.Config {
	return config(t, map[string]any{"num_hidden_layers": 1, "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true})
}

// newLayers returns memory for all layers of a model, filled with zeros.
func newLayers(c *model.Config, bf16 bool) []Layer {
	var out []Layer
	for _, l := range c.Layouts(bf16) {
		out = append(out, Layer{Layout: l, Tile: make([]byte, l.TileBytes), Lo: make([]uint16, l.Elems),
			Planes: newPlanes(l)})
	}
	return out
}

// planes are the planes of the optimizer's state that the tests use: AdamW's.
var planes = optim.Planes(optim.AdamW{}.Planes)

// newPlanes returns memory for AdamW's planes of a layer, filled with zeros.
func newPlanes(l model.Layout) (out []optim.State) {
	for _, p := range planes.Of(l) {
		out = append(out, newState(p, l))
	}
	return out
}

// newState returns memory for one plane of a layer, filled with zeros.
func newState(p optim.Placed, l model.Layout) optim.State {
	return optim.NewState(p, l, optim.Whole(l), func(n int64) []byte { return make([]byte, n) })
}

// floats returns the elements of the fp32 plane with this name.
func (l Layer) floats(name string) []float32 {
	for _, s := range l.Planes {
		if s.Name == name {
			return optim.View[float32](s.Data)
		}
	}
	return nil
}

// awkward are the fp32 bits of weights that rounding to bf16 might change: ties, subnormals, the
// largest numbers, infinities and both zeros.
var awkward = []uint32{0, 0x80000000, 1, 0x80000001, 0x00008000, 0x00007fff, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
	0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f800000, 0xff800000, 0x007fffff}

// fillLayers fills weights and moments with random finite fp32 values. The awkward values come
// first.
func fillLayers(layers []Layer, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, l := range layers {
		m, v := l.floats("m"), l.floats("v")
		for _, t := range l.Layout.Tensors {
			if t.Ref {
				continue
			}
			for i := range t.Elems() {
				bits := math.Float32bits(float32(r.NormFloat64()))
				if i < int64(len(awkward)) {
					bits = awkward[i]
				}
				l.setWeights(t, i, []uint32{bits})
				m[t.Elem+i] = float32(r.NormFloat64())
				v[t.Elem+i] = float32(math.Abs(r.NormFloat64()))
			}
		}
	}
}

// values returns the fp32 bits of weights and of the moments m and v, by the names of their tensors
// in a checkpoint.
func values(layers []Layer) map[string][]uint32 {
	out := map[string][]uint32{}
	for i, l := range layers {
		entries := entriesOf(i, l.Layout, planeF32)
		for _, s := range l.Planes {
			entries = append(entries, stateEntries(i, l.Layout, s.Placed)...)
		}
		for _, e := range entries {
			all := make([]uint32, 0, e.elems)
			err := e.pieces(l, make([]byte, 4*e.elems), func(raw []byte) error {
				for j := range e.elems {
					all = append(all, binary.LittleEndian.Uint32(raw[4*j:]))
				}
				return nil
			})
			out[e.name] = append(out[e.name], all...)
			if err != nil {
				panic(err)
			}
		}
	}
	return out
}

func sameValues(t *testing.T, got, want map[string][]uint32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for name, w := range want {
		if !slices.Equal(got[name], w) {
			t.Errorf("%s differs", name)
		}
	}
}

// loadWhole calls LoadModel for a directory whose vocabulary has the same size as that of layers.
func loadWhole(dir string, layers []Layer, progress Progress) ([]string, error) {
	return LoadModel(dir, layers, layers[0].Layout.Tensors[0].Rows, progress)
}

// options returns the options of a save of step 20.
func options(c *model.Config, layers []Layer, d DType) WriterOptions {
	o := WriterOptions{Step: 20, Config: c, Planes: planes, SaveDType: d}
	for _, l := range layers {
		o.Layouts = append(o.Layouts, l.Layout)
	}
	return o
}

var testState = TrainerState{Step: 20, AdamStep: 19, DataPos: 160, Tokens: 9999, Seed: 42, Epoch: 0.5, NonFinite: 1, Log: LogWindow{Steps: 3, Tokens: 70, Loss: 1.0 / 3},
	ConfigDigests: map[string]string{"model": "m1", "dataset": "d1"}}

// save writes a whole checkpoint, the layers from the last to the first.
func save(output string, layers []Layer, o WriterOptions, s TrainerState) error {
	w, err := NewWriter(output, o)
	if err != nil {
		return err
	}
	for i, l := range slices.Backward(layers) {
		if err := w.WriteLayer(i, l); err != nil {
			return err
		}
	}
	return w.Commit(s, map[string][]byte{"tokenizer.json": []byte("{}")})
}

// fastDir returns a directory in memory if there is space for one, for tests that save hundreds of times.
func fastDir(t *testing.T) string {
	t.Helper()
	free, err := osFS{}.Free("/dev/shm")
	if err != nil || free < 64<<20 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "mt-checkpoint-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// safetensors returns the content of a safetensors file with the given header and data.
func safetensors(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.NoError(t, os.WriteFile(path, data, 0o644))
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data := testkit.Must(os.ReadFile(path))(t)
	return data
}

// tensorsOf reads all tensors of the weights in dir.
func tensorsOf(t testing.TB, dir string) (dtypes map[string]string, data map[string][]byte) {
	t.Helper()
	src := testkit.Must(openSource(dir))(t)
	defer src.Close()
	dtypes, data = map[string]string{}, map[string][]byte{}
	for name, sh := range src.where {
		in := sh.tensors[name]
		file := read(t, filepath.Join(dir, sh.name))
		dtypes[name], data[name] = in.dtype, bytes.Clone(file[in.off:in.off+in.bytes])
	}
	return dtypes, data
}

// names lists the files and directories in dir.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries := testkit.Must(os.ReadDir(dir))(t)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestMain(m *testing.M) { os.Exit(testkit.InMemory(m)) }
