#!/usr/bin/env python3
"""Write rope.json: inverse frequencies as Transformers computes them.

    pip install torch transformers
    python rope.py > rope.json

Floats are given as the bits of their float32.
"""
import json, struct
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)
CASES = [
    dict(head_dim=16, rope=dict(rope_type="default", rope_theta=10000.0)),
    dict(head_dim=20, rope=dict(rope_type="default", rope_theta=10000.0)),
    dict(head_dim=128, rope=dict(rope_type="default", rope_theta=10000.0)),
    dict(head_dim=128, rope=dict(rope_type="default", rope_theta=1000000.0)),
    dict(head_dim=16, rope=dict(**LLAMA3, rope_theta=50000.0, factor=8.0, original_max_position_embeddings=32)),
    dict(head_dim=64, rope=dict(**LLAMA3, rope_theta=500000.0, factor=32.0, original_max_position_embeddings=8192)),
    dict(head_dim=128, rope=dict(**LLAMA3, rope_theta=500000.0, factor=8.0, original_max_position_embeddings=8192)),
]
POSITIONS = [0, 1, 2, 17, 255]

def bits(t): return [struct.unpack("<I", struct.pack("<f", x))[0] for x in t.flatten().tolist()]

out = []
for c in CASES:
    cfg = LlamaConfig(hidden_size=4 * c["head_dim"], num_attention_heads=4, head_dim=c["head_dim"],
                      rope_parameters=c["rope"], max_position_embeddings=131072)
    rope = LlamaRotaryEmbedding(cfg)
    cos, sin = rope(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
    half = c["head_dim"] // 2
    out.append(dict(head_dim=c["head_dim"], rope=c["rope"], inv_freq=bits(rope.inv_freq), positions=POSITIONS,
                    cos=bits(cos[0, :, :half]), sin=bits(sin[0, :, :half])))
print(json.dumps(out))
