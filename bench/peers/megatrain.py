#!/usr/bin/env python3
"""MegaTrain's public code (github.com/DLYuanGod/MegaTrain, arXiv 2604.05091) beside `mt bench train
--peer megatrain`: see common.py for what it is handed over and what it answers. Needs torch,
transformers, MegaTrain (the package `infinity`) and deepspeed for CPUAdam, as its guide has it;
flash-attn where it is installed, else scaled_dot_product_attention.

The step is that of its examples/sft/train.py: forward_and_backward, clip_grad_norm_, CPUAdam, weights
synchronised to the GPU's copies. It keeps weights and gradients on the host in the dtype that the
model is loaded in, which its examples make bf16: there is no fp32 copy, and an update is rounded to
bf16. That is a lighter step than the fp32 one beside it, and losses drift apart over many steps.
Tried are checkpoints every 4 blocks, its default, and every block; and for each the most rows at once
that fit. Where these are not all, gradients are divided by the number of parts, which its own script
leaves out.
"""

import importlib.util

import common


class MegaTrain(common.Trainer):
    settings = ({"checkpoint_interval": 4}, {"checkpoint_interval": 1})

    def __init__(self, torch, given):
        self.infinity, self.transformers = common.need("infinity", "transformers")
        if given.dtype != "bf16":
            raise SystemExit("MegaTrain computes in bf16: compare with --dtype bf16")
        if given.device == "cpu":
            self.settings = self.settings[:1]
        super().__init__(torch, given)

    def build(self, setting, micro):
        torch, g = self.torch, self.given
        attention = "flash_attention_2" if importlib.util.find_spec("flash_attn") else "sdpa"
        model = common.transformers_model(torch, self.transformers, g, attention).to(torch.bfloat16)
        config = self.infinity.CPUMasterConfig(
            model_name="handed over",
            dataset_path="handed over",
            max_seq_len=g.seq_len,
            batch_size=micro,
            dtype=torch.bfloat16,
            attn_implementation=attention,
            num_grad_slabs=12,
            **setting,
        )
        self.attention = attention
        self.model = self.infinity.CPUMasterModel(model, config)
        named = [(p, p.dim() > 1) for p in self.model.get_parameters()]
        self.parameters = sum(p.numel() for p, _ in named)
        if g.device == "cpu":
            self.optimizer = torch.optim.AdamW(g.groups(named), **g.adamw())
            return
        common.need("deepspeed")
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        self.optimizer = DeepSpeedCPUAdam(g.groups(named), adamw_mode=True, **g.adamw())

    def update(self, ids, micro):
        torch, g, total = self.torch, self.given, 0.0
        ids = ids.cpu()
        pieces = ids.split(micro)
        for piece in pieces:
            loss, _, _ = self.model.forward_and_backward(piece, torch.ones_like(piece), piece)
            total += loss * len(piece) / g.rows
        parameters = self.model.get_parameters()
        if len(pieces) > 1:
            torch._foreach_div_([p.grad for p in parameters], float(len(pieces)))
        norm = torch.nn.utils.clip_grad_norm_(parameters, g.max_grad_norm)
        self.optimizer.step()
        self.model._sync_params_to_gpu()
        self.model.zero_grad()
        self.optimizer.zero_grad()
        return total, norm

    def tear_down(self):
        if getattr(self, "model", None) is not None:
            self.model.cleanup()
        super().tear_down()

    def about(self):
        return {"attention": self.attention, "parameters": self.parameters, "weights": "bf16, without an fp32 copy"}


if __name__ == "__main__":
    common.serve(MegaTrain)
