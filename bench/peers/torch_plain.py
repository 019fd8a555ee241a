#!/usr/bin/env python3
"""Plain PyTorch beside `mt bench train --peer torch`: see common.py for what it is handed over
and what it answers. Needs torch, and on the CPU transformers.

On the CPU it is what a careful user writes with Transformers: scaled_dot_product_attention with
the causal flag, gradients set to None, clip_grad_norm_, fused AdamW, nothing recomputed; bf16 is
autocast over fp32 weights. --compile hands the model to torch.compile, which needs a C++ compiler;
without it PyTorch is eager. Every step reads the loss, as a progress line would.

On a GPU, where the model, its gradients and its moments fit: the decoder of common.py under
autocast, blocks checkpointed or not, whichever is faster of those that fit, fused AdamW there.
"""

import contextlib
import sys

import common


class OnCPU(common.Trainer):
    def build(self, _setting, _micro):
        import transformers

        torch, g = self.torch, self.given
        self.model = common.transformers_model(torch, transformers, g, "sdpa")
        self.forward = torch.compile(self.model) if "--compile" in sys.argv else self.model
        self.optimizer = torch.optim.AdamW(g.groups((p, p.dim() > 1) for p in self.model.parameters()), fused=True, **g.adamw())

    def update(self, ids, _micro):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        half = torch.autocast("cpu", dtype=torch.bfloat16) if self.given.dtype == "bf16" else contextlib.nullcontext()
        with half:
            loss = self.forward(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.given.max_grad_norm)
        self.optimizer.step()
        return loss.detach(), norm

    def about(self):
        import transformers

        return {
            "transformers": transformers.__version__,
            "cpu_capability": self.torch.backends.cpu.get_cpu_capability(),
            "mode": "torch.compile" if "--compile" in sys.argv else "eager",
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }


class OnGPU(common.Trainer):
    settings = ({"recompute": False}, {"recompute": True})

    def build(self, setting, _micro):
        torch, g = self.torch, self.given
        with torch.device(self.device):
            self.model = common.decoder(torch, g, setting["recompute"])
        for name, p in self.model.named_parameters():
            g.fill(p, common.stored(g, name))
        self.optimizer = torch.optim.AdamW(g.groups((p, p.dim() > 1) for p in self.model.parameters()), fused=True, **g.adamw())
        self.cos, self.sin = common.tables(torch, g, self.device)

    def update(self, ids, micro):
        torch, g = self.torch, self.given
        self.optimizer.zero_grad(set_to_none=True)
        half = torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=g.dtype == "bf16")
        total = 0.0
        for piece in ids.split(micro):
            with half:
                loss = self.model(piece, self.cos, self.sin) / (g.rows * (g.seq_len - 1))
            loss.backward()
            total = total + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), g.max_grad_norm)
        self.optimizer.step()
        return total, norm

    def about(self):
        return {"parameters": sum(p.numel() for p in self.model.parameters())}


if __name__ == "__main__":
    common.serve(lambda torch, given: (OnGPU if given.device == "cuda" else OnCPU)(torch, given))
