#!/usr/bin/env python3
"""DeepSpeed's ZeRO-3 with CPU offload beside `mt bench train --peer zero3`: see common.py for what
it is handed over and what it answers. Needs torch, deepspeed and, for its CPUAdam, a C++ compiler.

The settings are those of DeepSpeed's guide to ZeRO-3 and of Transformers' "auto" values: optimizer
and parameters offloaded to pinned memory, overlap_comm, contiguous_gradients, sub_group_size 1e9,
reduce_bucket_size hidden^2, stage3_prefetch_bucket_size 0.9 hidden^2,
stage3_param_persistence_threshold 10 hidden, stage3_max_live_parameters and _max_reuse_distance 1e9,
CPUAdam; every block checkpointed, scaled_dot_product_attention. Two settings are tried: parameters
on the host, as for a model that the GPU does not hold, and parameters on the GPU where it holds
them; and for each the most rows at once that fit. The fastest runs.

On the CPU, to see that it computes the same, the accelerator is DeepSpeed's CPU.
"""

import os
import sys

import common


class ZeRO3(common.Trainer):
    def __init__(self, torch, given):
        if given.device == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        (self.deepspeed,) = common.need("deepspeed")
        common.process_group(torch, "nccl" if given.device == "cuda" else "gloo")
        self.deepspeed.init_distributed(dist_backend="nccl" if given.device == "cuda" else "gloo", auto_mpi_discovery=False)
        if given.device == "cuda":
            self.settings = ({"params_on_gpu": False}, {"params_on_gpu": True})
        super().__init__(torch, given)

    def config(self, setting, micro):
        g = self.given
        pinned = {"device": "cpu", "pin_memory": g.device == "cuda"}
        zero = {
            "stage": 3,
            "offload_optimizer": pinned,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": int(1e9),
            "reduce_bucket_size": g.hidden_size**2,
            "stage3_prefetch_bucket_size": int(0.9 * g.hidden_size**2),
            "stage3_param_persistence_threshold": 10 * g.hidden_size,
            "stage3_max_live_parameters": int(1e9),
            "stage3_max_reuse_distance": int(1e9),
        }
        if not setting.get("params_on_gpu"):
            zero["offload_param"] = pinned
        return {
            "train_batch_size": g.rows,
            "train_micro_batch_size_per_gpu": micro,
            "gradient_accumulation_steps": g.rows // micro,
            "gradient_clipping": g.max_grad_norm,
            "zero_optimization": zero,
            "bf16": {"enabled": g.dtype == "bf16"},
            "zero_allow_untested_optimizer": False,
        }

    def build(self, setting, micro):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        torch, g = self.torch, self.given
        if g.rows % micro:
            raise torch.OutOfMemoryError(f"{g.rows} rows are not divided by {micro}")
        self.model = common.decoder(torch, g, recompute=True)
        named = []
        for name, p in self.model.named_parameters():
            g.fill(p, common.stored(g, name))
            named.append((p, p.dim() > 1))
        self.parameters = sum(p.numel() for p, _ in named)
        optimizer = DeepSpeedCPUAdam(g.groups(named), adamw_mode=True, **g.adamw())
        self.engine, self.optimizer, _, _ = self.deepspeed.initialize(
            model=self.model, optimizer=optimizer, config=self.config(setting, micro), dist_init_required=False
        )
        self.cos, self.sin = common.tables(torch, g, self.device)

    def update(self, ids, micro):
        g, total = self.given, 0.0
        for piece in ids.split(micro):
            # The engine divides by the number of micro-batches, which have equal numbers of rows.
            loss = self.engine(piece, self.cos, self.sin) / (micro * (g.seq_len - 1))
            self.engine.backward(loss)
            self.engine.step()
            total = total + loss.detach() * (micro / g.rows)
        return total, self.engine.get_global_grad_norm()

    def tear_down(self):
        if getattr(self, "engine", None) is not None:
            self.engine.destroy()
        super().tear_down()

    def about(self):
        return {"deepspeed": self.deepspeed.__version__, "parameters": self.parameters}


if __name__ == "__main__":
    common.serve(ZeRO3)
