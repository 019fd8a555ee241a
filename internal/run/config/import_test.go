package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

var rewriteImports = flag.Bool("rewrite-imports", false, "write testdata/import anew")

// TestImports: each config of another tool becomes the config stored beside it, key by key, and mt can train with the
// result.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("testdata/import/*.y*ml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".mt.yaml") {
			continue
		}
		src, err := os.ReadFile(file)
		testkit.NoError(t, err)
		im, err := ParseImport(filepath.Base(file), src, "")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got, name := im.YAML(), strings.TrimSuffix(file, filepath.Ext(file))+".mt.yaml"
		if *rewriteImports {
			testkit.NoError(t, os.WriteFile(name, got, 0o644))
		}
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s gives\n%s\nwant %s (-rewrite-imports writes it)", file, got, name)
		}
		again, err := Parse("again.yaml", got, Args{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := again.Differences(mustConfig(t, im)); len(d) > 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}

func mustConfig(t *testing.T, im *Import) *Config {
	t.Helper()
	c := testkit.Must(im.Config())(t)
	return c
}

// TestImportedIsTrained: mt train accepts a config of another tool if nothing is lost. Errors name places in that
// config, and flags apply. Otherwise the error lists the lost keys and the command to run.
func TestImportedIsTrained(t *testing.T) {
	const whole = "stage: sft\ndo_train: true\nfinetuning_type: full\nmodel_name_or_path: org/model\ndataset: one,two\ncutoff_len: 9\nflash_attn: fa2\nlearning_rate: 1e-5\n"
	c := mustParse(t, whole, "--learning-rate=3")
	if c.MaxSeqLen != 9 || c.LearningRate != 3 || c.Packing != Off || c.DatasetDir != "data" || !slices.Equal(c.Dataset, []string{"one", "two"}) {
		t.Errorf("%+v", c)
	}
	if w := strings.Join(c.Warnings, "\n"); !strings.Contains(w, "t.yaml is a config of LLaMA-Factory; it is converted as by `mt import t.yaml`") || !strings.Contains(w, "flash_attn") {
		t.Errorf("warnings %q", w)
	}
	im := testkit.Must(ParseImport("t.yaml", []byte(whole), ""))(t)
	if d := mustConfig(t, im).Differences(mustParse(t, whole)); len(d) > 0 {
		t.Errorf("imported it differs: %v", d)
	}
	if c := mustParse(t, strings.Replace(whole, "one,two", "chats.jsonl", 1)); c.DatasetDir != "" {
		t.Errorf("a file is looked for in %s", c.DatasetDir)
	}
	for text, want := range map[string][]string{
		whole + "use_galore: true\nuse_badam: true\n": {"t.yaml:9:13: use_galore: true: not possible: mt has no such optimizer", "t.yaml:10:12: use_badam: true: not possible",
			"t.yaml is a config of LLaMA-Factory, and mt lacks the settings named above: convert it with `mt import t.yaml --out mt.yaml`"},
		whole + "weight_decay: -1\n":                                                      {"t.yaml:9:15: weight_decay: -1: not possible: weight_decay must be at least 0, not -1"},
		whole + "use_gallore: true\n":                                                     {"t.yaml:9:14: use_gallore: true: not possible: mt knows no such key; did you mean \"use_galore\"?"},
		"stage: kto\nfinetuning_type: full\n":                                             {"t.yaml:1:8: stage: kto: mt has the stages sft and pt; for DPO give the key dpo"},
		"base_model: a\ndatasets: [{path: b}]\nrl: kto\n":                                 {"t.yaml:3:5: rl: kto: mt trains on preferences by dpo only"},
		"base_model: a\ndatasets: [{path: b}]\nrl: dpo\ndpo_loss_type: [robust]\n":        {"dpo_loss_type: robust: mt trains on preferences by dpo only"},
		"stage: dpo\nfinetuning_type: full\npref_loss: orpo\n":                            {"t.yaml:3:12: pref_loss: orpo: mt trains on preferences by dpo only"},
		"dataset_name: a\nbeta: 0.1\nloss_type: robust\n":                                 {"t.yaml:3:12: loss_type: robust: mt trains on preferences by dpo only"},
		"dataset_name: a\nbeta: 0.1\nloss_type: [sigmoid, sft]\nloss_weights: [0.5, 1]\n": {"t.yaml:3:12: loss_type: "},
		"dataset_name: a\nval_size: 1\neval_dataset: b\n":                                 {"t.yaml:2:11: val_size and eval_dataset are both given: give one of them (val_size holds out rows of the training data)"},
		"loss: {_component_: torchtune.rlhf.loss.SimPOLoss}":                              {"t.yaml:1:21: loss: torchtune.rlhf.loss.SimPOLoss: mt trains on preferences by dpo only"},
		"loss: {_component_: torch.nn.MSELoss}":                                           {"t.yaml:1:21: loss: torch.nn.MSELoss: mt trains on the cross-entropy"},
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		for _, w := range want {
			if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %s", text, err, w)
			}
		}
	}
}

// TestImportErrors: a file that is no config, a config whose tool its keys do not show, and an
// unknown tool after --from give an error that says so.
func TestImportErrors(t *testing.T) {
	for _, tc := range []struct{ text, from, want string }{
		{"- a", "", "t.yaml: a config file has `key: value` lines, but this is a list"},
		{"seed: 1", "", "t.yaml: its keys do not show the tool it is for: LLaMA-Factory has stage and finetuning_type, axolotl base_model and datasets, torchtune _component_, TRL dataset_name; name the tool with --from torchtune, llamafactory, axolotl, trl"},
		{"seed: 1", "ludwig", `--from: must be torchtune, llamafactory, axolotl or trl, not ludwig`},
		{"seed: [1", "", "t.yaml:1:7: YAML: "},
		{"", "trl", "this is nothing"},
	} {
		if _, err := ParseImport("t.yaml", []byte(tc.text), tc.from); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q --from %q: %v, want %s", tc.text, tc.from, err, tc.want)
		}
	}
	if im, err := ParseImport("t.yaml", []byte("seed: 1"), "trl"); err != nil || im.Tool != "TRL" {
		t.Errorf("--from: %v, %v", im, err)
	}
	if _, err := ReadImport(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
}

// TestImportRules: the tables agree with each other. A key without meaning has a reason, and no key is in both a
// tool's table and the common table.
func TestImportRules(t *testing.T) {
	for _, section := range []string{"any", "trainer", "llamafactory", "axolotl", "torchtune", "trl"} {
		seen := map[string]bool{}
		eachImport(section, func(key, kind, why string) {
			to, gives := strings.CutPrefix(kind, "to ")
			known := slices.Contains([]string{"idle", "lost", "refused"}, kind) && why != "" && (kind == "idle" || section != "any")
			if seen[key] || strings.Contains(why, "$") || gives && byName[to] == nil || !gives && !known {
				t.Errorf("import.txt: %s: %s: %q %q", section, key, kind, why)
			}
			seen[key] = true
		})
		if len(seen) == 0 {
			t.Errorf("import.txt has no section %s", section)
		}
	}
	for name, judge := range foreign {
		any := func(text string) bool { return judge(value{kind: plain, text: text}, Default()) == "" }
		if any("anything") && any("false") && idleKeys[name] == "" && name != "gradient_checkpointing" {
			t.Errorf("%s has no reason in idleKeys", name)
		}
	}
	for name := range idleKeys {
		if byName[name] != nil {
			t.Errorf("%s is a key of mt and without meaning", name)
		}
		for _, tool := range tools {
			if tool.rules[name] != nil && tool != axolotl {
				t.Errorf("%s has a rule of %s and is without meaning", name, tool.name)
			}
		}
	}
}

// TestImportedKeys: some keys of other tools are converted in a way that depends on their value.
// Each case has the first lines of a config, further lines, and lines that the converted config
// must contain.
func TestImportedKeys(t *testing.T) {
	const (
		trlBase      = "dataset_name: a\n"
		axolotlBase  = "base_model: a\ndatasets: [{path: b, type: chat_template}]\n"
		factoryBase  = "stage: sft\nfinetuning_type: full\n"
		tuneBase     = "model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\n"
		onABoard     = "metrics.jsonl is always written, and tensorboard and mlflow can be"
		fp32Instead  = "compute_dtype: fp32  # from "
		onlyTheStart = "rows that are longer are cut at their end"
	)
	for _, c := range []struct{ base, lines, want string }{
		{trlBase, "bf16: false", fp32Instead + "bf16: false"},
		{axolotlBase, "bf16: full", "# bf16: full  # of no meaning here: "},
		{trlBase, "bf16: false\nfp16: true", "# bf16: false  # of no meaning here: fp16 is on instead\n# fp16: true  # not possible: "},
		{trlBase, "dtype: bfloat16", "# dtype: bfloat16  # of no meaning here: so it is on a GPU"},
		{trlBase, "dtype: float32", "# dtype: float32  # of no meaning here: the master weights are fp32"},
		{trlBase, "torch_dtype: float16", "# torch_dtype: float16  # not possible: torch_dtype must be auto, bf16 or fp32, not float16"},
		{trlBase, "warmup_steps: 0.1", "warmup_ratio: 0.1  # renamed from warmup_steps"},
		{trlBase, "warmup_steps: 10", "warmup_steps: 10  # kept"},
		{trlBase, "report_to: [wandb, tensorboard]", "report_to: [tensorboard]  # from [wandb, tensorboard]\n# report_to: [wandb, tensorboard]  # not possible: wandb is not reported to; " + onABoard},
		{trlBase, "do_predict: true", "!mt train trains; mt eval and mt generate try a model"},
		{trlBase, "do_predict: false", "# do_predict: false  # of no meaning here: it is off"},
		{trlBase, "dataset_config: en", "  - {path: a, name: en}"},
		{trlBase, "dataset_train_split: tr", "  - {path: a, split: tr}"},
		{trlBase, "dataset_config: en\ndataset_test_split: te\neval_strategy: steps\neval_steps: 9", "  - {path: a, name: en, split: te}"},
		{trlBase, "dataset_test_split: te", "# dataset_test_split: te  # of no meaning here: nothing is evaluated: eval_strategy is no"},
		{trlBase, "model_revision: main", "# model_revision: main  # of no meaning here: "},
		{trlBase, "model_revision: v2", "# model_revision: v2  # not possible: of the cache refs/main is taken"},
		{trlBase, "truncation_mode: keep_start", "# truncation_mode: keep_start  # of no meaning here: " + onlyTheStart},
		{trlBase, "truncation_mode: keep_end", "# truncation_mode: keep_end  # not possible: " + onlyTheStart},
		{trlBase, "assistant_only_loss: true", "# assistant_only_loss: true  # of no meaning here: mt trains on what the assistant says"},
		{trlBase, "assistant_only_loss: false", "train_on_prompt: true  # from assistant_only_loss: false"},
		{trlBase, "completion_only_loss: true", "# completion_only_loss: true  # of no meaning here: mt trains on completions"},
		{trlBase, "completion_only_loss: false", "train_on_prompt: true  # from completion_only_loss: false"},
		{trlBase, "eos_token: <e>", "special_tokens: {eos_token: \"<e>\"}  # from eos_token: <e>"},
		{trlBase, "optim: adafactor", "# optim: adafactor  # not possible: optim must be "},

		{trlBase, "assistant_only_loss: true\ncompletion_only_loss: false", "# completion_only_loss: false  # of no meaning here: assistant_only_loss is true"},
		{trlBase, "completion_only_loss: true\nassistant_only_loss: false", "# assistant_only_loss: false  # of no meaning here: completion_only_loss is true"},
		{trlBase, "completion_only_loss: null", "train_on_prompt: true  # a default over there"},
		{trlBase, "assistant_only_loss:", "train_on_prompt: true  # a default over there"},
		{trlBase, "max_length: null", "# max_length:   # not possible: mt needs a limit: give max_seq_len"},
		{trlBase, "beta: 0.1\nmax_length:", "# max_length:   # not possible: mt needs a limit: give max_seq_len"},
		{trlBase, "beta: 0.1\nloss_type: sigmoid\nmax_completion_length: 9", "# max_completion_length: 9  # not possible: mt cuts the answer if prompt and answer together are too long"},
		{trlBase, "beta: 0.1\nmax_completion_length: 9", "!mt reads configs of TRL only for supervised"},
		{trlBase, "center_rewards_coefficient: 0.01", "!mt reads configs of TRL only for supervised"},
		{trlBase, "beta: 0.1\ncpo_alpha: 1.0", "!mt reads configs of TRL only for supervised"},
		{trlBase, "max_seq_length: 77", "max_seq_len: 77  # renamed from max_seq_length"},
		{trlBase, "chat_template: '{{ messages[0].content }}'", "template: \"{{ messages[0].content }}\"  # renamed from chat_template"},
		{trlBase, "chat_template: '{{ messages[0'", "# chat_template: \"{{ messages[0\"  # not possible: template:1"},
		{trlBase, "chat_template_path: testdata", "# chat_template_path: testdata  # not possible: template: the directory testdata has no chat template"},
		{trlBase, "chat_template_path: not/here.jinja", "template: not/here.jinja  # renamed from chat_template_path"},
		{trlBase, "optim_args: eps=1e-6", "# optim_args: eps=1e-6  # of no meaning here: AdamW of Transformers reads adam_beta1"},
		{trlBase, "optim: lion_32bit\noptim_args: beta1=0.8, beta2=0.7", "adam_beta1: 0.8  # from optim_args: beta1=0.8, beta2=0.7\nadam_beta2: 0.7"},
		{trlBase, "beta: 0.3\noutput_dir: out/a-kto", "!a config of kto by its names"},
		{trlBase, "beta: 0.3\nrun_name: ORPO 2", "!a config of orpo by its names"},
		{trlBase, "beta: 0\nloss_type: hinge", "dpo: {beta: 0, loss_type: hinge}  # from beta: 0: with loss_type\n# loss_type: hinge  # renamed: dpo.loss_type"},
		{trlBase, "loss_type: hinge\nbeta: 0", "dpo: {beta: 0, loss_type: hinge}  # from loss_type: hinge: with beta\n# beta: 0  # renamed: dpo.beta"},
		{trlBase, "beta: 0.3\nloss_type: hinge\noutput_dir: out/after-orpo", "loss_type: hinge"},
		{trlBase, "beta: 0.3", "# no key says for which command of TRL this is: beta is one of dpo, orpo, kto and others. It is read as one for trl dpo.\n"},
		{"", "datasets: [{path: a, columns: [text]}, b]\ntest_split_size: 0.1", "  - {path: a, split: train}\n  - {path: b}\nval_size: 0.1  # renamed from test_split_size"},

		{"", "dataset_mixture: {datasets: [{id: a, weight: 0.29}, {id: b, weight: 0.005}, {id: c, weight: 2}]}",
			"# dataset_mixture.datasets[1].weight: 0.005  # not possible: a share of a data set is given in whole hundredths, up to 1: see split\n" +
				"# dataset_mixture.datasets[2].weight: 2  # not possible: a share of a data set is given in whole hundredths, up to 1: see split\n" +
				"datasets:  # from dataset_mixture.datasets: [{id: a, weight: 0.29}, {id: b, weight: 0.005}, {id: c, weight: 2}]\n  - {path: a, split: \"train[:29%]\"}"},
		{axolotlBase, "optim_args: {beta2: 0.9, eps: 1e-5}", "adam_beta2: 0.9  # from optim_args: {beta2: 0.9, eps: 1.0e-05}\nadam_epsilon: 1.0e-05"},
		{axolotlBase, "optim_args: {betas: [0.8, 0.7], amsgrad: true}", "# optim_args.amsgrad: true  # not possible: mt knows no such key of an optimizer\nadam_beta1: 0.8  # from"},
		{trlBase, "max_seq_length: \"4096\"", "max_seq_len: 4096  # from max_seq_length"},
		{trlBase, "learning_rate: \"2e-5\"", "learning_rate: 2.0e-05  # from"},
		{axolotlBase, "sequence_len: '8_192'\nweight_decay: '0.1'", "max_seq_len: 8192  # from sequence_len"},
		{trlBase, "warmup_steps: '0.1'", "warmup_ratio: 0.1  # from"},
		{axolotlBase, "num_epochs: '2'\nsaves_per_epoch: '2'", "save_steps: 0.25  # from"},
		{axolotlBase, "optim_args: betas=(0.9,0.95),eps=1e-7", "adam_beta1: 0.9  # from optim_args: betas=(0.9,0.95),eps=1e-7\nadam_beta2: 0.95\nadam_epsilon: 1.0e-07"},
		{axolotlBase, "optim_args: 'eps = 1e-7, betas = [0.8, 0.7]'", "adam_beta1: 0.8\nadam_beta2: 0.7"},
		{axolotlBase, "optim_args: betas=(0.9), eps=1e-7", "# optim_args.betas: [0.9]  # not possible: mt knows no such key of an optimizer"},
		{axolotlBase, "optim_args: betas=(0.9,0.95,0.99)", "# optim_args.betas: [0.9, 0.95, 0.99]  # not possible: mt knows no such key of an optimizer"},
		{axolotlBase, "optim_args: beta2=0.9", "adam_beta2: 0.9  # from optim_args: beta2=0.9"},
		{axolotlBase, "chat_template_jinja: '{% if %}'", "# chat_template_jinja: \"{% if %}\"  # not possible: template:1"},
		{axolotlBase, "num_epochs: 2", "# excess_length_strategy: drop  # a default over there: rows longer than sequence_len are left out there"},
		{axolotlBase, "batch_size: 9\nmicro_batch_size: 2", "# batch_size: 9  # not possible: it is no multiple of micro_batch_size"},
		{axolotlBase, "batch_size: 6", "gradient_accumulation_steps: 6  # renamed from batch_size: rows of a step, over micro_batch_size 1"},
		{axolotlBase, "num_epochs: 4\nsaves_per_epoch: 0", "# saves_per_epoch: 0  # of no meaning here: it is off"},
		{axolotlBase, "evals_per_epoch: 2", "eval_steps: 0.5  # from evals_per_epoch: 2"},
		{axolotlBase, "evals_per_epoch: often", "# evals_per_epoch: often  # not possible: evals_per_epoch must be a whole number, or a share of all steps below 1, not often"},
		{axolotlBase, "lr_scheduler: linear", "lr_scheduler_type: linear  # "},
		{axolotlBase, "tokens: {eos_token: <e>}", "special_tokens: {eos_token: \"<e>\"}  # renamed from tokens"},
		{axolotlBase, "tokens: [<a>]", "add_tokens: [\"<a>\"]  # from tokens: [\"<a>\"]\nresize_vocab: true"},
		{axolotlBase, "tokenizer_config: a", "# tokenizer_config: a  # of no meaning here: it is base_model, which has it all"},
		{axolotlBase, "unfrozen_parameters: ['^lm_head.weight$', 'model.layers.2[0-9]+.mlp']", "unfrozen_parameters: [\"^lm_head\\\\.weight$\", \"^model\\\\.layers\\\\.2[0-9]+\\\\.mlp\"]  # "},
		{axolotlBase, "unfrozen_parameters: ['model.embed_tokens.weight$[:32000]']", "# unfrozen_parameters: [\"model.embed_tokens.weight$[:32000]\"]  # not possible: a tensor is trained as a whole: "},
		{axolotlBase, "plugins: axolotl.integrations.spectrum.SpectrumPlugin", "# plugins: axolotl.integrations.spectrum.SpectrumPlugin  # not possible: mt has no plugins, and axolotl.integrations.spectrum.SpectrumPlugin changes what is trained"},
		{axolotlBase, "chat_template: tokenizer_default", "# chat_template: tokenizer_default  # of no meaning here: the model's own chat template is taken anyway"},
		{axolotlBase, "chat_template: tokenizer_default_fallback_chatml", "# chat_template: tokenizer_default_fallback_chatml  # of no meaning here: the model's own chat template is taken where it has one; else give template: chatml"},
		{axolotlBase, "chat_template: jinja\nchat_template_jinja: a.jinja", "# chat_template: jinja  # of no meaning here: chat_template_jinja is the template\ntemplate: a.jinja  # renamed from chat_template_jinja"},
		{axolotlBase, "chat_template: chatml", "template: chatml  # renamed from chat_template"},
		{axolotlBase, "resize_token_embeddings_to_32x: false", "# resize_token_embeddings_to_32x: false  # of no meaning here: it is off"},
		{axolotlBase, "use_mlflow: false", "# use_mlflow: false  # of no meaning here: it is off"},
		{axolotlBase, "excess_length_strategy: truncate", "# excess_length_strategy: truncate  # of no meaning here: rows that are longer are cut"},
		{axolotlBase, "excess_length_strategy: drop", "# excess_length_strategy: drop  # not possible: rows that are longer are cut"},
		{axolotlBase, "model_quantization_config: Mxfp4Config\nmodel_quantization_config_kwargs: {dequantize: true}", "# model_quantization_config: Mxfp4Config  # of no meaning here: weights are read into bf16"},
		{axolotlBase, "model_quantization_config: Mxfp4Config", "# model_quantization_config: Mxfp4Config  # not possible: "},
		{axolotlBase, "micro_batch_size: 2\ngradient_accumulation_steps: 4\nbatch_size: 8", "# batch_size: 8  # of no meaning here: another key says it too"},
		{axolotlBase, "micro_batch_size: 2\ngradient_accumulation_steps: 3\nbatch_size: 8", "# batch_size: 8  # not possible: gradient_accumulation_steps says gradient_accumulation_steps already"},
		{axolotlBase, "learning_rate: 1\nlr_groups: [{name: g, modules: q.proj, lr: 0.5}]", "lr_groups:  # from [{lr: 0.5, modules: q.proj, name: g}]: modules are parts of names over there; norms and biases that match are in the group here\n  - {name: g, modules: [\"q\\\\.proj\"], lr: 0.5}"},
		{axolotlBase, "embedding_lr: 0", "# embedding_lr: 0  # of no meaning here: it is off"},
		{axolotlBase, "embedding_lr_scale: 0.5", "# embedding_lr_scale: 0.5  # not possible: embedding_lr_scale needs learning_rate beside it"},
		{"base_model: a\n", "pretraining_dataset: c.txt", "datasets:  # from pretraining_dataset: c.txt\n  - {path: c.txt}"},
		{"base_model: a\n", "datasets: {path: b, type: completion, text_column: body, name:}", "  - {path: b, type: text, field: body}"},
		{"base_model: a\n", "datasets: [{path: b, type: chat_template, message_field_training: training}]", "# datasets[0].message_field_training: training  # of no meaning here: "},
		{"base_model: a\n", "datasets: [{path: b, type: chat_template, message_field_training: learn}]", "# datasets[0].message_field_training: learn  # not possible: "},
		{"base_model: a\n", "datasets: [{path: b, type: alpaca}]", "template: stanford_alpaca  # from datasets[].type: alpaca: the layout of this type"},
		{"base_model: a\n", "datasets: [{path: b, type: alpaca}, {path: c, type: completion}]", "# datasets[].type: "},
		{"base_model: a\n", "datasets: [{path: b, type: {field_instruction: q, field_output: a, format: '[INST]', no_input_format:}}]",
			"# datasets[0].type.format: \"[INST]\"  # not possible: the layout of a prompt is a template's"},
		{"base_model: a\nchat_template: chatml\n", "datasets: [{path: b, type: alpaca}]", "# chat_template: chatml  # of no meaning here: no data set goes through it"},

		{factoryBase, "do_train: false", "!"},
		{factoryBase, "pure_bf16: true", "master_dtype: bf16  # from pure_bf16: true: updates round by chance, so that small ones are not lost\ncompute_dtype: bf16"},
		{factoryBase, "pure_bf16: false", "# pure_bf16: false  # of no meaning here: it is off"},
		{factoryBase, "use_muon: true", "optim: muon  # from use_muon: true\nadjust_lr_fn: match_rms_adamw"},
		{factoryBase, "use_muon: false", "# use_muon: false  # of no meaning here: it is off"},
		{factoryBase, "neat_packing: true", "packing: true  # renamed from neat_packing: documents in a row do not see each other"},
		{factoryBase, "neat_packing: true\npacking: false", "packing: true  # renamed from neat_packing: documents in a row do not see each other\n# packing: false  # of no meaning here: another key says it too"},
		{factoryBase, "packing: false\nneat_packing: true", "packing: true  # from false: neat_packing switches it on"},
		{factoryBase, "neat_packing: false", "packing: false  # a default over there"},
		{factoryBase, "disable_shuffling: true", "shuffle: false  # from disable_shuffling: true"},
		{factoryBase, "disable_shuffling: maybe", "# disable_shuffling: maybe  # not possible: disable_shuffling must be true or false, not maybe"},
		{factoryBase, "template: fancy", "# template: fancy  # not possible: mt does not know this layout"},
		{factoryBase, "optim: adafactor", "# optim: adafactor  # not possible: optim must be "},
		{factoryBase, "train_dataset: sets.yaml", "# train_dataset: sets.yaml  # not possible: mt reads no YAML file of data sets"},
		{factoryBase, "model_class: vlm", "!mt trains language models (llm)"},
		{factoryBase, "optim_config: {name: muon, lr2: 3}", "# optim_config.lr2: 3  # not possible: mt knows no such key of an optimizer\noptim: muon"},
		{"stage: pt\nfinetuning_type: full\n", "cutoff_len: 9", "packing: true  # a default over there: LLaMA-Factory packs rows in pre-training alone"},

		{tuneBase, "metric_logger: {_component_: torchtune.training.metric_logging.TensorBoardLogger}", "report_to: [tensorboard]  # from metric_logger"},
		{tuneBase, "metric_logger: {_component_: torchtune.training.metric_logging.WandBLogger}", "# metric_logger: torchtune.training.metric_logging.WandBLogger  # not possible: "},
		{tuneBase, "tokenizer: {max_seq_len: null, prompt_template: x}", "# tokenizer.prompt_template: x  # not possible: "},
		{tuneBase, "tokenizer: {max_seq_len: null}", "# tokenizer.max_seq_len:   # not possible: mt needs a limit"},
		{tuneBase, "checkpointer: {_component_: torchtune.training.FullModelMetaCheckpointer, checkpoint_dir: d, recipe_checkpoint: r.pt}",
			"# checkpointer: torchtune.training.FullModelMetaCheckpointer  # not possible: mt reads Hugging Face directories"},
		{tuneBase, "checkpointer: {checkpoint_dir: d, recipe_checkpoint: r.pt}", "# checkpointer.recipe_checkpoint: r.pt  # not possible: "},
		{tuneBase, "checkpointer: {x: 1}", "# checkpointer: {x: 1}  # not possible: it names no checkpoint_dir"},
		{tuneBase, "out: o\ncheckpointer: {checkpoint_dir: '${out}/a/${gone}'}", "model_name_or_path: \"o/a/${gone}\"  # from checkpointer.checkpoint_dir"},
		{tuneBase, "root: r\nhome: '${root}/h'\nnames: {of: {model: '${home}/m'}}\ncheckpointer: {checkpoint_dir: '${names.of.model}/a'}", "model_name_or_path: r/h/m/a  # from checkpointer.checkpoint_dir"},
		{tuneBase, "a: '${b}'\nb: '${a}'\noutput_dir: 'o/${a}'", "output_dir: \"o/${"},
		{tuneBase, "optimizer: {_component_: torch.optim.AdamW, lr: 1, betas: [0.8, 0.9], eps: 1e-7, amsgrad: true}", "# optimizer.amsgrad: true  # not possible: mt knows no such number"},
		{tuneBase, "optimizer: {_component_: torch.optim.AdamW, betas: 0.9}", "# optimizer.betas: 0.9  # not possible: it has two numbers"},
		{tuneBase, "optimizer: {_component_: torch.optim.Adagrad}", "# optimizer: torch.optim.Adagrad  # not possible: "},
		{tuneBase, "lr_scheduler: {_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup, num_warmup_steps: 7, num_cycles: 1.5}",
			"lr_scheduler_kwargs: {num_cycles: 1.5}"},
		{tuneBase, "checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: d, model_type: LLAMA3, adapter_checkpoint: a.pt}",
			"# checkpointer.adapter_checkpoint: a.pt  # not possible: mt knows no such key of a checkpointer"},
		{tuneBase, "lr_scheduler: {_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup, num_warmup_steps: 7, last_epoch: 3}",
			"# lr_scheduler.last_epoch: 3  # not possible: mt knows no such key of a schedule"},
		{tuneBase, "loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss, ignore_index: 0}", "# loss.ignore_index: 0  # not possible: mt knows no such key of a loss"},
		{tuneBase, "lr_scheduler: {_component_: torch.optim.lr_scheduler.StepLR}", "# lr_scheduler: torch.optim.lr_scheduler.StepLR  # not possible: "},
		{tuneBase, "max_steps_per_epoch: 50\nepochs: 3", "max_steps: 150  # from max_steps_per_epoch: 50: so many steps in each of 3 epochs"},
		{tuneBase, "max_steps_per_epoch: 50", "max_steps: 50  # renamed from max_steps_per_epoch: so many steps in the only epoch"},
		{tuneBase, "max_steps_per_epoch: many", "# max_steps_per_epoch: many  # not possible: it is no number of steps"},
		{tuneBase, "save_every_n_epochs: 1", "save_strategy: epoch  # from "},
		{tuneBase, "save_every_n_epochs: 2", "# save_every_n_epochs: 2  # not possible: checkpoints are written every epoch, or every save_steps"},
		{tuneBase, "dataset: {_component_: torchtune.datasets.samsum_dataset}", "# dataset: torchtune.datasets.samsum_dataset  # not possible: mt has no such data set"},
		{tuneBase, "dataset: {_component_: torchtune.datasets.text_completion_dataset, source: s, column: c, packed: true, filter: f}", "  - {path: s, type: text, field: c}"},
		{tuneBase, "dataset: {_component_: torchtune.datasets.preference_dataset, source: s, column_map: {prompt: p, chosen: c, system: y}, train_on_input: true}",
			"# dataset.column_map.system: y  # not possible: a pair has prompt, chosen and rejected\n# dataset.train_on_input: true  # not possible: of a pair the answers alone are trained on"},
		{tuneBase, "dataset: {_component_: torchtune.datasets.chat_dataset, source: s, packed: true}", "packing: true"},
		{tuneBase, "dataset: {_component_: torchtune.datasets.chat_dataset, source: s, train_on_input: true}", "train_on_prompt: true"},
	} {
		im, err := ParseImport("t.yaml", []byte(c.base+c.lines+"\n"), "")
		if why, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %s", c.lines, err, why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.lines, err)
			continue
		}
		got := string(im.YAML())
		if !strings.Contains(got, c.want) {
			t.Errorf("%s gives\n%s\nwant %s", c.lines, got, c.want)
		}
		if key, _, left := strings.Cut(strings.TrimPrefix(c.want, "# "), ":"); left && c.want[0] == '#' && strings.Contains(got, "  # from "+key+":") {
			t.Errorf("%s is left out and taken:\n%s", key, got)
		}
	}
}

// TestFreezeTuning: the import of LLaMA-Factory's finetuning_type: freeze trains the same layers
// and modules as LLaMA-Factory does.
func TestFreezeTuning(t *testing.T) {
	dir := t.TempDir()
	conf := `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6,
		"num_attention_heads": 2, "vocab_size": 48, "rms_norm_eps": 1e-5}`
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(conf), 0o644))
	head := func(model string) string {
		return fmt.Sprintf("stage: sft\ndo_train: true\nfinetuning_type: freeze\nmodel_name_or_path: %s\ndataset: chats.jsonl\n", model)
	}
	for keys, want := range map[string][]string{
		"":                               {`\.4\.`, `\.5\.`},
		"freeze_trainable_layers: 1\n":   {`\.5\.`},
		"freeze_trainable_layers: -2\n":  {`\.0\.`, `\.1\.`},
		"freeze_trainable_layers: 9\n":   {`\.0\.`, `\.1\.`, `\.2\.`, `\.3\.`, `\.4\.`, `\.5\.`},
		"freeze_trainable_layers: -99\n": {`\.0\.`, `\.1\.`, `\.2\.`, `\.3\.`, `\.4\.`, `\.5\.`},
		"freeze_trainable_layers: 3\nuse_llama_pro: true\n":                                                               {`\.1\.`, `\.3\.`, `\.5\.`},
		"freeze_trainable_layers: 1\nfreeze_trainable_modules: mlp, self_attn\nfreeze_extra_modules: embed_tokens,norm\n": {`\.5\.mlp`, `\.5\.self_attn`, "embed_tokens", "norm"},
	} {
		if c := mustParse(t, head(dir)+keys); !slices.Equal(c.Unfrozen, want) || len(c.Freeze) > 0 {
			t.Errorf("%q: unfrozen_parameters %q, want %q", keys, c.Unfrozen, want)
		}
	}
	for text, want := range map[string]string{
		head("org/nothing-here"):                                                "finetuning_type: freeze: not possible: how many layers the model has says its directory: org/nothing-here: no such directory",
		head(dir) + "freeze_trainable_layers: 0\n":                              "freeze_trainable_layers is 0: it wants a number of layers",
		head(dir) + "freeze_trainable_layers: all\n":                            "freeze_trainable_layers is all: it wants a number of layers",
		head(dir) + "freeze_trainable_layers: 4\nuse_llama_pro: true\n":         "use_llama_pro wants freeze_trainable_layers, 4, to divide the model's 6 layers",
		strings.Replace(head(dir), "freeze", "lora", 1) + "use_llama_pro: true": "use_llama_pro: true: not possible",
	} {
		if _, err := Parse("t.yaml", []byte(text), Args{}); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	v1 := fmt.Sprintf("model_class: llm\nmodel: %s\ntrain_dataset: chats.jsonl\npeft_config: {name: freeze, freeze_trainable_layers: -1, freeze_trainable_modules: mlp, freeze_extra_modules: norm}\n", dir)
	if c := mustParse(t, v1); !slices.Equal(c.Unfrozen, []string{`\.0\.mlp`, "norm"}) {
		t.Errorf("of examples/v1: unfrozen_parameters %q", c.Unfrozen)
	}
	if _, err := Parse("t.yaml", []byte(strings.Replace(v1, "name: freeze", "name: lora", 1)), Args{}); err == nil || !strings.Contains(err.Error(), "adapters are not supported") {
		t.Errorf("an adapter of examples/v1: %v", err)
	}
	full := strings.Replace(head(dir), "freeze", "full", 1) + "freeze_trainable_layers: 4\n"
	if c := mustParse(t, full); len(c.Unfrozen) > 0 {
		t.Errorf("full fine-tuning trains %q", c.Unfrozen)
	}
}
