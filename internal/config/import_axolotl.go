package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// axolotl are the configs of axolotl-ai-cloud/axolotl (src/axolotl/utils/schemas).
var axolotl = &tool{
	name: "axolotl", word: "axolotl",
	is: func(doc value) bool {
		return doc.has("base_model") && (doc.has("datasets") || doc.has("pretraining_dataset"))
	},
	rules: axolotlRules(), last: axolotlLast,
}

func axolotlRules() map[string]rule {
	rules := map[string]rule{
		"tf32": tf32Rule, "bf16": bf16Rule, "bfloat16": bf16Rule, "fp16": lost("mt computes in bf16 or fp32"), "float16": lost("mt computes in bf16 or fp32"),
		"float32":             lost("give compute_dtype: fp32"),
		"optimizer":           orElse("optim", "adamw"),
		"adam_eps":            to("adam_epsilon"),
		"optim_args":          func(im *importer, e entry) { im.optimNumbers(e) },
		"datasets":            axolotlSets("datasets"),
		"pretraining_dataset": axolotlSets("datasets"),
		"test_datasets":       axolotlSets("eval_datasets"),
		"chat_template":       axolotlTemplate,
		"chat_template_jinja": templateText,
		"batch_size":          axolotlBatch,
		"lr_scheduler":        orElse("lr_scheduler_type", "cosine"), // rex, one_cycle and the like are not there
		"cosine_min_lr_ratio": to("min_lr_ratio"),
		"eta_min":             idle("axolotl reads no such key"),
		"streaming":           idle("data is tokenised once into a token cache"),
		"warmup_steps":        warmupRule,
		"evals_per_epoch":     func(im *importer, e entry) { im.stepsOfEpochs(e, axolotlEpochs(im), "eval_steps") },
		"saves_per_epoch":     func(im *importer, e entry) { im.stepsOfEpochs(e, axolotlEpochs(im), "save_steps") },
		"tokens":              axolotlTokens,
		"plugins":             axolotlPlugins,
		"unfrozen_parameters": axolotlUnfrozen,
		"base_model_config":   sameAsModel, "tokenizer_config": sameAsModel,
		"cls_model_config":               idle("config.json of the model's directory says it"),
		"resize_token_embeddings_to_32x": unlessOff(means("", [2]string{"resize_vocab", "true"}, [2]string{"resize_vocab_to_multiple_of", "32"})),
		"shuffle_merged_datasets":        to("shuffle"),
		"dataset_shard_num":              lost("shards of all data sets together: give each of datasets shards and shards_idx"),
		"mlflow_run_name":                to("run_name"),
		"use_mlflow":                     switchedReport("mlflow"),
		"use_tensorboard":                switchedReport("tensorboard"),
		"chat_template_kwargs":           to("chat_template_kwargs"),
		"processor_type":                 lost(noTowers),
		"freeze_mm_modules":              idle("mt trains the text part of a model"),
		"model_quantization_config": func(im *importer, e entry) {
			if im.doc.get("model_quantization_config_kwargs").get("dequantize").is("true") {
				im.idle(e, "weights are read into bf16 and trained so")
				return
			}
			im.lose(e, noQuant)
		},
		"model_quantization_config_kwargs": idle("it belongs to model_quantization_config"),
		"hub_model_id":                     lost("mt reaches no network: upload output_dir with `hf upload`"),
		"push_dataset_to_hub":              lost("mt reaches no network"),
		"skip_prepare_dataset":             lost("mt prepares rows by itself"),
		"full_finetune":                    idle("mt trains all parameters"),
		"gradient_checkpointing":           idle("what the backward computes again is chosen by the memory that there is: see recompute"),
		"train_on_inputs":                  to("train_on_prompt"),
		"eot_tokens":                       idle("the end of an answer is what the chat template writes there, and it is supervised"),
		"excess_length_strategy": func(im *importer, e entry) {
			if e.val.is("truncate") {
				im.idle(e, "rows that are longer are cut")
				return
			}
			im.lose(e, "rows that are longer are cut, and left out where nothing supervised is left")
		},
		"min_sample_len":              lost("short rows are not left out"),
		"dataset_exact_deduplication": lost("mt removes no rows that are equal"),
		"default_system_message":      lost("put it into a template of your own"),
		"save_first_step":             idle("mt checks before a run that what it will write has room"),
		"lora_target_linear":          idle("it belongs to LoRA, and mt trains all parameters"),
		"model_config":                lost("config.json of the model's directory says it: change it there"),
	}
	axolotlWithout(rules)
	maps.Copy(rules, axolotlDPO())
	return rules
}

// axolotlWithout adds the rules of keys that several share: those of what mt does without.
func axolotlWithout(rules map[string]rule) {
	with(rules, refused("mt trains no reward models"), "reward_model", "process_reward_model")
	with(rules, refused("mt trains on the next token"), "diffusion", "ebft")
	with(rules, lost(noAdapter), "lora_model_dir", "relora", "peft", "merge_lora")
	with(rules, idle("it belongs to LoRA, and mt trains all parameters"), "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_parameters", "lora_fan_in_fan_out", "lora_modules_to_save",
		"lora_on_cpu", "peft_use_dora", "peft_use_rslora", "loraplus_lr_ratio", "loraplus_lr_embedding", "qlora_sharded_model_loading", "bnb_config_kwargs")
	with(rules, lost(noQuant), "gptq", "qat", "quantization", "fp8", "fp8_enable_fsdp_float8_all_gather", "use_onebitllms", "llmcompressor")
	with(rules, idle("it belongs to quantised weights, and mt trains in full precision"), "gptq_groupsize", "gptq_model_v1")
	with(rules, lost("what is trained is the same in every step: see freeze"), "lisa_n_layers", "lisa_step_interval", "lisa_layers_attribute")
	with(rules, axolotlGroups, groupsKey, "embedding_lr", "embedding_lr_scale")
	with(rules, lost(noOtherLoss), "use_eaft", "center_rewards_coefficient", "num_labels", "scaling_softmax")
	with(rules, idle("it belongs to use_eaft"), "eaft_alpha", "eaft_k")
	with(rules, idle("it belongs to a way of training that is named beside it"), "trl", "vllm", "bench_dataset")
	with(rules, lost("the rate rises evenly, and falls as lr_scheduler_type says"), "lr_quadratic_warmup", "cosine_constant_lr_ratio", "jagged_restart_steps")
	with(rules, lost("no loss ends a run by itself; early_stopping_patience ends one by its evaluations"), "loss_watchdog_threshold", "loss_watchdog_patience")
	with(rules, lost("weights are those of base_model"), "reinit_weights", "base_model_ignore_patterns", "llama4_linearized_experts")
	with(rules, lost("mt has no such key"), "curriculum_sampling", "use_pose", "do_causal_lm_eval", "do_bench_eval", "sample_packing_sequentially")
	with(rules, lost("mt reports to metrics.jsonl, tensorboard and mlflow: see report_to"), "use_wandb", "use_comet", "comet_project_name", "wandb_mode",
		"use_trackio", "trackio_project_name", "trackio_run_name")
	with(rules, idle("the model's directory is read as it is"), "experimental_skip_move_to_device", "embeddings_skip_upcast", "fix_untrained_tokens", "mean_resizing_embeddings", "processor_kwargs")
	with(rules, idle("the server is that of MLFLOW_TRACKING_URI"), "mlflow_tracking_uri", "mlflow_experiment_name", "hf_mlflow_log_artifacts")
	with(rules, idle("mt has its own: see --trace"), "profiler_steps", "profiler_steps_start")
	with(rules, idle("it is of a cloud that axolotl is started on"), "provider", "project_name", "volumes", "gpu", "gpu_count", "timeout", "timeout_preprocess", "memory", "memory_preprocess", "secrets",
		"dockerfile_commands", "branch", "node_count", "env")
}

// axolotlLast writes out the defaults of axolotl that are not those of mt.
func axolotlLast(im *importer) {
	for _, d := range []struct{ key, text, why string }{
		{"max_seq_len", "512", ""}, {"packing", "false", ""}, {"per_device_train_batch_size", "1", ""}, {"num_train_epochs", "1", ""},
		{"lr_scheduler_type", "cosine", ""},
	} {
		im.orDefault(d.key, d.text, d.why)
	}
	if !im.doc.has("excess_length_strategy") && !axolotlOnPairs(im) {
		im.byDefault("excess_length_strategy", "drop", "rows longer than sequence_len are left out there; mt cuts them, and leaves out those where nothing supervised is left")
	}
	_, steps := im.given["warmup_steps"]
	if !steps {
		im.orDefault("warmup_ratio", "0.03", "3 in 100 steps, and at most 100 steps, rise")
	}
	if _, given := im.given["save_steps"]; !given {
		im.orDefault("save_strategy", "epoch", "")
	}
	if _, given := im.given["eval_steps"]; !given && im.c.held() {
		im.orDefault("eval_strategy", "epoch", "")
	}
}

// axolotlEpochs is num_epochs, which is 1 where it is not given.
func axolotlEpochs(im *importer) float64 {
	if x, ok := im.doc.get("num_epochs").float(); ok && x > 0 {
		return x
	}
	return 1
}

// axolotlBatch takes batch_size: the rows of a step, which micro_batch_size is a part of.
func axolotlBatch(im *importer, e entry) {
	micro, ok := im.doc.get("micro_batch_size").count()
	if !ok {
		micro = 1
	}
	n, ok := e.val.count()
	switch {
	case !ok || micro < 1 || n%micro != 0:
		im.lose(e, "it is no multiple of micro_batch_size")
	default:
		im.giveFor(e, fmt.Sprintf("rows of a step, over micro_batch_size %d", micro), setting{"gradient_accumulation_steps", plainAt(e.val, fmt.Sprint(n/micro))})
	}
}

// sameAsModel takes a path to a part of the model, which mt reads from the model's directory.
func sameAsModel(im *importer, e entry) {
	if e.val.text == im.doc.get("base_model").text {
		im.idle(e, "it is base_model, which has it all")
		return
	}
	im.lose(e, "mt reads config and tokenizer from the model's directory: put them there")
}

// switchedReport adds a board, where the key is true.
func switchedReport(board string) rule {
	return unlessOff(means("", [2]string{"report_to", board}))
}

// axolotlTokens takes tokens: a list of tokens to add; once it was another name for
// special_tokens.
func axolotlTokens(im *importer, e entry) {
	if e.val.kind == mapping {
		im.give(e, specialTokensKey, e.val)
		return
	}
	im.giveFor(e, "", setting{"add_tokens", e.val}, setting{"resize_vocab", plainAt(e.val, "true")})
}

// dots are those of a pattern that axolotl takes for dots and not for any character.
var dots = regexp.MustCompile(`\.([^+]|$)`)

// axolotlUnfrozen takes unfrozen_parameters: patterns that names begin with, in which a dot is a
// dot. A range of rows behind one cannot be had.
func axolotlUnfrozen(im *importer, e entry) {
	out := value{kind: list, pos: e.val.pos}
	for _, item := range e.val.items {
		if strings.Contains(item.text, "[:") || strings.HasSuffix(item.text, ":]") {
			im.lose(e, "a tensor is trained as a whole: "+item.text+" names some of its rows")
			return
		}
		out.items = append(out.items, textAt(item, "^"+strings.TrimPrefix(dots.ReplaceAllString(item.text, `\.$1`), "^")))
	}
	im.give(e, "unfrozen_parameters", out)
}

// axolotlPlugins takes plugins: those that only make a run faster have no meaning here.
func axolotlPlugins(im *importer, e entry) {
	items := e.val.items
	if e.val.kind != list {
		items = []value{e.val}
	}
	for _, item := range items {
		name := strings.ToLower(item.text)
		if !slices.ContainsFunc([]string{"liger", "cut_cross_entropy", "kernels", "expert_parallel"}, func(s string) bool { return strings.Contains(name, s) }) {
			im.lose(e, fmt.Sprintf("mt has no plugins, and %s changes what is trained", item.text))
			return
		}
	}
	im.idle(e, "mt has kernels of its own")
}

// axolotlChats tells whether a data set goes through the chat template.
func (im *importer) axolotlChats() bool {
	return slices.ContainsFunc(im.doc.get("datasets").items, func(v value) bool { return strings.HasPrefix(v.get("type").text, "chat_template") })
}

// axolotlTemplate takes chat_template: its names for layouts.
func axolotlTemplate(im *importer, e entry) {
	name := e.val.text
	if rest, ok := strings.CutPrefix(name, "tokenizer_default_fallback_"); ok {
		im.idle(e, "the model's own chat template is taken where it has one; else give template: "+rest)
		return
	}
	if !im.axolotlChats() {
		im.idle(e, "no data set goes through it: their types have layouts of their own")
		return
	}
	switch name {
	case "tokenizer_default":
		im.idle(e, "the model's own chat template is taken anyway")
	case "jinja":
		im.idle(e, "chat_template_jinja is the template")
	case "chatml":
		im.give(e, "template", e.val)
	default:
		im.lose(e, "mt takes the model's own chat template, which for the models that this layout is of is the same but for details")
	}
}
