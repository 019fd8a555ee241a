#!/usr/bin/env python3
"""Record small training runs with PyTorch and Transformers, for TestRecordings.

    pip install torch transformers safetensors
    python make.py [CASE ...]     # writes the folders beside this file anew

Each case becomes a folder:
  model/             a Hugging Face directory, fp32, random weights
  train.jsonl        one row a line: input_ids, labels (-100: not supervised)
  recipe.json        optimizer, schedule, batch; rows are used in file order
  expected.json      per step: loss, grad_norm (before clipping), lr; bounds
  final.safetensors  the weights after the last step, fp32
  logits.safetensors the logits of the first two rows before the first step, fp32, where a case asks for "logits":
                     all tests that compare with larger recordings take it then

Muon's Newton-Schulz iterations are made in the type of the run.

The loss of a step is the sum of its tokens' losses over the number of supervised
tokens in the whole batch. grad_norm is the L2 norm over all trained tensors, a
tied tensor once. Tensors with two or more dimensions decay, but for biases, which are
stacked where experts have them: transformers.Trainer leaves them out by name.

The recipes are chosen so that whatever is wrong in them shows: betas unlike
anybody's defaults, a decay and an epsilon that matter within a few steps, a rate
that differs from step to step, a norm that is far above the limit.

A case is run in fp32, which is recorded, and in fp64, which says how far fp32
may be off: a bound is 8 times the largest deviation, and at least 2e-5 of a loss,
2e-4 of a norm, and 2e-3 of the way that a tensor went. One with "bf16" is run in
autocast too: these bounds are 3 times its deviations from fp32, at least 4e-3, 2e-2
and 5e-2, where the way that all tensors went is taken as one. What Transformers casts
to fp32 in a recurrence whatever the weights are is in fp64 in that run too.
"""
import contextlib, json, math, os, random, re, shutil, sys, tempfile
import torch, torch.optim._muon, torch.optim.swa_utils, transformers
from safetensors.torch import load_file, save_file
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

HERE = os.path.dirname(os.path.abspath(__file__))

BASE = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=6, vocab_size=50, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.2,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, attention_dropout=0.0)

RECIPE = dict(rows_per_step=3, max_steps=8, learning_rate=1e-2, lr_scheduler_type="cosine", warmup_steps=3,
              adam_beta1=0.8, adam_beta2=0.9, adam_epsilon=1e-3, weight_decay=0.5, max_grad_norm=0.5)

LATENT = dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, tie_word_embeddings=False,
              n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=6, first_k_dense_replace=1)

MISTRAL4 = dict(LATENT, moe_intermediate_size=8, head_dim=10, q_lora_rank=10, norm_topk_prob=True, rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0,
                original_max_position_embeddings=4, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.7))

RECURRENT = dict(num_hidden_layers=3, head_dim=8, layer_types=["linear_attention", "linear_attention", "full_attention"], linear_num_key_heads=2,
                 linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5, linear_conv_kernel_dim=4, tie_word_embeddings=False,
                 rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))

RECURRENT35 = dict(RECURRENT, rms_norm_eps=1e-6, linear_key_head_dim=8, linear_value_head_dim=8, max_position_embeddings=160, rope_parameters=dict(RECURRENT["rope_parameters"], mrope_section=[1, 1, 0], mrope_interleaved=True))
RECURRENT35.pop("tie_word_embeddings")

LLAMA4 = dict(num_hidden_layers=4, intermediate_size=10, intermediate_size_mlp=22, num_local_experts=4, num_experts_per_tok=1, attention_chunk_size=5,
              no_rope_layers=[1, 0, 1, 1], tie_word_embeddings=False)

# Small towers, through which no text goes.
PIXTRAL = dict(model_type="pixtral", hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2)
QWEN2_TOWER = dict(depth=1, embed_dim=4, hidden_size=16, num_heads=1, mlp_ratio=1, patch_size=2, spatial_merge_size=1, temporal_patch_size=1)
QWEN25_TOWER = dict(depth=1, hidden_size=4, num_heads=1, out_hidden_size=16, intermediate_size=6, patch_size=2, spatial_merge_size=1,
                    temporal_patch_size=1, fullatt_block_indexes=[0], window_size=4)
QWEN3_TOWER = dict(depth=1, hidden_size=4, num_heads=1, out_hidden_size=16, intermediate_size=6, patch_size=2, spatial_merge_size=1,
                   temporal_patch_size=1, num_position_embeddings=4, deepstack_visual_indexes=[0])
QWEN35_TOWER = {k: v for k, v in QWEN3_TOWER.items() if k != "deepstack_visual_indexes"}
GEMMA4_TOWER = dict(hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=4, patch_size=2,
                    position_embedding_size=4, pooling_kernel_size=1)
KIMI_TOWER = dict(patch_size=2, pos_emb_height=2, pos_emb_width=2, pos_emb_time=1, num_attention_heads=1, num_hidden_layers=1, hidden_size=8, intermediate_size=6)
MUSE_TOWER = dict(patch_size=2, pos_emb_height=2, pos_emb_width=2, num_attention_heads=1, num_hidden_layers=1, hidden_size=8, intermediate_size=6, patch_temporal=1, merge_size=1,
                  max_position_embeddings=4)
IMAGE_TOKENS = dict(image_token_id=45, video_token_id=46, vision_start_token_id=47, vision_end_token_id=48)


def beside(kind, tower, text, **top):
    """A model with a tower; text are the keys of its language model."""
    return lambda **base: kind(vision_config=tower, text_config={**base, **text}, **top)


CASES = {
    # Clipped in every step.
    "llama-clipped": (transformers.LlamaConfig, dict(attention_bias=True, tie_word_embeddings=False), {}),
    # Matrices of attention and MLP by torch.optim.Muon, all else by AdamW, at rates of their own.
    "llama-muon": (transformers.LlamaConfig, dict(attention_bias=True, tie_word_embeddings=False), dict(muon=dict(
        muon_lr=0.03, adam_lr=0.005, momentum=0.8, nesterov=True, ns_steps=4, adjust_lr_fn="match_rms_adamw"))),
    # Rates, and a decay, of groups of tensors, of which one takes a part of what mt keeps as one.
    "llama-groups": (transformers.LlamaConfig, dict(attention_bias=True, tie_word_embeddings=False), dict(lr_groups=[
        dict(name="embeddings", modules=["embed_tokens|lm_head"], lr=0.002, weight_decay=0.0),
        dict(name="keys", modules=[r"k_proj\.", r"layers\.1\.mlp\.up_proj"], lr=0.03), dict(name="norms", modules=["norm"], lr=0.05, weight_decay=2.0)])),
    # An average of the weights, which begins after the third update.
    "llama-averaged": (transformers.LlamaConfig, dict(attention_bias=True, tie_word_embeddings=False), dict(ema_decay=0.7, ema_update_after_step=2)),
    # Labels are smoothed, and the square of the log-sum-exp of the logits counts.
    "llama-smoothed": (transformers.LlamaConfig, dict(tie_word_embeddings=False), dict(label_smoothing_factor=0.2, z_loss_coef=0.02)),
    # The table, the norms and a block are not trained, so the backward ends early.
    "llama-frozen": (transformers.LlamaConfig, dict(attention_bias=True, tie_word_embeddings=False), dict(
        freeze=["embed_tokens", r"layers\.0\.", "norm"])),
    # A tied table, routers and the experts of a block are not trained.
    "qwen3moe-frozen": (transformers.Qwen3MoeConfig, dict(tie_word_embeddings=True, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]), dict(
        freeze=["embed_tokens", r"mlp\.gate\.", r"layers\.0\..*experts", r"layers\.1\.self_attn\.[qkv]_proj"])),
    # The table's gradient is that of the embedding and of the head.
    "qwen3-tied": (transformers.Qwen3Config, dict(tie_word_embeddings=True), dict(
        adam_beta1=0.7, adam_beta2=0.99, lr_scheduler_type="linear", weight_decay=0.3, max_grad_norm=1.0)),
    # Updated as gradients land.
    "qwen3moe-unclipped": (transformers.Qwen3MoeConfig, dict(tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0]), dict(
        adam_beta1=0.6, adam_beta2=0.8, max_grad_norm=0.0)),
    # With the loss that balances the experts' load; Transformers takes it over the rows
    # that go through the model together, so a step has one.
    "qwen3moe-balanced": (transformers.Qwen3MoeConfig, dict(tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], output_router_logits=True,
        router_aux_loss_coef=0.3), dict(rows_per_step=1)),
    # The same loss, where a shared expert with a gate stands beside those that it balances.
    "qwen2moe-balanced": (transformers.Qwen2MoeConfig, dict(tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10, shared_expert_intermediate_size=14, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[],
        output_router_logits=True, router_aux_loss_coef=0.3), dict(rows_per_step=1)),
    # Sigmoid scores; a bias that decides with them; groups, of which some are open; two shared experts.
    "glm4moe-groups": (transformers.Glm4MoeConfig, dict(head_dim=8, tie_word_embeddings=False, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=6, n_shared_experts=2, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.5,
        norm_topk_prob=True, use_qk_norm=True, attention_bias=True), {}),
    # Latent attention, whose scores yarn scales; a softmax over experts in groups.
    "deepseekv2-groups": (transformers.DeepseekV2Config, dict(LATENT, q_lora_rank=10, n_group=4, topk_group=2, topk_method="group_limited_greedy",
        routed_scaling_factor=1.7, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
        beta_fast=32.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=0.9)), {}),
    # Latent attention, whose queries are made of the hidden state.
    "deepseekv2-whole": (transformers.DeepseekV2Config, dict(LATENT, q_lora_rank=None, topk_method="greedy"), {}),
    # Biases of latent attention, whose queries are made of the hidden state, of the dense MLP and of the shared expert; values wider than keys.
    "deepseekv2-biased": (transformers.DeepseekV2Config, dict(LATENT, q_lora_rank=None, topk_method="greedy", attention_bias=True, mlp_bias=True, v_head_dim=13), {}),
    # The same with queries of a narrow vector, experts in every block, in groups, and one that is shared.
    "deepseekv2-wide": (transformers.DeepseekV2Config, dict(LATENT, q_lora_rank=10, n_group=4, topk_group=2, topk_method="group_limited_greedy",
        routed_scaling_factor=1.7, n_shared_experts=1, first_k_dense_replace=0, attention_bias=True, mlp_bias=True, v_head_dim=12), {}),
    # Biases of dense MLPs alone; no block has experts.
    "deepseekv2-dense": (transformers.DeepseekV2Config, dict(LATENT, q_lora_rank=9, topk_method="greedy", first_k_dense_replace=2, mlp_bias=True, v_head_dim=11), {}),
    # Values wider than keys, whose scores yarn scales, and biases of attention.
    "deepseekv3-wide": (transformers.DeepseekV3Config, dict(LATENT, head_dim=4, q_lora_rank=10, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        attention_bias=True, v_head_dim=16, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
        beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)), {}),
    # A module that predicts the token after the next, behind the last block, is trained with the model.
    "deepseekv3-ahead": (transformers.DeepseekV3Config, dict(LATENT, head_dim=4, q_lora_rank=10, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        num_experts_per_tok=4), dict(max_steps=20, ahead=0.3, bf16=True)),
    # The same where all experts are chosen, so that bf16 changes no choice, and documents of one and two tokens.
    "glm4moe-ahead": (transformers.Glm4MoeConfig, dict(head_dim=8, tie_word_embeddings=True, n_routed_experts=3, num_experts_per_tok=3,
        moe_intermediate_size=6, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True),
        dict(max_steps=20, ahead=0.5, longest=6, bf16=True)),
    # The same beside the model, where blocks have a recurrence and the module's has attention with an output gate.
    "qwen3next-ahead": (transformers.Qwen3NextConfig, dict(RECURRENT, num_experts=4, num_experts_per_tok=4, moe_intermediate_size=10,
        shared_expert_intermediate_size=14, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1], max_position_embeddings=160), dict(learning_rate=3e-3, max_steps=20, ahead=0.3)),
    # The same with a dense MLP and one projection for each part of the recurrence.
    "qwen35-ahead": (transformers.Qwen3_5TextConfig, dict(RECURRENT35, max_position_embeddings=160), dict(learning_rate=3e-3, max_steps=20, ahead=0.3)),
    # The same in the block behind the last one, with latent attention.
    "glm4moelite-ahead": (transformers.Glm4MoeLiteConfig, dict(LATENT, head_dim=4, q_lora_rank=10, n_group=1, topk_group=1, num_experts_per_tok=4,
        moe_intermediate_size=6), dict(max_steps=20, ahead=0.3)),
    # The same with an indexer, which chooses keys in the block for multi-token prediction too.
    "deepseekv32-ahead": (transformers.DeepseekV32Config, dict(LATENT, head_dim=4, moe_intermediate_size=8, q_lora_rank=10, n_group=4, topk_group=2,
        num_experts_per_tok=4, index_topk=6, index_head_dim=8, index_n_heads=3), dict(max_steps=20, ahead=0.3)),
    # The same in a dense model; the hidden state's columns are the first. Transformers has no class of MiMo, whose model is Qwen2.
    "mimo-ahead": (transformers.Qwen2Config, {}, dict(max_steps=20, ahead=0.3,
        published=dict(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1))),
    # Of each block other products and norms of latent attention are not trained, nor is the router, nor the shared experts.
    "deepseekv3-frozen": (transformers.DeepseekV3Config, dict(LATENT, head_dim=4, q_lora_rank=10, n_group=4, topk_group=2, routed_scaling_factor=1.7), dict(
        freeze=["embed_tokens", r"layers\.0\.self_attn\.(q_a_proj|q_a_layernorm|kv_b_proj)", r"layers\.1\.self_attn\.(q_b_proj|kv_a|o_proj)",
            r"mlp\.gate\.", r"shared_experts"])),
    # Norms of outputs alone; the block without a window has no rotary embedding.
    "exaone4-window": (transformers.Exaone4Config, dict(tie_word_embeddings=False, sliding_window=5, sliding_window_pattern=2,
        layer_types=["sliding_attention", "full_attention"]), {}),
    # More than a quarter of the scores and a fifth of the logits are above their caps; queries have a scale of their own; windows, from the first block on, in every other.
    "gemma2-capped": (transformers.Gemma2Config, dict(num_hidden_layers=3, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10, sliding_window=5,
        attn_logit_softcapping=0.5, final_logit_softcapping=1.0, tie_word_embeddings=True), dict(learning_rate=3e-3, max_steps=20, longest=24, bf16=True, logits=True)),
    # Rotary embeddings that turn neighbours, in all of a head and in four elements of six.
    "ernie-bias": (transformers.Ernie4_5Config, dict(use_bias=True, tie_word_embeddings=True), {}),
    "glm-partial": (transformers.GlmConfig, dict(attention_bias=True, tie_word_embeddings=False, rope_parameters={
        "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.7}), {}),
    # Documents of up to three stretches; a block that does not turn, whose queries are tempered; norms of queries and keys without
    # weights; weights of experts that multiply their inputs, an expert that is shared, and a dense block.
    "llama4-stretches": (transformers.Llama4TextConfig, dict(LLAMA4, moe_layers=[1, 2, 3], attn_temperature_tuning=True, attn_scale=0.7, floor_scale=3,
        use_qk_norm=True, rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)), dict(max_steps=20)),
    # Two experts of a token, in every second block; nothing is normed or tempered; some is not trained.
    "llama4-frozen": (transformers.Llama4TextConfig, dict(LLAMA4, interleave_moe_layer_step=2, num_experts_per_tok=2, attn_temperature_tuning=False,
        use_qk_norm=False), dict(freeze=["embed_tokens", r"router", r"layers\.3\..*shared_expert", r"layers\.1\..*feed_forward\.experts"])),
    # LayerNorm, biases of attention and of logits, and experts weighted by those that are near the chosen one.
    "phimoe-near": (transformers.PhimoeConfig, dict(attention_bias=True, lm_head_bias=True, tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2,
        intermediate_size=10, router_jitter_noise=0.3, input_jitter_noise=0.0, head_dim=4, rope_parameters=dict(rope_type="longrope", rope_theta=100.0,
        original_max_position_embeddings=32, short_factor=[1.0, 1.3], long_factor=[1.0, 4.0], short_mscale=1.2, long_mscale=1.4)), dict(max_steps=20)),
    # Nothing turns; embeddings, residuals, scores and logits are multiplied.
    "granite4-nope": (transformers.GraniteMoeHybridConfig, dict(num_local_experts=0, shared_intermediate_size=20, layer_types=["full_attention"] * 2,
        position_embedding_type=None, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3, logits_scaling=2.0,
        mamba_n_heads=2, tie_word_embeddings=True), {}),
    # Language models beside vision towers; the towers stay as they are.
    "mistral3": (beside(transformers.Mistral3Config, PIXTRAL, dict(model_type="mistral", sliding_window=5), image_token_index=45, tie_word_embeddings=True), {},
        dict(max_steps=20, bf16=True)),
    # Queries grow at the fifth token, and at each fourth one more.
    "ministral3": (beside(transformers.Mistral3Config, PIXTRAL, dict(model_type="ministral3", sliding_window=None, rope_parameters=dict(rope_type="yarn",
        rope_theta=100.0, factor=4.0, original_max_position_embeddings=4, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.7)), image_token_index=45, tie_word_embeddings=False), {}, dict(max_steps=20, bf16=True)),
    # The same factor on queries, in latent attention, whose scores yarn scales; experts whose normed weights are multiplied.
    "mistral4": (transformers.Mistral4Config, dict(MISTRAL4, routed_scaling_factor=1.7), dict(logits=True)),
    # Experts in groups, which rank by sums of probabilities.
    "mistral4-groups": (transformers.Mistral4Config, dict(MISTRAL4, n_routed_experts=12, n_group=4, topk_group=2), dict(logits=True, max_steps=20)),
    # The same beside a tower, with experts in every block and queries that are made of the hidden state.
    "mistral4vl": (beside(transformers.Mistral3Config, PIXTRAL, dict(MISTRAL4, model_type="mistral4", q_lora_rank=None, first_k_dense_replace=0, n_routed_experts=4,
        num_experts_per_tok=2, n_shared_experts=1), image_token_index=45, tie_word_embeddings=False), {}, dict(logits=True)),
    # An indexer chooses the keys of rows longer than index_topk. It rotates its vectors by halves, attention by neighbours.
    "deepseekv32-chosen": (transformers.DeepseekV32Config, dict(LATENT, head_dim=4, moe_intermediate_size=8, q_lora_rank=10, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        index_topk=6, index_n_heads=4, index_head_dim=8), dict(longest=24, logits=True, max_steps=20)),
    # DeepSeek-V3 beside a tower, named as in published files: Transformers 5.24 calls the language model's layers blocks.
    "kimik25": (beside(transformers.Kimi_K25Config, KIMI_TOWER, dict(LATENT, model_type="deepseek_v3", head_dim=4, moe_intermediate_size=8, q_lora_rank=10, n_group=4, topk_group=2,
        routed_scaling_factor=1.7, norm_topk_prob=True), projection_hidden_size=8, image_token_id=50, video_token_id=51, tie_word_embeddings=False), {},
        dict(logits=True, renamed=["language_model.model.blocks.", "language_model.model.layers."])),
    "qwen2vl": (beside(transformers.Qwen2VLConfig, QWEN2_TOWER, dict(head_dim=4, rope_parameters=dict(rope_type="default", rope_theta=100.0,
        mrope_section=[1, 1, 0])), tie_word_embeddings=False, **IMAGE_TOKENS), {}, dict(max_steps=20, bf16=True)),
    "qwen25vl": (beside(transformers.Qwen2_5_VLConfig, QWEN25_TOWER, dict(head_dim=4, use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, mrope_section=[1, 1, 0])),
        tie_word_embeddings=False, **IMAGE_TOKENS), {}, dict(max_steps=20, bf16=True)),
    "qwen3vl": (beside(transformers.Qwen3VLConfig, QWEN3_TOWER, dict(attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=100.0,
        mrope_section=[1, 1, 1], mrope_interleaved=True)), tie_word_embeddings=True, **IMAGE_TOKENS), {}, dict(max_steps=20, bf16=True)),
    # Experts as published files have them; Transformers 5 writes the same transposed.
    "qwen3vlmoe": (beside(transformers.Qwen3VLMoeConfig, QWEN3_TOWER, dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=10,
        decoder_sparse_step=1, mlp_only_layers=[], rope_parameters=dict(rope_type="default", rope_theta=100.0, mrope_section=[1, 1, 1],
        mrope_interleaved=True)), tie_word_embeddings=False, **IMAGE_TOKENS), {}, dict(max_steps=20, transposed="experts")),
    # Sinks, cut-off gates and biases, where every token goes to all experts: no rounding sends it to another one.
    "gptoss-whole": (transformers.GptOssConfig, dict(num_local_experts=4, num_experts_per_tok=4,
        sliding_window=5, layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=False,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
        truncate=False)), dict(bf16=True)),
    # Biases of q, k and v and none of o.
    "seedoss-bias": (transformers.SeedOssConfig, dict(attention_bias=True, attention_out_bias=False, residual_dropout=0.0, tie_word_embeddings=False), {}),
    # A recurrence with two value heads for each key head in two blocks of three, the first of which has no experts; attention with a gate in
    # the last. Rows are longer than the chunks that the recurrence is computed by.
    "qwen3next-shared": (transformers.Qwen3NextConfig, dict(RECURRENT, num_experts=4, num_experts_per_tok=4, moe_intermediate_size=10,
        shared_expert_intermediate_size=14, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0], max_position_embeddings=160), dict(learning_rate=3e-3, longest=150)),
    # The same with separate projections, beside a tower and a module of multi-token prediction, both of which stay as they are.
    "qwen35vl": (beside(transformers.Qwen3_5Config, QWEN35_TOWER, RECURRENT35, tie_word_embeddings=True, **IMAGE_TOKENS), {},
        dict(learning_rate=3e-3, longest=70, mtp=True, logits=True)),
    # Keys that are values too, wider heads in blocks without a window, beside a tower.
    "gemma4vl": (beside(transformers.Gemma4Config, GEMMA4_TOWER, dict(num_hidden_layers=3, attention_k_eq_v=True, sliding_window=5, hidden_activation="gelu_pytorch_tanh",
        layer_types=["sliding_attention", "full_attention", "full_attention"], hidden_size_per_layer_input=0, num_kv_shared_layers=0, enable_moe_block=False,
        final_logit_softcapping=8.0, tie_word_embeddings=True, global_head_dim=8, num_global_key_value_heads=1, rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}, "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}}),
        tie_word_embeddings=True, audio_config=None, image_token_id=50, video_token_id=51, audio_token_id=52), {},
        dict(learning_rate=3e-3, longest=24, logits=True)),
    # A normed embedding, an epsilon of their own for the norms of outputs, and queries and keys normed in every block, beside a tower.
    "museglimmer": (beside(transformers.MuseGlimmerConfig, MUSE_TOWER, dict(num_hidden_layers=4, sliding_window=5, qk_scale_factor=1.7, post_norm_eps=1e-3,
        final_logit_softcapping=8.0, output_multiplier=0.7, rope_parameters=dict(rope_type="default", rope_theta=100.0)), tie_word_embeddings=False,
        out_hidden_size=8, projector_hidden_size=6, image_token_id=45, video_token_id=46), {}, dict(learning_rate=3e-3, longest=24, logits=True, max_steps=20)),
    # Blocks with one part each: mixers, attention, and MLPs without a gate.
    "nemotronh-dense": (lambda **base: transformers.NemotronHConfig(**{**{k: v for k, v in base.items() if k not in ("num_hidden_layers", "rms_norm_eps")},
        "layers_block_type": ["mamba", "mlp", "attention", "mlp"], "mlp_bias": True, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 6, "n_groups": 2,
        "chunk_size": 8, "use_mamba_kernels": False, "tie_word_embeddings": False}), {}, dict(learning_rate=3e-3, longest=40, logits=True, max_steps=20)),
    # One tensor has all experts of a block, as in published files.
    "qwen35vlmoe": (beside(transformers.Qwen3_5MoeConfig, QWEN35_TOWER, dict(RECURRENT35, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=14), tie_word_embeddings=False, **IMAGE_TOKENS), {}, dict(learning_rate=3e-3, joined=True, mtp=True, logits=True)),
}

SCHEDULES = {"cosine": transformers.get_cosine_schedule_with_warmup, "linear": transformers.get_linear_schedule_with_warmup}


def make_rows(n, vocab, seed, longest):
    """Random rows of several lengths, below longest; in every third the beginning is not supervised.

    The token of padding does not occur: torch.nn.Embedding gives its row no gradient."""
    r = random.Random(seed)
    rows = []
    for i in range(n):
        ids = [r.randrange(1, vocab // 2) for _ in range(r.randrange(2, longest))]
        labels = list(ids)
        if i % 3 == 1:
            for k in range(r.randrange(1, len(ids))):
                labels[k] = -100
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def newton_schulz(grad, coefficients, steps, eps):
    """torch.optim.Muon's iterations in the type of grad; there they are in bf16 alone."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


torch.optim._muon._zeropower_via_newtonschulz = newton_schulz


def auto(config):
    """The class that loads models of config. Mistral 4 without a tower is in the table of models with one alone."""
    tower = hasattr(config, "vision_config") or config.model_type == "mistral4"
    return transformers.AutoModelForImageTextToText if tower else transformers.AutoModelForCausalLM


def transpose(file, which):
    """Turns the matrices of the tensors whose names match."""
    tensors = load_file(file)
    save_file({k: v.transpose(-1, -2).contiguous() if re.search(which, k) else v for k, v in tensors.items()}, file, metadata={"format": "pt"})


def join(file):
    """Joins the matrices of a block's experts: (experts, 2·out, in) of gate and up, (experts, out, in) of down."""
    tensors = load_file(file)
    blocks = sorted({k.split("experts.0.")[0] for k in tensors if ".experts.0." in k})
    for block in blocks:
        def all_of(kind):
            return [tensors.pop(f"{block}experts.{e}.{kind}_proj.weight") for e in range(sum(f"{block}experts.{e}.{kind}_proj.weight" in tensors for e in range(99)))]
        gate, up, down = all_of("gate"), all_of("up"), all_of("down")
        tensors[block + "experts.gate_up_proj"] = torch.stack([torch.cat(both) for both in zip(gate, up)])
        tensors[block + "experts.down_proj"] = torch.stack(down)
    save_file(tensors, file, metadata={"format": "pt"})


def rename(file, old, new):
    """Changes the beginning of tensor names."""
    save_file({new + k[len(old):] if k.startswith(old) else k: v for k, v in load_file(file).items()}, file, metadata={"format": "pt"})


def add_mtp(file, hidden):
    """Adds tensors of multi-token prediction, which Transformers leaves out."""
    tensors = load_file(file)
    extra = {"mtp.fc.weight": torch.randn(hidden, 2 * hidden), "mtp.layers.0.input_layernorm.weight": torch.randn(hidden), "mtp.norm.weight": torch.randn(hidden)}
    save_file({**tensors, **extra}, file, metadata={"format": "pt"})


@contextlib.contextmanager
def doubled(module):
    """What the module casts to fp32 is in fp64 meanwhile."""
    class Double:
        float = float32 = torch.float64
        def __getattr__(self, name):
            return getattr(torch, name)

    single = torch.Tensor.float
    module.torch, torch.Tensor.float = Double(), torch.Tensor.double
    try:
        yield
    finally:
        module.torch, torch.Tensor.float = torch, single


def add_ahead(m):
    """Adds a module for multi-token prediction by arXiv:2412.19437, section 2.2, as models are published: the embedding's
    columns are the first and the hidden state is that behind the final norm, but in MiMo. DeepSeek-V3 keeps it as the block
    behind the last one, which a forward leaves out; Qwen3-Next as a module of its own, whose block is one with attention."""
    blocks, h = m.model.layers, m.config.hidden_size
    norm = lambda: type(m.model.norm)(h, m.config.rms_norm_eps)
    types = getattr(m.config, "layer_types", None) or []
    beside = "linear_attention" in types
    behind = len(blocks) if not getattr(m.config, "mlp_layer_types", None) else len(blocks) - 1
    block = type(blocks[0])(m.config, types.index("full_attention") if "full_attention" in types else behind)
    for module in block.modules():
        m._init_weights(module)
    proj = torch.nn.Linear(2 * h, h, bias=False)
    torch.nn.init.normal_(proj.weight, std=m.config.initializer_range)
    if m.config.model_type == "qwen2":  # as MiMo names it
        block.token_layernorm, block.hidden_layernorm, block.input_proj, block.final_layernorm = norm(), norm(), proj, norm()
        m.model.mtp_layers = torch.nn.ModuleList([block])
        return
    if beside:
        m.mtp = torch.nn.Module()
        m.mtp.pre_fc_norm_embedding, m.mtp.pre_fc_norm_hidden, m.mtp.fc, m.mtp.norm = norm(), norm(), proj, norm()
        m.mtp.layers = torch.nn.ModuleList([block])
        return
    block.enorm, block.hnorm, block.shared_head = norm(), norm(), torch.nn.Module()
    block.shared_head.norm, block.eh_proj = norm(), proj
    blocks.append(block)


def ahead_logits(m, ids, hidden):
    """The logits of the tokens after the next, of all positions but the last. hidden is what lm_head takes, or in MiMo what
    the final norm takes."""
    if hasattr(m, "mtp"):
        of_e, of_y, proj, block, norm = m.mtp.pre_fc_norm_embedding, m.mtp.pre_fc_norm_hidden, m.mtp.fc, m.mtp.layers[0], m.mtp.norm
    elif hasattr(m.model, "mtp_layers"):
        block = m.model.mtp_layers[0]
        of_e, of_y, proj, norm = block.token_layernorm, block.hidden_layernorm, block.input_proj, block.final_layernorm
    else:
        block = m.model.layers[-1]
        of_e, of_y, proj, norm = block.enorm, block.hnorm, block.eh_proj, block.shared_head.norm
    n = ids.shape[1] - 1
    e, y = m.model.embed_tokens(ids[:, 1:]), hidden[:, :-1]
    joined = [of_e(e), of_y(y)]
    x = proj(torch.cat(joined[::-1] if hasattr(m.model, "mtp_layers") else joined, dim=-1))
    positions = torch.arange(n)[None]
    mask = torch.full((1, 1, n, n), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
    return m.lm_head(norm(block(x, attention_mask=mask, position_ids=positions, position_embeddings=m.model.rotary_emb(x, positions))))


def train(model_dir, rows, rec, dtype, autocast=False, initial=None):
    """Return figures of every step, the trained model and the average of its weights."""
    eager = {"experts_implementation": "eager"} if rec["experts"] else {}
    config = transformers.AutoConfig.from_pretrained(model_dir)
    m = auto(config).from_pretrained(model_dir, dtype=dtype, attn_implementation="eager", **eager)
    if "ahead" in rec:
        add_ahead(m)
        m.load_state_dict(initial)
        m.to(dtype)
    m.train(config.model_type != "phimoe")  # which would draw experts at random
    for name, p in m.named_parameters():
        p.requires_grad_(not any(re.search(e, name) for e in rec.get("freeze", [])))
    params = [p for p in m.parameters() if p.requires_grad]
    muon = rec.get("muon")
    matrices = [p for name, p in m.named_parameters() if muon and p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    others = [p for p in params if not any(p is x for x in matrices)]
    def settings(name, p):
        """The decay of a tensor and, where it is in a group, its rate."""
        group = next((g for g in rec.get("lr_groups", []) if any(re.search(e, name) for e in g["modules"])), {})
        rate = {"lr": group["lr"], "group": group["name"]} if group else {}
        return {"weight_decay": group.get("weight_decay", rec["weight_decay"]) if p.ndim >= 2 and not name.endswith("bias") else 0.0, **rate}

    plain = []  # what the final norm takes
    if "ahead" in rec:
        m.model.norm.register_forward_pre_hook(lambda _, args: plain.append(args[0]))
    optimizers = [torch.optim.AdamW(
        [{"params": [p], **settings(name, p)} for name, p in m.named_parameters() if any(p is x for x in others)],
        lr=muon["adam_lr"] if muon else rec["learning_rate"], betas=(rec["adam_beta1"], rec["adam_beta2"]), eps=rec["adam_epsilon"])]
    if muon:
        optimizers.append(torch.optim.Muon(matrices, lr=muon["muon_lr"], weight_decay=rec["weight_decay"],
            **{k: v for k, v in muon.items() if not k.endswith("_lr")}))
    schedules = [SCHEDULES[rec["lr_scheduler_type"]](o, rec["warmup_steps"], rec["max_steps"]) for o in optimizers]
    averaged = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(rec.get("ema_decay", 0)))
    steps = []
    for step in range(rec["max_steps"]):
        batch = rows[step * rec["rows_per_step"]:(step + 1) * rec["rows_per_step"]]
        supervised = sum(label != -100 for row in batch for label in row["labels"][1:])
        m.zero_grad()
        total = total_ahead = 0.0
        after = max(1, sum(label != -100 for row in batch for label in row["labels"][2:]))
        for row in batch:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                ids = torch.tensor([row["input_ids"]])
                out = m(input_ids=ids, output_hidden_states="ahead" in rec)
                further = ahead_logits(m, ids, plain.pop() if hasattr(m.model, "mtp_layers") else out.hidden_states[-1]) if "ahead" in rec and ids.shape[1] > 2 else None
            logits = out.logits[0, :-1]
            if autocast:
                logits = logits.float()
            labels = torch.tensor(row["labels"][1:])
            loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum",
                                                     label_smoothing=rec.get("label_smoothing_factor", 0.0)) / supervised
            loss = loss + rec.get("z_loss_coef", 0.0) * logits[labels != -100].logsumexp(-1).square().sum() / supervised
            if config.to_dict().get("output_router_logits"):
                loss = loss + m.config.router_aux_loss_coef * load_balancing_loss_func(
                    out.router_logits, m.config.num_experts, m.config.num_experts_per_tok)
            total += loss.item()
            if further is not None:
                of_ahead = torch.nn.functional.cross_entropy(further[0, :-1].float() if autocast else further[0, :-1], torch.tensor(row["labels"][2:]),
                                                             ignore_index=-100, reduction="sum") / after
                total_ahead += of_ahead.item()
                loss = loss + rec["ahead"] * of_ahead
            loss.backward()
        limit = rec["max_grad_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(params, limit).item()
        steps.append({"step": step + 1, "loss": total, "grad_norm": norm, "lr": schedules[0].get_last_lr()[0] / schedules[0].base_lrs[0] * rec["learning_rate"]})
        if "ahead" in rec:
            steps[-1]["mtp_loss"] = total_ahead
        if rec.get("lr_groups"):
            steps[-1]["lr_groups"] = {g["group"]: g["lr"] for g in optimizers[0].param_groups if "group" in g}
        for o in optimizers + schedules:
            o.step()
        if step + 1 > rec.get("ema_update_after_step", 0):
            averaged.update_parameters(m)
    return steps, m, averaged.module


def save_logits(model_dir, rows, file):
    """Write the logits of every row, (T, V), as row0, row1 and so on."""
    m = auto(transformers.AutoConfig.from_pretrained(model_dir)).from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        save_file({f"row{i}": m(input_ids=torch.tensor([row["input_ids"]])).logits[0].contiguous() for i, row in enumerate(rows)}, file)


def deviations(single, double, initial, as_one=False):
    """The largest relative differences of loss, norm, and tensors, or all tensors as one, as far as they moved."""
    rel = {key: max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(single[0], double[0])) for key in ("loss", "grad_norm")}
    a, b = single[1].state_dict(), double[1].state_dict()
    moved = [k for k in b if not torch.equal(b[k], initial[k].double())]
    off, way = ([float((x[k].double() - b[k].double()).norm()) for k in moved] for x in (a, initial))
    rel["weights"] = math.hypot(*off) / math.hypot(*way) if as_one else max(o / w for o, w in zip(off, way))
    return rel


def record(name):
    kind, shape, recipe = CASES[name]
    rec = {**RECIPE, **recipe}
    to = os.path.join(HERE, name)
    shutil.rmtree(to, ignore_errors=True)
    torch.manual_seed(3)
    config = kind(**{**BASE, **shape})
    text = config.get_text_config()
    rec["experts"] = getattr(text, "num_experts", 0) or getattr(text, "n_routed_experts", 0) or getattr(text, "num_local_experts", 0)
    m = auto(config).from_config(config, dtype=torch.float32)
    if "ahead" in rec:
        add_ahead(m)
    with torch.no_grad():  # norms and biases away from ones and zeros, so that a missing one shows
        for p in m.parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
        for name_of, b in m.named_buffers():
            if name_of.endswith("correction_bias"):
                b.copy_(torch.randn_like(b) * 0.3)
    initial = {k: v.clone() for k, v in m.state_dict().items()}
    model_dir = os.path.join(to, "model")
    m.save_pretrained(model_dir)
    if rec.get("transposed"):
        transpose(os.path.join(model_dir, "model.safetensors"), rec["transposed"])
    if rec.get("renamed"):
        rename(os.path.join(model_dir, "model.safetensors"), *rec["renamed"])
    if rec.get("joined"):
        join(os.path.join(model_dir, "model.safetensors"))
    if rec.get("mtp"):
        add_mtp(os.path.join(model_dir, "model.safetensors"), text.hidden_size)
    rows = make_rows(rec["rows_per_step"] * rec["max_steps"], text.vocab_size, 5, rec.get("longest", 15))
    if rec.get("logits"):
        save_logits(model_dir, rows[:2], os.path.join(to, "logits.safetensors"))
    single = train(model_dir, rows, rec, torch.float32, initial=initial)
    recurrent = "linear_attention" in (getattr(text, "layer_types", None) or [])
    with doubled(sys.modules[type(m).__module__]) if recurrent else contextlib.nullcontext():
        double = train(model_dir, rows, rec, torch.float64, initial=initial)
    off = deviations(single, double, initial)
    bounds = {"fp32": {key: max(8 * off[key], floor) for key, floor in (("loss", 2e-5), ("grad_norm", 2e-4), ("weights", 2e-3))}}
    if rec.get("bf16"):
        off = deviations(train(model_dir, rows, rec, torch.float32, autocast=True, initial=initial), single, initial, as_one=True)
        bounds["bf16"] = {key: max(3 * off[key], floor) for key, floor in (("loss", 4e-3), ("grad_norm", 2e-2), ("weights", 5e-2))}
    with open(os.path.join(to, "train.jsonl"), "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    for file, content in {"recipe.json": rec, "expected.json": {"torch": torch.__version__, "transformers": transformers.__version__,
                          "bounds": bounds, "steps": single[0]}}.items():
        with open(os.path.join(to, file), "w") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    with tempfile.TemporaryDirectory() as t:  # names as in a model directory
        single[1].save_pretrained(t)
        shutil.move(os.path.join(t, "model.safetensors"), os.path.join(to, "final.safetensors"))
        if rec.get("ema_decay"):
            single[2].save_pretrained(t)
            shutil.move(os.path.join(t, "model.safetensors"), os.path.join(to, "ema.safetensors"))
    if rec.get("transposed"):
        transpose(os.path.join(to, "final.safetensors"), rec["transposed"])
    if rec.get("renamed"):
        rename(os.path.join(to, "final.safetensors"), *rec["renamed"])
    assert len(load_file(os.path.join(to, "final.safetensors"))) > 10
    if rec.get("published"):
        file = os.path.join(model_dir, "config.json")
        with open(file) as f:
            keys = {**json.load(f), **rec["published"]}
        with open(file, "w") as f:
            json.dump(keys, f, indent=2)
    if not rec.get("logits"):  # else the directory is whole
        os.remove(os.path.join(model_dir, "generation_config.json"))
    losses, norms = [s["loss"] for s in single[0]], [s["grad_norm"] for s in single[0]]
    print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, norm {min(norms):.2f} to {max(norms):.2f}; off by", off, bounds)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or CASES:
        record(name)


if __name__ == "__main__":
    main()
