#!/usr/bin/env python3
"""Counts what the inner loops of the arm64 assembly take of a Neoverse V2 (Grace).

    python3 tools/neon_count.py

Needs Go, and Debian's llvm-19 (llvm-objdump-19, llvm-mca-19). llvm-mca counts the cycles of a loop from a model of the
core's pipelines. It knows nothing of caches and memory: data counts as being in the first-level cache. So the table is a
count and no measurement. Beside the NEON loops are those of the plain Go that they stand for, where it is one loop.
"""
import os
import re
import subprocess
import tempfile

GHZ = 3.4  # of a Grace core
CORES = 72
DISPATCH = 8  # instructions a cycle; llvm-mca's model would let through 16
MEMORY = 500  # GB/s of a Grace with 480 GB (LPDDR5X)
PEAK = 4 * 4 * 2 * GHZ  # GFLOP/s of a core: four pipelines of four fp32, a product and a sum each

# Each loop: its description, package, function, elements in an iteration, and bytes or FLOPs of an
# element.
BYTES, FLOP = "bytes", "FLOP"
OPTIM, GEMM, VEC = "./host/optim", "./device/cpu/gemm", "./device/cpu/vec"
LOOPS = [
    ("AdamW, fp32, fp32 gradient", OPTIM, "adamPlainF32NEON", 8, 28, BYTES),
    ("the same in plain Go", OPTIM, "adamPlain[go.shape.float32]", 1, 28, BYTES),
    ("AdamW, split, fp32 gradient", OPTIM, "adamSplitF32NEON", 8, 28, BYTES),
    ("AdamW, split, bf16 gradient", OPTIM, "adamSplitBF16NEON", 8, 26, BYTES),
    ("Lion, split, bf16 gradient", OPTIM, "lionSplitBF16NEON", 8, 18, BYTES),
    ("SGD with momentum, split, bf16 gradient", OPTIM, "momentumSplitBF16NEON", 8, 18, BYTES),
    ("Muon's momentum, fp32 to bf16", OPTIM, "prepareF32ToBF16NEON", 8, 14, BYTES),
    ("norm of an fp32 gradient", OPTIM, "sumF32NEON", 32, 4, BYTES),
    ("norm of a bf16 gradient", OPTIM, "sumBF16NEON", 32, 2, BYTES),
    ("rounding of bf16 masters", OPTIM, "roundNEON", 8, 6, BYTES),
    ("numbers of codes of 8 bits", OPTIM, "decodeNEON", 16, 5, BYTES),
    ("the same in plain Go", OPTIM, "decodeGeneric", 1, 5, BYTES),
    ("numbers of codes of 4 bits", OPTIM, "decode16NEON", 16, 4.5, BYTES),
    ("the same in plain Go", OPTIM, "decode16Generic", 2, 4.5, BYTES),
    ("codes of 8 bits", OPTIM, "encodeNEON", 16, 5, BYTES),
    ("the same in plain Go", OPTIM, "encodeGeneric", 1, 5, BYTES),
    ("codes of 4 bits", OPTIM, "encode16NEON", 16, 4.5, BYTES),
    ("the same in plain Go", OPTIM, "encode16Generic", 2, 4.5, BYTES),
    ("the greatest of a block", OPTIM, "greatestNEON", 16, 4, BYTES),
    ("the same in plain Go", OPTIM, "greatestGeneric", 1, 4, BYTES),
    ("product, 6 by 16", GEMM, "kernelNEONx6", 16 * 6 * 16, 2, FLOP),
    ("product, 1 by 16", GEMM, "kernelNEONx1", 16 * 1 * 16, 2, FLOP),
    ("dot products of four rows, bf16", GEMM, "dotNEONBF16", 32, 2, FLOP),
    ("attention's product, rows", VEC, "tileRows6NEON", 4 * 6 * 16, 2, FLOP),
    ("attention's product, columns", VEC, "tileCols6NEON", 6 * 16, 2, FLOP),
    ("exponentials and their sum", VEC, "expSumNEON", 8, 8, BYTES),
    ("SwiGLU", VEC, "swigluNEON", 8, 12, BYTES),
    ("SwiGLU backward", VEC, "swigluGradNEON", 4, 20, BYTES),
    ("RMSNorm backward, last pass", VEC, "normGradNEON", 8, 24, BYTES),
]


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def code(binary, function):
    """The instructions of a function: their addresses and texts."""
    names = [line.split()[-1] for line in run("llvm-objdump-19", "-t", binary).splitlines() if "F .text" in line]
    found = [n for n in names if n.endswith(f".{function}.abi0")] or [n for n in names if n.endswith(f".{function}")]
    if len(found) != 1:
        raise SystemExit(f"{function}: {len(found)} functions of that name")
    text = run("llvm-objdump-19", "-d", "--no-show-raw-insn", f"--disassemble-symbols={found[0]}", binary)
    lines = re.findall(r"^ *([0-9a-f]+):\s+(.+)$", text, re.M)
    return [(int(at, 16), " ".join(what.split("<")[0].split("//")[0].split())) for at, what in lines]


def loop(instructions):
    """The longest loop that has no other inside."""
    spans = []
    for end, (at, what) in enumerate(instructions):
        target = re.match(r"(?:b|b\.\w+|cbn?z .*|tbn?z .*) ?0x([0-9a-f]+)$", what.replace(", 0x", " 0x"))
        if target and int(target[1], 16) < at:
            starts = [i for i, (a, _) in enumerate(instructions) if a == int(target[1], 16)]
            spans += [(starts[0], end)] if starts else []
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    first, last = max(inner, key=lambda s: s[1] - s[0])
    body = [re.sub(r"0x[0-9a-f]+$", "turn", what) if re.match(r"b|cb|tb", what) and not what.startswith(("bi", "bs")) else what
            for _, what in instructions[first : last + 1]]
    return ["turn:", *body]


def cycles(body):
    """The cycles of a turn, over a thousand turns."""
    out = run("llvm-mca-19", "-mtriple=aarch64", "-mcpu=neoverse-v2", "-iterations=1000", input="\n".join(body) + "\n")
    return max(int(re.search(r"Total Cycles:\s+(\d+)", out)[1]) / 1000, (len(body) - 1) / DISPATCH)


def main():
    print(f"| loop | instructions | cycles | a core at {GHZ} GHz | {CORES} cores |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        binaries = {}
        for what, package, function, elements, each, unit in LOOPS:
            if package not in binaries:
                binaries[package] = os.path.join(scratch, os.path.basename(package))
                env = {**os.environ, "GOARCH": "arm64", "CGO_ENABLED": "0"}
                run("go", "test", "-c", "-o", binaries[package], package, env=env)
            body = loop(code(binaries[package], function))
            took = cycles(body)
            rate = elements * each / took * GHZ
            if unit == BYTES:
                core, all_ = f"{rate:.0f} GB/s", f"{rate * CORES:.0f} GB/s, {rate * CORES / MEMORY:.1f} × memory"
            else:
                core, all_ = f"{rate:.0f} GFLOP/s, {rate / PEAK:.0%} of the most", f"{rate * CORES / 1000:.1f} TFLOP/s"
            print(f"| {what} | {len(body) - 1} | {took:.1f} | {core} | {all_} |", flush=True)


main()
