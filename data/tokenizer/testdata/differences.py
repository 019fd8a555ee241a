#!/usr/bin/env python3
"""Compares the Go tokenizers with PyPI `tokenizers` on many strings: those of a generator like that of
../shared/fixtures/tokenizers/make.py, and those of make.py beside this file. Not run by `go test`.

    pip install tokenizers transformers
    python3 testdata/differences.py --seed 101 [--strings 100000] [--fixtures FOLDER] [--keep FOLDER]

It makes the strings of a seed, half a GiB by default, lets `go test` compare ids (with special tokens and without), decoded
text and, for our own shapes, offsets. The exit status is 0 where nothing differs.
"""
import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.abspath(os.path.join(HERE, "..", ".."))


def compare(folder, a):
    """Makes the strings in folder and runs the tests; the number of tests that failed."""
    python, failed = [sys.executable], 0
    shapes = os.path.join(folder, "shapes.json")
    own = ["--out", shapes, "--seed", str(a.seed), "--strings", str(max(1, a.strings // 50))]
    subprocess.run(python + [os.path.join(HERE, "make.py")] + own, check=True)
    runs = [("TestShapes", {"MT_SHAPES": shapes})]
    make = os.path.join(a.fixtures, "make.py")
    if os.path.exists(make):
        subprocess.run(python + [make, folder, "--seed", str(a.seed), "--strings", str(a.strings)], check=True)
        runs.append(("TestFixtures", {"MT_TOKENIZERS": folder}))
    else:
        print(f"no {make}: only the shapes of testdata/make.py are compared", file=sys.stderr)
    for test, env in runs:
        command = ["go", "test", "-count=1", "-timeout=2h", "-run", f"^{test}$", "-v", "./tokenizer"]
        failed += subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **env}).returncode != 0
    return failed


def main():
    p = argparse.ArgumentParser(description="Go's tokenizers beside PyPI's on many strings")
    p.add_argument("--seed", type=int, default=101)
    p.add_argument("--strings", type=int, default=100_000, help="of each shape of the fixtures; a 50th of each of our own")
    p.add_argument("--fixtures", default=os.path.join(REPOSITORY, "..", "shared", "fixtures", "tokenizers"))
    p.add_argument("--keep", help="where the strings stay; else they are removed")
    a = p.parse_args()
    if a.keep:
        os.makedirs(a.keep, exist_ok=True)
        sys.exit(compare(os.path.abspath(a.keep), a))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(compare(folder, a))


if __name__ == "__main__":
    main()
