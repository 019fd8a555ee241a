#!/usr/bin/env python3
"""Runs `mt import` over the example configs of other trainers, and prints what became of each.

    tools/imports.py MT DIR

MT is the program. DIR holds checkouts of LLaMA-Factory, axolotl, torchtune and TRL under these names
(the folders examples and recipes are enough). The tables in docs/importing.md are
what this prints. Needs nothing but Python.

A config counts as training of a text model's own weights, all or some, on text or on pairs of answers (DPO), unless it
asks for adapters, quantised weights to train on, rewards or other losses of preferences, or reads images; each of these is
told by a key, which TOOLS names.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# For each tool: the folder with its name, patterns of files, and patterns of lines that say that a
# config is of something else.
TOOLS = [
    ("LLaMA-Factory", ["examples/train_full/*.yaml", "examples/extras/*/*.yaml", "examples/v1/train_full/*.yaml", "examples/v1/train_freeze/*.yaml"],
     r"^(finetuning_type: (?!full|freeze)\w+|image_max_pixels|adapter_name_or_path:.*|do_predict: true|model_class: (?!llm)\w+|train_dataset: .*multimodal.*)|\A(?!(.|\n)*model)"),
    ("axolotl", ["examples/**/*.yaml", "examples/**/*.yml"],
     r"^((adapter|rl(?!: *(dpo|ipo)\b)|reward_model|process_reward_model|diffusion|ebft|processor_type|lora_model_dir): *[^ #\n]+|diffusion:|ebft:)|\A(?!(.|\n)*base_model)"),
    ("torchtune", ["recipes/configs/**/*full*.yaml"],
     r"^(policy_model|teacher_model|base_model_path|ppo_epochs):|_vision_|cauldron|PPOLoss|GRPO|\A(?!(.|\n)*checkpointer)"),
    ("TRL", ["examples/cli_configs/*.yaml"], r"\A(?!(.|\n)*model)"),
]


def plan(mt, path):
    """Whether mt plan takes the config, with a model that mt has in place of its own, whose names are others."""
    done = subprocess.run([mt, "plan", path, "--model", "qwen2.5-0.5b", "--add-tokens", "", "--new-special-tokens", "", "--special-tokens", "{}", "--unfrozen-parameters", "norm",
                           "--device", "cpu", "--host-memory", "2TiB", "--device-memory", "1TiB"], capture_output=True, text=True, check=False)
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
        return "whole" if not lost else "without", sorted(set(lost))


def main():
    mt, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for tool, patterns, other in TOOLS:
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
