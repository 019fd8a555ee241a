package run

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/generate"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// badInput is a mistake in a run's input and the error that mt must report for it.
type badInput struct {
	extra string                          // keys
	spoil func(t *testing.T, s, m string) // s: the scene's folder, m: the model directory in it
	usage bool                            // a mistake in the config: exit code 2
	says  []string
}

// withModel returns a run that trains from a model directory, root/model.
func withModel(t *testing.T) scene {
	t.Helper()
	made := newScene(t, "max_steps: 1\nsave_dtype: fp32\n")
	made.mustTrain(t)
	s := newScene(t, "")
	for _, name := range []string{"config.json", "model.safetensors"} {
		raw := testkit.Must(os.ReadFile(filepath.Join(made.out, name)))(t)
		write(t, filepath.Join(s.root, "model", name), string(raw))
	}
	return s.with("model:\nmodel_name_or_path: " + filepath.Join(s.root, "model") + "\n").without("model")
}

// without returns the scene without a top-level key.
func (s scene) without(key string) scene {
	s.yaml = override(s.yaml, key+":\n")
	s.yaml = strings.TrimSuffix(s.yaml, key+":\n")
	return s
}

// header rewrites the JSON header of a safetensors file by change. The file's data stays.
func header(t *testing.T, name string, change func(tensors map[string]any)) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(name))(t)
	n := binary.LittleEndian.Uint64(raw)
	var h map[string]any
	testkit.NoError(t, json.Unmarshal(raw[8:8+n], &h))
	change(h)
	text := testkit.Must(json.Marshal(h))(t)
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	write(t, name, string(append(append(out, text...), raw[8+n:]...)))
}

// tensorField returns a function that sets a field of the tensor with the given name in the header
// of model.safetensors.
func tensorField(name, field string, value any) func(t *testing.T, s, m string) {
	return func(t *testing.T, _, m string) {
		header(t, filepath.Join(m, "model.safetensors"), func(h map[string]any) { h[name].(map[string]any)[field] = value })
	}
}

func modelConfig(change func(c map[string]any)) func(t *testing.T, s, m string) {
	return func(t *testing.T, _, m string) {
		t.Helper()
		var c map[string]any
		readJSON(t, filepath.Join(m, "config.json"), &c)
		change(c)
		raw := testkit.Must(json.Marshal(c))(t)
		write(t, filepath.Join(m, "config.json"), string(raw))
	}
}

// rows returns a function that writes the given lines as the data set root/bad.jsonl.
func rows(lines string) func(t *testing.T, s, m string) {
	return func(t *testing.T, s, _ string) { write(t, filepath.Join(s, "bad.jsonl"), lines) }
}

const (
	badRows = "dataset: ROOT/bad.jsonl\n"
	good    = `{"input_ids": [1, 2, 3]}` + "\n"
	normW   = "model.norm.weight"
	embedW  = "model.embed_tokens.weight"
)

func index(weightMap string) func(t *testing.T, s, m string) {
	return func(t *testing.T, _, m string) {
		t.Helper()
		testkit.NoError(t, os.Rename(filepath.Join(m, "model.safetensors"), filepath.Join(m, "model-00001-of-00001.safetensors")))
		write(t, filepath.Join(m, "model.safetensors.index.json"), `{"weight_map": {`+weightMap+`}}`)
	}
}

var badInputs = map[string]badInput{
	"no such data":           {extra: "dataset: ROOT/nope.jsonl\n", usage: true, says: []string{"run.yaml:", "dataset: ", "no such file or directory: ", "/nope.jsonl"}},
	"no such glob":           {extra: "dataset: ROOT/*.txt\n", usage: true, says: []string{"run.yaml:", "dataset: ", "no file matches ", "/*.txt"}},
	"no such eval data":      {extra: "eval_dataset: ROOT/nope.jsonl\n", usage: true, says: []string{"run.yaml:", "eval_dataset: ", "no such file or directory: "}},
	"empty data":             {extra: badRows, spoil: rows(""), says: []string{"dataset: ", "is empty", "bad.jsonl"}},
	"blank data":             {extra: badRows, spoil: rows("\n\n"), says: []string{"dataset: ", "is empty"}},
	"no JSON":                {extra: badRows, spoil: rows(good + "{]\n"), says: []string{"dataset: ", "bad.jsonl:2: "}},
	"nothing supervised":     {extra: badRows, spoil: rows(good + `{"input_ids": [1, 2], "labels": [-100, -100]}` + "\n"), says: []string{"dataset: ", "bad.jsonl:2: ", "supervised"}},
	"id over vocabulary":     {extra: badRows, spoil: rows(good + `{"input_ids": [1, 48]}` + "\n"), says: []string{"dataset: ", "bad.jsonl:2: ", "48"}},
	"negative id":            {extra: badRows, spoil: rows(good + `{"input_ids": [1, -1]}` + "\n"), says: []string{"dataset: ", "bad.jsonl:2: ", "-1"}},
	"labels of other size":   {extra: badRows, spoil: rows(good + `{"input_ids": [1, 2], "labels": [1]}` + "\n"), says: []string{"dataset: ", "bad.jsonl:2: ", "labels"}},
	"one token":              {extra: badRows, spoil: rows(good + `{"input_ids": [1]}` + "\n"), says: []string{"dataset: ", "bad.jsonl:2: "}},
	"text without tokenizer": {extra: badRows, spoil: rows(`{"text": "hello"}` + "\n"), says: []string{"dataset: ", "bad.jsonl:1: ", "tokenizer"}},
	"validation takes all":   {extra: "val_size: 11\n", usage: true, says: []string{"val_size 11 takes 11 of 11 rows", "lower it"}},
	"rows too long":          {extra: badRows + "max_seq_len: 2\n", spoil: rows(`{"input_ids": [1, 2, 3], "labels": [-100, -100, 3]}` + "\n"), says: []string{"bad.jsonl:1: ", "max_seq_len", "raise"}},

	"truncated shard": {spoil: func(t *testing.T, _, m string) { truncate(t, filepath.Join(m, "model.safetensors"), 9000) },
		says: []string{"model.safetensors: ", "truncated"}},
	"only a header's length": {spoil: func(t *testing.T, _, m string) { truncate(t, filepath.Join(m, "model.safetensors"), 8) },
		says: []string{"model.safetensors: "}},
	"empty shard": {spoil: func(t *testing.T, _, m string) { truncate(t, filepath.Join(m, "model.safetensors"), 0) },
		says: []string{"model.safetensors: "}},
	"overlapping offsets":  {spoil: tensorField(normW, "data_offsets", []int{0, 64}), says: []string{"model.safetensors: ", "overlap"}},
	"offsets out of range": {spoil: tensorField(normW, "data_offsets", []int{1 << 40, 1<<40 + 64}), says: []string{"model.safetensors: ", "64 unused bytes"}},
	"offsets the wrong way": {spoil: tensorField(normW, "data_offsets", []int{64, 0}),
		says: []string{"model.safetensors: ", `"model.norm.weight"`}},
	"wrong dtype":    {spoil: tensorField(normW, "dtype", "I32"), says: []string{"model.safetensors: ", `"model.norm.weight"`, "I32", "F32, BF16, F16, F64 and F8_E4M3"}},
	"unknown dtype":  {spoil: tensorField(normW, "dtype", "F99"), says: []string{"model.safetensors: ", `"model.norm.weight"`, "F99"}},
	"wrong shape":    {spoil: tensorField(embedW, "shape", []int{16, 48}), says: []string{"model.safetensors: ", `"model.embed_tokens.weight"`, "[16 48]", "[48 16]", "config.json"}},
	"shape and size": {spoil: tensorField(embedW, "shape", []int{48, 17}), says: []string{"model.safetensors: ", `"model.embed_tokens.weight"`}},
	"huge shape":     {spoil: tensorField(embedW, "shape", []int{1 << 40, 1 << 40}), says: []string{"model.safetensors: ", `"model.embed_tokens.weight"`}},
	"missing tensor": {spoil: func(t *testing.T, _, m string) { header(t, filepath.Join(m, "model.safetensors"), rename(normW)) }, says: []string{`tensor "model.norm.weight" is missing`, "config.json"}},
	"shard outside":  {spoil: index(`"` + normW + `": "../other.safetensors"`), says: []string{"model.safetensors.index.json: ", `"../other.safetensors"`, "not a file of this directory"}},
	"missing shard":  {spoil: index(`"` + normW + `": "model-00002-of-00002.safetensors"`), says: []string{"model-00002-of-00002.safetensors: missing", "hf download ORG/NAME model-00002-of-00002.safetensors"}},
	"tensor not in shard": {spoil: func(t *testing.T, s, m string) {
		header(t, filepath.Join(m, "model.safetensors"), rename(normW))
		index(`"`+normW+`": "model-00001-of-00001.safetensors"`)(t, s, m)
	}, says: []string{"model-00001-of-00001.safetensors", `"model.norm.weight"`, "model.safetensors.index.json"}},
	"no config.json":      {spoil: func(t *testing.T, _, m string) { remove(t, filepath.Join(m, "config.json")) }, says: []string{"config.json"}},
	"damaged config.json": {spoil: func(t *testing.T, _, m string) { truncate(t, filepath.Join(m, "config.json"), 40) }, says: []string{"config.json: "}},
	"no weights":          {spoil: func(t *testing.T, _, m string) { remove(t, filepath.Join(m, "model.safetensors")) }, says: []string{"no model.safetensors"}},
	"other architecture": {spoil: modelConfig(func(c map[string]any) {
		c["model_type"], c["architectures"] = "mamba", []string{"MambaForCausalLM"}
	}), says: []string{"config.json: ", "MambaForCausalLM is not supported", "LlamaForCausalLM"}},
	"heads do not divide": {spoil: modelConfig(func(c map[string]any) { c["num_key_value_heads"] = 3 }), says: []string{"config.json: ", "num_key_value_heads"}},
	"no such model":       {extra: "model_name_or_path: ROOT/nope\n", usage: true, says: []string{"run.yaml:", "model_name_or_path: ", "/nope"}},

	"cuda": {extra: "device: cuda\n", usage: true, says: []string{"run.yaml:", "cuda: find CUDA: libcuda.so not found, looked in ", "device: cpu"}},
	"slabs with clipping": {extra: "pipeline:\n  grad_slabs: 2\n", usage: true,
		says: []string{"run.yaml:", "pipeline.grad_slabs is 2", "clipping needs 5", "max_grad_norm: 0", "grad_dtype: bf16"}},
	"one slab but tied": {extra: "max_grad_norm: 0\npipeline:\n  grad_slabs: 1\n", spoil: modelConfig(func(c map[string]any) { c["tie_word_embeddings"] = true }), usage: true,
		says: []string{"run.yaml:", "pipeline.grad_slabs", "at least 2"}},
	"host memory":      {extra: "host_memory: 1GiB\nmodel: llama-7b\n", usage: true, says: []string{"run.yaml:", "host_memory", "the run needs ", " of host memory and 1.0 GiB are available", "max_grad_norm: 0", "grad_dtype: bf16"}},
	"device memory":    {extra: "device_memory: 1GiB\nbinding: copy\nmodel: llama-7b\n", usage: true, says: []string{"run.yaml:", "device_memory", "the run needs ", " of device memory and 1.0 GiB are available", "pipeline.micro_batch_tokens"}},
	"output is a file": {extra: "output_dir: ROOT/file\n", spoil: func(t *testing.T, s, _ string) { write(t, filepath.Join(s, "file"), "x") }, usage: true, says: []string{"run.yaml:", "output_dir", "/file is a file"}},
	"output in a file": {extra: "output_dir: ROOT/file/out\n", spoil: func(t *testing.T, s, _ string) { write(t, filepath.Join(s, "file"), "x") }, usage: true, says: []string{"run.yaml:", "output_dir", "/file is a file"}},
	"output in /proc":  {extra: "output_dir: /proc/1/nope\n", usage: true, says: []string{"run.yaml:", "output_dir", "/proc/1/nope"}},
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	testkit.NoError(t, os.Truncate(name, size))
}

func remove(t *testing.T, name string) {
	t.Helper()
	testkit.NoError(t, os.Remove(name))
}

// rename returns a function that renames a tensor in a safetensors header.
func rename(name string) func(h map[string]any) {
	return func(h map[string]any) {
		h["x."+name] = h[name]
		delete(h, name)
	}
}

// TestBadInput: every mistake gives an error that says where it is and how to correct it. The run
// has then neither allocated memory nor written anything.
func TestBadInput(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	pattern := withModel(t)
	all := maps.Clone(badInputs)
	maps.Copy(all, hostileInputs)
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			s := pattern.moved(t)
			if tc.spoil != nil {
				tc.spoil(t, s.root, filepath.Join(s.root, "model"))
			}
			if strings.Contains(tc.extra, "\nmodel:") {
				s = s.without("model_name_or_path")
			}
			s = s.with(strings.ReplaceAll(tc.extra, "ROOT", s.root))
			source := s.yaml
			if !strings.Contains(source, "output_dir") {
				source = s.source()
			}
			c, err := config.Parse("run.yaml", []byte(source), config.Args{})
			testkit.NoError(t, err)
			h := settings.Hooks{Allocating: func() { t.Error("memory is taken") }}
			var out strings.Builder
			err = Train(t.Context(), c, settings.Options{Stdout: &out, Stderr: &out, Hooks: h})
			checkError(t, err, tc.usage, tc.says...)
			if _, err := os.Stat(c.OutputDir); err == nil && !strings.Contains(tc.extra, "output_dir") {
				t.Errorf("%s is there", c.OutputDir)
			}
			again, err := config.Parse("run.yaml", []byte(source), config.Args{})
			testkit.NoError(t, err)
			checkError(t, DryRun(t.Context(), again, settings.Options{Stdout: &out, Stderr: &out}), tc.usage, tc.says...)
		})
	}
}

// moved returns a copy of the scene, with its files, in a folder of its own.
func (s scene) moved(t *testing.T) scene {
	t.Helper()
	root := t.TempDir()
	copyTree(t, s.root, root)
	s.yaml = strings.ReplaceAll(s.yaml, s.root, root)
	s.root, s.out, s.rows = root, filepath.Join(root, "out"), strings.Replace(s.rows, s.root, root, 1)
	return s
}

// TestBadConfig: reading a config file reports all impossible keys and values at once, each with
// line and column.
func TestBadConfig(t *testing.T) {
	for text, says := range map[string][]string{
		"sed: 1\n":                               {"run.yaml:1:1: ", `"sed"`, `did you mean "seed"?`},
		"\nmax_steps: many\n":                    {"run.yaml:2:12: ", "whole number", "many"},
		"pipeline: {weight_slots: 0}\n":          {"run.yaml:1:26: ", "weight_slots", "1"},
		"pipeline: {grad_buffers: 0}\n":          {"run.yaml:1:26: ", "grad_buffers", "1"},
		"pipeline: {grad_slabs: 0}\n":            {"run.yaml:1:24: ", "grad_slabs", "1"},
		"pipeline: {activation_slots: 2}\n":      {"run.yaml:1:30: ", "activation_slots", "3"},
		"pipeline: {batches_ahead: 0}\n":         {"run.yaml:1:27: ", "batches_ahead", "1"},
		"pipeline: {micro_batch_tokens: -1}\n":   {"run.yaml:1:32: ", "micro_batch_tokens", "1"},
		"pipeline: {chunk_tokens: 0}\n":          {"run.yaml:1:26: ", "chunk_tokens", "1"},
		"pipeline: {slots: 1}\n":                 {"run.yaml:1:12: ", "slots"},
		"max_seq_len: 1\n":                       {"run.yaml:1:14: ", "max_seq_len", "2"},
		"learning_rate: -1\n":                    {"run.yaml:1:16: ", "learning_rate"},
		"device: gpu\n":                          {"run.yaml:1:9: ", "device", "cuda"},
		"seed: 1\nseed: 2\n":                     {"run.yaml:2:1: ", "seed"},
		"finetuning_type: lora\n":                {"run.yaml:1:18: ", "finetuning_type", "lora"},
		"output_dir: ''\n":                       {"run.yaml:1:13: ", "output_dir is empty"},
		"host_memory: 1\n":                       {"run.yaml:1:14: ", "host_memory", "GiB"},
		"val_size: 2\neval_dataset: x\n":         {"run.yaml:1:11: ", "val_size", "eval_dataset"},
		"seed: 1\nbatch_size: 0\nsed: 1\nx: 2\n": {"run.yaml:2:13: ", "run.yaml:3:1: ", "run.yaml:4:1: "},
	} {
		_, err := config.Parse("run.yaml", []byte(text), config.Args{})
		checkError(t, err, true, says...)
	}
}

// TestBadModelsElsewhere: evaluation and generation reject a broken model with the same errors as
// training.
func TestBadModelsElsewhere(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	pattern := withModel(t)
	for _, name := range []string{"truncated shard", "wrong shape", "no config.json", "missing shard"} {
		tc := badInputs[name]
		s := pattern.moved(t).with(tc.extra)
		if tc.spoil != nil {
			tc.spoil(t, s.root, filepath.Join(s.root, "model"))
		}
		var out strings.Builder
		o := settings.Options{Stdout: &out, Stderr: &out, Hooks: settings.Hooks{Allocating: func() { t.Errorf("%s: memory is taken", name) }}}
		_, err := Eval(t.Context(), EvalOptions{Options: o, Config: s.config(t)})
		checkError(t, err, tc.usage, tc.says...)
		err = generate.Text(t.Context(), generate.TextOptions{Options: o, Config: s.config(t), Prompt: "x", MaxNewTokens: 1, TopP: 1})
		checkError(t, err, tc.usage, tc.says...)
		if _, err := os.Stat(s.out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: output_dir is there", name)
		}
	}
}
