#!/usr/bin/env python3
"""Record small runs on pairs of answers with TRL's DPOTrainer, for TestPreferenceRecordings.

    pip install torch transformers trl accelerate datasets psutil
    python make_dpo.py [CASE ...]     # writes the folders beside this file anew

Each case becomes a folder as make.py has them, with pairs (prompt, chosen, rejected) in train.jsonl, `dpo` in recipe.json,
and in expected.json what TRL logs of a step: rewards and log-probabilities. The tokenizer has the 256 bytes and three
special tokens. The loss of a step is the mean over its pairs; TRL's grad_norm is that before clipping.

TRL has no rpo_alpha any more; its loss types sigmoid and sft with weights 1 and rpo_alpha are the same.
"""
import json, os, random, shutil, sys, tempfile
import torch, transformers, trl
from datasets import Dataset
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from make import BASE, HERE, RECIPE, SCHEDULES, deviations

CASES = {
    "dpo-sigmoid": (dict(tie_word_embeddings=False), dict(), dict(loss_type="sigmoid", beta=0.3)),
    "dpo-rpo-tied": (dict(tie_word_embeddings=True), dict(), dict(loss_type="sigmoid", beta=0.2, rpo_alpha=0.7)),
    "dpo-ipo": (dict(tie_word_embeddings=False), dict(max_grad_norm=1e9), dict(loss_type="ipo", beta=0.4)),
    "dpo-hinge": (dict(tie_word_embeddings=True), dict(), dict(loss_type="hinge", beta=0.5)),
}
LOGGED = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]


def make_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(["<pad>", "<s>", "</s>"] + alphabet)}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def make_rows(n, seed):
    r = random.Random(seed)
    text = lambda lo, hi: "".join(r.choice("abcdef ghij") for _ in range(r.randrange(lo, hi)))
    return [{"prompt": text(1, 9), "chosen": text(1, 14), "rejected": text(1, 14)} for _ in range(n)]


class Sequential(trl.DPOTrainer):
    """Takes rows in their order, and notes unrounded figures."""
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, *args, **kwargs):
        out = super().compute_loss(*args, **kwargs)
        loss = out[0] if isinstance(out, tuple) else out
        self.noted.append({"loss": loss.item(), **{k: self._metrics["train"][k][-1] for k in LOGGED}})
        return out


def train(model_dir, rows, rec, dtype):
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype, attn_implementation="eager")
    m, dpo = load(), rec["dpo"]
    kinds, weights = [dpo["loss_type"]], [1.0]
    if dpo.get("rpo_alpha"):
        kinds, weights = kinds + ["sft"], weights + [dpo["rpo_alpha"]]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in m.parameters() if p.ndim >= 2], "weight_decay": rec["weight_decay"]},
         {"params": [p for p in m.parameters() if p.ndim < 2], "weight_decay": 0.0}],
        lr=rec["learning_rate"], betas=(rec["adam_beta1"], rec["adam_beta2"]), eps=rec["adam_epsilon"])
    schedule = SCHEDULES[rec["lr_scheduler_type"]](optimizer, rec["warmup_steps"], rec["max_steps"])
    with tempfile.TemporaryDirectory() as out:
        args = trl.DPOConfig(output_dir=out, per_device_train_batch_size=rec["rows_per_step"], gradient_accumulation_steps=1, max_steps=rec["max_steps"],
            beta=dpo["beta"], loss_type=kinds, loss_weights=weights, max_grad_norm=rec["max_grad_norm"], logging_steps=1, report_to="none", bf16=False,
            gradient_checkpointing=False, use_cpu=True, save_strategy="no", max_length=None, disable_tqdm=True)
        t = Sequential(model=m, ref_model=load(), args=args, train_dataset=Dataset.from_list(rows), optimizers=(optimizer, schedule),
            processing_class=transformers.AutoTokenizer.from_pretrained(model_dir))
        t.noted = []
        t.train()
        logs = [l for l in t.state.log_history if "grad_norm" in l]
    steps = [{"step": i + 1, "grad_norm": l["grad_norm"], "lr": l["learning_rate"], **n} for i, (l, n) in enumerate(zip(logs, t.noted))]
    assert len(steps) == rec["max_steps"] == len(t.noted)
    return steps, m


def record(name):
    shape, recipe, dpo = CASES[name]
    rec = {**RECIPE, **dict(max_steps=10, learning_rate=2e-2), **recipe, "dpo": dpo}
    to = os.path.join(HERE, name)
    shutil.rmtree(to, ignore_errors=True)
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**{**BASE, **shape, "vocab_size": 259})
    m = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    initial = {k: v.clone() for k, v in m.state_dict().items()}
    model_dir = os.path.join(to, "model")
    m.save_pretrained(model_dir)
    make_tokenizer().save_pretrained(model_dir)
    rows = make_rows(rec["rows_per_step"] * rec["max_steps"], 5)
    single, double = train(model_dir, rows, rec, torch.float32), train(model_dir, rows, rec, torch.float64)
    off = deviations(single, double, initial)
    bounds = {"loss": max(8 * off["loss"], 2e-5), "grad_norm": max(8 * off["grad_norm"], 2e-4), "weights": max(8 * off["weights"], 2e-3)}
    with open(os.path.join(to, "train.jsonl"), "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    for file, content in {"recipe.json": rec, "expected.json": {"torch": torch.__version__, "transformers": transformers.__version__,
                          "trl": trl.__version__, "bounds": {"fp32": bounds}, "steps": single[0]}}.items():
        with open(os.path.join(to, file), "w") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    with tempfile.TemporaryDirectory() as t:
        single[1].save_pretrained(t)
        shutil.move(os.path.join(t, "model.safetensors"), os.path.join(to, "final.safetensors"))
    assert len(load_file(os.path.join(to, "final.safetensors"))) > 10
    os.remove(os.path.join(model_dir, "generation_config.json"))
    losses, norms = [s["loss"] for s in single[0]], [s["grad_norm"] for s in single[0]]
    print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, norm {min(norms):.3g} to {max(norms):.3g}; fp32 off fp64 by", off)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in sys.argv[1:] or CASES:
        record(case)
