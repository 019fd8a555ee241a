#!/usr/bin/env python3
"""Print what the presets of 2026 need on two machines, as a table.

    tools/needs.py MT

MT is the program. For each preset and machine the script plans, with mt plan, the first of these
ways that fits: AdamW, AdamW in 8 bits, and the same with optimizer state and gradients on disks. The
tables in bench/reports/needs.md are the output. Needs only Python.
"""

import json
import subprocess
import sys
import tempfile

PRESETS = ["qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b", "qwen3.5-35b-a3b", "gemma4-12b", "gemma4-31b", "gemma4-26b-a4b",
           "minimax-m2", "glm-4.7-flash", "glm-5", "nemotron-3-nano"]
MACHINES = [("RTX 4090, 128 GiB", ["--gpu", "rtx4090", "--host-memory", "128GiB"]),
            ("H200, 1.5 TiB", ["--gpu", "h200", "--host-memory", "1536GiB"])]
WAYS = [("adamw", ["--optim", "adamw"]), ("adamw_8bit", ["--optim", "adamw_8bit"]),
        ("adamw_8bit, disks", ["--optim", "adamw_8bit", "--state-dir"])]


def plan(mt, preset, machine, way):
    """Returns mt plan's JSON, or the reason why the run does not fit."""
    with tempfile.TemporaryDirectory() as disk:
        args = [*way, disk] if way[-1] == "--state-dir" else way
        r = subprocess.run([mt, "plan", "--model", preset, *machine, *args, "--json"], capture_output=True, text=True, cwd=disk)
    return (json.loads(r.stdout), "") if r.returncode == 0 else (None, r.stderr.strip().splitlines()[-1])


def total(p, where):
    return sum(row["bytes"] for row in p["memory"]["rows"] if row["where"] == where) / 2**30


def row(mt, preset, machine):
    for name, way in WAYS:
        p, why = plan(mt, preset, machine, way)
        if p:
            step = p["prediction"]
            return [preset, name, f"{total(p, 'host'):,.0f} GiB", f"{total(p, 'device'):,.1f} GiB", f"{step['tokens_per_second']:,.0f}"]
    print(f"{preset}: {why}", file=sys.stderr)
    return [preset, "does not fit", "", "", ""]


def main():
    for title, machine in MACHINES:
        print(f"## {title}\n\n| preset | optimizer | host | device | tokens a second |\n| --- | --- | --- | --- | --- |")
        for preset in PRESETS:
            print("| " + " | ".join(row(sys.argv[1], preset, machine)) + " |", flush=True)
        print()


if __name__ == "__main__":
    main()
