#!/usr/bin/env python3
"""Trains a Llama from random weights with PyTorch and Transformers on the CPU,
as the other side of `mt bench train --peer torch`.

    pip install torch transformers
    python3 bench/peers/torch_cpu.py --preset quickstart --threads 2
    python3 bench/peers/torch_cpu.py --shape shape.json --dtype bf16 --serve

The step is what a careful user writes: scaled_dot_product_attention with the
causal flag, gradients set to None, clip_grad_norm_ 1.0, fused AdamW, nothing
recomputed. Every step reads the loss, as a progress line would. --compile hands the
model to torch.compile, which needs a C++ compiler; without it PyTorch is eager.

Without --serve it does --warmup steps, then --steps timed ones, and prints one
JSON object. With --serve it prints one JSON line that begins with
{"ready": true and then answers each line of standard input with one JSON line:

    run K    {"seconds": [...], "tokens": N, "loss": [...]}    K timed steps
    matmul   {"matmul_gflops": {"512": ...}}
    quit     ends, as the end of the input does

An answer to anything else is {"error": "..."}. Standard output carries nothing
but these lines. Tokens of a step are rows * seq_len: there is no padding.
"""

import argparse
import contextlib
import json
import sys
import time

PRESETS = {
    "quickstart": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 256,
        "rows": 8,
        "seq_len": 256,
    },
    "hidden1024": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "vocab_size": 4096,
        "rows": 4,
        "seq_len": 512,
    },
}
SHAPE_KEYS = list(PRESETS["quickstart"]) + ["head_dim", "tie_word_embeddings", "attention_bias"]
MATMUL_SIZES = (512, 1024, 2048)


def parse_args():
    p = argparse.ArgumentParser(description="Llama training on the CPU with PyTorch")
    p.add_argument("--preset", choices=sorted(PRESETS), default="quickstart")
    p.add_argument("--shape", metavar="FILE", help="JSON object with any of: " + ", ".join(SHAPE_KEYS))
    for key in SHAPE_KEYS:
        p.add_argument("--" + key.replace("_", "-"), type=int)
    p.add_argument("--threads", type=int, default=0, help="0: as PyTorch chooses")
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast over fp32 weights")
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--learning-rate", type=float, default=1e-3)
    p.add_argument("--no-matmul", action="store_true", help="do not measure the matrix product rate")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--serve", action="store_true", help="answer commands on standard input")
    return p.parse_args()


def shape_of(args):
    """The preset, overlaid with the file, overlaid with the flags."""
    shape = dict(PRESETS[args.preset])
    if args.shape:
        with open(args.shape, encoding="utf-8") as f:
            given = json.load(f)
        unknown = sorted(set(given) - set(SHAPE_KEYS))
        if unknown:
            sys.exit(f"{args.shape}: unknown keys {', '.join(unknown)}; known: {', '.join(SHAPE_KEYS)}")
        shape.update(given)
    for key in SHAPE_KEYS:
        value = getattr(args, key)
        if value is not None:
            shape[key] = value
    return shape


class Trainer:
    """A model, its optimizer and a few fixed batches of random tokens."""

    BATCHES = 4

    def __init__(self, torch, shape, args):
        import transformers

        self.torch = torch
        self.dtype = args.dtype
        self.tokens_per_step = shape["rows"] * shape["seq_len"]
        torch.manual_seed(args.seed)
        keys = {k: v for k, v in shape.items() if k not in ("rows", "seq_len", "attention_bias")}
        keys["tie_word_embeddings"] = bool(keys.get("tie_word_embeddings", False))
        # Biases of q, k and v, and no others, are a Qwen2's.
        family = "Qwen2" if shape.get("attention_bias") else "Llama"
        config = getattr(transformers, family + "Config")(
            **keys,
            max_position_embeddings=shape["seq_len"],
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="sdpa",
        )
        self.model = getattr(transformers, family + "ForCausalLM")(config).float().train()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.forward = torch.compile(self.model) if args.compile else self.model
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        self.batches = [
            torch.randint(0, shape["vocab_size"], (shape["rows"], shape["seq_len"])) for _ in range(self.BATCHES)
        ]
        self.done = 0

    def autocast(self):
        if self.dtype == "bf16":
            return self.torch.autocast("cpu", dtype=self.torch.bfloat16)
        return contextlib.nullcontext()

    def step(self):
        """One optimizer update; returns its seconds and its loss."""
        batch = self.batches[self.done % self.BATCHES]
        self.done += 1
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.forward(input_ids=batch, labels=batch).loss
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        value = loss.item()
        return time.perf_counter() - start, value

    def run(self, steps):
        timed = [self.step() for _ in range(steps)]
        return {
            "seconds": [t for t, _ in timed],
            "tokens": steps * self.tokens_per_step,
            "loss": [v for _, v in timed],
        }


def matmul_gflops(torch, dtype):
    """GFLOP/s of square products: the best of five, each of about 50 ms."""
    rates = {}
    for n in MATMUL_SIZES:
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        a = torch.randn(n, n).to(kind)
        b = torch.randn(n, n).to(kind)
        out = torch.empty(n, n, dtype=kind)
        torch.mm(a, b, out=out)
        repeats = max(1, int(1e10 / (2 * n**3)))
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(repeats):
                torch.mm(a, b, out=out)
            best = min(best, (time.perf_counter() - start) / repeats)
        rates[str(n)] = 2 * n**3 / best / 1e9
    return rates


def answer(trainer, torch, line):
    """The reply to one line of input."""
    words = line.split()
    if words == ["matmul"]:
        return {"matmul_gflops": matmul_gflops(torch, trainer.dtype)}
    if len(words) == 2 and words[0] == "run" and words[1].isdigit():
        return trainer.run(int(words[1]))
    return {"error": f"{line.strip()!r} is none of: run K, matmul, quit"}


def main():
    args = parse_args()
    shape = shape_of(args)
    out, sys.stdout = sys.stdout, sys.stderr  # libraries that print must not break the protocol

    def emit(obj):
        print(json.dumps(obj), file=out, flush=True)

    try:
        import torch
        import transformers
    except ImportError as e:
        sys.exit(f"torch_cpu.py: {e}; pip install torch transformers")
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)

    trainer = Trainer(torch, shape, args)
    about = {
        "ready": True,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "dtype": args.dtype,
        "mode": "torch.compile" if args.compile else "eager",
        "shape": shape,
        "parameters": trainer.parameters,
        "tokens_per_step": trainer.tokens_per_step,
    }
    if not args.no_matmul:
        about["matmul_gflops"] = matmul_gflops(torch, args.dtype)
    trainer.run(args.warmup)

    if not args.serve:
        del about["ready"]
        timed = trainer.run(args.steps)
        emit({**about, **timed, "tok_per_s": [trainer.tokens_per_step / s for s in timed["seconds"]]})
        return
    emit(about)
    for line in sys.stdin:
        if line.split() == ["quit"]:
            return
        if line.strip():
            emit(answer(trainer, torch, line))


if __name__ == "__main__":
    main()
