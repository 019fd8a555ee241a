#!/usr/bin/env python3
"""layouts.py > model/testdata/layouts.json: writes what published model directories hold, without values.

A layout is a config.json and the names, types and shapes of tensors, for a small model of each class of Transformers 5.24, with the names that
the class gives its parameters, and what published files have beside or unlike them. Shapes follow from the config. The tests of package
checkpoint open each. Standard library only."""
import json

H, V, F, L, HEADS, KV, D = 32, 96, 48, 2, 4, 2, 8
OUT = []


def config(model_type, arch, **more):
    c = dict(architectures=[arch], model_type=model_type, vocab_size=V, hidden_size=H, intermediate_size=F, num_hidden_layers=L,
             num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=D, max_position_embeddings=64, tie_word_embeddings=False,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)
    c.update(more)
    return {k: v for k, v in c.items() if v != "absent"}


def add(name, cfg, tensors, **more):
    OUT.append(dict(name=name, config=cfg, tensors=tensors, **more))


def model(block, prefix="model.", head="lm_head.", tied=False, layers=L, norm=("norm.weight",), embed="embed_tokens.weight", blocks="layers."):
    t = {prefix + embed: [V, H]}
    for i in range(layers):
        for k, s in block(i).items():
            t[f"{prefix}{blocks}{i}.{k}"] = s
    for n in norm:
        t[prefix + n] = [H]
    if not tied:
        t[head + "weight"] = [V, H]
    return t


def attention(bias=False, obias=False, norms=None, kv=KV):
    t = {}
    for p, n in (("q", HEADS), ("k", kv), ("v", kv)):
        t[f"self_attn.{p}_proj.weight"] = [n * D, H]
        if bias:
            t[f"self_attn.{p}_proj.bias"] = [n * D]
    t["self_attn.o_proj.weight"] = [H, HEADS * D]
    if obias:
        t["self_attn.o_proj.bias"] = [H]
    if norms == "head":
        t["self_attn.q_norm.weight"], t["self_attn.k_norm.weight"] = [D], [D]
    if norms == "whole":
        t["self_attn.q_norm.weight"], t["self_attn.k_norm.weight"] = [HEADS * D], [kv * D]
    return t


def mlp(at="mlp.", width=F, bias=False, names=("gate_proj", "up_proj", "down_proj")):
    g, u, d = names
    t = {f"{at}{g}.weight": [width, H], f"{at}{u}.weight": [width, H], f"{at}{d}.weight": [H, width]}
    if bias:
        t.update({f"{at}{g}.bias": [width], f"{at}{u}.bias": [width], f"{at}{d}.bias": [H]})
    return t


TWO = {"input_layernorm.weight": [H], "post_attention_layernorm.weight": [H]}
FOUR = {**TWO, "pre_feedforward_layernorm.weight": [H], "post_feedforward_layernorm.weight": [H]}
BEHIND = {"post_attention_layernorm.weight": [H], "post_feedforward_layernorm.weight": [H]}


def llama(**a):
    bias = a.pop("mlp_bias", False)
    return lambda i: {**TWO, **attention(**a), **mlp(bias=bias)}


def experts(n, width, at="mlp.experts.", names=("gate_proj", "up_proj", "down_proj")):
    t = {}
    for e in range(n):
        t.update(mlp(f"{at}{e}.", width, names=names))
    return t


def latent(q):
    t = {"self_attn.kv_a_proj_with_mqa.weight": [16 + 4, H], "self_attn.kv_a_layernorm.weight": [16], "self_attn.kv_b_proj.weight": [HEADS * 16, 16],
         "self_attn.o_proj.weight": [H, HEADS * 8]}
    if q:
        t.update({"self_attn.q_a_proj.weight": [12, H], "self_attn.q_a_layernorm.weight": [12], "self_attn.q_b_proj.weight": [HEADS * 12, 12]})
    else:
        t["self_attn.q_proj.weight"] = [HEADS * 12, H]
    return t


def deepseek(q, bias):
    def block(i):
        t = {**TWO, **latent(q)}
        if i == 0:
            return {**t, **mlp()}
        t.update({"mlp.gate.weight": [4, H], **experts(4, 12), **mlp("mlp.shared_experts.", 12)})
        if bias:
            t["mlp.gate.e_score_correction_bias"] = [4]
        return t
    return block


def neox(i):
    t = {}
    for n in ("input_layernorm", "post_attention_layernorm"):
        t[n + ".weight"], t[n + ".bias"] = [H], [H]
    for n, s in (("attention.query_key_value", [3 * H, H]), ("attention.dense", [H, H]), ("mlp.dense_h_to_4h", [F, H]), ("mlp.dense_4h_to_h", [H, F])):
        t[n + ".weight"], t[n + ".bias"] = s, [s[0]]
    return t


def gpt2(i):
    t = {}
    for n in ("ln_1", "ln_2"):
        t[n + ".weight"], t[n + ".bias"] = [H], [H]
    for n, s in (("attn.c_attn", [H, 3 * H]), ("attn.c_proj", [H, H]), ("mlp.c_fc", [H, 4 * H]), ("mlp.c_proj", [4 * H, H])):
        t[n + ".weight"], t[n + ".bias"] = s, [s[1]]
    return t


def starcoder(i):
    t = {**attention(bias=True, obias=True), "mlp.c_fc.weight": [F, H], "mlp.c_fc.bias": [F], "mlp.c_proj.weight": [H, F], "mlp.c_proj.bias": [H]}
    for n in ("input_layernorm", "post_attention_layernorm"):
        t[n + ".weight"], t[n + ".bias"] = [H], [H]
    return t


def phi(i):
    return {**TWO, "self_attn.qkv_proj.weight": [(HEADS + 2 * KV) * D, H], "self_attn.o_proj.weight": [H, H], "mlp.gate_up_proj.weight": [2 * F, H],
            "mlp.down_proj.weight": [H, F]}


def glm(i, more=()):
    t = {**TWO, **attention(bias=True), "mlp.gate_up_proj.weight": [2 * F, H], "mlp.down_proj.weight": [H, F]}
    for n in more:
        t[n] = [H]
    return t


def moe(norms, shared, gate="mlp.gate.weight"):
    def block(i):
        t = {**TWO, **attention(norms=norms, bias=shared), gate: [4, H], **experts(4, 12)}
        if shared:
            t.update({**mlp("mlp.shared_expert.", 20), "mlp.shared_expert_gate.weight": [1, H]})
        return t
    return block


def mixtral(i):
    return {**TWO, **attention(), "block_sparse_moe.gate.weight": [4, H], **experts(4, F, "block_sparse_moe.experts.", ("w1", "w3", "w2"))}


def gptoss(i):
    return {**TWO, **attention(bias=True, obias=True), "self_attn.sinks": [HEADS], "mlp.router.weight": [4, H], "mlp.router.bias": [4],
            "mlp.experts.gate_up_proj": [4, H, 2 * F], "mlp.experts.gate_up_proj_bias": [4, 2 * F], "mlp.experts.down_proj": [4, F, H],
            "mlp.experts.down_proj_bias": [4, H]}


def classes():
    """One of each class, as save_pretrained writes it."""
    ll = "LlamaForCausalLM"
    add("llama", config("llama", ll), model(llama()))
    add("llama with biases", config("llama", ll, attention_bias=True, mlp_bias=True), model(llama(bias=True, obias=True, mlp_bias=True)))
    add("mistral", config("mistral", "MistralForCausalLM", sliding_window=None), model(llama()))
    add("mixtral", config("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=None), model(mixtral))
    add("qwen2", config("qwen2", "Qwen2ForCausalLM"), model(llama(bias=True)))
    add("qwen2 tied", config("qwen2", "Qwen2ForCausalLM", tie_word_embeddings=True), model(llama(bias=True), tied=True))
    add("qwen3", config("qwen3", "Qwen3ForCausalLM"), model(llama(norms="head")))
    few = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
    add("qwen3_moe", config("qwen3_moe", "Qwen3MoeForCausalLM", **few), model(moe("head", False)))
    add("qwen2_moe", config("qwen2_moe", "Qwen2MoeForCausalLM", shared_expert_intermediate_size=20, **few), model(moe(None, True)))
    add("gemma2", config("gemma2", "Gemma2ForCausalLM", tie_word_embeddings=True), model(lambda i: {**FOUR, **attention(), **mlp()}, tied=True))
    four = lambda i: {**FOUR, **attention(norms="head"), **mlp()}
    add("gemma3_text", config("gemma3_text", "Gemma3ForCausalLM", tie_word_embeddings=True), model(four, tied=True))
    inner = config("gemma3_text", "absent", architectures="absent", tie_word_embeddings="absent")
    tower = {"vision_tower.embeddings.patch_embedding.weight": [8, 3, 4, 4], "multi_modal_projector.mm_input_projection_weight": [8, H]}
    outer = dict(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", text_config=inner)
    add("gemma3 of the Hub", outer, {**model(four, "language_model.model.", "language_model.lm_head.", tied=True), **tower})
    add("gemma3 of Transformers 5", outer, {**model(four, "model.language_model.", tied=True), **{"model." + k: v for k, v in tower.items()}})
    add("phi3", config("phi3", "Phi3ForCausalLM", head_dim="absent"), model(phi))
    add("gpt_neox", config("gpt_neox", "GPTNeoXForCausalLM", num_key_value_heads="absent", head_dim="absent", rotary_pct=0.25), NEOX)
    add("gpt2", GPT2, GPT2_TENSORS)
    add("starcoder2", config("starcoder2", "Starcoder2ForCausalLM", head_dim="absent", tie_word_embeddings=True),
        model(starcoder, tied=True, norm=("norm.weight", "norm.bias")))
    add("cohere2", config("cohere2", "Cohere2ForCausalLM", tie_word_embeddings=True),
        model(lambda i: {"input_layernorm.weight": [H], **attention(), **mlp()}, tied=True))
    add("olmo2", config("olmo2", "Olmo2ForCausalLM", head_dim="absent"), model(lambda i: {**BEHIND, **attention(norms="whole"), **mlp()}))
    add("olmo3", config("olmo3", "Olmo3ForCausalLM", head_dim="absent"), model(lambda i: {**BEHIND, **attention(norms="whole"), **mlp()}))
    add("granite", config("granite", "GraniteForCausalLM", head_dim="absent"), model(llama()))
    add("granitemoehybrid", config("granitemoehybrid", "GraniteMoeHybridForCausalLM", head_dim="absent", num_local_experts=0, shared_intermediate_size=F,
                                   layer_types=["attention"] * L),
        model(lambda i: {**TWO, **attention(), "shared_mlp.input_linear.weight": [2 * F, H], "shared_mlp.output_linear.weight": [H, F]}))
    add("glm", config("glm", "GlmForCausalLM", attention_bias=True), model(glm))
    add("glm4", config("glm4", "Glm4ForCausalLM", attention_bias=True),
        model(lambda i: glm(i, ("post_self_attn_layernorm.weight", "post_mlp_layernorm.weight"))))
    add("seed_oss", config("seed_oss", "SeedOssForCausalLM", attention_bias=True, attention_out_bias=False), model(llama(bias=True)))
    add("exaone4", config("exaone4", "Exaone4ForCausalLM", sliding_window=None, layer_types=["full_attention"] * L),
        model(lambda i: {**BEHIND, **attention(norms="head"), **mlp()}))
    add("smollm3", config("smollm3", "SmolLM3ForCausalLM", head_dim="absent", tie_word_embeddings=True), model(llama(), tied=True))
    add("ernie4_5", config("ernie4_5", "Ernie4_5ForCausalLM", tie_word_embeddings=True), model(llama(), tied=True))
    sizes = dict(head_dim="absent", num_key_value_heads=HEADS, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=4,
                 n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=12, first_k_dense_replace=1)
    add("deepseek_v2", config("deepseek_v2", "DeepseekV2ForCausalLM", q_lora_rank=None, **sizes), model(deepseek(False, False)))
    three = config("deepseek_v3", "DeepseekV3ForCausalLM", q_lora_rank=12, n_group=1, topk_group=1, num_nextn_predict_layers=1, **sizes)
    add("deepseek_v3", three, model(deepseek(True, True)))
    add("deepseek_v3 with a layer for further tokens", three, {**model(deepseek(True, True)), "model.layers.2.eh_proj.weight": [H, 2 * H],
        "model.layers.2.enorm.weight": [H], "model.layers.2.hnorm.weight": [H], "model.layers.2.shared_head.head.weight": [V, H]})
    add("gpt_oss", config("gpt_oss", "GptOssForCausalLM", num_local_experts=4, num_experts_per_tok=2), model(gptoss))
    vl = dict(head_dim="absent", rope_scaling=dict(type="mrope", mrope_section=[2, 1, 1]))
    visual = {"visual.patch_embed.proj.weight": [8, 3, 2, 4, 4]}
    add("qwen2_5_vl of the Hub", config("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", **vl), {**model(llama(bias=True)), **visual})
    add("qwen2_vl of Transformers 5", config("qwen2_vl", "Qwen2VLForConditionalGeneration", **vl),
        {**model(llama(bias=True), "model.language_model."), "model.visual.patch_embed.proj.weight": [8, 3, 2, 4, 4]})


NEOX = model(neox, "gpt_neox.", "embed_out.", embed="embed_in.weight", norm=("final_layer_norm.weight", "final_layer_norm.bias"))
GPT2 = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", vocab_size=V, n_embd=H, n_layer=L, n_head=HEADS, n_positions=64, bos_token_id=1, eos_token_id=2)
GPT2_TENSORS = {**model(gpt2, "transformer.", tied=True, embed="wte.weight", blocks="h.", norm=("ln_f.weight", "ln_f.bias")), "transformer.wpe.weight": [64, H]}


def strip(t, prefix):
    return {k.removeprefix(prefix): v for k, v in t.items()}


def deviations():
    """What published files have unlike what save_pretrained writes today."""
    l, plain = config("llama", "LlamaForCausalLM"), model(llama())
    tied = config("qwen3", "Qwen3ForCausalLM", tie_word_embeddings=True)
    qwen = model(llama(norms="head"), tied=True)
    mask = {f"gpt_neox.layers.{i}.attention.bias": ["U8", [1, 1, 64, 64]] for i in range(L)}
    neo = config("gpt_neox", "GPTNeoXForCausalLM", num_key_value_heads="absent", head_dim="absent", rotary_pct=0.25)
    add("pythia: masks, masked biases, frequencies", neo, {**NEOX, **mask, **{f"gpt_neox.layers.{i}.attention.masked_bias": ["F16", []] for i in range(L)},
        **{f"gpt_neox.layers.{i}.attention.rotary_emb.inv_freq": ["F16", [1]] for i in range(L)}})
    add("pythia: masks as truth values", neo, {**NEOX, **{k: ["BOOL", v[1]] for k, v in mask.items()}})
    add("gpt_neox of the base class", {**neo, "architectures": ["GPTNeoXModel"]}, strip({k: v for k, v in NEOX.items() if k != "embed_out.weight"}, "gpt_neox."),
        fails="\"embed_out.weight\" is missing")
    add("gpt2 of the Hub: no prefix, masks", GPT2, {**strip(GPT2_TENSORS, "transformer."), **{f"h.{i}.attn.bias": [1, 1, 64, 64] for i in range(L)}})
    add("gpt2: a head although it is tied", GPT2, {**GPT2_TENSORS, "lm_head.weight": [V, H]})
    add("llama: frequencies in every layer", l, {**plain, **{f"model.layers.{i}.self_attn.rotary_emb.inv_freq": [D // 2] for i in range(L)}})
    add("llama: cached cosines", l, {**plain, "model.layers.0.self_attn.rotary_emb.cos_cached": [1, 1, 64, D], "model.layers.0.self_attn.rotary_emb.sin_cached": [1, 1, 64, D]})
    add("embedding model: names of the base class", tied, strip(qwen, "model."))
    add("embedding model: its class", {**tied, "architectures": ["Qwen3Model"]}, strip(qwen, "model."))
    add("base class with a head", l, strip(plain, "model."))
    add("base class without a head that is not tied", l, strip({k: v for k, v in plain.items() if k != "lm_head.weight"}, "model."),
        fails="a model without a head")
    add("classifier", {**tied, "architectures": ["Qwen3ForSequenceClassification"]}, {**qwen, "score.weight": [2, H]})
    add("a class of its own", {**l, "architectures": ["HouseModelForCausalLM"]}, plain)
    add("no class", {k: v for k, v in l.items() if k != "architectures"}, plain)
    add("tied, with a head", tied, {**qwen, "lm_head.weight": [V, H]})
    add("index with what no shard has", l, plain, absent=["mtp.fc.weight", "model.layers.7.input_layernorm.weight"])
    add("shards in a folder", l, plain, folder="weights/")
    add("float64", l, plain, dtype="F64")
    add("float16 with norms in float32", l, {k: ["F32", v] if len(v) == 1 else v for k, v in plain.items()}, dtype="F16")
    add("bf16 with a head in float64", l, {**plain, "lm_head.weight": ["F64", [V, H]]}, dtype="BF16")
    add("wrapped by torch.compile", l, {"_orig_mod." + k: v for k, v in plain.items()}, fails="the names there begin with \"_orig_mod.model.\"")
    add("quantized", l, {**plain, "model.layers.0.mlp.up_proj.weight_scale": [F]}, fails="quantized weights")
    add("a bias that config.json does not announce", l, {**plain, "model.layers.0.self_attn.q_proj.bias": [H]}, fails="announces no such parameter")


classes()
deviations()
print("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in OUT) + "\n]")
