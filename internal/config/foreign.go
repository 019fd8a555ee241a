package config

import (
	"maps"
	"slices"
	"strings"
)

// judge says why the value of another tool's key contradicts what mt does, or nothing
// where it does not.
type judge func(v value, c *Config) string

// harmless allows any value.
func harmless(value, *Config) string { return "" }

// unset tells whether v switches its key off: it is empty, false, 0 or none.
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

// off allows only values that switch the key off.
func off(reason string) judge {
	return func(v value, _ *Config) string {
		if v.unset() {
			return ""
		}
		return reason
	}
}

// on refuses values that switch the key off; a key without a value is allowed.
func on(reason string) judge {
	return func(v value, _ *Config) string {
		if v.kind != null && v.unset() {
			return reason
		}
		return ""
	}
}

// only allows the given words, and an empty value.
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

// foreign are the keys of other tools (LLaMA-Factory, Axolotl, torchtune,
// TrainingArguments) that mt knows and has no use for.
var foreign = map[string]judge{
	"stage":            only("mt does supervised fine-tuning and pre-training (sft or pt), and DPO where dpo is given", "sft", "pt"),
	"do_train":         on("mt train trains; mt eval evaluates"),
	"finetuning_type":  only(noAdapter+"; write full, or leave it out", "full"),
	"adapter":          off(noAdapter),
	"lora_rank":        off(noAdapter),
	"lora_r":           off(noAdapter),
	"lora_alpha":       off(noAdapter),
	"lora_dropout":     off(noAdapter),
	"lora_target":      off(noAdapter),
	"use_peft":         off(noAdapter),
	"load_in_4bit":     off(noQuant),
	"load_in_8bit":     off(noQuant),
	"quantization_bit": off(noQuant),
	"bf16":             bf16,
	"fp16":             off("mt computes in bf16 or fp32: see compute_dtype"),
	"tf32":             off("fp32 products are fp32 throughout here"),

	"gradient_checkpointing":        checkpointing,
	"save_safetensors":              on("mt writes safetensors only"),
	"logging_strategy":              only("mt logs by steps: see logging_steps", "steps"),
	"metric_for_best_model":         only("mt compares the loss of evaluations", "loss", "eval_loss"),
	"greater_is_better":             off("a lower eval_loss is better"),
	"trackio_space_id":              off("mt reaches no Space of the Hub; trackio.import_tf_events takes a run there"),
	"group_by_length":               off("rows come in a seeded order or the file's: see shuffle"),
	"push_to_hub":                   off("mt reaches no network: upload output_dir with `hf upload`"),
	"fsdp":                          harmless,
	"streaming":                     off("data is packed once into a token cache: see cache_dir"),
	"use_cache":                     off("there is no key/value cache in training"),
	"ignore_data_skip":              off("resuming goes on in the data where the checkpoint was made; reset_data: true begins at its first row, once"),
	"average_tokens_across_devices": harmless, "auto_find_batch_size": off("mt plans before it runs"),
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

var wandb = off("mt reports to metrics.jsonl, tensorboard and mlflow: see report_to")

// foreignSwitches tells which keys of foreign may stand as a flag without a value.
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

// bf16 takes false as compute_dtype: fp32. True changes nothing, since it is what auto
// means on cuda.
func bf16(v value, c *Config) string {
	val, ok := truth(v.text)
	switch {
	case v.kind == null || v.text == "auto":
		return ""
	case !ok:
		return "wants true or false"
	case val && c.ComputeDType == "fp32":
		return "contradicts compute_dtype: fp32; leave one of them out"
	case !val && c.ComputeDType == "bf16":
		return "contradicts compute_dtype: bf16; leave one of them out"
	case !val:
		c.ComputeDType = "fp32"
	}
	return ""
}

// checkpointing refuses values of gradient_checkpointing that contradict recompute.
func checkpointing(v value, c *Config) string {
	val, ok := truth(v.text)
	switch {
	case ok && val && c.Recompute == "none":
		return "contradicts recompute: none; leave one of them out"
	case ok && !val && c.Recompute == "full":
		return "contradicts recompute: full; leave one of them out"
	}
	return ""
}

// idleKeys are keys of other tools that have no meaning here, with the reason: whatever their values,
// nothing is lost by leaving them out. Those that are in foreign too may stand among keys of mt.
var idleKeys = func() map[string]string {
	out := map[string]string{}
	for why, names := range map[string][]string{
		"mt has attention of its own": {"flash_attn", "flash_attention", "attn_implementation", "xformers_attention", "sdp_attention", "flex_attention",
			"sage_attention", "eager_attention", "flex_attn_compile_kwargs", "flash_attn_cross_entropy", "flash_attn_rms_norm", "flash_attn_fuse_mlp", "flash_attn_fuse_qkv",
			"flash_optimum", "pretrain_multipack_attn", "use_reentrant_gc"},
		"mt has kernels of its own": {"enable_liger_kernel", "use_liger_kernel", "liger_kernel_config", "use_liger", "use_unsloth", "use_unsloth_gc", "torch_compile", "torch_compile_backend",
			"torch_compile_mode", "use_v1_kernels", "use_kernels", "use_scattermoe", "use_sonicmoe", "experts_implementation", "tiled_mlp", "tiled_mlp_num_shards", "tiled_mlp_use_original_mlp",
			"chunked_cross_entropy", "chunked_cross_entropy_num_chunks", "cut_cross_entropy", "liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation", "liger_swiglu",
			"liger_cross_entropy", "liger_fused_linear_cross_entropy", "liger_use_token_scaling", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "sdpa_varlen"},
		"weights and states lie in host memory and stream through the device; nothing is shared out by it": {"deepspeed", "fsdp", "fsdp_config", "fsdp_version", "fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params",
			"fsdp_final_state_dict_type", "dp_shard_size", "dp_replicate_size", "context_parallel_size", "tensor_parallel_size", "expert_parallel_size", "sequence_parallel_degree",
			"heads_k_stride", "ring_attn_func", "parallelism_config", "accelerator_config", "device_map", "max_memory", "gpu_memory_limit", "torchdistx_path", "low_cpu_mem_usage",
			"activation_offloading", "layer_offloading", "offload_folder", "deepcompile"},
		"what the backward computes again is chosen by the memory that there is: see recompute": {"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "disable_gradient_checkpointing", "selective_checkpointing"},
		"one process drives all GPUs of a host": {"ddp", "ddp_timeout", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_backend", "local_rank", "world_size",
			"average_tokens_across_devices", "data_shared_file_system", "use_ray", "ray_run_name", "ray_num_workers", "resources_per_worker", "master_addr", "master_port"},
		"data is tokenised once, on all cores, into a token cache: see threads and cache_dir": {"overwrite_cache", "preprocessing_num_workers", "preprocessing_batch_size", "dataset_processes", "dataset_num_proc",
			"dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "dataloader_persistent_workers", "dataset_prepared_path", "dataset_keep_in_memory", "tokenized_path",
			"streaming_multipack_buffer_size", "pretrain_multipack_buffer_size", "buffer_size", "num_dataset_shards_to_save", "skip_prepare_dataset"},
		"nothing is padded, and rows are filled as well as can be": {"pad_to_max_length", "pad_to_sequence_len", "pad_to_multiple_of", "padding_free", "sample_packing_eff_est", "sample_packing_seq_len_multiplier",
			"sample_packing_group_size", "sample_packing_bin_size", "max_packed_sequence_len", "total_num_tokens", "eval_sample_packing", "eval_packing", "packing_strategy", "batch_flattening",
			"multipack_real_batches", "ignore_pad_token_for_loss"},
		"evaluation takes as many rows at once as training": {"per_device_eval_batch_size", "eval_batch_size", "batch_size_val", "eval_accumulation_steps", "bf16_full_eval"},
		"mt reads the model's own files and runs no code of theirs": {"trust_remote_code", "use_fast_tokenizer", "tokenizer_use_fast", "tokenizer_legacy", "model_type", "tokenizer_type", "tokenizer_use_mistral_common",
			"is_llama_derived_model", "is_mistral_derived_model", "is_falcon_derived_model", "is_qwen_derived_model", "tokenizer_save_jinja_files"},
		"mt writes and prints what it has": {"plot_loss", "logging_dir", "logging_first_step", "disable_tqdm", "include_num_input_tokens_seen", "log_level", "print_param_status", "logging_nan_inf_filter",
			"include_tokens_per_second", "include_tkps", "include_effective_tokens_per_second", "eval_table_size", "eval_max_new_tokens", "debug", "skip_memory_metrics", "gc_steps", "torch_empty_cache_steps"},
		"mt train trains, and evaluates what is held out": {"do_eval"},
		"columns that are not read cost nothing":          {"remove_unused_columns", "label_names"},
		"mt reads nothing from the Hub":                   {"hf_hub_token", "ms_hub_token", "om_hub_token", "hub_token", "hf_use_auth_token", "hub_private_repo", "hub_strategy"},
		"a key that mt does not know is an error anyway":  {"strict"},
		"no program that mt reports to has projects":      {"project"},
	} {
		for _, n := range names {
			out[n] = why
		}
	}
	return out
}()
