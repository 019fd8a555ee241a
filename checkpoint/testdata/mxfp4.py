"""Compares experts that mt read from MXFP4 and saved in bf16 with what Transformers decodes.

    python3 mxfp4.py PACKED SAVED    # directories with a model.safetensors each

Needs torch, transformers and safetensors.
"""
import sys

import torch
from safetensors.torch import load_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

packed, saved = (load_file(d + "/model.safetensors") for d in sys.argv[1:3])
same = total = 0
for name in packed:
    if not name.endswith("_blocks"):
        continue
    name = name.removesuffix("_blocks")
    want = convert_moe_packed_tensors(packed[name + "_blocks"], packed[name + "_scales"], dtype=torch.bfloat16)
    for got, right in zip(saved[name], want):
        total += 1
        same += torch.equal(got, right)
print(f"{same} of {total} the same")
