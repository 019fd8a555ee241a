"""Writes arrow.json: Arrow files as PyArrow and Hugging Face's datasets write them,
in base64, each with its rows as JSON has them.

    python3 -m venv V && V/bin/pip install pyarrow datasets
    V/bin/python data/testdata/arrow.py data/testdata/arrow.json

With a seed as second argument the values are drawn anew: the Go test does so where
MT_PYTHON names a Python that has the packages.
"""

import base64
import datetime
import io
import json
import math
import os
import random
import sys
import tempfile

import datasets
import pyarrow as pa


def plain(v):
    """v as the JSON that mt makes of it."""
    if isinstance(v, float) and (math.isnan(v) or math.isinf(v)):
        return None
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, tuple):  # an entry of a map
        return {"key": plain(v[0]), "value": plain(v[1])}
    return v


def stream(table, rows=3):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as w:
        for batch in table.to_batches(max_chunksize=rows):
            w.write_batch(batch)
    return out.getvalue()


def file(table):
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as w:
        w.write_table(table, max_chunksize=2)
    return out.getvalue()


def saved(rows):
    """What save_to_disk makes of rows."""
    with tempfile.TemporaryDirectory() as dir:
        datasets.Dataset.from_list(rows).save_to_disk(dir)
        with open(os.path.join(dir, "data-00000-of-00001.arrow"), "rb") as f:
            return f.read()


def tables(r):
    def text():
        return "".join(r.choice("ab\"\\\n é🙂") for _ in range(r.randrange(12)))

    def maybe(v):
        return None if r.random() < 0.2 else v

    n = r.randrange(4, 12)
    words = [text() for _ in range(3)]
    yield "text", pa.table({"text": ["a b", None] + [maybe(text()) for _ in range(n - 2)], "large": pa.array([text() for _ in range(n)], pa.large_string())})
    yield "numbers", pa.table(
        {f"{t}": pa.array([maybe(r.randrange(-100, 100) if str(t)[0] == "i" else r.randrange(200)) for _ in range(n)], t)
         for t in [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]}
        | {"double": [maybe(r.choice([0.5, -2.0, float("nan"), float("inf")])) for _ in range(n)], "float": pa.array([1.5] * n, pa.float32()),
           "bool": [maybe(r.random() < 0.5) for _ in range(n)], "most": pa.array([2**64 - 1] * n, pa.uint64()), "nothing": pa.nulls(n)})
    yield "lists", pa.table({
        "ids": pa.array([maybe([r.randrange(9) for _ in range(r.randrange(4))]) for _ in range(n)], pa.list_(pa.int32())),
        "large": pa.array([[maybe(text())] * r.randrange(3) for _ in range(n)], pa.large_list(pa.string())),
        "fixed": pa.array([maybe([1, None, 3]) for _ in range(n)], pa.list_(pa.int8(), 3)),
        "deep": [[[r.randrange(5)] * r.randrange(3)] * r.randrange(3) for _ in range(n)],
        "map": pa.array([[("a", 1), ("b", None)][: r.randrange(3)] for _ in range(n)], pa.map_(pa.string(), pa.int64()))})
    message = lambda: {"role": r.choice(["user", "assistant"]), "content": maybe(text()), "weight": maybe(0.5)}
    chats = [{"id": i, "messages": [message() for _ in range(r.randrange(1, 4))], "extra": maybe({"a": {"b": [text()]}})} for i in range(n)]
    yield "chats", pa.Table.from_pylist(chats)
    yield "binary", pa.table({"bytes": [os.urandom(0) + text().encode() for _ in range(n)]})
    yield "dictionary", pa.table({
        "word": pa.array([maybe(r.choice(words)) for _ in range(n)]).dictionary_encode(),
        "small": pa.DictionaryArray.from_arrays(pa.array([r.randrange(3) for _ in range(n)], pa.int8()), words)})
    yield "slice", pa.Table.from_pylist(chats)[1 : n - 1]


def main():
    out, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    cases = []

    def add(name, content, rows):
        cases.append({"name": name, "file": base64.b64encode(content).decode(), "rows": [plain(row) for row in rows]})

    for name, table in tables(random.Random(seed)):
        add(name, stream(table), table.to_pylist())
        if name in ("text", "chats"):
            add(name + " as a file", file(table), table.to_pylist())
    skipped = pa.table({  # columns that are not read lie between those that are
        "a": ["x", "y"], "when": [datetime.datetime(2020, 1, 1)] * 2, "view": pa.array(["p", "q" * 20], pa.string_view()),
        "union": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), "half": pa.array([1.0, 2.0], pa.float16()),
        "decimal": pa.array([None, None], pa.decimal128(5, 2)), "z": [1, 2]})
    add("others between", stream(skipped), [{"a": "x", "z": 1}, {"a": "y", "z": 2}])
    rows = [{"messages": [{"role": "user", "content": f"h{i}"}, {"role": "assistant", "content": "g"}], "n": i} for i in range(5)]
    add("save_to_disk", saved(rows), rows)
    with open(out, "w") as f:
        json.dump(cases, f, indent=1)
        f.write("\n")


main()
