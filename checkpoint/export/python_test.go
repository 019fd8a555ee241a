package export

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// fixtures is the folder of models and tokenizers with the recorded results of other programs.
// make.py in that folder describes them.
const fixtures = "../../../shared/fixtures"

// python returns a function that runs the interpreter that MT_PYTHON names. It skips the test if
// the interpreter lacks one of the packages.
func python(t *testing.T, packages ...string) func(args ...string) []byte {
	t.Helper()
	name := testkit.NeedPython(t, packages...)
	return func(args ...string) []byte {
		t.Helper()
		return testkit.RunPython(t, name, args...)
	}
}

// written returns the recorded models that can be written as GGUF: directories by name.
func written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range testkit.Recordings(t) {
		name := filepath.Base(dir)
		switch {
		case name == "qwen3moe-aux": // llama.cpp has no keys for its routing and its dense layer
		case name == "glmmoedsa", name == "deepseekv32-chosen": // llama.cpp rotates the vectors of its indexer 64 elements at a time, and they have 16 and 8
		case name == "nemotronh-dense": // llama.cpp has no biases in its MLPs
		case name == "museglimmer": // llama.cpp has no such architecture
		case name == "exaone4": // llama.cpp has a window in models of 64 layers only
		case name == "deepseekv2-groups": // llama.cpp cannot score an expert group by its best expert
		case strings.HasPrefix(name, "phimoe"): // llama.cpp lacks its softmax over experts of similar score
		case strings.HasPrefix(name, "llama4") && name != "llama4-published": // llama.cpp cannot have attention chunks of another size
		default:
			out[name] = filepath.Join(dir, "model")
		}
	}
	return out
}

// TestPackageReads: the PyPI package gguf reads every tensor of every recorded model in every type.
// It quantizes the weights to the same bytes.
func TestPackageReads(t *testing.T) {
	run := python(t, "gguf", "numpy")
	for name, dir := range written(t) {
		if name == "hyv3" {
			continue // the package has no such architecture
		}
		dir = changed(t, name, dir)
		for _, kind := range GGUF.Types() {
			out := filepath.Join(t.TempDir(), name+".gguf")
			testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: kind}))(t)
			if got := run("testdata/check.py", out, dir); !strings.Contains(string(got), `"ok": true`) {
				t.Errorf("%s %s: %s", name, kind, got)
			}
		}
	}
}

// logitBound is for the greatest difference of a logit, whose greatest is about
// 2, from Transformers' in fp32: sums of 64 to 176 products in another order. In
// gemma2, gemma3, gemma4 and models without a gate llama.cpp looks GELU up by a half precision argument, at 2^-11; in pythia
// it is the one with tanh.
var logitBound = map[string]float64{"": 1e-5, "gemma2-capped": 5e-3, "gemma3-text": 5e-3, "gemma4": 5e-3, "gemma4-moe": 5e-3, "gemma4-e": 5e-3, "gemma4vl": 5e-3,
	"starcoder2": 5e-3, "pythia": 5e-3, "gpt2": 5e-3}

// TestLlamaCpp: llama.cpp loads every recorded model and computes the recorded logits of two texts.
func TestLlamaCpp(t *testing.T) {
	python(t, "xllamacpp", "llama_cpp_py_sync")
	for name, dir := range written(t) {
		t.Run(name, func(t *testing.T) { llamaCpp(t, name, dir) })
	}
}

// llamaCpp is TestLlamaCpp for one model.
func llamaCpp(t *testing.T, name, dir string) {
	t.Helper()
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	out := filepath.Join(t.TempDir(), "x.gguf")
	testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: changed(t, name, dir), Out: out, Type: F32}))(t)
	rows := firstRows(t, filepath.Join(filepath.Dir(dir), "train.jsonl"))
	want := recorded(t, filepath.Join(filepath.Dir(dir), "logits.safetensors"))
	switch {
	case name == "gptoss": // llama.cpp rounds where yarn's ramp begins and ends; a note says so
		want = altered(t, filepath.Dir(dir), func(c *model.Config) { c.Rope.NoTruncate = false })
	case strings.HasPrefix(name, "qwen2vl") || strings.HasPrefix(name, "qwen25vl"): // this release of llama.cpp does not read the norms' epsilon there
		want = altered(t, filepath.Dir(dir), func(c *model.Config) { c.RMSNormEps = 0 })
	case strings.HasPrefix(name, "deepseek") || strings.HasPrefix(name, "mistral4") || name == "kimik25" || name == "glm4moelite": // llama.cpp has one epsilon for all norms; a note says so
		want = altered(t, filepath.Dir(dir), func(c *model.Config) { c.MLA.NormEps = c.RMSNormEps })
	case name == "qwen35vl": // the recorded logits, which are computed in fp32, are 5e-6 off
		want = altered(t, filepath.Dir(dir), func(*model.Config) {})
	case name == "kimilinear": // see changed
		want = altered(t, filepath.Dir(dir), func(c *model.Config) { c.RMSNormEps = 1e-6 })
	case name == "gemma2-capped": // see changed
		want = altered(t, filepath.Dir(dir), func(c *model.Config) { c.AttnScale = 1 / math.Sqrt(float64(c.HeadDim)) })
	}
	for i, ids := range rows {
		if (name == "mistral-window" || name == "starcoder2") && len(ids) > 16 {
			continue // llama.cpp has no window there; a note says so
		}
		var got struct{ Logits [][]float64 }
		testkit.NoError(t, json.Unmarshal(run("testdata/llamacpp.py", out, "--ids", ids.String()), &got))
		bound, ok := logitBound[name]
		if !ok {
			bound = logitBound[""]
		}
		var worst float64
		w := want["row"+strconv.Itoa(i)]
		for j, row := range got.Logits {
			for k, v := range row {
				worst = max(worst, math.Abs(v-float64(w[j*len(row)+k])))
			}
		}
		if !(worst <= bound) || len(got.Logits) != len(ids) || len(w) != len(ids)*len(got.Logits[0]) {
			t.Errorf("%s: row %d: off by %.2e over %.0e, %d positions", name, i, worst, bound, len(got.Logits))
		}
	}
}

// altered returns the logits that the reference computes for a recorded case after alter has
// changed its configuration.
func altered(t *testing.T, dir string, alter func(*model.Config)) map[string][]float32 {
	t.Helper()
	f := testkit.Must(reference.LoadFixture(dir))(t)
	alter(f.Config)
	out := map[string][]float32{}
	for i := range f.Logits {
		for _, v := range reference.Logits(f.Config, f.Plain, f.Rows[i].IDs) {
			out["row"+strconv.Itoa(i)] = append(out["row"+strconv.Itoa(i)], float32(v))
		}
	}
	return out
}

// changed returns the model directory to export. For two recorded models it is a copy with other
// keys. phi3-longrope: llama.cpp's contexts have at least 256 positions, so it uses the long
// factors, but the recording used the short ones; the copy has the short ones for both. gemma2:
// llama.cpp derives the scale of scores from the head size, so the copy has that scale.
func changed(t *testing.T, name, dir string) string {
	t.Helper()
	change := map[string]func(config map[string]any){
		"phi3-longrope": func(c map[string]any) {
			rope := c["rope_parameters"].(map[string]any)
			rope["long_factor"] = rope["short_factor"]
		},
		"kimilinear":    func(c map[string]any) { c["rms_norm_eps"] = 1e-6 },
		"gemma2-capped": func(c map[string]any) { c["query_pre_attn_scalar"] = c["head_dim"] },
	}[name]
	if change == nil {
		return dir
	}
	out := t.TempDir()
	testkit.NoError(t, os.CopyFS(out, os.DirFS(dir)))
	file := filepath.Join(out, "config.json")
	v := testkit.Must(readJSON(file))(t)
	change(v.(map[string]any))
	testkit.NoError(t, os.Chmod(file, 0o600))
	testkit.NoError(t, os.WriteFile(file, mustJSON(t, v), 0o600))
	return out
}

type ids []int

func (x ids) String() string {
	var out []string
	for _, n := range x {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// firstRows returns the token ids of the first two rows of a recording.
func firstRows(t *testing.T, file string) []ids {
	t.Helper()
	raw := testkit.Must(os.ReadFile(file))(t)
	var out []ids
	for _, line := range strings.SplitN(string(raw), "\n", 3)[:2] {
		var row struct {
			InputIDs ids `json:"input_ids"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &row))
		out = append(out, row.InputIDs)
	}
	return out
}

// recorded reads all tensors of one safetensors file as fp32, by name.
func recorded(t *testing.T, file string) map[string][]float32 {
	t.Helper()
	dir := t.TempDir()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.safetensors"), raw, 0o600)
	}
	testkit.NoError(t, err)
	w, err := checkpoint.OpenWeights(dir)
	testkit.NoError(t, err)
	defer w.Close()
	out := map[string][]float32{}
	for _, x := range w.Tensors() {
		v := make([]float32, x.Elems())
		testkit.NoError(t, w.Read(x.Name, 0, v))
		out[x.Name] = v
	}
	return out
}

// TestLlamaCppTokenizes: llama.cpp splits the recorded texts into the same tokens as the recorded
// tokenizers, apart from known differences.
func TestLlamaCppTokenizes(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	dirs, err := filepath.Glob(filepath.Join(fixtures, "tokenizers", "*", "tokenizer.json"))
	if err != nil || len(dirs) == 0 {
		t.Skip(fixtures + "/tokenizers is not here")
	}
	// Number of texts that llama.cpp splits differently, since it lacks NFC and rstrip of added
	// tokens. The export's notes mention both.
	differ := map[string]int{"qwen2": 98, "phi3": 28}
	for _, file := range dirs {
		name := filepath.Base(filepath.Dir(file))
		raw := testkit.Must(os.ReadFile(file))(t)
		out := filepath.Join(t.TempDir(), "x.gguf")
		testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: forTokenizer(t, raw), Out: out}))(t)
		cases := filepath.Join(filepath.Dir(file), "cases.jsonl")
		var got struct{ IDs []ids }
		testkit.NoError(t, json.Unmarshal(run("testdata/llamacpp.py", out, "--texts", cases), &got))
		text := testkit.Must(os.ReadFile(cases))(t)
		wrong := 0
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			var want struct{ IDs ids }
			testkit.NoError(t, json.Unmarshal([]byte(line), &want))
			if want.IDs.String() != got.IDs[i].String() {
				wrong++
			}
		}
		if wrong > differ[name] {
			t.Errorf("%s: %d of %d texts differ, %d are known", name, wrong, len(got.IDs), differ[name])
		}
	}
}

// forTokenizer makes a model directory with the tokenizer.json raw and with an embedding that has a
// row for each token.
func forTokenizer(t *testing.T, raw []byte) string {
	t.Helper()
	var file tokenizerFile
	testkit.NoError(t, json.Unmarshal(raw, &file))
	rows := 0
	for _, id := range file.Model.Vocab {
		rows = max(rows, id+1)
	}
	for _, a := range file.AddedTokens {
		rows = max(rows, a.ID+1)
	}
	tensors := llamaTensors()
	tensors["model.embed_tokens.weight"], tensors["lm_head.weight"] = shape{int64(rows), 32}, shape{int64(rows), 32}
	v := &vocab{file: &file}
	first, _ := v.around()
	return makeModel(t, llamaConfig(map[string]any{"vocab_size": rows}), tensors, map[string]string{"tokenizer.json": string(raw),
		"tokenizer_config.json": string(mustJSON(t, map[string]any{"bos_token": first}))})
}
