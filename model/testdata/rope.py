#!/usr/bin/env python3
"""Write rope.json: inverse frequencies, cos and sin as Transformers computes them.

    pip install torch transformers
    python rope.py > rope.json
    python rope.py --check rope.json

A case is a config.json and, for some lengths of a document and both types of
layer where they differ, what the rotary embedding of that config gives at some
positions. Floats are given as the bits of their float32.
"""
import copy, json, struct, sys
import torch
from transformers import CONFIG_MAPPING
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

BASE = dict(vocab_size=64, hidden_size=64, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, max_position_embeddings=256)

def llama(head_dim, rope, key="rope_parameters", **kw):
    return dict(BASE, model_type="llama", head_dim=head_dim, **{key: rope}, **kw)

def phi3(rope, key="rope_parameters", **kw):
    return dict(BASE, model_type="phi3", **{key: rope}, **kw)

def gemma3(**kw):
    return dict(BASE, model_type="gemma3_text", head_dim=32, sliding_window=8,
                layer_types=["sliding_attention", "full_attention"], **kw)

LLAMA3 = dict(low_freq_factor=1.0, high_freq_factor=4.0)
SHORT, LONG = [1 + 0.05 * i for i in range(8)], [1 + 0.7 * i for i in range(8)]
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)
CASES = [
    (llama(16, dict(rope_type="default", rope_theta=10000.0)), [256]),
    (llama(20, dict(rope_type="default", rope_theta=10000.0)), [256]),
    (llama(128, dict(rope_type="default", rope_theta=1000000.0)), [256]),
    (llama(16, dict(LLAMA3, rope_type="llama3", rope_theta=50000.0, factor=8.0, original_max_position_embeddings=32)), [256]),
    (llama(64, dict(LLAMA3, rope_type="llama3", rope_theta=500000.0, factor=32.0, original_max_position_embeddings=8192)), [256]),
    (llama(128, dict(LLAMA3, type="llama3", factor=8.0, original_max_position_embeddings=8192), "rope_scaling", rope_theta=500000.0), [256]),
    # Without original_max_position_embeddings it is max_position_embeddings.
    (llama(64, dict(LLAMA3, rope_type="llama3", rope_theta=50000.0, factor=8.0)), [256]),
    (llama(128, dict(LLAMA3, type="llama3", factor=4.0), "rope_scaling", rope_theta=500000.0, max_position_embeddings=1024), [256]),
    (gemma3(rope_parameters=dict(full_attention=dict(LLAMA3, rope_type="llama3", rope_theta=20000.0, factor=8.0),
                                 sliding_attention=dict(rope_type="default", rope_theta=20000.0))), [256]),
    (llama(32, dict(type="linear", factor=2.5), "rope_scaling", rope_theta=500000.0), [256]),
    (llama(32, dict(rope_type="linear", rope_theta=10000.0, factor=8.0)), [256]),
    (llama(32, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)), [256, 1000]),
    (llama(48, dict(type="dynamic", factor=3.0), "rope_scaling"), [200, 300]),
    (llama(16, YARN), [256]),
    (llama(128, dict(YARN, rope_theta=1000000.0, original_max_position_embeddings=32768)), [256]),
    (llama(64, dict(type="yarn", factor=4.0, original_max_position_embeddings=64), "rope_scaling", rope_theta=500000.0), [256]),
    (llama(64, dict(YARN, beta_fast=16, beta_slow=2.5, truncate=False)), [256]),
    (llama(64, dict(YARN, attention_factor=0.75)), [256]),
    (llama(64, dict(YARN, mscale=0.7, mscale_all_dim=0.3)), [256]),
    (llama(64, dict(YARN, mscale=1.0, mscale_all_dim=1.0)), [256]),
    (phi3(dict(rope_type="longrope", rope_theta=10000.0, short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=64),
          original_max_position_embeddings=64), [64, 65, 200]),
    (phi3(dict(type="su", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=32), "rope_scaling", original_max_position_embeddings=32,
          rope_theta=250000.0), [32, 200]),
    (phi3(dict(type="longrope", short_factor=SHORT[:6], long_factor=LONG[:6], attention_factor=1.3), "rope_scaling",
          original_max_position_embeddings=32, partial_rotary_factor=0.75), [30, 40]),
    (phi3(dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), [256]),
    (gemma3(), [256]),
    (gemma3(rope_theta=500000.0, rope_local_base_freq=5000.0, rope_scaling=dict(rope_type="linear", factor=8.0)), [256]),
    (gemma3(rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                                 sliding_attention=dict(rope_type="default", rope_theta=20000.0))), [256]),
]
ROTARY = dict(llama=LlamaRotaryEmbedding, phi3=Phi3RotaryEmbedding, gemma3_text=Gemma3RotaryEmbedding)

def bits(t): return [struct.unpack("<I", struct.pack("<f", x))[0] for x in t.flatten().tolist()]

def tables(cfg, length, layer_type):
    rope = ROTARY[cfg.model_type](cfg)
    kw = dict(layer_type=layer_type) if cfg.model_type == "gemma3_text" else {}
    at = sorted({0, 1, 2, 17, length // 2, length - 1})
    cos, sin = rope(torch.zeros(1, dtype=torch.float32), torch.tensor([list(range(length))]), **kw)
    half = cos.shape[-1] // 2
    freq = getattr(rope, f"{layer_type}_inv_freq") if kw else rope.inv_freq
    return dict(length=length, sliding=layer_type == "sliding_attention", inv_freq=bits(freq), positions=at,
                cos=bits(cos[0, at, :half]), sin=bits(sin[0, at, :half]))

out = []
for raw, lengths in CASES:
    text = copy.deepcopy(raw)  # from_dict fills rope mappings in
    cfg = CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    types = ["full_attention", "sliding_attention"] if raw["model_type"] == "gemma3_text" else ["full_attention"]
    out.append(dict(config=text, tables=[tables(cfg, n, t) for n in lengths for t in types]))

def floats(values): return [struct.unpack("<f", struct.pack("<I", x))[0] for x in values]

def near(a, b):
    """Whether two recordings agree. PyTorch's pow rounds as the processor's vectors do,
    so a frequency may be off by its last bit and a far angle's cosine by 1e-6."""
    if [(c["config"], [(t["length"], t["sliding"], t["positions"]) for t in c["tables"]]) for c in a] != \
            [(c["config"], [(t["length"], t["sliding"], t["positions"]) for t in c["tables"]]) for c in b]:
        return False
    pairs = [(x, y) for c, d in zip(a, b) for x, y in zip(c["tables"], d["tables"])]
    return all(len(x[k]) == len(y[k]) and all(abs(u - v) <= (2e-7 * abs(v) if k == "inv_freq" else 1e-6) for u, v in zip(floats(x[k]), floats(y[k])))
               for x, y in pairs for k in ("inv_freq", "cos", "sin"))

if sys.argv[1:2] == ["--check"]:
    with open(sys.argv[2]) as f:
        sys.exit(None if near(out, json.load(f)) else f"{sys.argv[2]} is not what Transformers computes")
print(json.dumps(out))
