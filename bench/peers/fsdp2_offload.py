#!/usr/bin/env python3
"""Trains transformer blocks of a given shape on one GPU with PyTorch's FSDP2 and
its CPU offload, as the other side of bench/gpu.sh. Needs torch alone.

    python3 bench/peers/fsdp2_offload.py --blocks 8 --rows 64 --seq-len 1024 --json out.json

What it does is what PyTorch's documentation recommends for a model that the GPU
does not hold: fully_shard on every block and on the whole, CPUOffloadPolicy with
pinned memory, parameters and moments in fp32 on the host, bf16 for computation,
gradients reduced in fp32, every block checkpointed, flash attention through
scaled_dot_product_attention, clip_grad_norm_ 1.0, fused AdamW on the host. A
step's rows go through in micro-batches of --micro-rows; without it the largest
power of two that the GPU's memory holds is found by trying. Gradients stay on the
GPU's side until the last micro-batch (set_requires_gradient_sync).

The result is one JSON object: seconds of each timed step, tokens of a step, the
shape, versions and the peak of the GPU's memory. Model FLOPs are left to the
reader, who counts them for both sides in the same way.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import time


def parse_args():
    p = argparse.ArgumentParser(description="FSDP2 with CPU offload on one GPU")
    shape = p.add_argument_group("shape; the defaults are Qwen2.5-7B's")
    shape.add_argument("--hidden-size", type=int, default=3584)
    shape.add_argument("--intermediate-size", type=int, default=18944)
    shape.add_argument("--heads", type=int, default=28)
    shape.add_argument("--kv-heads", type=int, default=4)
    shape.add_argument("--head-dim", type=int, default=128)
    shape.add_argument("--vocab-size", type=int, default=152064)
    shape.add_argument("--blocks", type=int, default=8)
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--seq-len", type=int, default=1024)
    p.add_argument("--micro-rows", type=int, default=0, help="rows at once; 0: the most that fit")
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--seconds", type=float, default=120, help="no further step begins after this long")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the script out")
    p.add_argument("--json", metavar="FILE", help="where the result goes; else standard output")
    return p.parse_args()


def model_classes(torch):
    """Modules of a Qwen2-shaped decoder: biases on q, k and v, no others."""
    nn, functional = torch.nn, torch.nn.functional

    class Norm(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x):
            return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-6)

    class Block(nn.Module):
        def __init__(self, a):
            super().__init__()
            self.heads, self.kv_heads, self.dim = a.heads, a.kv_heads, a.head_dim
            width = (a.heads + 2 * a.kv_heads) * a.head_dim
            self.attention_norm, self.mlp_norm = Norm(a.hidden_size), Norm(a.hidden_size)
            self.qkv = nn.Linear(a.hidden_size, width)
            self.out = nn.Linear(a.heads * a.head_dim, a.hidden_size, bias=False)
            self.gate_up = nn.Linear(a.hidden_size, 2 * a.intermediate_size, bias=False)
            self.down = nn.Linear(a.intermediate_size, a.hidden_size, bias=False)

        def forward(self, x, cos, sin):
            rows, length, _ = x.shape
            parts = self.qkv(self.attention_norm(x)).view(rows, length, -1, self.dim).transpose(1, 2)
            q, k, v = parts.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(o.transpose(1, 2).reshape(rows, length, -1))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    def rotate(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    class Decoder(nn.Module):
        def __init__(self, a):
            super().__init__()
            self.embedding = nn.Embedding(a.vocab_size, a.hidden_size)
            self.blocks = nn.ModuleList(Block(a) for _ in range(a.blocks))
            self.norm = Norm(a.hidden_size)
            self.head = nn.Linear(a.hidden_size, a.vocab_size, bias=False)

        def forward(self, ids, cos, sin):
            x = self.embedding(ids)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, cos, sin, use_reentrant=False)
            return self.norm(x)

    return Decoder


class Trainer:
    def __init__(self, torch, a):
        self.torch, self.a = torch, a
        self.device = torch.device(a.device)
        torch.manual_seed(1)
        with torch.device("meta"):
            self.model = model_classes(torch)(a)
        self.shard()
        self.model.to_empty(device="cpu")
        # The same few million random numbers again and again: billions take minutes.
        run = torch.randn(1 << 22) * 0.02
        with torch.no_grad():
            for p in self.model.parameters():
                local = p.to_local() if hasattr(p, "to_local") else p
                if local.dim() < 2:
                    local.fill_(1.0)
                    continue
                for piece in local.view(-1).split(run.numel()):
                    piece.copy_(run[: piece.numel()])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        half = a.head_dim // 2
        frequency = 1e6 ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(a.seq_len, dtype=torch.float32)[:, None] * frequency
        self.cos = angle.cos().to(self.device, torch.bfloat16)
        self.sin = angle.sin().to(self.device, torch.bfloat16)

    def shard(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        torch = self.torch
        mesh = init_device_mesh(self.a.device, (1,))
        offload = CPUOffloadPolicy(pin_memory=True) if self.a.device == "cuda" else OffloadPolicy()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (self.model.embedding, *self.model.blocks, self.model.head):
            fully_shard(part, mesh=mesh, mp_policy=policy, offload_policy=offload)
        fully_shard(self.model, mesh=mesh, mp_policy=policy, offload_policy=offload)

    def loss(self, ids):
        """The sum of the losses of ids (rows, length), logits 4096 tokens at a time."""
        torch, functional = self.torch, self.torch.nn.functional
        x = self.model(ids, self.cos, self.sin)
        x, targets = x[:, :-1].reshape(-1, x.shape[-1]), ids[:, 1:].reshape(-1)

        def piece(x, targets):
            return functional.cross_entropy(self.model.head(x).float(), targets, reduction="sum")

        total = 0.0
        for part, wanted in zip(x.split(4096), targets.split(4096)):
            total = total + torch.utils.checkpoint.checkpoint(piece, part, wanted, use_reentrant=False)
        return total

    def step(self, micro):
        torch, a = self.torch, self.a
        begin = time.perf_counter()
        ids = torch.randint(0, a.vocab_size, (a.rows, a.seq_len), device=self.device)
        pieces = ids.split(micro)
        for i, piece in enumerate(pieces):
            self.model.set_requires_gradient_sync(i + 1 == len(pieces))
            (self.loss(piece) / (a.rows * (a.seq_len - 1))).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.wait()
        return time.perf_counter() - begin

    def wait(self):
        if self.a.device == "cuda":
            self.torch.cuda.synchronize()

    def free(self):
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if self.a.device == "cuda":
            self.torch.cuda.empty_cache()

    def largest_micro(self):
        """The most rows at once with which a step goes through."""
        micro = self.a.micro_rows or self.a.rows
        while True:
            try:
                return micro, self.step(micro)
            except self.torch.OutOfMemoryError:
                if micro == 1 or self.a.micro_rows:
                    raise
            self.free()
            micro = (micro + 1) // 2


def main():
    a = parse_args()
    begin = time.perf_counter()
    import torch
    import torch.distributed
    import torch.utils.checkpoint

    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29577"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    backend = "cpu:gloo,cuda:nccl" if a.device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend)
    with contextlib.ExitStack() as stack:
        stack.callback(torch.distributed.destroy_process_group)
        trainer = Trainer(torch, a)
        micro, first = trainer.largest_micro()
        seconds = []
        for i in range(a.warmup - 1 + a.steps):
            if seconds and time.perf_counter() - begin > a.seconds:
                break
            taken = trainer.step(micro)
            if i >= a.warmup - 1:
                seconds.append(taken)
        result = {
            "system": "FSDP2 with CPU offload",
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if a.device == "cuda" else "cpu",
            "shape": {k: v for k, v in vars(a).items() if k not in ("json", "device", "seconds")},
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "tokens": a.rows * a.seq_len,
            "micro_rows": micro,
            "first_step_s": first,
            "seconds": seconds,
            "peak_device_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else 0,
        }
    text = json.dumps(result, indent=1)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            f.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    sys.exit(main())
