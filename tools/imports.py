#!/usr/bin/env python3
"""Runs `mt import` over the example configs of other trainers, and prints what became of each.

    tools/imports.py MT DIR

MT is the program. DIR holds checkouts of LLaMA-Factory, axolotl, torchtune, TRL, alignment-handbook, open-r1 and axolotl-cookbook
under these names (the folders examples and recipes are enough); one that is absent is left out. The tables in bench/reports/imported-configs.md
are what this prints. Needs nothing but Python.

Every config that is written is planned with a model of mt's own, and its data keys read a chat of one row: so a template or a
key that mt import writes and mt cannot load is a failure here.

A config counts as training of a text model's own weights, all or some, on text or on pairs of answers (DPO), unless it
asks for adapters, quantised weights to train on, rewards or other losses of preferences, or reads images; each of these is
told by a key, which TOOLS names.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# By tool: the folder, patterns of files, and patterns of lines that mark a config of another kind.
TOOLS = [
    ("LLaMA-Factory", ["examples/train_full/*.yaml", "examples/extras/*/*.yaml", "examples/v1/train_full/*.yaml", "examples/v1/train_freeze/*.yaml"],
     r"^(finetuning_type: (?!full|freeze)\w+|image_max_pixels|adapter_name_or_path:.*|do_predict: true|model_class: (?!llm)\w+|train_dataset: .*multimodal.*)|\A(?!(.|\n)*model)"),
    ("axolotl", ["examples/**/*.yaml", "examples/**/*.yml"],
     r"^((adapter|rl(?!: *(dpo|ipo)\b)|reward_model|process_reward_model|diffusion|ebft|processor_type|lora_model_dir): *[^ #\n]+|diffusion:|ebft:)|\A(?!(.|\n)*base_model)"),
    ("torchtune", ["recipes/configs/**/*full*.yaml"],
     r"^(policy_model|teacher_model|base_model_path|ppo_epochs):|_vision_|cauldron|PPOLoss|GRPO|\A(?!(.|\n)*checkpointer)"),
    ("TRL", ["examples/cli_configs/*.yaml"], r"\A(?!(.|\n)*model)"),
    ("alignment-handbook", ["recipes/**/*.yaml"], r"^(use_peft: true|compute_environment:.*|loss_type: apo_\w+)|\A(?!(.|\n)*model)"),
    ("open-r1", ["recipes/**/*.yaml"], r"^(max_completion_length|compute_environment|num_generations|reward_funcs):|\A(?!(.|\n)*model)"),
    ("axolotl-cookbook", ["**/*.yaml", "**/*.yml"], r"^(adapter|rl): *[^ #\n]+|\A(?!(.|\n)*base_model)"),
]

# A chat that every template accepts.
CHAT = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def plan(mt, path):
    """Whether mt plan takes the config, with a model that mt has in place of its own, whose names are others."""
    done = subprocess.run([mt, "plan", path, "--model", "qwen2.5-0.5b", "--add-tokens", "", "--new-special-tokens", "", "--special-tokens", "{}", "--unfrozen-parameters", "norm",
                           "--device", "cpu", "--host-memory", "2TiB", "--device-memory", "1TiB"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def load(mt, path, tmp):
    """Why the config's data keys do not read a chat; empty if they do."""
    rows = pathlib.Path(tmp) / "rows.jsonl"
    rows.write_text(CHAT)
    text = re.sub(r"^(datasets|eval_datasets|dataset|eval_dataset|dataset_dir|dpo|val_size|dataset_format|.*_column):.*\n(?:  - .*\n)*", "", pathlib.Path(path).read_text(), flags=re.MULTILINE)
    loaded = pathlib.Path(tmp) / "loaded.yaml"
    loaded.write_text(text)
    tokens = ["<|im_start|>", "<|im_end|>"]
    for _ in range(2):  # again with the tokens that the template is made of, which the config's own model has
        done = subprocess.run([mt, "data", "inspect", str(loaded), "--dataset", str(rows), "--model", "tiny", "--add-tokens", "", "--new-special-tokens", ",".join(tokens),
                               "--resize-vocab", "true", "--special-tokens", "{}", "--cache-dir", tmp + "/cache"], capture_output=True, text=True, check=False)
        if not (lacking := re.search(r"add them with new_special_tokens: (\[.*?\])", done.stderr)):
            break
        tokens += json.loads(lacking.group(1))
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def one(mt, path, folder):
    """The result of a config, and the keys that are lost."""
    with tempfile.TemporaryDirectory() as tmp:
        out = tmp + "/mt.yaml"
        done = subprocess.run([mt, "import", str(path), "--out", out], capture_output=True, text=True, check=False)
        lines = [line.replace(str(folder) + "/", "") for line in done.stderr.splitlines()]
        if done.returncode != 0:
            return "refused", [re.sub(r"^mt: (?:\S+?\.ya?ml:)?[\d:]* ?", "", lines[0])]
        lost = [m.group(1) for line in lines if (m := re.search(r"\.ya?ml:\d+:\d+: ([^ ]+): .*not possible: ", line))]
        if why := plan(mt, out):
            return "does not plan", [why]
        if why := load(mt, out, tmp):
            return "does not load", [why]
        return "whole" if not lost else "without", sorted(set(lost))


def main():
    mt, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for tool, patterns, other in TOOLS:
        if not (folder / tool).is_dir():
            continue
        files = sorted({p for pattern in patterns for p in (folder / tool).glob(pattern)})
        rows, counts, skipped = [], collections.Counter(), 0
        for path in files:
            if re.search(other, path.read_text(), re.MULTILINE):
                skipped += 1
                continue
            result, what = one(mt, path, folder / tool)
            counts[result] += 1
            rows.append(f"| `{path.relative_to(folder / tool)}` | {result} | {', '.join(f'`{k}`' if result == 'without' else k for k in what)} |")
        imported = counts["whole"] + counts["without"]
        print(f"## Examples of {tool}\n\n{imported} of {len(rows)} are imported and planned, {counts['whole']} of them whole; {skipped} are of something else.\n")
        print("| config | result | lost, or why |\n| --- | --- | --- |")
        print("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
