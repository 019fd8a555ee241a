"""Reads a GGUF file with the PyPI package gguf and compares it with the model
directory it was made from: the names and types of all tensors, every byte of
them, and the keys.

  python check.py FILE.gguf MODEL_DIR

Names come from the package's own tables (MODEL_TENSORS, the tensor map), values
from safetensors through the package's quantize(). Prints "ok" and a summary.
"""
import glob, json, sys

import gguf
import numpy as np

ARCH = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE",
        "gemma2": "GEMMA2", "gemma3_text": "GEMMA3", "gemma3": "GEMMA3", "phi3": "PHI3", "olmo2": "OLMO2", "olmo3": "OLMO2",
        "smollm3": "SMOLLM3", "granite": "GRANITE", "granitemoehybrid": "GRANITE", "glm4": "GLM4", "glm": "CHATGLM",
        "ernie4_5": "ERNIE4_5", "exaone4": "EXAONE4", "seed_oss": "SEED_OSS",
        "starcoder2": "STARCODER2", "gpt_neox": "GPTNEOX", "gpt2": "GPT2", "cohere2": "COHERE2", "gpt_oss": "GPT_OSS",
        "llama4_text": "LLAMA4", "llama4": "LLAMA4", "mixtral": "LLAMA", "qwen2_moe": "QWEN2MOE", "glm4_moe": "GLM4_MOE", "mistral3": "LLAMA", "ministral3": "MISTRAL3",
        "qwen2_vl": "QWEN2VL", "qwen2_vl_text": "QWEN2VL", "qwen2_5_vl": "QWEN2VL", "qwen2_5_vl_text": "QWEN2VL",
        "qwen3_vl": "QWEN3VL", "qwen3_vl_text": "QWEN3VL", "qwen3_vl_moe": "QWEN3VLMOE", "qwen3_vl_moe_text": "QWEN3VLMOE", "qwen3_next": "QWEN3NEXT",
        "qwen3_5": "QWEN35", "qwen3_5_text": "QWEN35", "qwen3_5_moe": "QWEN35MOE", "qwen3_5_moe_text": "QWEN35MOE", "minimax_m2": "MINIMAXM2",
        "deepseek_v2": "DEEPSEEK2", "deepseek_v3": "DEEPSEEK2", "kimi_k2": "DEEPSEEK2", "kimi_k25": "DEEPSEEK2", "glm4_moe_lite": "DEEPSEEK2", "ernie4_5_moe": "ERNIE4_5_MOE",
        "hunyuan_v1_dense": "HUNYUAN_DENSE", "afmoe": "AFMOE", "apertus": "APERTUS", "lfm2": "LFM2", "kimi_linear": "KIMI_LINEAR", "mistral4": "MISTRAL4",
        "falcon_h1": "FALCON_H1", "nemotron_h": "NEMOTRON_H_MOE", "gemma4": "GEMMA4", "gemma4_text": "GEMMA4", "glm_moe_dsa": "GLM_DSA"}
PAIRS = ("LLAMA", "MISTRAL3", "SMOLLM3", "GRANITE", "GRANITE_HYBRID")  # llama.cpp's code for these rotates elements 2i and 2i+1 of a head, where the directory pairs i and i+D/2
KEYS = ["vocab_size", "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv"]
LAYER_NORM = ["cohere2", "starcoder2", "gpt_neox", "gpt2"]


def load(model):
    """All tensors of a directory in fp32."""
    out = {}
    for path in sorted(glob.glob(model + "/*.safetensors")):
        raw = open(path, "rb").read()
        n = int.from_bytes(raw[:8], "little")
        for name, t in json.loads(raw[8:8 + n]).items():
            if name == "__metadata__":
                continue
            data = raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            if t["dtype"] == "BF16":
                x = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                x = np.frombuffer(data, {"F32": np.float32, "F16": np.float16, "I64": np.int64}[t["dtype"]]).astype(np.float32)
            out[name] = x.reshape(t["shape"])
    return out


def halves_to_pairs(x, heads):
    d = x.shape[0] // heads
    y = np.empty_like(x)
    for h in range(heads):
        for i in range(d // 2):
            y[h * d + 2 * i] = x[h * d + i]
            y[h * d + 2 * i + 1] = x[h * d + d // 2 + i]
    return y


def single(tensors, hidden, in_turns, by_rows):
    """Stacked experts (slices of columns, rows, or of rows, columns) as tensors of their own; rows of gate and up are in turns, or one after the other. by_rows: all are of rows, columns."""
    out = {}
    for name, x in tensors.items():
        if ".experts." not in name:
            out[name] = x
            continue
        stem, end = (name[:-5], ".bias") if name.endswith("_bias") else (name, ".weight")
        block, which = stem.rsplit(".", 1)
        for e, y in enumerate(x):
            up = which.startswith("gate_up")
            if y.ndim == 2 and not by_rows and (in_turns or (y.shape[0] == hidden) == up):
                y = y.T
            gate, other = (y[0::2], y[1::2]) if in_turns else (y[:len(y) // 2], y[len(y) // 2:])
            parts = {"gate_proj": gate, "up_proj": other} if up else {which: y}
            for p, z in parts.items():
                out[f"{block}.{e}.{p}{end}"] = np.ascontiguousarray(z)
    return out


def by_parts(x, heads):
    """Rows of query, key and value by head become all queries, all keys, all values."""
    return np.concatenate([p.reshape(-1, *x.shape[1:]) for p in np.moveaxis(x.reshape(heads, 3, -1, *x.shape[1:]), 1, 0)])


def queries_keys_values(x, cfg):
    """Rows by key head become all queries, all keys and all values, and those of z."""
    heads, k = cfg["linear_num_key_heads"], cfg["linear_key_head_dim"]
    v = cfg["linear_num_value_heads"] // heads * cfg["linear_value_head_dim"]
    *qkv, z = np.split(x.reshape(heads, -1, x.shape[-1]), [k, 2 * k, 2 * k + v], axis=1)
    return np.concatenate([y.reshape(-1, x.shape[-1]) for y in qkv]), z.reshape(-1, x.shape[-1])


def tiled(x, module, cfg):
    """Value heads by key head become the first value head of every key head, then the second of each, and so on."""
    keys, heads, value = cfg["linear_num_key_heads"], cfg["linear_num_value_heads"], cfg["linear_value_head_dim"]
    if module == "norm":
        return x
    if module == "out_proj":
        return np.ascontiguousarray(tiled(np.ascontiguousarray(x.T), "in_proj_z", cfg).T)
    first = 2 * keys * cfg["linear_key_head_dim"] if module in ("in_proj_qkv", "conv1d") else 0
    size = 1 if module in ("in_proj_a", "in_proj_b", "A_log", "dt_bias") else value
    of_values = x[first:].reshape(keys, heads // keys, size, *x.shape[1:]).swapaxes(0, 1).reshape(x[first:].shape)
    return np.concatenate([x[:first], of_values])


def of_hybrid(name, x, cfg):
    """What becomes of a tensor of Granite 4 with Mamba-2 that the package's tables do not have."""
    block, module = name.removeprefix("model.layers.").split(".", 1)
    half = x.shape[-2] // 2 if x.ndim > 1 else 0
    found = {"shared_mlp.input_linear.weight": lambda: {"ffn_gate_shexp.weight": x[:half], "ffn_up_shexp.weight": x[half:]},
             "shared_mlp.output_linear.weight": lambda: {"ffn_down_shexp.weight": x},
             "block_sparse_moe.input_linear.weight": lambda: {"ffn_gate_exps.weight": x[:, :half], "ffn_up_exps.weight": x[:, half:]},
             "block_sparse_moe.output_linear.weight": lambda: {"ffn_down_exps.weight": x},
             "mamba.A_log": lambda: {"ssm_a": -np.exp(x.astype(np.float64)).astype(np.float32)[:, None]},
             "mamba.D": lambda: {"ssm_d": x[:, None]},
             "mamba.norm.weight": lambda: {"ssm_norm.weight": x.reshape(cfg["mamba_n_groups"], -1)}}.get(module, dict)()
    return {f"blk.{block}.{to}": np.ascontiguousarray(y) for to, y in found.items()}


def of_gemma4(name, x):
    """What becomes of a tensor of Gemma 4 whose name the package's tables do not have."""
    at = name.removeprefix("model.language_model.").removeprefix("model.").removeprefix("layers.").split(".", 1)
    to = {"layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
          "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight"}.get(at[-1])
    return to and {f"blk.{at[0]}.{to}": x}


def of_falcon(name, x, cfg):
    """A tensor of Falcon-H1 with the factors that llama.cpp does not have."""
    inner, groups = cfg["mamba_d_ssm"], cfg["mamba_n_groups"] * cfg["mamba_d_state"]
    of_columns = np.repeat(cfg["ssm_multipliers"], [inner, inner, groups, groups, cfg["mamba_n_heads"]])
    by = {"embed_tokens": cfg["embedding_multiplier"], "lm_head": cfg["lm_head_multiplier"],
          "k_proj": cfg["key_multiplier"] * cfg["attention_in_multiplier"] ** 2, "v_proj": cfg["attention_in_multiplier"] * cfg["attention_out_multiplier"],
          "gate_proj": cfg["mlp_multipliers"][0], "down_proj": cfg["mlp_multipliers"][1],
          "in_proj": (cfg["ssm_in_multiplier"] * of_columns)[:, None], "out_proj": cfg["ssm_out_multiplier"]}.get(name.split(".")[-2], 1)
    return (x.astype(np.float64) * by).astype(np.float32)


def wanted(cfg, tensors):
    """The tensors of the file in fp32, by name."""
    arch = getattr(gguf.MODEL_ARCH, ARCH[cfg["model_type"]])
    names = gguf.get_tensor_name_map(arch, cfg["num_hidden_layers"])
    out, experts = {}, {}
    joined = ARCH[cfg["model_type"]] == "QWEN35MOE" and any(name.endswith("experts.down_proj") for name in tensors)
    if joined or ARCH[cfg["model_type"]] in ("GPT_OSS", "LLAMA4", "QWEN3VLMOE", "MISTRAL4"):
        tensors = single(tensors, cfg["hidden_size"], ARCH[cfg["model_type"]] == "GPT_OSS", ARCH[cfg["model_type"]] == "MISTRAL4")
    for name, x in tensors.items():
        if ARCH[cfg["model_type"]] == "GRANITE_HYBRID" and (found := of_hybrid(name, x, cfg)):
            out.update(found)
            continue
        if ARCH[cfg["model_type"]] == "GEMMA4" and (found := of_gemma4(name, x)):
            out.update(found)
            continue
        if ARCH[cfg["model_type"]] == "FALCON_H1":
            x = of_falcon(name, x, cfg)
        if ARCH[cfg["model_type"]].startswith("NEMOTRON"):
            name = name.replace(".dt_bias", ".dt.bias")
            if ".experts." in name:
                name = name.replace("backbone.", "model.").replace(".mixer.", ".mlp.")
        for prefix in ("model.language_model.", "language_model.model."):
            if name.startswith(prefix):
                name = "model." + name[len(prefix):]
        name = name.removeprefix("language_model.") if name.startswith("language_model.lm_head.") else name
        if name == "lm_head.weight" and cfg.get("tie_word_embeddings"):
            continue
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace(".expert_bias", ".expert_bias.bias")
        for part in ("gate", "up", "down"):  # Transformers saves dense blocks of Kimi Linear so
            name = name.replace(f".block_sparse_moe.{part}_proj.", f".mlp.{part}_proj.")
        parts = name.split(".")
        if "experts" in parts:
            i = parts.index("experts")
            experts.setdefault(".".join(parts[:i + 1] + parts[i + 2:]), {})[int(parts[i + 1])] = x
            continue
        if name.endswith(".kv_b_proj.weight"):
            by_head = x.reshape(cfg["num_attention_heads"], -1, x.shape[-1])
            for letter, y in (("k", by_head[:, :cfg["qk_nope_head_dim"]].swapaxes(1, 2)), ("v", by_head[:, cfg["qk_nope_head_dim"]:])):
                out[names.get_name(name.replace("kv_b", letter + "_b"), try_suffixes=(".weight",))] = np.ascontiguousarray(y)
            continue
        if name.endswith(".in_proj_qkvz.weight"):
            block = name.removesuffix("qkvz.weight")
            for new, y in zip(("qkv", "z"), queries_keys_values(x, cfg)):
                out[names.get_name(block + new + ".weight", try_suffixes=(".weight",))] = y
            continue
        if ARCH[cfg["model_type"]] in ("QWEN35", "QWEN35MOE") and ".linear_attn." in name:
            x = tiled(x, name.split(".linear_attn.")[1].removesuffix(".weight"), cfg)
        name = name.replace(".dt_bias", ".dt_proj.bias")
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            continue
        if name.endswith(".A_log"):
            x = -np.exp(x.astype(np.float64)).astype(np.float32)
            x = x[0, 0] if x.ndim == 4 else x[:, None] if name.endswith((".mamba.A_log", ".mixer.A_log")) else x
        if name.endswith((".mamba.D", ".mixer.D")):
            x = x[:, None]
        if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
            x = x.reshape(cfg.get("mamba_n_groups", cfg.get("n_groups")), -1)
        if name.endswith((".conv1d.weight", ".conv.conv.weight")):
            x = x[:, 0]
        if name.endswith(("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight")):
            x = x[np.newaxis]
        if name.endswith(".sinks"):
            new += ".weight"
        if ARCH[cfg["model_type"]] in PAIRS and ".attn_q." in new:
            x = halves_to_pairs(x, cfg["num_attention_heads"])
        if ARCH[cfg["model_type"]] in PAIRS and ".attn_k." in new:
            x = halves_to_pairs(x, cfg["num_key_value_heads"])
        if ".exp_probs_b." in new:
            x = x.reshape(-1)
        if ".ffn_gate_inp_shexp." in new:
            x = x[0]
        if ARCH[cfg["model_type"]] in ("GEMMA2", "GEMMA3", "QWEN3NEXT", "QWEN35", "QWEN35MOE") and name.endswith("norm.weight") and ".linear_attn." not in name:
            x = x + np.float32(1)
        if ARCH[cfg["model_type"]] == "GPTNEOX" and ".attn_qkv." in new:
            x = by_parts(x, cfg["num_attention_heads"])
        if ARCH[cfg["model_type"]] == "GPT2" and x.ndim == 2 and new.startswith("blk."):
            x = x.T
        out[new] = x
    for name, of in experts.items():
        out[names.get_name(name, try_suffixes=(".weight", ".bias"))] = np.stack([of[i] for i in range(len(of))])
    allowed = {gguf.TENSOR_NAMES[t].format(bid=b) for t in gguf.MODEL_TENSORS[arch] for b in range(cfg["num_hidden_layers"])}
    for name in out:
        assert name in allowed or name.rsplit(".", 1)[0] in allowed, name
    return out


def strings(cls):
    """All strings of a class and of the classes in it."""
    for v in vars(cls).values():
        yield from strings(v) if isinstance(v, type) else [v] if isinstance(v, str) else []


def main(path, model):
    cfg = json.load(open(model + "/config.json"))
    cfg = {**cfg, **(cfg.get("text_config") or {}), **{k: v for k, v in cfg.items() if k == "tie_word_embeddings"}}
    cfg["intermediate_size"] = cfg.get("intermediate_size_mlp", cfg.get("intermediate_size"))
    if cfg["model_type"] == "gpt2":
        cfg.update(num_hidden_layers=cfg["n_layer"], num_attention_heads=cfg["n_head"])
    if cfg["model_type"] == "nemotron_h":
        cfg["num_hidden_layers"] = len(cfg["layers_block_type"])
    if cfg["model_type"] == "granitemoehybrid" and set(cfg["layer_types"]) - {"attention", "full_attention"}:
        ARCH[cfg["model_type"]] = "GRANITE_HYBRID"
    r = gguf.GGUFReader(path)
    want = wanted(cfg, load(model))
    got = {t.name: t for t in r.tensors}
    extra = set(got) - set(want) - {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
    assert not extra and not set(want) - set(got), (sorted(extra), sorted(set(want) - set(got)))
    default = {0: "F32", 1: "F16", 7: "Q8_0", 32: "BF16"}[r.fields["general.file_type"].contents()]
    worst = 0.0
    for name, t in got.items():
        if name not in want:
            continue
        x = want[name]
        kind = default
        if x.ndim < 2 or name.endswith(("_norm.weight", ".bias", "ssm_a", ".ssm_d")) or "ffn_gate_inp" in name or "ssm_conv1d" in name or "shortconv.conv" in name:
            kind = "F32"
        elif kind == "Q8_0" and x.shape[-1] % 32:
            kind = "F16"
        assert t.tensor_type.name == kind, (name, t.tensor_type.name, kind)
        assert list(reversed([int(n) for n in t.shape])) == list(x.shape), name
        q = gguf.quants.quantize(x, t.tensor_type)
        assert np.ascontiguousarray(t.data).tobytes() == np.ascontiguousarray(q).tobytes(), name
        back = gguf.quants.dequantize(t.data, t.tensor_type).reshape(x.shape)
        worst = max(worst, float(np.abs(back - x).max()))
    arch = r.fields["general.architecture"].contents()
    norm = "epsilon" if cfg["model_type"] in LAYER_NORM else "rms_epsilon"
    rope = [] if cfg["model_type"] in ("gpt2", "nemotron_h") else ["rope.freq_base"]
    for k in KEYS + ["attention.layer_norm_" + norm] + rope:
        assert arch + "." + k in r.fields, k
    known = set(strings(gguf.Keys))
    for k in r.fields:
        if k.startswith("GGUF."):
            continue
        assert k in known or k.replace(arch + ".", "{arch}.", 1) in known or k.startswith("tokenizer.chat_template."), "not a key of llama.cpp: " + k
    print(json.dumps({"ok": True, "tensors": len(got), "keys": len(r.fields), "type": default, "worst": worst}))


main(*sys.argv[1:])
