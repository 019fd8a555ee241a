"""Records what PyTorch's, torchao's and bitsandbytes' optimizers do to a tensor in 50 steps, for
recorded_test.go.

    PYTHON states.py > states.json

PYTHON has the torch of tools/requirements.txt, torchao 0.18 and bitsandbytes 0.50; no GPU is needed. A
case is an optimizer and its options; what it left of the weights; and its moments: fp32, or codes and
scales of blocks. A case with "cols" is a table of so many columns, whose blocks span rows, and a step has gradients
of some rows alone. Weights at the start and gradients are made of a hash that the test makes as well, so they
are not in the recording. Numbers are the bits of fp32 in base64, little-endian; so are codes, a byte
each. The values of the maps come last.
"""
import base64
import json

import numpy as np
import torch

torch.compile = lambda f, **_: f  # torchao's steps as they are written
torch.set_num_threads(1)

import bitsandbytes
import bitsandbytes.backends.cpu.ops
import torchao
from torchao.optim import AdamW4bit, AdamW8bit
from torchao.optim import subclass_4bit, subclass_8bit

STEPS = 50
CODED, PLAIN = 4096, 256  # elements of a tensor that is kept in codes, and of one that is not
ROWS = 8  # of a table


def numbers(step, n):
    """n numbers in [-1/8, 1/8) that fp32 has exactly, their magnitudes spread over 13 powers of 2."""
    i = np.arange(n, dtype=np.uint64)
    x = (i * 2654435761 + step * 2246822519 + 12345) & 0xFFFFFFFF
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & 0xFFFFFFFF
    x ^= x >> np.uint64(16)
    y = ((x >> np.uint64(8)).astype(np.int64) - (1 << 23)).astype(np.float64) / (1 << 26)
    return torch.from_numpy((y / 2.0 ** (i % 13).astype(np.float64)).astype(np.float32))


def bits(x):
    return base64.b64encode(x.detach().contiguous().numpy().tobytes()).decode()


def moment(x):
    if hasattr(x, "codes"):
        codes = x.codes
        if codes.numel() * 2 == x.numel():
            codes = torch.stack([codes >> 4, codes & 15], dim=-1).flatten()
        return {"codes": bits(codes), "scales": bits(x.scale)}
    return {"values": bits(x)}


def nearest(x, values, absmax, codes, block):
    """What bitsandbytes does to numbers of a type that its C++ does not take. That C++ gives some numbers near
    halfway between two values the one that is farther: 6 of 4,096 normally distributed ones. A block of zeros has the
    code of 0 and the scale 0."""
    absmax.copy_(x.view(-1, block).abs().max(-1)[0])
    scaled = (x.view(-1, block) * (1 / absmax.view(-1, 1))).clamp(-1, 1)
    codes.copy_((scaled.unsqueeze(-1) - values).abs().argmin(-1).to(torch.uint8).view(codes.shape))


bitsandbytes.backends.cpu.ops._quant_blockwise_fp32_direct = nearest


def record(name, make, cols=0, **options):
    n = ROWS * cols if cols else CODED if "bit" in name else PLAIN
    w = torch.nn.Parameter(numbers(0, n).clone().view(-1, cols or 64))
    opt = make([w], **options)
    for step in range(1, STEPS + 1):
        w.grad = numbers(step, n).view(w.shape)
        if cols:
            w.grad[step % 3::3] = 0
        opt.step()
    s = opt.state[w]
    if "absmax1" in s:
        moments = [{"codes": bits(s[f"state{i}"]), "scales": bits(s[f"absmax{i}"])} for i in (1, 2) if f"absmax{i}" in s]
    elif "state1" in s:
        moments = [moment(s["state1"])]
    elif "exp_avg" in s:
        moments = [moment(s["exp_avg"]), moment(s["exp_avg_sq"])]
    else:
        moments = [moment(s["momentum_buffer"])] if options.get("momentum") else []
    return {"name": name, "cols": cols, "options": options, "last": bits(w), "moments": moments}


adam = dict(lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)
cases = [
    record("adamw", torch.optim.AdamW, **adam),
    record("adamw_8bit", AdamW8bit, **adam),
    record("adamw_4bit", AdamW4bit, **adam),
    record("adamw_bnb_8bit", bitsandbytes.optim.AdamW8bit, **adam),
    record("lion", bitsandbytes.optim.Lion32bit, lr=0.001, betas=(0.9, 0.99), weight_decay=0.1),
    record("lion_8bit", bitsandbytes.optim.Lion8bit, lr=0.001, betas=(0.9, 0.99), weight_decay=0.1),
    record("sgd", torch.optim.SGD, lr=0.05, weight_decay=0.1),
    record("sgd", torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1),
    record("sgd", torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True),
] + [
    record(name, make, cols, **adam)
    for cols in (576, 896)
    for name, make in (("adamw_8bit", AdamW8bit), ("adamw_4bit", AdamW4bit), ("adamw_bnb_8bit", bitsandbytes.optim.AdamW8bit))
]
maps = {
    "signed8": subclass_8bit.get_qmap_signed(), "other8": subclass_8bit.get_qmap_unsigned(),
    "signed4": subclass_4bit.get_qmap_signed(), "other4": subclass_4bit.get_qmap_unsigned(),
    "bitsandbytes": bitsandbytes.functional.create_dynamic_map(signed=True).tolist(),
    "bitsandbytes' other": bitsandbytes.functional.create_dynamic_map(signed=False).tolist(),
}
print(json.dumps({
    "programs": {"torch": torch.__version__, "torchao": torchao.__version__, "bitsandbytes": bitsandbytes.__version__},
    "cases": cases, "maps": {k: bits(torch.tensor(v)) for k, v in maps.items()}}))
