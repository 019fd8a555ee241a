#!/usr/bin/env python3
"""Train recorded runs with mt, and print how far each is from what PyTorch and Transformers recorded.

    tools/families.py MT DIR...

MT is the program. A DIR holds cases as make.py beside the recordings writes them: model/, train.jsonl,
recipe.json, expected.json, logits.safetensors; those without logits are passed over. Each is trained on the
CPU in fp32 and in bf16. The table in bench/reports/families.md is what this prints: the largest relative differences of
losses and of gradient norms over all steps, and how much of the recording's own bound that is. Needs nothing but Python.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

KEYS = ["max_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"]


def train(mt, case, dtype):
    """The steps that mt makes of a case: their losses and norms."""
    recipe = json.loads((case / "recipe.json").read_text())
    with tempfile.TemporaryDirectory() as out:
        keys = {k: recipe[k] for k in KEYS} | {
            "model_name_or_path": case / "model", "dataset": case / "train.jsonl", "output_dir": f"{out}/out", "cache_dir": f"{out}/cache", "per_device_train_batch_size": recipe["rows_per_step"],
            "shuffle": "false", "packing": "false", "logging_steps": 1, "save_strategy": "no", "device": "cpu", "compute_dtype": dtype}
        args = [x for k, v in keys.items() for x in ("--" + k, str(v))]
        subprocess.run([mt, "train", *args], check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in open(f"{out}/out/metrics.jsonl", encoding="utf-8")]
    return [line for line in lines if "loss" in line]


def worst(got, want, key):
    return max(abs(g[key] - w[key]) / max(abs(w[key]), 1e-9) for g, w in zip(got, want, strict=True))


def row(mt, case):
    expected = json.loads((case / "expected.json").read_text())
    config = json.loads((case / "model" / "config.json").read_text())
    cells = [config["architectures"][0], case.name]
    for dtype in ("fp32", "bf16"):
        steps = train(mt, case, dtype)
        for key in ("loss", "grad_norm"):
            off, bound = worst(steps, expected["steps"], key), expected["bounds"][dtype][key]
            cells.append(f"{off:.1e} ({100 * off / bound:.0f} %)")
    return cells


def main():
    mt, folders = sys.argv[1], sys.argv[2:]
    print("| class | recording | loss, fp32 | norm, fp32 | loss, bf16 | norm, bf16 |\n| --- | --- | --- | --- | --- | --- |")
    cases = sorted((p.parent for d in folders for p in pathlib.Path(d).glob("*/logits.safetensors")), key=lambda c: c.name)
    for case in cases:
        try:
            print("| " + " | ".join(row(mt, case.resolve())) + " |", flush=True)
        except subprocess.CalledProcessError as e:
            print(f"{case}: {e.stderr.strip().splitlines()[-1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
