package export

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
	"mt/internal/testkit"
)

// shape is the shape of a tensor of a model that tests make up.
type shape []int64

// value returns element i of the made-up tensor called name. Elements of all tensors differ and are
// exact in bf16.
func value(name string, i int64) float32 {
	h := uint32(7)
	for _, c := range name {
		h = h*31 + uint32(c)
	}
	return math.Float32frombits((h%97+uint32(i)*13)%239<<16 | 0x3f000000)
}

// llamaConfig returns the config.json of a small Llama model with odd sizes. changes replace its
// keys.
func llamaConfig(changes map[string]any) map[string]any {
	c := map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": 6, "hidden_size": 32,
		"intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "float32"}
	maps.Copy(c, changes)
	return c
}

// llamaTensors returns the tensors, with their shapes, that a model of llamaConfig has.
func llamaTensors() map[string]shape {
	out := map[string]shape{"model.embed_tokens.weight": {6, 32}, "model.norm.weight": {32}, "lm_head.weight": {6, 32}}
	for _, b := range []string{"model.layers.0.", "model.layers.1."} {
		maps.Copy(out, map[string]shape{
			b + "input_layernorm.weight": {32}, b + "post_attention_layernorm.weight": {32},
			b + "self_attn.q_proj.weight": {12, 32}, b + "self_attn.k_proj.weight": {4, 32}, b + "self_attn.v_proj.weight": {4, 32},
			b + "self_attn.o_proj.weight": {32, 12},
			b + "mlp.gate_proj.weight":    {10, 32}, b + "mlp.up_proj.weight": {10, 32}, b + "mlp.down_proj.weight": {32, 10},
		})
	}
	return out
}

// makeModel writes a model directory and returns its path: config.json, model.safetensors in fp32,
// and other files (name to content).
func makeModel(t testing.TB, config map[string]any, tensors map[string]shape, files map[string]string) string {
	t.Helper()
	return makeModelOf(t, config, tensors, files, value)
}

// makeModelOf writes a model directory like makeModel, but with f(name, i) as element i of each
// tensor.
func makeModelOf(t testing.TB, config map[string]any, tensors map[string]shape, files map[string]string, f func(name string, i int64) float32) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)))
	}
	header, data := map[string]any{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		n, from := int64(1), len(data)
		for _, d := range tensors[name] {
			n *= d
		}
		for i := range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f(name, i)))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": tensors[name], "data_offsets": []int{from, len(data)}}
	}
	text := mustJSON(t, header)
	put("model.safetensors", append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...))
	put("config.json", mustJSON(t, config))
	for name, content := range files {
		put(name, []byte(content))
	}
	return dir
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	out := testkit.Must(json.Marshal(v))(t)
	return out
}

// exportGGUF writes dir as GGUF and opens the file.
func exportGGUF(t testing.TB, dir string, kind Type) (*gguf.File, Summary) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.gguf")
	s := testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: kind}))(t)
	return openGGUF(t, out), s
}

func openGGUF(t testing.TB, name string) *gguf.File {
	t.Helper()
	f := testkit.Must(os.Open(name))(t)
	t.Cleanup(func() { _ = f.Close() })
	st := testkit.Must(f.Stat())(t)
	g := testkit.Must(gguf.Open(f, st.Size()))(t)
	return g
}

// tensorOf returns the tensor with this name in a GGUF file, and its values.
func tensorOf(t testing.TB, f *gguf.File, name string) (gguf.Tensor, []float32) {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	v := testkit.Must(f.Read(x))(t)
	return x, v
}

// wantKeys checks that the GGUF file has these values under these keys; nil: the file must lack the
// key.
func wantKeys(t testing.TB, f *gguf.File, want map[string]any) {
	t.Helper()
	for k, w := range want {
		got := f.Value(k)
		if string(mustJSON(t, got)) != string(mustJSON(t, w)) {
			t.Errorf("%s is %v, want %v", k, got, w)
		}
	}
}

// listDir returns the names of the files in a directory.
func listDir(t testing.TB, dir string) []string {
	t.Helper()
	entries := testkit.Must(os.ReadDir(dir))(t)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// failing is a file system whose operation number at, counted from 0, fails with err.
type failing struct {
	checkpoint.FS
	at, n int
	err   error
}

func (f *failing) step() error {
	f.n++
	if f.n-1 == f.at {
		return f.err
	}
	return nil
}

func (f *failing) Create(path string) (checkpoint.File, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(path)
	return &failingFile{file, f}, err
}

func (f *failing) Rename(from, to string) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *failing) Free(path string) (int64, error) {
	if err := f.step(); err != nil {
		return 0, err
	}
	return f.FS.Free(path)
}

type failingFile struct {
	checkpoint.File
	fs *failing
}

func (f *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.step(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *failingFile) Sync() error {
	if err := f.fs.step(); err != nil {
		return err
	}
	return f.File.Sync()
}
