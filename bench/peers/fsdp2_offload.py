#!/usr/bin/env python3
"""PyTorch's FSDP2 with CPU offload beside `mt bench train --peer fsdp2`: see common.py for what it
is handed over and what it answers. Needs torch alone.

What it does is what PyTorch's documentation recommends for a model that the GPU does not hold:
fully_shard on every block and on the whole, CPUOffloadPolicy with pinned memory, parameters and
moments in fp32 on the host, bf16 for computation, gradients reduced in fp32, every block
checkpointed, scaled_dot_product_attention, clip_grad_norm_, fused AdamW on the host. Gradients stay
on the GPU's side until the last micro-batch (set_requires_gradient_sync). The embedding and the head,
the two largest tensors, stay on the GPU from the first micro-batch to the last. Two settings are tried: blocks that are uploaded for each pass
over a micro-batch, and blocks that stay on the GPU for the whole step where it holds them; and for
each the most rows at once that fit. The fastest runs.

On the CPU, to see that it computes the same, nothing is offloaded anywhere.
"""

import common


class FSDP2(common.Trainer):
    def __init__(self, torch, given):
        common.process_group(torch, "cpu:gloo,cuda:nccl" if given.device == "cuda" else "gloo")
        if given.device == "cuda":
            self.settings = ({"blocks_stay": False}, {"blocks_stay": True})
        super().__init__(torch, given)

    def build(self, setting, _micro):
        torch, g = self.torch, self.given
        with torch.device("meta"):
            self.model = common.decoder(torch, g, recompute=True)
        names = [n for n, _ in self.model.named_parameters()]
        self.shard(setting.get("blocks_stay", False))
        self.model.to_empty(device="cpu")
        for name, p in zip(names, self.model.parameters()):
            g.fill(p.to_local(), common.stored(g, name))
        self.optimizer = torch.optim.AdamW(g.groups((p, p.dim() > 1) for p in self.model.parameters()), fused=True, **g.adamw())
        self.cos, self.sin = common.tables(torch, g, self.device)

    def shard(self, stay):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        mesh = init_device_mesh(self.given.device, (1,))
        how = {
            "mesh": mesh,
            "mp_policy": MixedPrecisionPolicy(param_dtype=self.given.compute(), reduce_dtype=self.torch.float32),
            "offload_policy": CPUOffloadPolicy(pin_memory=True) if self.given.device == "cuda" else OffloadPolicy(),
        }
        for part in self.model.blocks:
            fully_shard(part, reshard_after_forward=not stay, **how)
        for part in (self.model.embedding, self.model.head):
            fully_shard(part, reshard_after_forward=False, **how)
        fully_shard(self.model, reshard_after_forward=not stay, **how)
        self.stay = stay

    def update(self, ids, micro):
        torch, g = self.torch, self.given
        pieces, total = ids.split(micro), 0.0
        for i, piece in enumerate(pieces):
            last = i + 1 == len(pieces)
            self.model.set_requires_gradient_sync(last)
            self.model.set_reshard_after_backward(last or not self.stay)
            for part in (self.model.embedding, self.model.head):
                part.set_reshard_after_backward(last, recurse=False)
            loss = self.model(piece, self.cos, self.sin) / (g.rows * (g.seq_len - 1))
            loss.backward()
            total = total + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), g.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total, norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def about(self):
        return {"parameters": sum(p.numel() for p in self.model.parameters())}


if __name__ == "__main__":
    common.serve(FSDP2)
