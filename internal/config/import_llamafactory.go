package config

import (
	"maps"
	"slices"
	"strings"

	"mt/data"
)

// llamaFactory are the configs of hiyouga/LLaMA-Factory: its own keys (src/llamafactory/hparams) and those of
// transformers.TrainingArguments. Those of its examples/v1 are another form of a few keys.
var llamaFactory = &tool{
	name: "LLaMA-Factory", word: "llamafactory",
	is: func(doc value) bool {
		return doc.has("stage") && (doc.has("finetuning_type") || doc.has("do_train") || doc.has("do_predict")) || doc.has("train_dataset") && doc.has("model_class")
	},
	rules: llamaFactoryRules(), last: llamaFactoryLast,
}

const (
	noOtherOptimizer = "mt has no such optimizer: optim says which takes its place, over all parameters"
	noOtherLoss      = "mt trains on the cross-entropy of the next token"
	noTowers         = "mt trains a model's text part; images, videos and audio are not read"
)

func llamaFactoryRules() map[string]rule {
	rules := trainerRules(map[string]rule{
		"stage": llamaFactoryStage,
		"do_train": func(im *importer, e entry) {
			if why := foreign["do_train"](e.val, im.c); why != "" {
				im.refuse(e, why)
				return
			}
			im.idle(e, "mt train trains")
		},
		"template":         templateRule,
		"optim":            orElse("optim", "adamw"),
		"interleave_probs": to("interleave_probs"),
		// Weights without fp32 masters.
		"pure_bf16": ifTrue(means("updates round by chance, so that small ones are not lost", [2]string{"master_dtype", "bf16"}, [2]string{"compute_dtype", "bf16"})),
		// Its Muon scales updates as Moonlight's does (third_party/muon).
		"use_muon":             ifTrue(means("", [2]string{"optim", "muon"}, [2]string{"adjust_lr_fn", "match_rms_adamw"})),
		"disable_shuffling":    negated("shuffle"),
		"train_from_scratch":   lost("give model (a preset or the keys of a config.json) to train from scratch"),
		"cache_dir":            idle("it is where models are downloaded to, and mt downloads nothing"),
		"early_stopping_steps": to("early_stopping_patience"),
		"add_special_tokens":   to("new_special_tokens"),
		"packing": func(im *importer, e entry) {
			if im.doc.get("neat_packing").is("true") {
				im.giveFor(e, "neat_packing switches it on", setting{"packing", plainAt(e.val, "true")})
				return
			}
			im.giveFor(e, "documents in a row do not see each other", setting{"packing", e.val})
		},
		// LLaMA-Factory switches packing on where neat_packing is.
		"neat_packing": ifTrue(means("documents in a row do not see each other", [2]string{"packing", "true"})),
		"use_swanlab":  lost("mt reports to metrics.jsonl, tensorboard and mlflow: see report_to"),
		"streaming":    idle("data is tokenised once into a token cache"),
	})
	with(rules, lost(noOtherOptimizer), "use_galore", "use_apollo", "use_badam", "use_adam_mini")
	with(rules, lost(noOtherLoss), "use_dft_loss", "use_asft_loss", "use_eaft_loss")
	with(rules, lost("it is of a model that mt does not have"), "mixture_of_depths", "shift_attn", "rope_scaling", "moe_aux_loss_coef")
	with(rules, lost("mt has no such key yet"), "default_system", "tool_format", "preserve_thinking", "new_special_tokens_config", "init_special_tokens", "split_special_tokens", "eval_on_each_dataset", "media_dir")
	with(rules, refused("mt merges and exports nothing but what it trained: see mt export"), "export_dir")
	with(rules, idle("it belongs to LoRA, and mt trains all parameters"), "lora_rank", "lora_alpha", "lora_dropout", "lora_target", "additional_target", "loraplus_lr_ratio", "loraplus_lr_embedding",
		"use_rslora", "use_dora", "pissa_init", "pissa_iter", "pissa_convert", "create_new_adapter", "module_dropout", "oft_rank", "oft_block_size", "oft_target", "adapter_name_or_path")
	with(rules, lost(noQuant), "quantization_bit", "quantization_method", "double_quantization")
	with(rules, idle("mt trains the text part of a model; images, videos and audio are not read"), "image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "crop_to_patches", "video_max_pixels", "video_min_pixels",
		"video_fps", "video_maxlen", "use_audio_in_video", "audio_sampling_rate", "freeze_vision_tower", "freeze_multi_modal_projector")
	with(rules, lost("mt trains all of the text part"), "freeze_language_model")
	for _, prefix := range []struct {
		names []string
		rule  rule
	}{
		{[]string{"galore_target", "galore_rank", "galore_update_interval", "galore_scale", "galore_proj_type", "galore_layerwise", "apollo_target", "apollo_rank", "apollo_update_interval", "apollo_scale",
			"apollo_proj", "apollo_proj_type", "apollo_scale_type", "apollo_layerwise", "apollo_scale_front", "badam_mode", "badam_start_block", "badam_switch_mode", "badam_switch_interval", "badam_update_ratio",
			"badam_mask_mode", "badam_verbose", "asft_alpha", "eaft_alpha", "swanlab_project", "swanlab_run_name", "swanlab_mode", "swanlab_workspace"}, idle("it belongs to a key that is named beside it")},
		{[]string{"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "virtual_pipeline_model_parallel_size", "sequence_parallel", "use_mca",
			"use_megatron_bridge", "bias_activation_fusion", "apply_rope_fusion", "use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce", "moe_grouped_gemm", "moe_token_dispatcher_type",
			"recompute_granularity", "masked_softmax_fusion", "mixed_precision", "use_packed_sequences", "export_hf_on_finish"}, idle("it is of Megatron; weights stream through the device here")},
	} {
		with(rules, prefix.rule, prefix.names...)
	}
	maps.Copy(rules, freezeRules())
	maps.Copy(rules, llamaFactoryV1())
	maps.Copy(rules, llamaFactoryDPO())
	return rules
}

// llamaFactoryV1 are the keys that only configs of examples/v1 have.
func llamaFactoryV1() map[string]rule {
	rules := map[string]rule{
		"model_class": func(im *importer, e entry) {
			if e.val.is("llm") {
				im.idle(e, "mt has language models alone")
				return
			}
			im.refuse(e, "mt trains language models (llm)")
		},
		"train_dataset": func(im *importer, e entry) {
			if strings.HasSuffix(e.val.text, ".yaml") || strings.HasSuffix(e.val.text, ".yml") {
				im.lose(e, "mt reads no YAML file of data sets: name its files in datasets")
				return
			}
			im.give(e, "dataset", e.val)
		},
		"model":        func(im *importer, e entry) { im.give(e, modelKey, e.val) },
		"quant_config": lost(noQuant),
		"optim_config": llamaFactoryOptim,
	}
	with(rules, idle("weights and states lie in host memory and stream through the device; nothing is shared out by it"), "dist_config", "cp_mode", "cp_size", "init_config")
	with(rules, idle("mt has kernels of its own"), "kernel_config")
	with(rules, idle("mt generate tries a model when it is trained"), "sample_backend", "max_new_tokens")
	with(rules, idle("rows are filled as well as can be: see packing"), "batching_strategy", "batching_workers")
	return rules
}

// llamaFactoryOptim takes optim_config: {name, and the numbers of that optimizer}.
func llamaFactoryOptim(im *importer, e entry) {
	more := []setting{}
	if e.val.get("name").is("muon") {
		more = append(more, setting{"adjust_lr_fn", plainAt(e.val, "match_rms_adamw")})
	}
	im.optimNumbers(e, more...)
}

// negated gives a switch the opposite value.
func negated(key string) rule {
	return func(im *importer, e entry) {
		if val, ok := truth(e.val.text); ok {
			im.give(e, key, plainAt(e.val, map[bool]string{true: "false", false: "true"}[val]))
			return
		}
		im.give(e, key, e.val)
	}
}

// templateRule takes the name of a chat template.
func templateRule(im *importer, e entry) {
	if !slices.Contains(data.Templates, e.val.text) {
		im.lose(e, "mt does not know this layout; the model's own chat template takes its place, or give template a Jinja file")
		return
	}
	im.give(e, "template", e.val)
}

// llamaFactoryLast writes out the defaults of LLaMA-Factory that are not those of mt.
func llamaFactoryLast(im *importer) {
	packing := "false"
	if im.doc.get("stage").is("pt") {
		packing = "true"
	}
	im.orDefault("packing", packing, "LLaMA-Factory packs rows in pre-training alone")
	if !im.doc.has("finetuning_type") && !im.doc.has("model_class") {
		im.lose(entry{"finetuning_type", im.doc.pos, value{pos: im.doc.pos}}, "it is not given, and LLaMA-Factory takes lora then; "+noAdapter)
	}
	if !im.doc.has("train_dataset") && !slices.ContainsFunc(append(slices.Clone(im.c.Dataset), im.c.EvalDataset...), func(name string) bool { return data.NamesFile(name) || strings.ContainsAny(name, "/*") }) {
		im.orDefault("dataset_dir", "data", "where LLaMA-Factory has dataset_info.json")
	}
}
