"""Quantises a small model as Transformers' fine-grained fp8 code does, and compares what mt saves with it.

    python3 fp8.py quantise MODEL DIR    # DIR/FORM, quantised, and its twin DIR/FORM-twin for each form of FORMS
    python3 fp8.py check DIR             # DIR/FORM-saved with what the same weights in fp32, DIR/FORM-fp32, become
    python3 fp8.py load DIR              # Transformers loads DIR without missing or further keys

A twin holds the same values in fp32. Blocks at the edge of a matrix are quantised as if zeros filled them, as DeepSeek's
kernel does; Transformers leaves such matrices as they are. DIR/FORM-saved is what mt saves with save_dtype as_read.
Needs torch, transformers and safetensors; load needs accelerate too.
"""
import glob
import json
import os
import shutil
import sys
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize


def converter(kind, size):
    config = FineGrainedFP8Config(weight_block_size=size)
    return kind(SimpleNamespace(quantization_config=config))


def quantised(w, rows, cols):
    """Codes and scales of w, whose blocks may be cut off at the edges."""
    r, c = w.shape
    padded = torch.zeros((r + rows - 1) // rows * rows, (c + cols - 1) // cols * cols)
    padded[:r, :c] = w.float()
    out = converter(Fp8Quantize, (rows, cols))._quantize_one("x.weight", padded)
    return out["x.weight"][:r, :c].contiguous(), out["x.weight_scale_inv"]


def dequantised(codes, scales, rows, cols):
    r, c = codes.shape
    spread = scales.float().repeat_interleave(rows, 0).repeat_interleave(cols, 1)[:r, :c]
    out = codes.float() * spread
    if r % rows == 0 and c % cols == 0:
        theirs = converter(Fp8Dequantize, (rows, cols))._dequantize_one(codes, scales, torch.float32)
        assert torch.equal(out, theirs)
    return out


def by_block(name, w, rows, cols):
    codes, scales = quantised(w, rows, cols)
    return {name: codes, name + "_scale_inv": scales}, dequantised(codes, scales, rows, cols)


def by_tensor(name, w, rows, cols):
    codes, scale = quantised(w, *w.shape)
    shape = [] if "up_proj" in name else [1]
    module = name.removesuffix(".weight")
    out = {name: codes, name + "_scale": scale.reshape(shape), module + ".input_scale": torch.tensor(0.5)}
    return out, dequantised(codes, scale, *w.shape)


def by_channel(name, w, rows, cols):
    scale = (w.float().abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)
    codes = (w.float() / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {name: codes, name + "_scale": scale}, codes.float() * scale.float()


# by form: the function that quantises a weight, and the rows and columns of a block (0: no blocks)
FORMS = {"block": (by_block, 2, 2), "edge": (by_block, 7, 5), "tensor": (by_tensor, 0, 0), "channel": (by_channel, 0, 0)}


def config_of(form, rows, cols, left):
    if form == "channel":
        weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
        group = {"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}}
        return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
                "config_groups": {"group_0": group}, "ignore": left}
    size, scheme = ([rows, cols], "dynamic") if rows else (None, "static")
    return {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": size, "activation_scheme": scheme, "modules_to_not_convert": left}


def tensors(d):
    return {k: v for f in glob.glob(d + "/*.safetensors") for k, v in load_file(f).items()}


def quantise(src, top):
    for form in FORMS:
        quantise_as(form, src, f"{top}/{form}", f"{top}/{form}-twin")


def quantise_as(form, src, out, twin):
    how, rows, cols = FORMS[form]
    weights, tensors, plain, left = load_file(src + "/model.safetensors"), {}, {}, []
    for name, w in weights.items():
        if w.dim() == 2 and name.endswith("_proj.weight") and "layers.0.self_attn.o_proj" not in name:
            parts, values = how(name, w, rows, cols)
            tensors |= parts
            plain[name] = values
            continue
        if w.dim() == 2:
            left.append(name.removesuffix(".weight"))
        if "o_proj" in name:
            w = w.to(torch.bfloat16)
        tensors[name], plain[name] = w, w.float()
    config = json.load(open(src + "/config.json"))
    for d, t, more in ((out, tensors, {"quantization_config": config_of(form, rows, cols, left)}), (twin, plain, {})):
        os.makedirs(d)
        for f in os.listdir(src):
            if not f.endswith(".safetensors") and f != "config.json":
                shutil.copy(f"{src}/{f}", d)
        save_file(t, d + "/model.safetensors", {"format": "pt"})
        json.dump(config | more, open(d + "/config.json", "w"), indent=2)
    assert any(t.dtype == torch.float8_e4m3fn for t in tensors.values())


def check(top):
    for form in FORMS:
        print(form, *same_as(f"{top}/{form}-saved", f"{top}/{form}-fp32"))


def same_as(saved, fp32):
    q = json.load(open(saved + "/config.json"))["quantization_config"]
    got, right = tensors(saved), tensors(fp32)
    same = total = 0
    for name, codes in got.items():
        if codes.dtype != torch.float8_e4m3fn:
            continue
        scale = got.get(name + "_scale_inv", got.get(name + "_scale"))
        if q["quant_method"] == "fp8":
            want, by = quantised(right[name], *(q["weight_block_size"] or right[name].shape))
            same += torch.equal(want.view(torch.uint8), codes.view(torch.uint8)) and torch.equal(by.reshape(scale.shape), scale)
        else:
            want = (right[name] / scale.float()).clamp(-448, 448)
            off = (codes.float() - want).abs() <= want.abs() / 16 + 2.0**-10
            same += bool(off.all()) and scale.dtype == torch.bfloat16
        total += 1
    return same, "of", total


def load(saved):
    from transformers import AutoModelForCausalLM

    _, info = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32, output_loading_info=True)
    for what, keys in info.items():
        assert not keys, f"{what}: {keys}"
    print("loaded")


{"quantise": quantise, "check": check, "load": load}[sys.argv[1]](*sys.argv[2:])
