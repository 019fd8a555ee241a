package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// everything is a config in which no key has its default value.
const everything = `model: {hidden_size: 64, rms_norm_eps: 1e-6, tie_word_embeddings: true, layer_types: [a, "1"], "odd key": null}
add_tokens: ["<a, b>", "{", "  ", "true", "12", "#: -é"]
new_special_tokens: "<|im_start|>,<|im_end|>"
special_tokens: {eos_token: "<|im_end|>", additional_special_tokens: ["true", "<a>"]}
resize_vocab: true
resize_vocab_to_multiple_of: 8
dataset: [a.txt, "b, c.txt", '${GOROOT}/src/**/*.go']
dataset_dir: "dir with spaces"
dataset_format: jsonl
text_column: body
messages_column: talk
prompt_column: question
response_column: answer
mix_strategy: interleave_over
interleave_probs: [0.5, 1e-1, .4]
skip_bad_rows: true
max_samples: 1000
eval_dataset: held.jsonl
max_seq_len: 77
packing: false
train_on_prompt: true
template: "true"
chat_template_kwargs: {level: 2, share: 2.0, "odd key": [a, null, "1"], deep: {a: true}}
enable_thinking: false
shuffle: false
seed: 7
cache_dir: /tmp/c
batch_size: 3
gradient_accumulation_steps: 4
max_steps: 50
num_train_epochs: 1.5
optim: muon
muon_lr: 0.02
adam_lr: 0.001
momentum: 0.9
nesterov: false
ns_steps: 4
adjust_lr_fn: match_rms_adamw
adam_beta1: 0.8
adam_beta2: 0.95
adam_epsilon: 1e-6
weight_decay: .1
max_grad_norm: 0
clip: layerwise
label_smoothing_factor: 0.1
z_loss_coef: 1e-4
neftune_noise_alpha: 5
mtp_loss_weight: 0.2
freeze: ['layers\.0\.', norm]
unfrozen_parameters: [lm_head]
ema_decay: 0.99
ema_update_after_step: 2
lr_groups: [{name: a b, modules: ['q\\.w', "x,y"], lr: 1e-6}, {name: n, modules: norm, lr: 2, weight_decay: 0}]
learning_rate: 3e-3
lr_scheduler_type: wsd
lr_scheduler_kwargs: {power: null}
warmup_steps: 3
warmup_ratio: 0.1
min_lr_ratio: 0.05
num_decay_steps: 9
decay_ratio: 0.2
max_nonfinite_steps: 5
reset_data: true
reset_optimizer: true
output_dir: out
overwrite_output_dir: true
save_strategy: epoch
save_steps: 0.25
save_only_model: true
keep_checkpoints: false
save_total_limit: 2
save_dtype: fp32
optimizer_zstd: true
resume_from_checkpoint: out/checkpoint-5
logging_steps: 1
eval_strategy: epoch
eval_steps: 4
save_best: true
early_stopping_patience: 3
early_stopping_threshold: 0.01
report_to: [tensorboard, mlflow]
run_name: "a run"
trace: run.json.gz
dashboard: 0.0.0.0:9000
sample_prompt: "func \"main\"\n\t: # é"
sample_steps: 0.5
sample_prompts: ["one, two", three]
sample_max_new_tokens: 9
sample_temperature: 0
sample_top_k: 5
sample_top_p: 1
compare_bigram: true
device: cpu
devices: [0, 2]
device_rates: rates.json
peer_copies: false
compute_dtype: bf16
grad_dtype: bf16
master_dtype: bf16
recompute: full
hidden_states: host
device_memory: 10GiB
host_memory: 1234567891
state_dir: [/disks/a, /disks/b]
param_dir: [/disks/c]
compress: byteplane
threads: 2
binding: copy
synchronous_updates: true
micro_batch_order: lanes
matmul: timed
attention_kernels: portable
pipeline: {weight_slots: 2, grad_buffers: 3, grad_slabs: 4, exchange_buffers: 10, gathers_ahead: 11, state_slots: 12, matrix_buffers: 13, activation_slots: 5, rounds: 2, batches_ahead: 6, micro_batch_tokens: 7, chunk_tokens: 8, head_shards: 9}
`

// TestCompressIsForDisks: compress needs a state_dir, whose files it compresses; without one only
// compress: none is accepted.
func TestCompressIsForDisks(t *testing.T) {
	for text, says := range map[string]string{"compress: byteplane\n": "give state_dir, or set compress: none", "compress: zip\n": "byteplane", "compress: none\n": "", "compress: byteplane\nstate_dir: /nvme\n": ""} {
		_, err := Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+text), Args{})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "compress")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPrintedConfigsParseToEqual(t *testing.T) {
	for _, text := range []string{"", everything, "model: tiny", "model: ./tiny", "base_model: tiny", "base_model: '12'",
		"resume_from_checkpoint: false", `sample_prompt: "auto"`, `output_dir: "null"`, "dataset: ['a,b']", "template: ''",
		"dashboard: true", "dashboard: no", "dashboard: 9000", "dashboard: '[::1]:0'", "cache_dir: 'C:\\x'", `sample_prompt: "\u0000\u2028\u007f"`} {
		c := mustParse(t, text)
		printed := c.YAML("what this is\nand more")
		again, err := Parse("again.yaml", printed, Args{})
		if err != nil {
			t.Errorf("%q: %v in\n%s", text, err, printed)
			continue
		}
		if d := again.Differences(c); len(d) > 0 {
			t.Errorf("%q: %v", text, d)
		}
		if twice := again.YAML("what this is\nand more"); !bytes.Equal(printed, twice) {
			t.Errorf("%q: printed\n%s\nthen\n%s", text, printed, twice)
		}
	}
}

// TestEverythingIsCovered: in the config everything, each key differs from its default, except keys
// with a single value and keys that exclude others. The test of printing and parsing it therefore
// covers all keys.
func TestEverythingIsCovered(t *testing.T) {
	c, d := mustParse(t, everything), Default()
	same := map[string]bool{"mask_history": true, "dpo": true, "val_size": true, "datasets": true, "eval_datasets": true, "evals_per_epoch": true, "train_mtp": true, "saves_per_epoch": true}
	eachKey(func(k *key) {
		if k.print(c) == k.print(d) && !same[k.name] {
			t.Errorf("%s is at its default", k.name)
		}
	})
}

func TestDefaultsAreValid(t *testing.T) {
	printed := string(Default().YAML("head"))
	for _, want := range []string{"# head\n", "learning_rate: 5.0e-05\n", "max_steps: -1\n", "report_to: none\n",
		"pipeline:\n  weight_slots: auto\n", "resume_from_checkpoint: auto\n", "device_memory: auto\n", "template: \"\"\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in\n%s", want, printed)
		}
	}
}

func TestHelpNamesEveryKey(t *testing.T) {
	var b bytes.Buffer
	testkit.NoError(t, Help(&b, true))
	for name := range byName {
		if !strings.Contains(b.String(), name) {
			t.Errorf("%s is not in the help", name)
		}
	}
}

// TestHelpWithoutAll: the short table has the 20 common keys and no other, and fits 100 columns.
func TestHelpWithoutAll(t *testing.T) {
	var b bytes.Buffer
	testkit.NoError(t, Help(&b, false))
	n := 0
	eachKey(func(k *key) {
		listed := strings.Contains(b.String(), "\n  "+k.name+" ")
		if listed != k.common {
			t.Errorf("%s: listed %t, common %t", k.name, listed, k.common)
		}
		if listed {
			n++
		}
	})
	if n != 20 {
		t.Errorf("%d keys are listed, want 20", n)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 101 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}

func TestModel(t *testing.T) {
	t.Chdir(t.TempDir())
	testkit.NoError(t, os.Mkdir("local", 0o700))
	for text, want := range map[string]ModelRef{
		"model: tiny":                 {Preset: "tiny"},
		"model: local":                {Path: "local"},
		"model: a/b":                  {Path: "a/b"},
		"model_name_or_path: gpt2":    {Path: "gpt2"},
		"base_model: meta-llama/Ll-3": {Path: "meta-llama/Ll-3"},
	} {
		if got := mustParse(t, text).Model; got.Path != want.Path || got.Preset != want.Preset || got.Inline != nil {
			t.Errorf("%s: got %+v", text, got)
		}
	}
	got := mustParse(t, "model:\n  hidden_size: 64\n  eps: 1e-5\n  tied: false\n  rope: {type: llama3, list: [1, x]}\n").Model.Inline
	want := map[string]any{"hidden_size": int64(64), "eps": 1e-5, "tied": false,
		"rope": map[string]any{"type": "llama3", "list": []any{int64(1), "x"}}}
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("got %#v", got)
	}
}

func TestModelDir(t *testing.T) {
	root := t.TempDir()
	for _, v := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", root)
	write := func(path, text string) {
		t.Helper()
		testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	fill := func(hub string) string {
		repo := filepath.Join(hub, "models--org--name")
		write(filepath.Join(repo, "refs", "main"), "abc123\n")
		write(filepath.Join(repo, "snapshots", "abc123", "config.json"), "{}")
		write(filepath.Join(hub, "models--org--half", "refs", "main"), "abc123")
		return filepath.Join(repo, "snapshots", "abc123")
	}
	for variable, hub := range map[string]string{
		"HF_HUB_CACHE": "one", "HF_HOME": "two/hub", "XDG_CACHE_HOME": "three/huggingface/hub", "": ".cache/huggingface/hub",
	} {
		want := fill(filepath.Join(root, hub))
		if variable != "" {
			t.Setenv(variable, filepath.Join(root, strings.Split(hub, "/")[0]))
		}
		if got, err := ModelDir("org/name"); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", variable, got, err, want)
		}
		for id, want := range map[string]string{"org/none": "no such directory, and no model of that name", "org/half": "no config.json"} {
			_, err := ModelDir(id)
			if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "hf download "+id) {
				t.Errorf("%s %s: %v", variable, id, err)
			}
		}
		if variable != "" {
			t.Setenv(variable, "")
		}
	}
	broken := filepath.Join(root, ".cache/huggingface/hub/models--org--broken/refs/main")
	write(filepath.Join(broken, "x"), "")
	if _, err := ModelDir("org/broken"); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), broken) {
		t.Errorf("a ref that cannot be read: %v", err)
	}
	t.Setenv("MODELS", root)
	write(filepath.Join(root, "dir", "x"), "")
	for path, want := range map[string]string{root: root, "${MODELS}/dir": root + "/dir", "~/dir": root + "/dir"} {
		if got, err := ModelDir(path); err != nil || got != want {
			t.Errorf("%s: got %s, %v", path, got, err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(root, "dir", "x"): "is a file", "./none": "./none: no such directory", "a/b/c": "a/b/c: no such directory",
		"${NOT_SET_ANYWHERE}/x": "NOT_SET_ANYWHERE",
	} {
		if _, err := ModelDir(path); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestChanges(t *testing.T) {
	base := "model: tiny\ndataset: x\nmax_steps: 10\nthreads: 2\npipeline: {micro_batch_tokens: 32}\n"
	for _, tc := range []struct {
		change, key string
		part        Part
	}{
		{"", "", ""},
		{"output_dir: elsewhere", "", ""},
		{"resume_from_checkpoint: x", "", ""},
		{"threads: 3", "", ""},
		{"pipeline: {micro_batch_tokens: 32, weight_slots: 3}", "", ""},
		{"pipeline: {micro_batch_tokens: auto}", "", ""},
		{"batch_size: 4\ngradient_accumulation_steps: 2", "", ""},
		{"batch_size: 4", "rows_per_step", PartRows},
		{"batch_size: 16", "rows_per_step", PartRows},
		{"learning_rate: 1", "learning_rate", PartSchedule},
		{"max_steps: 9", "max_steps", PartSchedule},
		{"adam_beta1: 0.5", "adam_beta1", PartUpdate},
		{"adam_beta2: 0.5", "adam_beta2", PartUpdate},
		{"adam_epsilon: 0.5", "adam_epsilon", PartUpdate},
		{"weight_decay: 0.5", "weight_decay", PartUpdate},
		{"max_grad_norm: 0", "max_grad_norm", PartUpdate},
		{"save_steps: 7", "save_steps", PartOutput},
		{"max_seq_len: 64", "max_seq_len", PartDataset},
		{"seed: 1", "seed", PartDataset},
		{"compute_dtype: bf16", "compute_dtype", PartNumerics},
		{"recompute: full", "", ""},
		{"pipeline: {micro_batch_tokens: 64}", "pipeline.micro_batch_tokens", PartNumerics},
	} {
		text := base + tc.change
		if strings.HasPrefix(tc.change, "pipeline") || strings.HasPrefix(tc.change, "threads") || strings.HasPrefix(tc.change, "max_steps") {
			key, _, _ := strings.Cut(tc.change, ":")
			text = regexp.MustCompile("(?m)^"+key+":.*\n").ReplaceAllString(base, "") + tc.change
		}
		got := mustParse(t, text).Changes(mustParse(t, base))
		if tc.key == "" && len(got) > 0 || tc.key != "" && (len(got) != 1 || got[0].Key != tc.key || got[0].Part != tc.part) {
			t.Errorf("%q: got %+v", tc.change, got)
		}
	}
	path, preset := mustParse(t, "base_model: tiny"), mustParse(t, "model: tiny")
	if d := path.Changes(preset); len(d) != 1 || d[0].Key != modelKey {
		t.Errorf("a path and a preset of one name: %v", d)
	}
}

func TestKeepResolved(t *testing.T) {
	saved := mustParse(t, "device: cpu\ncompute_dtype: fp32\npacking: true\npipeline: {micro_batch_tokens: 512, weight_slots: 4, activation_slots: 9}\nrecompute: full\nthreads: 7\nhost_memory: 3GiB\ndevice_memory: 2GiB")
	for _, pipeline := range []bool{true, false} {
		c := mustParse(t, "pipeline: {weight_slots: 2}")
		c.KeepResolved(saved, pipeline)
		micro := map[bool]int{true: 512}[pipeline]
		if c.Device != "cpu" || c.ComputeDType != "fp32" || c.Packing != On || c.Pipeline.MicroBatchTokens != micro ||
			c.Pipeline.WeightSlots != 2 || c.Threads != 0 || c.HostMemory != 0 || c.DeviceMemory != 0 || c.Resume != "auto" || c.GradDType != "auto" ||
			c.Recompute != "auto" || c.Pipeline.ActivationSlots != 0 {
			t.Errorf("pipeline %t: got %+v", pipeline, c)
		}
		d := c.Clone()
		if len(d.Differences(c)) > 0 {
			t.Error("a clone differs")
		}
	}
}

func TestSchedule(t *testing.T) {
	const w, d = 4.0, 20.0
	for _, tc := range []struct {
		text string
		rate func(s float64) float64 // of 1, s steps into the run of 20
	}{
		{"lr_scheduler_type: constant", func(float64) float64 { return 1 }},
		{"lr_scheduler_type: constant_with_warmup\nwarmup_steps: 4", func(s float64) float64 { return min(1, s/w) }},
		{"warmup_steps: 4", func(s float64) float64 { return min(s/w, (d-s)/(d-w)) }},
		{"warmup_ratio: 0.17", func(s float64) float64 { return min(s/w, (d-s)/(d-w)) }}, // 3.4, rounded up
		{"min_lr_ratio: 0.1", func(s float64) float64 { return 0.1 + 0.9*(d-s)/d }},
		{"lr_scheduler_type: cosine", func(s float64) float64 { return 0.5 + 0.5*math.Cos(math.Pi*s/d) }},
		{"lr_scheduler_type: cosine_with_min_lr\nmin_lr_ratio: 0.1\nwarmup_steps: 4", func(s float64) float64 {
			return min(s/w, 0.55+0.45*math.Cos(math.Pi*(s-w)/(d-w)))
		}},
		{"lr_scheduler_type: wsd\nwarmup_steps: 4\nnum_decay_steps: 5\nmin_lr_ratio: 0.2", func(s float64) float64 {
			switch {
			case s < 4:
				return 0.2 + 0.8*s/w
			case s < 15:
				return 1
			}
			return 0.6 + 0.4*math.Cos(math.Pi*(s-15)/5)
		}},
		{"lr_scheduler_type: warmup_stable_decay", func(s float64) float64 { // the last 2 of 20
			return 0.5 + 0.5*math.Cos(math.Pi*max(0, s-18)/2)
		}},
	} {
		c := mustParse(t, tc.text+"\nmax_steps: 20\nlearning_rate: 0.003")
		for step := 1; step <= 20; step++ {
			want := 0.003 * tc.rate(float64(step-1))
			if s := float64(step - 1); strings.Contains(tc.text, "cosine_with") && s < w {
				want = 0.003 * s / w
			}
			if got := c.Schedule(step); !(math.Abs(got-want) <= 1e-15) { // nor NaN
				t.Errorf("%q step %d: %g, want %g", tc.text, step, got, want)
			}
		}
	}
	end := mustParse(t, "lr_scheduler_type: wsd\nmax_steps: 20\nmin_lr_ratio: 0.2\nlearning_rate: 1")
	if got := end.Schedule(21); got != 0.2 {
		t.Errorf("after the end: %g", got)
	}
}

// TestScheduleEqualsTransformers: the learning rate of every step equals the one in recorded runs
// of Transformers.
func TestScheduleEqualsTransformers(t *testing.T) {
	own, _ := filepath.Glob("../testdata/recordings/*/expected.json")
	if len(own) == 0 {
		t.Fatal("the recorded runs of internal/run are not there")
	}
	t.Run("own", func(t *testing.T) { compareSchedules(t, own) })
	t.Run("recorded", func(t *testing.T) {
		var files []string
		for _, dir := range testkit.Recordings(t) {
			files = append(files, filepath.Join(dir, "expected.json"))
		}
		compareSchedules(t, files)
	})
}

func compareSchedules(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		var recipe map[string]any
		var run struct {
			Steps []struct {
				Step int
				LR   float64
			}
		}
		readJSON(t, filepath.Join(filepath.Dir(file), "recipe.json"), &recipe)
		readJSON(t, file, &run)
		var flags []string
		for k, v := range recipe {
			if byName[k] == nil {
				continue
			}
			text := []byte(fmt.Sprint(v))
			switch v.(type) {
			case []any, map[string]any:
				text, _ = json.Marshal(v)
			}
			flags = append(flags, fmt.Sprintf("--%s=%s", k, text))
		}
		c := mustParse(t, "", flags...)
		for _, s := range run.Steps {
			// The cosines of Go and Python may differ in the last bit, 1e-16 near 1. The bound
			// leaves room for a few such differences.
			if got := c.Schedule(s.Step); !(math.Abs(got-s.LR) <= 1e-15*c.LearningRate) {
				t.Errorf("%s step %d: %v, want %v", file, s.Step, got, s.LR)
			}
		}
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(file))(t)
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestBytes(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0 B", 10 << 30: "10 GiB", -(1 << 20): "-1.0 MiB"} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
	}
	for b, want := range map[Bytes]string{10 << 30: "10GiB", 3 << 39: "1536GiB", 1 << 50: "1024TiB", 1025: "1025"} {
		if got := b.exact(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
	}
}

// FuzzParse: no input makes the parser panic. A config that parses prints as a text that parses to
// the same config.
func FuzzParse(f *testing.F) {
	for _, s := range []string{everything, "model: tiny", "a: [", "pipeline: {weight_slots: auto}", "&a *a", "? x\n: y", "--- |\n x",
		"model: {a: {b: {c: []}}}", "seed: !!int 3", "dataset: >-\n  a\n  b", "\"\\ud800\": 1", "report_to: []", "model: 1e999"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("f.yaml", src, Args{})
		if err != nil {
			if !IsUsage(err) {
				t.Fatalf("not a usage error: %v", err)
			}
			return
		}
		printed := c.YAML("")
		again, err := Parse("again.yaml", printed, Args{})
		if err != nil {
			t.Fatalf("%v in\n%s", err, printed)
		}
		if d := again.Differences(c); len(d) > 0 {
			t.Fatalf("%v", d)
		}
	})
}

// TestForeignKeysAreNotOurs: no key of mt is also in the table of other tools' keys. Otherwise it
// would have two flags.
func TestForeignKeysAreNotOurs(t *testing.T) {
	for name := range foreign {
		if byName[name] != nil {
			t.Errorf("%s is a key of mt's and one of other tools", name)
		}
	}
}
