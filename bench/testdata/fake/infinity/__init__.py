"""Stands for MegaTrain's package of that name in a test: the same functions, on the CPU, made of the
model it is given."""

import dataclasses

import torch


@dataclasses.dataclass
class CPUMasterConfig:
    model_name: str
    dataset_path: str
    max_seq_len: int
    batch_size: int
    dtype: torch.dtype
    attn_implementation: str
    checkpoint_interval: int
    num_grad_slabs: int


class CPUMasterModel:
    def __init__(self, hf_model, config):
        assert config.batch_size > 0 and config.num_grad_slabs >= 2 * config.checkpoint_interval
        self.model = hf_model

    def get_parameters(self):
        return list(self.model.parameters())

    def forward_and_backward(self, input_ids, attention_mask, labels):
        loss = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss
        loss.backward()
        return loss.item(), input_ids.numel(), {}

    def _sync_params_to_gpu(self):
        pass

    def zero_grad(self):
        for p in self.get_parameters():
            p.grad.zero_()

    def cleanup(self):
        pass
