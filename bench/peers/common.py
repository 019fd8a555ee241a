#!/usr/bin/env python3
"""What the systems that train beside `mt bench train` share: what they are handed over, a
decoder, the step around it, and the protocol.

`mt` makes a folder and starts `python3 FOLDER/SYSTEM.py FOLDER`. The folder has

    handover.json   shape, recipe, precision, threads, device, steps of the warm-up
    weights.f32     a table of random numbers. A matrix that a checkpoint calls NAME has
                    table[(crc32(NAME) + i) mod length] at its element i, row by row; norms
                    are 1 and biases 0
    batches.i32     token ids, batch by batch and row by row; step s takes batch (s-1) mod
                    their number

The script does the warm-up and prints one JSON line, {"ready": true, "loss": [...],
"grad_norm": [...], ...}, then answers each line of its input with one JSON line:

    run K    {"seconds": [...], "tokens": N, "loss": [...], "grad_norm": [...]}
    quit     ends, as the end of the input does

Losses are means over the predicted tokens of a step (seq_len - 1 of each row), norms those
of all gradients before they are clipped. `mt` compares both with its own, step by step. Tokens
of a step are rows * seq_len: there is no padding. Standard output carries nothing else.
"""

import gc
import json
import os
import pathlib
import sys
import time
import zlib


def need(*names):
    """Imports modules, or ends with what is missing."""
    import importlib

    try:
        return [importlib.import_module(n) for n in names]
    except ImportError as e:
        sys.exit(f"{e}")


class Given:
    """What was handed over; the keys of handover.json are attributes, those of shape too."""

    def __init__(self, torch, folder):
        self.torch = torch
        folder = pathlib.Path(folder)
        self.about = json.loads((folder / "handover.json").read_text(encoding="utf-8"))
        self.__dict__.update(self.about["shape"])
        self.__dict__.update(self.about)
        self.attention_bias = bool(self.about["shape"].get("attention_bias"))
        self.values = torch.from_file(str(folder / "weights.f32"), size=self.table, dtype=torch.float32)
        count = self.batches * self.rows * self.seq_len
        ids = torch.from_file(str(folder / "batches.i32"), size=count, dtype=torch.int32)
        self.ids = ids.view(self.batches, self.rows, self.seq_len)

    def batch(self, step):
        """The ids of a step, counted from 1: (rows, seq_len) int64."""
        return self.ids[(step - 1) % self.batches].long()

    def fill(self, tensor, names):
        """Fills tensor with the checkpoint tensors of those (name, rows), one below the other."""
        with self.torch.no_grad():
            if tensor.dim() < 2:
                tensor.fill_(0.0 if names[0][0].endswith("bias") else 1.0)
                return
            flat, done = tensor.view(-1), 0
            for name, rows in names:
                at, left = zlib.crc32(name.encode()) % self.table, rows * tensor.shape[1]
                while left:
                    n = min(left, self.table - at)
                    flat[done : done + n].copy_(self.values[at : at + n])
                    done, left, at = done + n, left - n, 0

    def groups(self, named):
        """Parameters in AdamW's two groups: matrices decay, vectors do not. named yields
        (parameter, whether it is a matrix)."""
        named = list(named)
        return [
            {"params": [p for p, matrix in named if matrix], "weight_decay": self.weight_decay},
            {"params": [p for p, matrix in named if not matrix], "weight_decay": 0.0},
        ]

    def adamw(self):
        return {"lr": self.learning_rate, "betas": (self.adam_beta1, self.adam_beta2), "eps": self.adam_epsilon}

    def compute(self):
        return self.torch.bfloat16 if self.dtype == "bf16" else self.torch.float32


def decoder(torch, given, recompute):
    """A decoder of the given shape: a Llama, or with attention_bias a Qwen2. Its forward takes
    ids (rows, length) and returns the sum of their losses. With recompute every block is
    checkpointed. The head computes its logits 4096 tokens at a time inside its own forward, so
    that what gathers or uploads its weights does so once for all of them."""
    nn, functional, checkpoint = torch.nn, torch.nn.functional, torch.utils.checkpoint.checkpoint
    g = given

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(g.hidden_size))

        def forward(self, x):
            return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), g.rms_norm_eps)

    def rotate(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.split = (g.num_attention_heads, g.num_key_value_heads, g.num_key_value_heads)
            self.attention_norm, self.mlp_norm = Norm(), Norm()
            self.qkv = nn.Linear(g.hidden_size, sum(self.split) * g.head_dim, bias=g.attention_bias)
            self.out = nn.Linear(g.num_attention_heads * g.head_dim, g.hidden_size, bias=False)
            self.gate_up = nn.Linear(g.hidden_size, 2 * g.intermediate_size, bias=False)
            self.down = nn.Linear(g.intermediate_size, g.hidden_size, bias=False)

        def forward(self, x, cos, sin):
            rows, length, _ = x.shape
            parts = self.qkv(self.attention_norm(x)).view(rows, length, -1, g.head_dim).transpose(1, 2)
            q, k, v = parts.split(self.split, dim=1)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(o.transpose(1, 2).reshape(rows, length, -1))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()
            self.proj = nn.Linear(g.hidden_size, g.vocab_size, bias=False)

        def forward(self, x, targets):
            weight = self.proj.weight

            def piece(x, targets):
                logits = functional.linear(x, weight.to(x.dtype)).float()
                return functional.cross_entropy(logits, targets, reduction="sum")

            x, total = self.norm(x), 0.0
            for part, wanted in zip(x.split(4096), targets.split(4096)):
                total = total + checkpoint(piece, part, wanted, use_reentrant=False)
            return total

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(g.vocab_size, g.hidden_size)
            self.blocks = nn.ModuleList(Block() for _ in range(g.num_hidden_layers))
            self.head = Head()

        def forward(self, ids, cos, sin):
            x = self.embedding(ids).to(cos.dtype)
            for block in self.blocks:
                x = checkpoint(block, x, cos, sin, use_reentrant=False) if recompute else block(x, cos, sin)
            return self.head(x[:, :-1].reshape(-1, x.shape[-1]), ids[:, 1:].reshape(-1))

    return Decoder()


def stored(given, name):
    """The checkpoint tensors (name, rows) that parameter name of a decoder is made of."""
    g = given
    heads, kv = g.num_attention_heads * g.head_dim, g.num_key_value_heads * g.head_dim
    parts = {
        "attention_norm": [("input_layernorm", 1)],
        "mlp_norm": [("post_attention_layernorm", 1)],
        "qkv": [("self_attn.q_proj", heads), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)],
        "out": [("self_attn.o_proj", g.hidden_size)],
        "gate_up": [("mlp.gate_proj", g.intermediate_size), ("mlp.up_proj", g.intermediate_size)],
        "down": [("mlp.down_proj", g.hidden_size)],
    }
    whole = {
        "embedding.weight": [("model.embed_tokens.weight", g.vocab_size)],
        "head.norm.weight": [("model.norm.weight", 1)],
        "head.proj.weight": [("lm_head.weight", g.vocab_size)],
    }
    if name in whole:
        return whole[name]
    _, block, part, kind = name.split(".")
    return [(f"model.layers.{block}.{n}.{kind}", rows) for n, rows in parts[part]]


def transformers_model(torch, transformers, given, attention):
    """The given model as Transformers has it, filled, in fp32 and on the CPU."""
    g = given
    # A Qwen2 has biases of q, k and v only.
    family = "Qwen2" if g.attention_bias else "Llama"
    config = getattr(transformers, family + "Config")(
        **{k: v for k, v in g.about["shape"].items() if k not in ("rows", "seq_len", "attention_bias", "head_dim")},
        head_dim=g.head_dim,
        rms_norm_eps=g.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": g.rope_theta},
        tie_word_embeddings=False,
        max_position_embeddings=g.seq_len,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
    )
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # before Transformers 5
        from transformers.modeling_utils import no_init_weights
    with no_init_weights():  # takes minutes for billions of weights, which are filled anyway
        model = getattr(transformers, family + "ForCausalLM")(config).float().train()
    for name, p in model.named_parameters():
        g.fill(p, [(name, p.shape[0])])
    return model


def tables(torch, given, device):
    """Cosines and sines of the rotary positions, each (seq_len, head_dim/2) in compute dtype."""
    half = given.head_dim // 2
    frequency = given.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(given.seq_len, dtype=torch.float32)[:, None] * frequency
    return angle.cos().to(device, given.compute()), angle.sin().to(device, given.compute())


class Trainer:
    """A system. It says in `settings` which of its own settings are to be tried, and does in
    `build(setting, micro)` what is done once, and in `update(ids, micro)` one step: it returns
    the loss and the norm."""

    settings = ({},)

    def __init__(self, torch, given):
        self.torch, self.given, self.steps = torch, given, 0
        self.device = torch.device(given.device)
        self.setting, self.micro, self.tried = None, given.rows, []
        self.choose()

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def step(self):
        """One step; returns its seconds, loss and norm."""
        self.steps += 1
        ids = self.given.batch(self.steps)
        self.wait()
        begin = time.perf_counter()
        loss, norm = self.update(ids.to(self.device), self.micro)
        loss, norm = float(loss), float(norm)
        self.wait()
        return time.perf_counter() - begin, loss, norm

    def choose(self):
        """Builds the system with its fastest setting and, for each, the most rows at once that
        the device holds. Where there is nothing to choose, no step is run for it."""
        best = None
        if "chosen" in self.given.about:  # by an earlier process of the same comparison
            chosen = self.given.about["chosen"]
            self.setting, self.micro = chosen["setting"], chosen["micro_rows"]
            self.tear_down()
            self.build(self.setting, self.micro)
            return
        for setting in self.settings:
            seconds = self.largest(setting, time_it=len(self.settings) > 1)
            if seconds is not None:
                self.tried.append({"setting": setting, "micro_rows": self.micro, "seconds": seconds})
                if best is None or seconds < best[0]:
                    best = (seconds, setting, self.micro)
        if best is None:
            raise MemoryError("not even one row at once fits the device")
        _, self.setting, self.micro = best
        # Weights and moments as at the start, after any trials.
        self.tear_down()
        self.build(self.setting, self.micro)
        self.steps = 0

    def largest(self, setting, time_it):
        """The seconds of a step with the most rows at once, a power of two or all, that fit;
        None where one row does not. On the CPU all rows go at once."""
        micro = self.given.rows
        while True:
            self.tear_down()
            self.micro = micro
            try:
                self.build(setting, micro)
                if self.device.type == "cpu" and not time_it:
                    return 0.0
                first, _, _ = self.step()
                return self.step()[0] if time_it else first
            except self.torch.OutOfMemoryError:
                pass
            if micro == 1:
                return None
            micro = 1 << ((micro - 1).bit_length() - 1)

    def tear_down(self):
        """Gives back what build has made."""
        for name in ("model", "optimizer", "engine"):
            setattr(self, name, None)
        gc.collect()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def run(self, steps):
        done = [self.step() for _ in range(steps)]
        return {
            "seconds": [d[0] for d in done],
            "tokens": steps * self.given.rows * self.given.seq_len,
            "loss": [d[1] for d in done],
            "grad_norm": [d[2] for d in done],
        }

    def about(self):
        """What the system says of itself, beside what every one says."""
        return {}


def process_group(torch, backend):
    """A group of this process alone."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(port)), ("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, value)
    torch.distributed.init_process_group(backend)


def serve(make):
    """The whole script: make(torch, given) is the trainer."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries and compilers that print must not break the protocol
    sys.stdout = sys.stderr

    def emit(obj):
        print(json.dumps(obj), file=out, flush=True)

    about = json.loads((pathlib.Path(sys.argv[1]) / "handover.json").read_text(encoding="utf-8"))
    os.environ.setdefault("OMP_NUM_THREADS", str(about["threads"]))  # CPUAdam's threads, read when it is loaded
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # larger micro-batches fit
    (torch,) = need("torch")
    import torch.utils.checkpoint

    given = Given(torch, sys.argv[1])
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU (torch.cuda.is_available() is false)")
    torch.set_num_threads(given.threads)
    trainer = make(torch, given)
    warm = trainer.run(given.warmup)
    emit({
        "ready": True,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "dtype": given.dtype,
        "micro_rows": trainer.micro,
        "setting": trainer.setting,
        "tried": trainer.tried,
        "warmup_seconds": warm["seconds"],
        "loss": warm["loss"],
        "grad_norm": warm["grad_norm"],
        "peak_device_bytes": torch.cuda.max_memory_allocated() if given.device == "cuda" else 0,
        **trainer.about(),
    })
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        if len(words) == 2 and words[0] == "run" and words[1].isdigit():
            emit(trainer.run(int(words[1])))
        elif words:
            emit({"error": f"{line.strip()!r} is none of: run K, quit"})
    # Process groups and pinned memory end with the process. Releasing them one by one is slow.
    out.flush()
    os._exit(0)
