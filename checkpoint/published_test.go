package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/long"
)

// zero4 is the value of fake tensors in fp32.
func zero4(int64) []byte { return make([]byte, 4) }

// fake is a tensor of zeros.
func fake(dtype string, shape ...int64) *fakeTensor {
	n := dtypeSize[dtype]
	for _, d := range shape {
		n *= d
	}
	return &fakeTensor{DType: dtype, Shape: shape, data: make([]byte, n)}
}

// TestBuffersOfPublishedFiles: values that follow from config.json may lie in the modules of trained blocks, whatever their
// type; what has the name of one and the shape of a parameter is refused.
func TestBuffersOfPublishedFiles(t *testing.T) {
	c := config(t, nil)
	const block = "model.layers.0."
	for name, f := range map[string]*fakeTensor{
		"self_attn.bias":                    fake("BOOL", 1, 1, 9, 9),
		"self_attn.causal_mask":             fake("U8", 1, 1, 9, 9),
		"self_attn.attention.bias":          fake("F16", 1, 1, 9, 9),
		"self_attn.masked_bias":             fake("F32"),
		"self_attn.rotary_emb.inv_freq":     fake("F32", 3),
		"self_attn.rotary_emb.cos_cached":   fake("F32", 1, 1, 9, 6),
		"self_attn.position_ids":            fake("I32", 1, 9),
		"mlp.num_batches_tracked":           fake("I64"),
		"self_attn.rotary_emb.other_buffer": fake("BOOL", 5),
	} {
		dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { m[block+name] = f })
		if err := CheckModel(dir, c.Layouts(false)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]*fakeTensor{
		"self_attn.bias":        fake("F32", 14),
		"self_attn.extra":       fake("F32", 1, 1, 9, 8),
		"self_attn.k_proj.norm": fake("BF16", 6),
	} {
		dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { m[block+name] = f })
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), "config.json announces no such parameter") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sharded moves the weights of a model directory into shards, and returns the index that names them.
func sharded(t *testing.T, dir, shard string) map[string]string {
	t.Helper()
	src, err := openSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	index := map[string]string{}
	for name := range src.where {
		index[name] = shard
	}
	to := filepath.Join(dir, filepath.FromSlash(shard))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, singleName), to); err != nil {
		t.Fatal(err)
	}
	return index
}

func writeIndex(t *testing.T, dir string, index map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"weight_map": index})
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte(`{"metadata": {"loss": NaN},`), text[1:]...) // as Python writes a number that is not finite
	write(t, filepath.Join(dir, indexName), text)
}

// TestIndexOfPublishedFiles: shards may lie in a folder below, an index may list what no shard has and nothing needs, and a
// tensor that is needed and missing is an error that names the index.
func TestIndexOfPublishedFiles(t *testing.T) {
	c := config(t, nil)
	for _, shard := range []string{"x.safetensors", "weights/x.safetensors", "a/b/x-00001-of-00001.safetensors"} {
		dir := fakeModel(t, c, "F32", zero4, nil)
		index := sharded(t, dir, shard)
		for _, extra := range []string{"mtp.fc.weight", "model.layers.1.self_attn.absent.weight", "vision_tower.x"} {
			index[extra] = shard
			writeIndex(t, dir, index)
			if err := CheckModel(dir, c.Layouts(false)); err != nil {
				t.Errorf("%s, %s: %v", shard, extra, err)
			}
			src, err := OpenSource(dir, c.Layouts(false))
			if err != nil {
				t.Fatal(err)
			}
			if len(src.entries) > 0 {
				t.Errorf("%s: %d tensors to copy", extra, len(src.entries))
			}
			src.Close()
		}
	}
	dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { delete(m, "model.norm.weight") })
	index := sharded(t, dir, "x.safetensors")
	index["model.norm.weight"] = "x.safetensors"
	writeIndex(t, dir, index)
	err := CheckModel(dir, c.Layouts(false))
	if err == nil || !strings.Contains(err.Error(), `index.json says that "model.norm.weight" is in x.safetensors, which does not hold it; fetch it again`) {
		t.Error(err)
	}
}

// TestDoublePrecision: float64 is rounded to the nearest fp32, also beside other types.
func TestDoublePrecision(t *testing.T) {
	c := config(t, nil)
	numbers := []float64{1.0 / 3, -1e-40, math.Inf(1), 1e300, math.Nextafter(1, 2), 0, -2.5}
	dir := fakeModel(t, c, "F64", func(i int64) []byte {
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(numbers[i%int64(len(numbers))]))
	}, func(m map[string]*fakeTensor) { m["model.norm.weight"] = fake("F16", m["model.norm.weight"].Shape...) })
	layers := newLayers(c, false)
	if _, err := loadWhole(dir, layers, nil); err != nil {
		t.Fatal(err)
	}
	for i, got := range values(layers)["model.embed_tokens.weight"] {
		if want := math.Float32bits(float32(numbers[i%len(numbers)])); got != want {
			t.Fatalf("element %d is %08x, want %08x", i, got, want)
		}
	}
	w, err := OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var one [3]float32
	if err := w.Read("model.embed_tokens.weight", 4, one[:]); err != nil || one != [3]float32{1, 0, -2.5} {
		t.Errorf("%v, %v", one, err)
	}
}

// TestWhyMissing: an error about missing tensors says what the directory has in their place.
func TestWhyMissing(t *testing.T) {
	c := config(t, nil)
	wrapped := func(by string) func(map[string]*fakeTensor) {
		return func(m map[string]*fakeTensor) {
			for name, f := range maps.Clone(m) {
				delete(m, name)
				m[by+name] = f
			}
		}
	}
	for want, edit := range map[string]func(map[string]*fakeTensor){
		`the names there begin with "module.model.", where config.json's class has "model."`:           wrapped("module."),
		`begin with "base_model.model.model.", where config.json's class has "model."; save the model`: wrapped("base_model.model."),
		`"lm_head.weight" is missing: the directory has a model without a head`:                        func(m map[string]*fakeTensor) { delete(m, "lm_head.weight") },
		`missing: not the weights that config.json describes`: func(m map[string]*fakeTensor) {
			delete(m, "model.layers.1.mlp.up_proj.weight")
		},
	} {
		dir := fakeModel(t, c, "F32", zero4, edit)
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestTooManyTensors: a header or an index of more tensors than any model has is refused, and one of very many is read.
func TestTooManyTensors(t *testing.T) {
	long.NotShort(t)
	header := func(n int) []byte {
		text := []byte(`{"__metadata__":{"format":"pt"}`)
		for i := range n {
			text = fmt.Appendf(text, `,"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
		}
		return append(text, '}')
	}
	if h, err := parseHeader(header(5000)); err != nil || len(h.tensors) != 5000 {
		t.Errorf("%d tensors, %v", len(h.tensors), err)
	}
	if _, err := parseHeader(header(maxTensors + 1)); err == nil || !strings.Contains(err.Error(), "more than 262144 tensors in one file") {
		t.Error(err)
	}
	index := func(n int) []byte {
		text := []byte(`{"weight_map":{"a":"x"`)
		for i := range n - 1 {
			text = fmt.Appendf(text, `,"%d":"x"`, i)
		}
		return append(text, "}}"...)
	}
	if m, err := parseIndex(index(5000)); err != nil || len(m) != 5000 {
		t.Errorf("%d tensors, %v", len(m), err)
	}
	if _, err := parseIndex(index(maxIndexed + 1)); err == nil || !strings.Contains(err.Error(), "more than 524288 tensors in one index") {
		t.Error(err)
	}
}
