#!/usr/bin/env python3
"""Lists the files and functions that a tile of a decoder block passes in a step: python3 tools/tile.py [-v]

Builds mt with coverage and trains tiny models on the CPU, with tiles copied to slots, AdamW and clipping: of one block and of
two, for two steps and for six. A tile passes what runs more often the more steps there are, and more so with a second block.
That includes the program of the pass, what follows from the model's configuration, and memory of activations. These files are
listed apart. -v names the functions. Run it in the root of the repository; it needs Go alone.
"""
import collections, json, os, subprocess, sys, tempfile

APART = {
    "model/": "what follows from the model's configuration",
    "layers/schedule/builder.go": "the program of the pass",
    "layers/schedule/program.go": "the program of the pass",
    "layers/schedule/residency.go": "the program of the pass",
    "layers/schedule/visits.go": "the program of the pass",
    "layers/flops.go": "operations counted for the report",
    "layers/hidden.go": "activations",
    "layers/keep.go": "activations",
    "layers/saved.go": "activations",
    "layers/workspace.go": "activations",
}


def counts(mt, dir, blocks, steps):
    """How often each piece of code runs, by file and place."""
    os.mkdir(dir)
    model = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=blocks, num_attention_heads=2, num_key_value_heads=2,
                 vocab_size=256, max_position_embeddings=128)
    args = ["--model", json.dumps(model), "--dataset", "examples/data/stories.txt", "--max-seq-len", "64", "--per-device-train-batch-size", "2",
            "--max-steps", str(steps), "--device", "cpu", "--threads", "1", "--binding", "copy", "--save-steps", "100",
            "--output-dir", dir + "-run"]
    subprocess.run([mt, "train", *args], env=os.environ | {"GOCOVERDIR": dir}, check=True, capture_output=True)
    subprocess.run(["go", "tool", "covdata", "textfmt", "-i", dir, "-o", dir + ".txt"], check=True)
    out = collections.Counter()
    for line in open(dir + ".txt").readlines()[1:]:
        place, _, n = line.rsplit(" ", 2)
        out[place.split("/", 1)[1]] += int(n)
    return out


def main():
    packages = ["actors", "host", "host/optim", "layers", "layers/schedule", "model"]
    with tempfile.TemporaryDirectory() as tmp:
        mt = tmp + "/mt"
        cover = ",".join("mt/" + p for p in ["cmd/mt", *packages])
        subprocess.run(["go", "build", "-cover", "-covermode=atomic", "-coverpkg=" + cover, "-o", mt, "./cmd/mt"], check=True)
        of = {(b, s): counts(mt, f"{tmp}/{b}-{s}", b, s) for b in (1, 2) for s in (2, 6)}
    passed = collections.defaultdict(list)
    for place in of[2, 6]:
        file, at = place.split(":")
        more = of[2, 6][place] - of[2, 2][place] - of[1, 6][place] + of[1, 2][place]
        if more < 4 or os.path.dirname(file) not in packages:  # less than once a step
            continue
        lines = open(file).readlines()[: int(at.split(".")[0])]
        name = [line.split("{")[0].strip() for line in lines if line.startswith("func ")][-1]
        if name not in passed[file]:
            passed[file].append(name)
    apart = {f: why for f in passed for prefix, why in APART.items() if f.startswith(prefix)}
    for file in sorted(passed, key=lambda f: (f in apart, f)):
        print(file, f"(apart: {apart[file]})" if file in apart else "")
        if "-v" in sys.argv:
            print(*("    " + name for name in passed[file]), sep="\n")
    way = [f for f in passed if f not in apart]
    by = collections.Counter(os.path.dirname(f) for f in way)
    print(f"{len(way)} files, {sum(len(passed[f]) for f in way)} functions:", ", ".join(f"{p} {n}" for p, n in sorted(by.items())))


main()
