package export

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/testkit"
	"mt/model"
)

// TestSafetensors: the output has the same names and shapes in other files. config.json changes only its dtype, and
// the tokenizer is copied.
func TestSafetensors(t *testing.T) {
	tensors := llamaTensors()
	tensors["vision_tower.x.weight"] = shape{3}
	dir := makeModel(t, llamaConfig(map[string]any{"unknown_key": []int{1}}), tensors, map[string]string{"tokenizer.json": "{}", "notes.txt": "no"})
	config := testkit.Must(os.ReadFile(filepath.Join(dir, "config.json")))(t)
	for kind, want := range map[Type]string{"": "F32", F32: "F32", BF16: "BF16"} {
		out := filepath.Join(t.TempDir(), "a", "b")
		s, err := Run(t.Context(), Options{Format: Safetensors, Model: dir, Out: out, Type: kind, MaxShardBytes: 3000})
		testkit.NoError(t, err)
		got := listDir(t, out)
		if len(s.Files) < 3 || s.Tensors != len(tensors) || len(got) != len(s.Files)+3 || !slices.Contains(got, "tokenizer.json") {
			t.Errorf("%q: %+v, %v", kind, s, got)
		}
		wantConfig := config
		if kind == BF16 {
			wantConfig = bytes.Replace(config, []byte(`"torch_dtype":"float32"`), []byte(`"torch_dtype":"bfloat16"`), 1)
		}
		if text, err := os.ReadFile(filepath.Join(out, "config.json")); err != nil || !bytes.Equal(text, wantConfig) {
			t.Errorf("%q: config.json is %s, %v", kind, text, err)
		}
		w, err := checkpoint.OpenWeights(out)
		testkit.NoError(t, err)
		for name, sh := range tensors {
			x, ok := w.Tensor(name)
			if !ok || !slices.Equal(x.Shape, sh) || x.DType != want {
				t.Fatalf("%q: %s is %+v", kind, name, x)
			}
			v := make([]float32, x.Elems())
			testkit.NoError(t, w.Read(name, 0, v))
			for i := range v {
				if v[i] != value(name, int64(i)) {
					t.Fatalf("%q: %s: element %d is %v", kind, name, i, v[i])
				}
			}
		}
		w.Close()
		o := Options{Format: Safetensors, Model: dir, Out: out}
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--overwrite") {
			t.Errorf("got %v", err)
		}
		o.Overwrite = true
		if s, err = Run(t.Context(), o); err != nil || len(s.Files) != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		if got := listDir(t, out); len(got) != 3 {
			t.Errorf("%v is there", got)
		}
	}
}

// TestRoom: an export that does not fit on the disk fails before it writes anything.
func TestRoom(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), nil)
	for _, f := range []Format{GGUF, Safetensors} {
		out := t.TempDir()
		_, err := Run(t.Context(), Options{Format: f, Model: dir, Out: filepath.Join(out, "x"), fs: full{checkpoint.OS()}})
		if err == nil || !strings.Contains(err.Error(), out+" has 100 B free and the output takes ") {
			t.Errorf("%s: got %v", f, err)
		}
		if left := listDir(t, out); len(left) > 0 {
			t.Errorf("%s: %v is left", f, left)
		}
	}
}

// TestRoomByType: the space that an export needs depends on its type. If the disk has room for a
// smaller type only, an export in a larger type fails before it writes anything.
func TestRoomByType(t *testing.T) {
	dir, elems := makeModel(t, llamaConfig(nil), llamaTensors(), nil), int64(0)
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	for _, x := range w.Tensors() {
		elems += x.Elems()
	}
	w.Close()
	for kind, each := range map[Type]int64{BF16: 2, F32: 4} {
		for _, f := range []Format{GGUF, Safetensors} {
			_, err := Run(t.Context(), Options{Format: f, Model: dir, Type: kind, Out: filepath.Join(t.TempDir(), "x"), fs: left{checkpoint.OS(), each*elems - 1}})
			if err == nil || !strings.Contains(err.Error(), " free and the output takes ") {
				t.Errorf("%s in %s with a byte less than its weights take: %v", f, kind, err)
			}
			if _, err := Run(t.Context(), Options{Format: f, Model: dir, Type: kind, Out: filepath.Join(t.TempDir(), "x"), fs: left{checkpoint.OS(), each*elems + 256<<10}}); err != nil {
				t.Errorf("%s in %s: %v", f, kind, err)
			}
		}
	}
}

// left is a disk with a given number of free bytes.
type left struct {
	checkpoint.FS
	bytes int64
}

func (l left) Free(string) (int64, error) { return l.bytes, nil }

type full struct{ checkpoint.FS }

func (full) Free(string) (int64, error) { return 100, nil }

// TestSafetensorsKeepsF32: in a bf16 export, tensors that Transformers keeps in fp32 stay fp32.
func TestSafetensorsKeepsF32(t *testing.T) {
	config := map[string]any{"model_type": "glm4_moe", "vocab_size": 24, "hidden_size": 32, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
	out := t.TempDir()
	testkit.Must(Run(t.Context(), Options{Format: Safetensors, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: out, Type: BF16, Overwrite: true}))(t)
	w := testkit.Must(checkpoint.OpenWeights(out))(t)
	defer w.Close()
	for name, want := range map[string]string{"model.layers.1.mlp.gate.e_score_correction_bias": "F32", "model.layers.1.mlp.gate.weight": "BF16"} {
		if x, _ := w.Tensor(name); x.DType != want {
			t.Errorf("%s is %s, want %s", name, x.DType, want)
		}
	}
}

// tensorsFor returns the tensors, with their shapes, of a model with this config.json.
func tensorsFor(t *testing.T, config map[string]any) map[string]shape {
	t.Helper()
	c := testkit.Must(model.FromInline(config, "test"))(t)
	tensors := map[string]shape{}
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for i, s := range p.Stored {
				tensors[s.Tensor()] = p.TensorShape(i)
			}
		}
	}
	return tensors
}
