package config

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
