package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// badConfigs are texts and flags that provoke every error of parsing. Flags stand after "flags: ". The limits of numbers
// are added from the table of keys.
var badConfigs = []string{
	// Unknown or repeated keys, and files that are no flat mapping.
	"lerning_rate: 1", "pipeline: {weight_slot: 4}", "flags: --lerning-rate 1", "flags: --pipeline {weight_slot: 4}", "seed: 1\nseed: 2",
	"max_seq_len: 8\ncutoff_len: 8", "- a", "seed: 1\n---\nseed: 2", "seed: [1", "seed: \xff", "seed: &a 1", ".inf: 1",
	"model: " + strings.Repeat("{a: ", 17) + "1" + strings.Repeat("}", 17), strings.Repeat("a: b\n", 2001), "dataset: [" + strings.Repeat("a,", 50_001) + "]",
	"flags: --model.hidden-size 8", "flags: -seed 1", "flags: --seed", "flags: --seed 1 --seed 2", "flags: --freeze a --freeze b",
	// Keys with wrong values.
	"max_steps: many", "threads: many", "learning_rate: [1]", "learning_rate:", "learning_rate: 1e999", "seed: 99999999999999999999", "val_size: 1.5",
	"save_steps: often", "save_steps: 2.5", "save_steps: 1e17", "shuffle: 1", "packing: maybe", "output_dir: 12", "template: {a: 1}", "save_dtype: int8",
	"lr_scheduler_type: cosin", "optim: adafactor", "save_strategy: best", "device_memory: ten", "report_to: wandb", "report_to: trackio",
	"dataset: [a, [b]]", "dataset: 3", "interleave_probs: [a]", "model: [a]", "model: {}", "base_model: {a: 1}", "dashboard: [1]",
	"resume_from_checkpoint: [1]", "devices: {a: 1}", "devices: both", "devices: [1, 1]", "devices: 0", "pipeline: 3", "chat_template_kwargs: 3",
	"special_tokens: 3", "lr_scheduler_kwargs: 3", "dpo: 3", "output_dir: ${NOT_SET_ANYWHERE}/x",
	// Wrong items of the lists datasets and lr_groups.
	"datasets: [[a]]", "datasets: [{pathh: b}]", "datasets: [{type: alpaca}]", "datasets: [{path: a, type: alpacca}]", "datasets: [{path: a, roles: x}]",
	"datasets: [{path: a, roles: {boss: [x]}}]", "datasets: [{path: a, message_property_mappings: {thinking: x}}]",
	"datasets: [{path: a, message_property_mappings: x}]", "lr_groups: 3", "lr_groups: [a]", "lr_groups: [{modules: [x], lr: 1}]",
	"lr_groups: [{name: a, lr: 1}]", "lr_groups: [{name: a, modules: [x]}]", "lr_groups: [{name: a, module: [x]}]",
	"lr_groups: [{name: a, modules: [x], lr: 1}, {name: a, modules: [y], lr: 1}]", "learning_rate: 0\nlr_groups: [{name: a, modules: [x], lr: 1}]",
	// Wrong special tokens, learning-rate schedules and DPO keys.
	"special_tokens: {eos_token: 2}", "special_tokens: {eos: x}", "special_tokens: {additional_special_tokens: <a>}",
	"special_tokens: {additional_special_tokens: [a, [b]]}", "lr_scheduler_kwargs: {num_cycles: 2}", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: x}",
	"lr_scheduler_type: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 1.5}", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 0}",
	"lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: -1}", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 2}",
	"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.5, min_lr: 0}", "lr_scheduler_type: polynomial\nlearning_rate: 1e-8",
	"dpo: {bta: 1}", "dpo: {beta: high}", "dpo: {loss_type: 2}", "dpo: {loss_type: sigmod}", "dpo: {loss_type: hinge, label_smoothing: 0.1}",
	"dpo: {beta: 1}\nlabel_smoothing_factor: 0.1\nz_loss_coef: 0.1\nneftune_noise_alpha: 5\ntrain_on_prompt: true\ncompare_bigram: true\nval_size: 1",
	// Keys that contradict or need each other.
	"val_size: 3\neval_dataset: x", "eval_strategy: no\nval_size: 2\ncompare_bigram: true", "compare_bigram: true", "interleave_probs: 0.5,0.5",
	"dataset: a\nmix_strategy: interleave_under\ninterleave_probs: [0.5, 0.5]", "mask_history: true\ntrain_on_prompt: true", "train_mtp: true\ndpo: {beta: 1}\nsample_prompts: [a]\nsample_steps: 1", "output_dir: ''",
	"lr_scheduler_type: wsd\nmax_steps: 5\nnum_decay_steps: 9", "optim: muon\nlearning_rate: 0\nmuon_lr: 1", "max_steps: 5\nema_decay: 0.9\nema_update_after_step: 5",
	"param_dir: /x", "compress: byteplane", "optim: sgd\nnesterov: true", "save_best: true", "save_best: true\nval_size: 1\neval_strategy: 'no'",
	"save_best: true\nval_size: 1", "save_best: true\nval_size: 1\neval_steps: 1\nsave_strategy: 'no'", "sample_steps: 5", "datasets: [a]\ndataset: b",
	"chat_template_kwargs: {messages: []}", "enable_thinking: true\nchat_template_kwargs: {enable_thinking: true}", "evals_per_epoch: 4\neval_steps: 5",
	"saves_per_epoch: 4\nsave_strategy: epoch", "saves_per_epoch: 4\nmax_steps: 10",
	// Keys of other tools, with values that mt cannot honour.
	"stage: kto", "do_train: false", "finetuning_type: lora", "lora_rank: 8", "load_in_4bit: true", "bf16: maybe", "bf16: true\ncompute_dtype: fp32",
	"bf16: false\ncompute_dtype: bf16", "fp16: true", "tf32: true", "gradient_checkpointing: true\nrecompute: none", "gradient_checkpointing: false\nrecompute: full",
	"save_safetensors: false", "logging_strategy: epoch", "metric_for_best_model: accuracy", "greater_is_better: true", "trackio_space_id: x",
	"group_by_length: true", "push_to_hub: true", "streaming: true", "use_cache: true", "ignore_data_skip: true", "auto_find_batch_size: true", "wandb_project: x",
	"stage: sft\ndo_train: true\nfinetuning_type: full\nuse_galore: true",
}

// outOfRange lists a config for each bound of each key's numbers.
func outOfRange() (out []string) {
	eachKey(func(k *key) {
		var bad []float64
		switch k.field(&anyConfig).(type) {
		case *int, *int64, *float64, *Interval, *Bytes:
			bad = append(bad, k.limit.min-1)
			if !math.IsInf(k.limit.max, 1) && k.limit.max < 1<<53 {
				bad = append(bad, k.limit.max+1)
			}
		}
		for _, x := range bad {
			text := strconv.FormatFloat(x, 'f', -1, 64)
			if leaf, under := strings.CutPrefix(k.name, pipelineKey+"."); under {
				out = append(out, fmt.Sprintf("pipeline: {%s: %s}", leaf, text))
			} else {
				out = append(out, fmt.Sprintf("%s: %s", k.name, text))
			}
		}
	})
	return out
}

// TestErrorTexts: badConfigs and outOfRange provoke every error text of parsing. Each error is a
// UsageError, begins with its position and has at most 45 words a line. -v prints them all for a
// reviewer.
func TestErrorTexts(t *testing.T) {
	var all strings.Builder
	for _, text := range append(slices.Clone(badConfigs), outOfRange()...) {
		var err error
		if flags, ok := strings.CutPrefix(text, "flags: "); ok {
			args := strings.SplitN(flags, " ", 2)
			if strings.Contains(flags, " --") {
				args = strings.Fields(flags)
			}
			_, err = parse(t, "", args...)
		} else {
			_, err = Parse("t.yaml", []byte(text), Args{})
		}
		if err == nil || !IsUsage(err) {
			t.Errorf("%.80q: %v, want a UsageError", text, err)
			continue
		}
		t.Log(err)
		for line := range strings.Lines(err.Error()) {
			if !regexp.MustCompile(`^(t\.yaml|--?[a-z])`).MatchString(line) {
				t.Errorf("%.80q does not begin with a place", line)
			}
			if n := len(strings.Fields(line)); n > 45 {
				t.Errorf("%d words: %s", n, line)
			}
		}
		all.WriteString(err.Error() + "\n")
	}
	for _, file := range []string{"check.go", "datasets.go", "devices.go", "flags.go", "foreign.go", "load.go", "lrgroups.go", "preference.go", "schedule.go", "set.go", "specialtokens.go", "value.go"} {
		for text := range errorTexts(t, file) {
			if !strings.Contains(all.String(), text) {
				t.Errorf("%s: nothing provokes %q", file, text)
			}
		}
	}
}

// notParsing lists parts of error texts that no config can provoke, so TestErrorTexts does not ask
// for them.
var notParsing = []string{
	"has no effect: %s", "is a directory; give the YAML file", "a config file has at most", "the limit of a config file", "config: %s: %w",
	"must be true or false, not %s", "clipping needs %d", "its gradient until the norm is known", "layer when its gradient lands", "YAML: %s", "cannot be read (%v)", "converted as by", "these keys of other tools", "a number below 1.8e308",
}

// errorTexts returns the error texts in the Go file called file. For each format string it is the
// longest part without formatting verbs such as %s.
func errorTexts(t *testing.T, file string) map[string]bool {
	t.Helper()
	src := testkit.Must(os.ReadFile(file))(t)
	f := testkit.Must(parser.ParseFile(token.NewFileSet(), file, src, 0))(t)
	makes := []string{"fail", "errorf", "Errorf", "Usagef", "off", "on", "only"}
	out := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			name = fun.Name
		case *ast.SelectorExpr:
			name = fun.Sel.Name
		}
		if !slices.Contains(makes, name) {
			return true
		}
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text := testkit.Must(strconv.Unquote(lit.Value))(t)
				if slices.ContainsFunc(notParsing, func(part string) bool { return strings.Contains(text, part) }) {
					return true
				}
				parts := regexp.MustCompile(`%(\[\d\])?[a-z]`).Split(text, -1)
				longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
				if strings.Contains(longest, " ") {
					out[longest] = true
				}
				return true
			})
		}
		return true
	})
	return out
}
