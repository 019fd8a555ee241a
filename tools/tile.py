#!/usr/bin/env python3
"""Lists the files and functions that a tile or a chat passes: python3 tools/tile.py [--chat] [-v]

Builds mt with coverage and trains tiny models on the CPU.

A tile of a decoder block: tiles are copied to slots, AdamW updates, clipping is on. Models of one block and of two train for
two steps and for six. A tile passes the code that runs more often with more steps, and more so with a second block. The program
of the pass, answers of the model's configuration, and memory of activations run as often. Their files are listed apart.

--chat: 40 chats and 80 chats train in the same number of steps, without packing. A chat passes the code that runs at least
once more for each further chat, from the file to the loss. Devices are left out.

-v names the functions. Run it in the root of the repository; it needs Go alone.
"""
import collections, json, os, subprocess, sys, tempfile

APART = {
    "model/": "answers of the model's configuration",
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
ENGINE = ["actors", "host", "host/optim", "layers", "layers/schedule", "model"]
ROWS = ["base/files", "base/parallel", "data", "data/jinja", "data/tokenizer", "internal/run/open", "internal/run/session"]


def build(mt, packages):
    """Builds mt so that it counts how often each piece of code of the packages runs."""
    cover = ",".join("mt/" + p for p in ["cmd/mt", *packages])
    subprocess.run(["go", "build", "-cover", "-covermode=atomic", "-coverpkg=" + cover, "-o", mt, "./cmd/mt"], check=True)


def train(mt, dir, *args):
    """Trains, and returns how often each piece of code ran, by file and place."""
    os.mkdir(dir)
    env = os.environ | {"GOCOVERDIR": dir, "XDG_CACHE_HOME": dir + "-cache"}
    args = [*args, "--device", "cpu", "--threads", "1", "--save-steps", "1000", "--output-dir", dir + "-run"]
    subprocess.run([mt, "train", *args], env=env, check=True, capture_output=True)
    subprocess.run(["go", "tool", "covdata", "textfmt", "-i", dir, "-o", dir + ".txt"], check=True)
    out = collections.Counter()
    for line in open(dir + ".txt").readlines()[1:]:
        place, _, n = line.rsplit(" ", 2)
        out[place.split("/", 1)[1]] += int(n)
    return out


def tile(tmp, mt):
    """How much more often each piece of code runs for four more steps of one more block."""
    def run(blocks, steps):
        model = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=blocks, num_attention_heads=2, num_key_value_heads=2,
                     vocab_size=256, max_position_embeddings=128)
        return train(mt, f"{tmp}/{blocks}-{steps}", "--model", json.dumps(model), "--dataset", "examples/data/stories.txt", "--max-seq-len", "64",
                     "--per-device-train-batch-size", "2", "--max-steps", str(steps), "--binding", "copy")
    more = run(2, 6)
    more.subtract(run(2, 2))
    more.subtract(run(1, 6))
    more.update(run(1, 2))
    return more


def chat(tmp, mt):
    """How much more often each piece of code runs for 40 more chats."""
    train(mt, tmp + "/model", "examples/scratch.yaml", "--max-steps", "1")
    def run(chats, rows):
        file = f"{tmp}/{chats}.jsonl"
        with open(file, "w") as f:
            for i in range(chats):
                turns = [("user", f"Say number {i}."), ("assistant", f"The number is {i}, and no other.")]
                f.write(json.dumps({"messages": [dict(role=role, content=text) for role, text in turns]}) + "\n")
        return train(mt, f"{tmp}/{chats}", "--model", tmp + "/model-run", "--dataset", file, "--template", "examples/chat.jinja", "--max-seq-len", "64",
                     "--packing", "false", "--per-device-train-batch-size", str(rows), "--num-train-epochs", "1", "--logging-steps", "100")
    more = run(80, 8)
    more.subtract(run(40, 4))
    return more


def functions(more, packages, least):
    """The functions, by file, of which a piece of code runs at least so many times more."""
    passed = collections.defaultdict(list)
    for place, n in more.items():
        file, at = place.split(":")
        if n < least or os.path.dirname(file) not in packages:
            continue
        lines = open(file).readlines()[: int(at.split(".")[0])]
        name = [line.split("{")[0].strip() for line in lines if line.startswith("func ")][-1]
        if name not in passed[file]:
            passed[file].append(name)
    return passed


def main():
    chats = "--chat" in sys.argv
    packages = ENGINE + ROWS if chats else ENGINE
    with tempfile.TemporaryDirectory() as tmp:
        build(tmp + "/mt", packages)
        passed = functions(chat(tmp, tmp + "/mt"), packages, 40) if chats else functions(tile(tmp, tmp + "/mt"), packages, 4)
    apart = {} if chats else {f: why for f in passed for prefix, why in APART.items() if f.startswith(prefix)}
    for file in sorted(passed, key=lambda f: (f in apart, f)):
        print(file, f"(apart: {apart[file]})" if file in apart else "")
        if "-v" in sys.argv:
            print(*("    " + name for name in passed[file]), sep="\n")
    way = [f for f in passed if f not in apart]
    by = collections.Counter(os.path.dirname(f) for f in way)
    print(f"{len(way)} files, {sum(len(passed[f]) for f in way)} functions:", ", ".join(f"{p} {n}" for p, n in sorted(by.items())))


main()
