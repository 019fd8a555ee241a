#!/usr/bin/env python3
"""Prints the tables of docs/long-context.md, from what mt plan says.

    go build ./cmd/mt && python3 tools/long_context.py ./mt

It needs no packages.
"""
import json
import subprocess
import sys

GPUS = ["rtx-3080", "rtx-4090", "h100-sxm", "h200"]
MODELS = [("Qwen2.5 7B", ["--model", "qwen2.5-7b"])]
LENGTHS = [131072, 524288, 1048576]


def plan(mt, args, gpu, tokens):
    run = subprocess.run([mt, "plan", *args, "--max-seq-len", str(tokens), "--per-device-train-batch-size", "1", "--gpu", gpu,
                          "--host-memory", "4096GiB", "--json"], capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    return json.loads(run.stdout)


def gib(n):
    return f"{n / 2**30:.1f}" if n < 100 * 2**30 else f"{n / 2**30:.0f}"


def took(seconds):
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min" if seconds < 3 * 3600 else f"{seconds / 3600:.1f} h"


def line(tokens, gpu, p):
    if isinstance(p, str):
        need = p.split("at least ")[-1].split(" on the device")[0] if "at least" in p else "more"
        return f"| {tokens:,} | `{gpu}` | does not fit: {need} | | | | |"
    memory, step = p["memory"], p["prediction"]
    far = [r["bytes"] for r in memory["rows"] if r["purpose"] in ("hidden states", "waiting heads", "spilled activations")]
    where = "host" if any(r["purpose"] == "hidden states" for r in memory["rows"]) else "device"
    return (f"| {tokens:,} | `{gpu}` | {gib(memory['device_bytes'])} | {where} | {gib(memory['host_bytes'])} ({gib(sum(far))}) | "
            f"{took(step['step_seconds'])} | {step['tokens_per_second']:,.0f} |")


def main():
    mt = sys.argv[1]
    for name, args in MODELS:
        print(f"{name}:\n")
        print("| tokens of the row | GPU | device, GiB | hidden states | host, GiB (for the row) | a step | tokens/s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for tokens in LENGTHS:
            for gpu in GPUS:
                print(line(tokens, gpu, plan(mt, args, gpu, tokens)))
        print()


main()
