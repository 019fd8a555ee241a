package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"mt/internal/testkit"
)

// parseFlags parses a command line for a command that has the flags of all keys and those that own
// adds.
func parseFlags(args []string, own func(*pflag.FlagSet)) (a Args, positional []string, err error) {
	set := pflag.NewFlagSet("mt", pflag.ContinueOnError)
	set.SetNormalizeFunc(Dashes)
	a.AddTo(set)
	own(set)
	if args, err = a.Spell(set, args); err == nil {
		err = set.Parse(args)
	}
	return a, set.Args(), err
}

// parse parses text as the file t.yaml, together with flags.
func parse(t *testing.T, text string, flags ...string) (*Config, error) {
	t.Helper()
	a, _, err := parseFlags(flags, func(*pflag.FlagSet) {})
	if err != nil {
		return nil, err
	}
	return Parse("t.yaml", []byte(text), a)
}

func mustParse(t *testing.T, text string, flags ...string) *Config {
	t.Helper()
	c := testkit.Must(parse(t, text, flags...))(t)
	return c
}

// deepLines returns YAML text of n nested mappings, each with one key on its own line.
func deepLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%smodel:\n", strings.Repeat("  ", i))
	}
	return b.String() + strings.Repeat("  ", n) + "seed: 1\n"
}

func TestErrorsSayWhere(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"unknown key", "dataset: x\nlerning_rate: 1", `t.yaml:2:1: unknown key "lerning_rate"; did you mean "learning_rate"?`},
		{"near an alias", "cutof_len: 3", `t.yaml:1:1: unknown key "cutof_len"; did you mean "cutoff_len"?`},
		{"far from all", "zzzzzzzz: 3", `t.yaml:1:1: unknown key "zzzzzzzz"`},
		{"nested unknown", "seed: 1\npipeline:\n  weight_slot: 4", `t.yaml:3:3: unknown key "pipeline.weight_slot"; did you mean "pipeline.weight_slots"?`},
		{"too deep by lines", deepLines(20), "nested more than 16 deep"},
		{"too deep", "model: " + strings.Repeat("{a: ", 17) + "1" + strings.Repeat("}", 17), "nested more than 16 deep"},
		{"repeated", "seed: 1\n\nseed: 2", `t.yaml:3:1: the key "seed" is repeated; it is first given in line 1: keep one of them`},
		{"repeated nested", "pipeline:\n  grad_slabs: 1\n  grad_slabs: 1", `t.yaml:3:3: the key "grad_slabs" is repeated; it is first given in line 2: keep one of them`},
		{"alias and name", "max_seq_len: 8\ncutoff_len: 8", `t.yaml:2:1: cutoff_len and max_seq_len (line 1) are names of one key: give one of them`},
		{"two models", "model: tiny\nbase_model: a/b", `t.yaml:2:1: base_model and model (line 1) are names of one key: give one of them`},
		{"int from text", "max_steps:   many", `t.yaml:1:14: max_steps must be a whole number, not many`},
		{"int from float", "warmup_steps: 2.5", `t.yaml:1:15: warmup_steps must be a whole number, not 2.5`},
		{"neither whole nor a share", "logging_steps: 2.5", `t.yaml:1:16: logging_steps must be a whole number, or a share of all steps below 1, not 2.5`},
		{"interval from text", "save_steps: often", `t.yaml:1:13: save_steps must be a whole number, or a share of all steps below 1, not often`},
		{"negative interval", "save_steps: -1", `t.yaml:1:13: save_steps must be at least 0, not -1`},
		{"log never", "logging_steps: 0", `t.yaml:1:16: logging_steps must be more than 0, not 0`},
		{"best", "save_strategy: best", `t.yaml:1:16: save_strategy must be steps, epoch or no, not best; save_best: true keeps the checkpoint with the lowest eval_loss`},
		{"bigram without evaluation", "eval_strategy: no\nval_size: 2\ncompare_bigram: true", `t.yaml:3:17: compare_bigram needs the evaluation at the end, but eval_strategy is no: remove one of them`},
		{"int in quotes", `seed: "7"`, `t.yaml:1:7: seed must be a whole number, not "7"`},
		{"int too large", "seed: 99999999999999999999", `t.yaml:1:7: seed must be a number of at most 64 bits, not 99999999999999999999`},
		{"float from list", "learning_rate: [1]", `t.yaml:1:16: learning_rate must be a number, not a list`},
		{"float not a number", "learning_rate: .nan", `t.yaml:1:16: learning_rate must be a number, not .nan`},
		{"empty", "learning_rate:", `learning_rate must be a number, but is left empty`},
		{"bool", "shuffle: 1", `t.yaml:1:10: shuffle must be true or false, not 1`},
		{"toggle", "packing: maybe", `t.yaml:1:10: packing must be true, false or auto, not maybe`},
		{"text from number", "output_dir: 12", `t.yaml:1:13: output_dir must be text (put quotes around it), not 12`},
		{"text from mapping", "template: {a: 1}", `template must be text, not a mapping`},
		{"choice", "save_dtype: int8", `t.yaml:1:13: save_dtype must be bf16, fp32 or as_read, not int8`},
		{"near a choice", "lr_scheduler_type: cosin", `t.yaml:1:20: lr_scheduler_type must be constant, linear, cosine, cosine_warmup_with_min_lr, cosine_with_restarts, polynomial, inverse_sqrt or wsd, not cosin; did you mean "cosine"?`},
		{"optimizer", "optim: adafactor", `t.yaml:1:8: optim must be adamw, adamw_8bit, adamw_4bit, lion, lion_8bit, muon, muon_8bit or sgd (no other optimizer keeps its state in host memory), not adafactor`},
		{"sgd", "optim: sgd\nnesterov: true", `t.yaml:2:11: nesterov needs momentum, but momentum is 0: set momentum, such as 0.9, or remove nesterov`},
		{"size", "device_memory: ten", `t.yaml:1:16: device_memory must be a size such as 10GiB or auto, not ten`},
		{"size without unit", "device_memory: 10", `t.yaml:1:16: device_memory must be at least 1.0 MiB or auto (is a unit missing, as in 10GiB?), not 10`},
		{"negative", "weight_decay: -0.1", `t.yaml:1:15: weight_decay must be at least 0, not -0.1`},
		{"too large", "warmup_ratio: 1.5", `t.yaml:1:15: warmup_ratio must be at most 1, not 1.5`},
		{"below one", "adam_beta2: 1.0", `t.yaml:1:13: adam_beta2 must be less than 1 (with 1 a moment never changes), not 1.0`},
		{"positive", "adam_epsilon: 0", `t.yaml:1:15: adam_epsilon must be more than 0, not 0`},
		{"val_size", "val_size: 1.5", `t.yaml:1:11: val_size must be a share below 1 or a whole number of rows, not 1.5`},
		{"max_seq_len", "max_seq_len: 1", `t.yaml:1:14: max_seq_len must be at least 2 (a token is predicted from earlier tokens), not 1`},
		{"weight_slots", "pipeline: {weight_slots: 0}", `t.yaml:1:26: pipeline.weight_slots must be at least 1 or auto (a layer needs a slot for its weights), not 0`},
		{"grad_buffers", "pipeline: {grad_buffers: 0}", `pipeline.grad_buffers must be at least 1 or auto (a layer needs a buffer for its gradient), not 0`},
		{"grad_slabs", "pipeline: {grad_slabs: -1}", `pipeline.grad_slabs must be at least 1 or auto (a gradient needs a host buffer), not -1`},
		{"activation_slots", "pipeline:\n  activation_slots: 2", `t.yaml:2:21: pipeline.activation_slots must be at least 3 or auto (one is read, one is written, one is arriving), not 2`},
		{"batches_ahead", "pipeline: {batches_ahead: 0}", `must be at least 1 or auto (a step needs a batch), not 0`},
		{"micro_batch_tokens", "pipeline: {micro_batch_tokens: 0}", `must be at least 1 or auto (a micro-batch has at least one row), not 0`},
		{"pipeline", "pipeline: 3", `t.yaml:1:11: pipeline must be a mapping such as {weight_slots: 4}, not 3`},
		{"report_to", "report_to: [tensorboard, wandb]", `t.yaml:1:12: report_to must be tensorboard, mlflow, all or none (metrics.jsonl is always written), not wandb`},
		{"report_to, nearly", "report_to: mlfow", `report_to must be tensorboard, mlflow, all or none (metrics.jsonl is always written), not mlfow; did you mean "mlflow"?`},
		{"report_to trackio", "report_to: [tensorboard, trackio]", "report_to must be tensorboard, mlflow, all or none (metrics.jsonl is always written), not trackio; give tensorboard, whose event files trackio.import_tf_events reads (docs/watching.md)"},
		{"save_best", "save_best: true", "t.yaml:1:12: save_best needs evaluations, but there is no held-out data: give eval_dataset or val_size"},
		{"save_best at the end", "save_best: true\nval_size: 1", "save_best needs evaluations during the run, but the only one is at the end: give eval_steps, or set eval_strategy: epoch"},
		{"save_best without saves", "save_best: true\nval_size: 1\neval_steps: 1\nsave_strategy: 'no'", "save_best needs checkpoints, but save_strategy is no: remove one of them"},
		{"early stopping", "early_stopping_patience: 2\nval_size: 1\neval_strategy: 'no'", "early_stopping_patience needs evaluations, but eval_strategy is no: set eval_strategy to steps or epoch"},
		{"best of another metric", "metric_for_best_model: accuracy", "metric_for_best_model: accuracy: mt compares only the loss of evaluations: set eval_loss"},
		{"best is greater", "greater_is_better: true", "a lower eval_loss is better"},
		{"samples of nothing", "sample_steps: 5", "t.yaml:1:15: sample_steps needs prompts: give sample_prompts"},
		{"list item", "dataset: [a, [b]]", `t.yaml:1:14: dataset[1] must be text, not a list`},
		{"dataset number", "dataset: 3", `t.yaml:1:10: dataset must be text or a list of texts, not 3`},
		{"model list", "model: [a]", `t.yaml:1:8: model must be a directory or a Hub id, not a list`},
		{"model empty mapping", "model: {}", `t.yaml:1:8: model must be a preset's name, a directory or the keys of a config.json, not an empty mapping`},
		{"path mapping", "base_model: {a: 1}", `base_model must be a directory or a Hub id (give an inline config under the key model), not a mapping`},
		{"dashboard", "dashboard: [1]", `t.yaml:1:12: dashboard must be true, false or an address such as 9000 or 0.0.0.0:9000, not a list`},
		{"resume", "resume_from_checkpoint: [1]", `must be auto, false or a checkpoint's directory, not a list`},
		{"anchor", "seed: &a 1", `t.yaml:1:7: anchors, aliases, merge keys and tags are not supported: write the value out`},
		{"not a mapping", "- a\n- b", "a config file has `key: value` lines, but this is a list"},
		{"two documents", "seed: 1\n---\nseed: 2", `this begins a second YAML document; a config file has only one`},
		{"syntax", "seed: [1", `t.yaml:1:7: YAML: `},
		{"not text", "seed: \xff", `t.yaml is not UTF-8 text: save it as UTF-8`},
		{"held out twice", "val_size: 3\neval_dataset: x", `t.yaml:1:11: val_size and eval_dataset are both given: give one of them (val_size holds out rows of the training data)`},
		{"bigram", "compare_bigram: true", `t.yaml:1:17: compare_bigram needs held-out data: give eval_dataset or val_size`},
		{"masks", "mask_history: true\ntrain_on_prompt: true", `t.yaml:1:15: mask_history trains on the last answer of a chat, train_on_prompt on all of it: set only one of them`},
		{"shares without a mix", "interleave_probs: 0.5,0.5", `t.yaml:1:19: interleave_probs needs mix_strategy: interleave_under or interleave_over, but mix_strategy is concat`},
		{"a share of 0", "interleave_probs: [1, 0]", `t.yaml:1:23: interleave_probs[1] must be more than 0, not 0`},
		{"shares of others", "dataset: a\nmix_strategy: interleave_under\ninterleave_probs: [0.5, 0.5]", `t.yaml:3:19: interleave_probs needs one value per entry of dataset (1), but has 2`},
		{"a word for a share", "interleave_probs: [a]", `t.yaml:1:20: interleave_probs[0] must be a number, not a`},
		{"lora", "finetuning_type: lora", `t.yaml:1:18: finetuning_type: lora: mt trains all parameters; adapters are not supported: set full, or remove the key`},
		{"skipping the skip", "ignore_data_skip: true", `t.yaml:1:19: ignore_data_skip: true: a resumed run continues in the data where its checkpoint stopped: set reset_data: true to begin at the first row`},
		{"4 bit", "load_in_4bit: true", `t.yaml:1:15: load_in_4bit: true: mt trains in full precision; quantised weights are not supported`},
		{"fp16", "fp16: true", `fp16: true: mt computes in bf16 or fp32: set compute_dtype`},
		{"bf16 against fp32", "bf16: true\ncompute_dtype: fp32", `t.yaml:1:7: bf16: true: contradicts compute_dtype: fp32: remove one of them`},
		{"no bf16 against bf16", "bf16: false\ncompute_dtype: bf16", `bf16: false: contradicts compute_dtype: bf16: remove one of them`},
		{"checkpointing", "gradient_checkpointing: true\nrecompute: none", `gradient_checkpointing: true: contradicts recompute: none: remove one of them`},
		{"stage", "stage: dpo", `t.yaml:1:8: stage: dpo: mt has the stages sft and pt; for DPO give the key dpo`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got  %v\nwant %s", err, tc.want)
			}
			if !IsUsage(err) {
				t.Errorf("not a usage error: %v", err)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := parse(t, "sed: 1\nmax_steps: x\n", "--packing", "--threads=0")
	want := "t.yaml:1:1: unknown key \"sed\"; did you mean \"seed\"?\n" +
		"t.yaml:2:12: max_steps must be a whole number, not x\n" +
		"--threads: must be at least 1 or auto (at least one thread computes), not 0"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flags []string
		ok    func(c *Config) bool
		err   string
	}{
		{"dashes", []string{"--learning-rate", "1e-4"}, func(c *Config) bool { return c.LearningRate == 1e-4 }, ""},
		{"underscores, equals", []string{"--learning_rate=2"}, func(c *Config) bool { return c.LearningRate == 2 }, ""},
		{"alias", []string{"--cutoff-len", "9"}, func(c *Config) bool { return c.MaxSeqLen == 9 }, ""},
		{"nested", []string{"--pipeline.weight-slots", "4"}, func(c *Config) bool { return c.Pipeline.WeightSlots == 4 }, ""},
		{"nested at once", []string{"--pipeline", "{weight_slots: 4, grad_slabs: auto}"}, func(c *Config) bool { return c.Pipeline.WeightSlots == 4 }, ""},
		{"bare switch", []string{"--train-on-prompt", "--seed", "3"}, func(c *Config) bool { return c.TrainOnPrompt && c.Seed == 3 }, ""},
		{"switch with value", []string{"--shuffle", "false"}, func(c *Config) bool { return !c.Shuffle }, ""},
		{"switch, equals", []string{"--shuffle=no"}, func(c *Config) bool { return !c.Shuffle }, ""},
		{"bare dashboard", []string{"--dashboard", "--seed", "3"}, func(c *Config) bool { return c.Dashboard == "auto" && c.Seed == 3 }, ""},
		{"dashboard at a port", []string{"--dashboard", "9000"}, func(c *Config) bool { return c.Dashboard == "9000" }, ""},
		{"dashboard at an address", []string{"--dashboard", "0.0.0.0:9000"}, func(c *Config) bool { return c.Dashboard == "0.0.0.0:9000" }, ""},
		{"dashboard, equals", []string{"--dashboard=box"}, func(c *Config) bool { return c.Dashboard == "box" }, ""},
		{"no dashboard", []string{"--dashboard", "false"}, func(c *Config) bool { return c.Dashboard == "" }, ""},
		{"dashboard of nothing", []string{"--dashboard="}, nil, "--dashboard: must be true, false or an address such as 9000 or 0.0.0.0:9000, not "},
		{"negative", []string{"--max-steps", "-1"}, func(c *Config) bool { return c.MaxSteps == 0 }, ""},
		{"list", []string{"--dataset", "a.txt, b/**/*.{c,h}"}, func(c *Config) bool { return len(c.Dataset) == 2 && c.Dataset[1] == "b/**/*.{c,h}" }, ""},
		{"text as it is", []string{"--sample-prompt", "func "}, func(c *Config) bool { return c.SamplePrompt == "func " }, ""},
		{"text like a number", []string{"--output-dir", "12"}, func(c *Config) bool { return c.OutputDir == "12" }, ""},
		{"text with dashes", []string{"--sample-prompt=--x"}, func(c *Config) bool { return c.SamplePrompt == "--x" }, ""},
		{"inline model", []string{"--model", "{preset: tiny, hidden_size: 8}"}, func(c *Config) bool { return c.Model.Inline["hidden_size"] == int64(8) }, ""},
		{"key of a preset", []string{"--model", "tiny", "--model.hidden-size", "8"}, func(c *Config) bool {
			return c.Model.Inline["preset"] == "tiny" && c.Model.Inline["hidden_size"] == int64(8)
		}, ""},
		{"foreign", []string{"--bf16", "--deepspeed", "z3.json"}, func(c *Config) bool { return len(c.Warnings) == 1 }, ""},
		{"unknown", []string{"--lerning-rate", "1"}, nil, `--lerning-rate: unknown key; did you mean "--learning-rate"?`},
		{"unknown bare", []string{"--dry-rum"}, nil, `--dry-rum: unknown key; did you mean "--dry-run"?`},
		{"unknown in a mapping", []string{"--pipeline", "{weight_slot: 4}"}, nil, `--pipeline: unknown key "pipeline.weight_slot"; did you mean "pipeline.weight_slots"?`},
		{"twice", []string{"--seed", "1", "--seed=2"}, nil, "--seed: given twice"},
		{"a list twice", []string{"--freeze", "a", "--freeze=b"}, nil, "--freeze: given twice; it takes several values at once: --freeze A,B or --freeze '[A, B]'"},
		{"alias too", []string{"--cutoff-len", "9", "--max-seq-len", "9"}, nil, "--max-seq-len: max_seq_len and cutoff_len are names of one key: give one of them"},
		{"no value", []string{"--seed"}, nil, "--seed: needs a value (write --seed=VALUE if the value begins with two dashes)"},
		{"flag for a value", []string{"--output-dir", "--seed"}, nil, "--output-dir: needs a value (write --output-dir=VALUE if the value begins with two dashes)"},
		{"pipeline without a value", []string{"--pipeline"}, nil, "--pipeline: needs a value (write --pipeline=VALUE if the value begins with two dashes)"},
		{"pipeline from a number", []string{"--pipeline", "3"}, nil, "--pipeline: must be a mapping such as {weight_slots: 4}, not 3"},
		{"braces that are not closed", []string{"--model", "{a: "}, nil, "--model:1:"},
		{"several unknown", []string{"--sed", "1", "--lerning-rate", "1"}, nil, "--sed: unknown key; did you mean \"--seed\"?\n--lerning-rate: unknown key"},
		{"one dash", []string{"-seed", "1"}, nil, "-seed: flags have two dashes, as in --learning-rate 1e-4"},
		{"impossible", []string{"--activation-slots", "1", "--pipeline.activation-slots", "1"}, nil,
			"--pipeline.activation-slots: must be at least 3 or auto (one is read, one is written, one is arriving), not 1"},
		{"key of no model", []string{"--model.hidden-size", "8"}, nil, "--model.hidden-size: this sets a key of an inline model, but no preset or inline model is given: give --model"},
		{"foreign against us", []string{"--load-in-4bit"}, nil, "--load-in-4bit: true: mt trains in full precision"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(t, "", tc.flags...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !IsUsage(err) {
					t.Fatalf("got  %v\nwant %s", err, tc.err)
				}
				return
			}
			testkit.NoError(t, err)
			if !tc.ok(c) {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	var dry, json bool
	var prompt string
	own := func(set *pflag.FlagSet) {
		Switch(set, "dry-run", &dry)
		Switch(set, "json", &json)
		set.StringVar(&prompt, "prompt", "", "")
	}
	a, positional, err := parseFlags([]string{"run.yaml", "--dry_run", "--json=false", "--shuffle", "more", "--prompt", "--x", "--", "--seed"}, own)
	testkit.NoError(t, err)
	if got := strings.Join(positional, " "); got != "run.yaml more --seed" {
		t.Errorf("positional: %s", got)
	}
	if !dry || json || prompt != "--x" {
		t.Errorf("own: %t, %t, %s", dry, json, prompt)
	}
	if len(a.entries) != 1 || a.entries[0].spelled != "shuffle" || a.entries[0].val.text != "true" {
		t.Errorf("keys: %v", a.entries)
	}
	for _, bad := range [][]string{{"--dry-run=7"}, {"--prompt"}, {"--json", "--json"}, {"--prompt=a", "--prompt", "b"}} {
		if _, _, err := parseFlags(bad, own); err == nil || !IsUsage(err) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSwitches: the argument after a switch is its value if the switch accepts it: a truth value,
// auto, or an address for
// --dashboard. Otherwise it is a separate argument.
func TestSwitches(t *testing.T) {
	var chat bool
	var prompt string
	own := func(set *pflag.FlagSet) {
		Switch(set, "chat", &chat)
		set.StringVar(&prompt, "prompt", "", "")
	}
	for line, want := range map[string]string{
		"--shuffle false a":                   "--shuffle=false a",
		"a --shuffle NO --seed 1":             "--shuffle=NO --seed=1 a",
		"--packing auto":                      "--packing=auto",
		"--packing false.yaml":                "--packing=true false.yaml",
		"--sample_packing off":                "--sample_packing=off", // an alias
		"--bf16 false":                        "--bf16=false",         // another tool's
		"--shuffle=no false":                  "--shuffle=no false",
		"--shuffle -- false":                  "--shuffle=true false",
		"--chat false":                        "false",          // the command's own
		"--prompt --shuffle false":            "false",          // a prompt
		"--prompt -- --shuffle":               "--shuffle=true", // another
		"--output-dir -x --max-steps -1":      "--output-dir=-x --max-steps=-1",
		"--template=a=b --val_size .5 -":      "--template=a=b --val_size=.5 -",
		"--output-dir= --model.a-b true":      "--output-dir= --model.a-b=true",
		"--no_such_key --nor_such x --seed 1": "--no_such_key=true --nor_such=x --seed=1",
	} {
		a, positional, err := parseFlags(strings.Fields(line), own)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		var got []string
		for _, e := range a.entries {
			if flagName(e.pos.Flag) != flagName(e.spelled) || strings.Contains(e.spelled, "-") {
				t.Errorf("%s: %s is spelled %s", line, e.pos.Flag, e.spelled)
			}
			got = append(got, e.pos.Flag+"="+e.val.text)
		}
		if s := strings.Join(append(got, positional...), " "); s != want {
			t.Errorf("%s: got %s, want %s", line, s, want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	c := mustParse(t, "cutoff_len: 64\nmodel: {hidden_size: 8}\nseed: 1\n", "--max-seq-len", "128", "--base-model", "a/b")
	if c.MaxSeqLen != 128 || c.Seed != 1 || c.Model.Path != "a/b" || c.Model.Inline != nil {
		t.Errorf("got %+v", c)
	}
	if !c.Given("max_seq_len") || c.Given("learning_rate") {
		t.Error("Given is wrong")
	}
}

func TestErrorfFindsTheKey(t *testing.T) {
	c := mustParse(t, "dataset: x\nmodel:\n  hidden_size: 7\n", "--cutoff-len", "9")
	for key, want := range map[string]string{
		"dataset":           "t.yaml:1:10: dataset: bad",
		"model.hidden_size": "t.yaml:3:16: model.hidden_size: bad",
		"max_seq_len":       "--cutoff-len: bad",
		"seed":              "t.yaml: seed: bad",
	} {
		if got := c.Errorf(key, "%w", os.ErrInvalid).Error(); got != strings.Replace(want, "bad", os.ErrInvalid.Error(), 1) {
			t.Errorf("%s: got %s", key, got)
		}
	}
}

func TestRequire(t *testing.T) {
	if err := mustParse(t, "dataset: x").Require("model", "dataset"); err == nil || !strings.HasPrefix(err.Error(), "t.yaml: no model: ") {
		t.Errorf("got %v", err)
	}
	if err := mustParse(t, "model: tiny").Require("model", "dataset"); err == nil || !strings.HasPrefix(err.Error(), "t.yaml: no dataset: ") {
		t.Errorf("got %v", err)
	}
	if err := mustParse(t, "model: tiny\ndataset: x").Require("model", "dataset"); err != nil {
		t.Error(err)
	}
}

// aliasesOf has the names that keys have in other tools. Each has a value for a test, and mt's name
// of the key; both names must parse to the same config.
var aliasesOf = map[string][2]string{
	"model": {"some/model", "model_name_or_path"}, "base_model": {"some/model", "model_name_or_path"},
	"add_special_tokens": {"<a>, <b>", "new_special_tokens"},
	"micro_batch_size":   {"3", "per_device_train_batch_size"}, "batch_size": {"3", "per_device_train_batch_size"},
	"num_steps": {"7", "max_steps"}, "num_epochs": {"2", "num_train_epochs"},
	"dataset_text_field": {"body", "text_column"},
	"val_set_size":       {"0.25", "val_size"}, "split_dataset_ratio": {"0.25", "val_size"},
	"cutoff_len": {"9", "max_seq_len"}, "sequence_len": {"9", "max_seq_len"}, "max_length": {"9", "max_seq_len"},
	"sample_packing":         {"false", "packing"},
	"train_on_inputs":        {"true", "train_on_prompt"},
	"optimizer":              {"torch.optim.Muon", "optim"},
	"clip_grad_norm":         {"0.5", "max_grad_norm"},
	"lr_scheduler":           {"cosine", "lr_scheduler_type"},
	"evaluation_strategy":    {"epoch", "eval_strategy"},
	"gpus":                   {"2", "devices"},
	"test_datasets":          {"[{path: a, type: alpaca}]", "eval_datasets"},
	"load_best_model_at_end": {"true\nval_size: 1\neval_steps: 1", "save_best"},
}

func TestAliasesAndSpellings(t *testing.T) {
	for alias, is := range aliasesOf {
		got, want, without := mustParse(t, alias+": "+is[0]), mustParse(t, is[1]+": "+is[0]), mustParse(t, "seed: "+fmt.Sprint(Default().Seed))
		g, w, o := string(got.YAML("")), string(want.YAML("")), string(without.YAML(""))
		if g != w {
			t.Errorf("%s: %s does not say what %s does:\n%s\nwant\n%s", alias, is[0], is[1], g, w)
		}
		if g == o {
			t.Errorf("%s: %s says nothing", alias, is[0])
		}
	}
	eachKey(func(k *key) {
		for _, a := range k.aliases {
			if _, ok := aliasesOf[a]; !ok {
				t.Errorf("%s, for %s, is not in this test's table", a, k.name)
			}
		}
		if foreign[k.name] != nil {
			t.Errorf("%s is ours and foreign", k.name)
		}
	})
	c := mustParse(t, "lr_scheduler: cosine_with_min_lr\noptimizer: adamw_torch_fused\ncompute_dtype: bfloat16\n"+
		"sample_packing: yes\nbatch_size: 2\nnum_steps: 7\nclip_grad_norm: 0.5\nval_set_size: 0.1\ntrain_on_inputs: true\n"+
		"resume_from_checkpoint: true\nreport_to: none\nhost_memory: 2GB\nthreads: auto\n")
	if c.LRScheduler != "cosine" || c.Optim != "adamw" || c.ComputeDType != "bf16" || c.Packing != On ||
		c.PerDeviceTrainBatchSize != 2 || c.MaxSteps != 7 || c.MaxGradNorm != 0.5 || c.ValSize != 0.1 || !c.TrainOnPrompt ||
		c.Resume != "auto" || c.ReportTo != nil || c.HostMemory != 2e9 || c.Threads != 0 {
		t.Errorf("got %+v", c)
	}
	if c := mustParse(t, "max_samples: null\nmax_steps:\neval_steps: ~\n"); c.MaxSamples != 0 || c.MaxSteps != Default().MaxSteps || c.EvalSteps != 0 {
		t.Errorf("left empty: got %+v", c)
	}
}

func TestForeignKeysWarnOnce(t *testing.T) {
	c := mustParse(t, "stage: sft\ndo_train: true\nfinetuning_type: full\nbf16: true\ndeepspeed: {zero: 3}\nload_in_8bit: false\n"+
		"adapter:\nwandb_project:\nproject: p\nplot_loss: true\noverwrite_cache: true\n")
	if len(c.Warnings) != 1 {
		t.Fatalf("warnings: %q", c.Warnings)
	}
	for _, k := range []string{"stage", "do_train", "finetuning_type", "bf16", "deepspeed", "load_in_8bit", "adapter", "project", "plot_loss"} {
		if !strings.Contains(c.Warnings[0], k) {
			t.Errorf("%s is not in %q", k, c.Warnings[0])
		}
	}
	if c.ComputeDType != "auto" {
		t.Errorf("compute_dtype is %s", c.ComputeDType)
	}
	if c := mustParse(t, "bf16: false"); c.ComputeDType != "fp32" {
		t.Errorf("without bf16 compute_dtype is %s", c.ComputeDType)
	}
}

func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"mtp_loss_weight: 0.1": "mtp_loss_weight has no effect: train_mtp is false",
		"eval_steps: 5":        "eval_steps has no effect: there is neither eval_dataset nor val_size",
		"lr_scheduler_type: constant\nmin_lr_ratio: 0.1": "min_lr_ratio has no effect: lr_scheduler_type is constant",
		"decay_ratio: 0.3":                   "decay_ratio has no effect: lr_scheduler_type is linear",
		"num_decay_steps: 3":                 "num_decay_steps has no effect: lr_scheduler_type is linear",
		"warmup_steps: 5\nwarmup_ratio: 0.1": "warmup_ratio has no effect: warmup_steps is given",
		"warmup_steps: 1\nwarmup_ratio: 0.2": "warmup_ratio has no effect: warmup_steps is given",
		"max_steps: 5\nnum_train_epochs: 2":  "num_train_epochs has no effect: max_steps is given",
	} {
		if c := mustParse(t, text); len(c.Warnings) != 1 || c.Warnings[0] != want {
			t.Errorf("%q: got %q", text, c.Warnings)
		}
	}
}

func TestCheckGradSlabs(t *testing.T) {
	c := mustParse(t, "pipeline:\n  grad_slabs: 4")
	err := c.CheckGradSlabs(8)
	if err == nil || !IsUsage(err) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"t.yaml:2:15: ", "clipping needs 8", "max_grad_norm: 0", "grad_dtype: bf16"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	for _, text := range []string{"pipeline: {grad_slabs: 8}", "pipeline: {grad_slabs: 1}\nmax_grad_norm: 0", "pipeline: {grad_slabs: 2}\nstate_dir: states", ""} {
		if err := mustParse(t, text).CheckGradSlabs(8); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	testkit.NoError(t, os.WriteFile(file, []byte("seed: 9\n"), 0o600))
	marked := filepath.Join(dir, "marked.yaml")
	testkit.NoError(t, os.WriteFile(marked, []byte("\ufeffseed: 8\r\n"), 0o600))
	if c, err := Load(marked, Args{}); err != nil || c.Seed != 8 {
		t.Errorf("a file as Notepad writes it: %v", err)
	}
	if c, err := Load(file, Args{}); err != nil || c.Seed != 9 {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none.yaml")} {
		if _, err := Load(bad, Args{}); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if c, err := Load("", Args{}); err != nil || len(c.Differences(Default())) > 0 {
		t.Errorf("without a file: %+v, %v", c, err)
	}
}

// TestReports: report_to: all means every destination that is available here, and none means no
// destination.
func TestReports(t *testing.T) {
	for _, tc := range []struct{ yaml, server, want string }{
		{"all", "", "tensorboard"}, {"all", "http://localhost:5000", "tensorboard mlflow"},
		{"[none, mlflow]", "", "mlflow"}, {"mlflow,tensorboard,mlflow", "", "mlflow tensorboard"}, {"none", "x", ""}, {"[]", "x", ""},
	} {
		t.Setenv("MLFLOW_TRACKING_URI", tc.server)
		if got := strings.Join(mustParse(t, "report_to: "+tc.yaml).ReportTo, " "); got != tc.want {
			t.Errorf("%s with server %q: %q, want %q", tc.yaml, tc.server, got, tc.want)
		}
	}
}

// TestSamplePrompts: commas in a prompt of sample_prompts do not split it. Without sample_prompts
// the prompt of sample_prompt is used.
func TestSamplePrompts(t *testing.T) {
	for yaml, want := range map[string]string{
		"sample_steps: 2\nsample_prompts: once, twice": "once, twice", "sample_steps: 2\nsample_prompts: [\"a, b\", c]": "a, b|c",
		"sample_steps: 2\nsample_prompt: d": "d", "sample_prompt: d": "", "sample_prompt: d\nsample_steps: 1\nsample_prompts: e": "e",
	} {
		if got := strings.Join(mustParse(t, yaml).Samples(), "|"); got != want {
			t.Errorf("%s: %q, want %q", yaml, got, want)
		}
	}
	if c := mustParse(t, "", "--sample-prompts", "one, two", "--sample-steps", "1"); len(c.Samples()) != 1 {
		t.Errorf("a flag gives %q", c.Samples())
	}
}

// TestLists: each key with a list accepts a YAML list or text with commas between the items, from a
// file and from a flag.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		yaml, flag string // one of them is given
		get        func(*Config) []string
		want       []string
	}{
		{"", "--freeze=a,b", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"", "--freeze=[a, b]", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"freeze: a, b", "", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"freeze: [a, 'b,c']", "", func(c *Config) []string { return c.Freeze }, []string{"a", "b,c"}},
		{"", `--freeze=x{1,2},[a,b],(c,d),\(e,f\)`, func(c *Config) []string { return c.Freeze }, []string{"x{1,2}", "[a,b]", "(c,d)", `\(e`, `f\)`}},
		{"", "--unfrozen-parameters=[lm_head]", func(c *Config) []string { return c.Unfrozen }, []string{"lm_head"}},
		{"", `--unfrozen-parameters=[0-3]\.mlp`, func(c *Config) []string { return c.Unfrozen }, []string{`[0-3]\.mlp`}},
		{"", "--dataset=a.jsonl,{b,c}.jsonl", func(c *Config) []string { return c.Dataset }, []string{"a.jsonl", "{b,c}.jsonl"}},
		{"", "--dataset=[a.jsonl, b.jsonl]", func(c *Config) []string { return c.Dataset }, []string{"a.jsonl", "b.jsonl"}},
		{"", "--add-tokens=[<a>, '<b,c>']", func(c *Config) []string { return c.AddTokens }, []string{"<a>", "<b,c>"}},
		{"", "--sample-prompts=Well, then", func(c *Config) []string { return c.SamplePrompts }, []string{"Well, then"}},
		{"", "--sample-prompts=['Well, then', 'Or']", func(c *Config) []string { return c.SamplePrompts }, []string{"Well, then", "Or"}},
		{"", "--sample-prompts=[INST] hi [/INST]", func(c *Config) []string { return c.SamplePrompts }, []string{"[INST] hi [/INST]"}},
		{"interleave_probs: [0.25, 0.75]\ndataset: [a, b]\nmix_strategy: interleave_under", "", probs, []string{"0.25", "0.75"}},
		{"dataset: [a, b]\nmix_strategy: interleave_under", "--interleave-probs=[0.25, 0.75]", probs, []string{"0.25", "0.75"}},
	} {
		var flags []string
		if c.flag != "" {
			flags = append(flags, c.flag)
		}
		got, err := parse(t, c.yaml, flags...)
		if err != nil {
			t.Errorf("%s%s: %v", c.yaml, c.flag, err)
		} else if l := c.get(got); !slices.Equal(l, c.want) {
			t.Errorf("%s%s: %q, want %q", c.yaml, c.flag, l, c.want)
		}
	}
}

func probs(c *Config) (out []string) {
	for _, x := range c.InterleaveProbs {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

// TestVarsInPaths: in a path a leading ~ becomes the home folder and ${NAME} the environment
// variable. In other values both stay unchanged.
func TestVarsInPaths(t *testing.T) {
	t.Setenv("HOME", "/h")
	t.Setenv("DISK", "/d")
	const text = "output_dir: ~/out\nresume_from_checkpoint: ${DISK}/checkpoint-1\nstate_dir: [~/a, b~, ~c, '${DISK}2']\nparam_dir: '~'\nrun_name: ~/${DISK}\nmodel: {vocab_size: 300}\ndataset: d.jsonl\n"
	c := testkit.Must(Parse("t.yaml", []byte(text), Args{}))(t)
	got := strings.Join(append([]string{c.OutputDir, c.Resume, c.RunName}, append(c.StateDir, c.ParamDir...)...), " ")
	if want := "/h/out /d/checkpoint-1 ~/${DISK} /h/a b~ ~c /d2 /h"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := Parse("t.yaml", []byte("output_dir: '${NO_SUCH_VARIABLE}/x'\n"), Args{}); err == nil || !strings.Contains(err.Error(), "t.yaml:1:13: output_dir: ") {
		t.Error(err)
	}
}

// TestHostileYAML: parsing a file of 30 kB allocates at most 40 MiB for any content, so memory does
// not grow with the square of the length.
func TestHostileYAML(t *testing.T) {
	const size, most = 30_000, 40 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for _, tc := range []struct{ text, says string }{
		{"model: " + fill("["), "c.yaml:1:24: lists and mappings are nested more than 16 deep"},
		{"model: " + fill("{"), "c.yaml:1:24: lists and mappings are nested more than 16 deep"},
		{"model: " + fill("{a: "), "nested more than 16 deep"},
		{"model: " + fill("[a,"), "nested more than 16 deep"},
		{"model: " + fill("[\n "), "c.yaml:17:2: lists and mappings are nested more than 16 deep"},
		{"model: " + fill("]") + fill("["), "nested more than 16 deep"},
		{"model: " + strings.Repeat("[", size/2) + strings.Repeat("]", size/2), "nested more than 16 deep"},
		{fill("- ") + "x", "c.yaml:1:33: lists and mappings are nested more than 16 deep"},
		{fill("a: b\n"), "c.yaml:2001:2: there are more than 2000 keys; no config file needs as many"},
		{"model: {" + fill("a: b, ") + "}", "more than 2000 keys"},
		{fill("a: ") + "x", "more than 2000 keys"},
		{"dataset: [" + strings.Repeat("a,", 50_001) + "]", "there are more than 50000 list items: give a folder or a pattern instead"},
		{fill("? ") + "x", "YAML: "},
		{"model: " + fill("&a ") + "x", "YAML: "},
		{"model: " + fill("!!str ") + "x", "anchors, aliases, merge keys and tags are not supported"},
		{"model: " + fill("*a ") + "x", "YAML: "},
		{fill("---\n"), ""},
		{fill("# a\n"), ""},
		{"dataset: [" + fill("a, ") + "]", ""}, // many files are all right
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("c.yaml", []byte(tc.text), Args{})
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > most {
			t.Errorf("%.20q: %d MiB for %d bytes", tc.text, bytes>>20, len(tc.text))
		}
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || !IsUsage(err)) {
			t.Errorf("%.20q: %v, want %q", tc.text, err, tc.says)
		}
	}
}

// TestLoadWhatIsNoFile: Load reads a config from a pipe. For a device without end, a directory or a
// pipe without a writer it returns and does not block.
func TestLoadWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipe can be made in %s: %v", dir, err)
	}
	if c, err := Load(pipe, Args{}); err != nil || c.Seed != Default().Seed { // nobody writes to it
		t.Errorf("an empty pipe: %v", err)
	}
	r, w, err := os.Pipe()
	testkit.NoError(t, err)
	defer r.Close()
	testkit.Must(w.WriteString("seed: 5\n"))(t)
	_ = w.Close()
	if c, err := Load(fmt.Sprintf("/dev/fd/%d", r.Fd()), Args{}); err != nil || c.Seed != 5 { // as the shell's <(...) gives it
		t.Errorf("a pipe: %v", err)
	}
	for name, says := range map[string]string{"/dev/zero": "config: /dev/zero is larger than 1.0 MiB, the limit of a config file", dir: "is a directory; give the YAML file"} {
		if _, err := Load(name, Args{}); err == nil || !strings.Contains(err.Error(), says) || !IsUsage(err) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}
