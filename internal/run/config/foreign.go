package config

import (
	"maps"
	"slices"
	"strings"
)

// judge decides about the value v of another tool's key, in view of mt's config c. It returns the reason why mt cannot
// do what v asks, or "" if mt can ignore the key.
type judge func(v value, c *Config) string

// harmless is the judge for keys that mt can ignore whatever their value.
func harmless(value, *Config) string { return "" }

// unset reports whether v switches a key off: v is empty, false, 0 or none.
func (v value) unset() bool {
	switch v.kind {
	case null:
		return true
	case plain:
		val, ok := truth(v.text)
		return ok && !val || slices.Contains([]string{"", "0", "0.0", "none", "None", "null"}, v.text)
	case quoted:
		return v.text == "" || strings.EqualFold(v.text, "none")
	case list:
		return len(v.items) == 0
	}
	return len(v.fields) == 0
}

// off returns a judge that accepts only values that switch the key off. For any other value the judge returns reason.
func off(reason string) judge {
	return func(v value, _ *Config) string {
		if v.unset() {
			return ""
		}
		return reason
	}
}

// on returns a judge that returns reason for values that switch the key off, and accepts all others. It also accepts a
// key without a value.
func on(reason string) judge {
	return func(v value, _ *Config) string {
		if v.kind != null && v.unset() {
			return reason
		}
		return ""
	}
}

// only returns a judge that accepts the given words and an empty value. For any other value the judge returns reason.
func only(reason string, words ...string) judge {
	return func(v value, _ *Config) string {
		if v.kind == null || v.kind <= quoted && slices.Contains(words, strings.ToLower(v.text)) {
			return ""
		}
		return reason
	}
}

const (
	noAdapter = "mt trains all parameters; adapters are not supported"
	noQuant   = "mt trains in full precision; quantised weights are not supported"
)

// foreign lists keys of other tools (LLaMA-Factory, Axolotl, torchtune, TrainingArguments) that mt knows but does not
// use.
var foreign = map[string]judge{
	"stage":            only("mt has the stages sft and pt; for DPO give the key dpo", "sft", "pt"),
	"do_train":         on("mt train always trains; run mt eval to evaluate"),
	"finetuning_type":  only(noAdapter+": set full, or remove the key", "full"),
	"adapter":          off(noAdapter + ": remove the key"),
	"lora_rank":        off(noAdapter + ": remove the key"),
	"lora_r":           off(noAdapter + ": remove the key"),
	"lora_alpha":       off(noAdapter + ": remove the key"),
	"lora_dropout":     off(noAdapter + ": remove the key"),
	"lora_target":      off(noAdapter + ": remove the key"),
	"use_peft":         off(noAdapter + ": remove the key"),
	"load_in_4bit":     off(noQuant + ": remove the key"),
	"load_in_8bit":     off(noQuant + ": remove the key"),
	"quantization_bit": off(noQuant + ": remove the key"),
	"bf16":             bf16,
	"fp16":             off("mt computes in bf16 or fp32: set compute_dtype"),
	"tf32":             off("mt computes fp32 matrix products in full fp32: remove the key"),

	"gradient_checkpointing":        checkpointing,
	"save_safetensors":              on("mt writes only safetensors: remove the key"),
	"logging_strategy":              only("mt logs every logging_steps steps: set logging_steps", "steps"),
	"metric_for_best_model":         only("mt compares only the loss of evaluations: set eval_loss", "loss", "eval_loss"),
	"greater_is_better":             off("a lower eval_loss is better: set false"),
	"trackio_space_id":              off("mt does not upload to the Hub: set report_to: tensorboard, and upload the run with trackio.import_tf_events"),
	"group_by_length":               off("mt orders rows by seed or as in the file, never by length: see shuffle"),
	"push_to_hub":                   off("mt does not upload: run `hf upload` on output_dir after training"),
	"fsdp":                          harmless,
	"streaming":                     off("mt packs the data once into a token cache (see cache_dir): remove the key"),
	"use_cache":                     off("training has no key/value cache: remove the key"),
	"ignore_data_skip":              off("a resumed run continues in the data where its checkpoint stopped: set reset_data: true to begin at the first row"),
	"average_tokens_across_devices": harmless, "auto_find_batch_size": off("mt plans its memory before the run: remove the key"),
	"deepspeed": harmless, "trust_remote_code": harmless, "overwrite_cache": harmless,
	"preprocessing_num_workers": harmless, "dataset_processes": harmless, "dataloader_num_workers": harmless,
	"dataloader_pin_memory": harmless, "plot_loss": harmless, "ddp_timeout": harmless,
	"ddp_find_unused_parameters": harmless, "logging_dir": harmless, "logging_first_step": harmless, "do_eval": harmless,
	"per_device_eval_batch_size": harmless, "eval_batch_size": harmless, "flash_attn": harmless,
	"flash_attention": harmless, "attn_implementation": harmless, "enable_liger_kernel": harmless,
	"use_unsloth": harmless, "low_cpu_mem_usage": harmless, "use_fast_tokenizer": harmless, "model_type": harmless,
	"tokenizer_type": harmless, "remove_unused_columns": harmless, "disable_tqdm": harmless,
	"include_num_input_tokens_seen": harmless, "torch_compile": harmless, "local_rank": harmless,
	"pad_to_max_length": harmless, "pad_to_sequence_len": harmless, "gradient_checkpointing_kwargs": harmless,
	"strict": harmless, "project": harmless, "wandb_project": wandb, "wandb_entity": wandb, "wandb_watch": wandb,
	"wandb_name": wandb, "wandb_run_id": wandb, "wandb_log_model": wandb,
}

var wandb = off("mt reports to metrics.jsonl, tensorboard and mlflow: set report_to")

// foreignSwitches has the keys of foreign that are switches. Their flags need no value: --do_train alone means true.
var foreignSwitches = func() map[string]bool {
	m := map[string]bool{}
	for k := range maps.Keys(foreign) {
		m[k] = true
	}
	for _, k := range []string{"stage", "finetuning_type", "adapter", "lora_rank", "lora_r", "lora_alpha", "lora_dropout",
		"lora_target", "quantization_bit", "logging_strategy",
		"fsdp", "deepspeed", "preprocessing_num_workers",
		"dataset_processes", "dataloader_num_workers", "ddp_timeout", "logging_dir", "per_device_eval_batch_size",
		"eval_batch_size", "flash_attn", "attn_implementation", "model_type", "tokenizer_type", "local_rank",
		"gradient_checkpointing_kwargs", "metric_for_best_model", "trackio_space_id", "project", "wandb_project", "wandb_entity", "wandb_watch", "wandb_name",
		"wandb_run_id", "wandb_log_model"} {
		m[k] = false
	}
	return m
}()

// bf16 is the judge of the key bf16. For false it sets compute_dtype to fp32 in c. For true it changes nothing, since
// compute_dtype auto already means bf16 on cuda.
func bf16(v value, c *Config) string {
	val, ok := truth(v.text)
	switch {
	case v.kind == null || v.text == "auto":
		return ""
	case !ok:
		return "must be true or false"
	case val && c.ComputeDType == "fp32":
		return "contradicts compute_dtype: fp32: remove one of them"
	case !val && c.ComputeDType == "bf16":
		return "contradicts compute_dtype: bf16: remove one of them"
	case !val:
		c.ComputeDType = "fp32"
	}
	return ""
}

// checkpointing is the judge of gradient_checkpointing. It rejects a value that contradicts mt's key recompute, such
// as false with recompute: full.
func checkpointing(v value, c *Config) string {
	val, ok := truth(v.text)
	switch {
	case ok && val && c.Recompute == "none":
		return "contradicts recompute: none: remove one of them"
	case ok && !val && c.Recompute == "full":
		return "contradicts recompute: full: remove one of them"
	}
	return ""
}

// idleKeys maps the keys of other tools that have no meaning in mt to the reason. Dropping such a key loses nothing,
// whatever its value. If the key is also in foreign, a config of mt may contain it.
var idleKeys = func() map[string]string {
	out := map[string]string{}
	eachImport("any", func(key, _, why string) { out[key] = why })
	return out
}()
