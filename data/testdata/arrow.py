"""Writes arrow.json: files of Arrow, and of Parquet with types of Arrow, as PyArrow and
Hugging Face's datasets write them, in base64, each with its rows as JSON has them.

    python3 -m venv V && V/bin/pip install pyarrow datasets
    V/bin/python data/testdata/arrow.py data/testdata/arrow.json

With a seed as second argument the values are drawn anew: the Go test does so where
MT_PYTHON names a Python that has the packages.
"""

import base64
import datetime
import decimal
import io
import json
import math
import os
import random
import re
import sys
import tempfile

import datasets
import pyarrow as pa
import pyarrow.parquet as pq


def plain(v):
    """v as the JSON that mt makes of it."""
    if isinstance(v, float) and (math.isnan(v) or math.isinf(v)):
        return None
    if isinstance(v, bytes):
        return v.decode()
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list) and v and isinstance(v[0], tuple):  # a map
        return {k: plain(x) for k, x in v}
    if isinstance(v, list):
        return [plain(x) for x in v]
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


def saved(rows, features=None):
    """What save_to_disk makes of rows."""
    with tempfile.TemporaryDirectory() as dir:
        datasets.Dataset.from_list(rows, features=features).save_to_disk(dir)
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
        "map": pa.array([[("a", 1), ("b", None)][: r.randrange(1, 3)] for _ in range(n)], pa.map_(pa.string(), pa.int64()))})
    message = lambda: {"role": r.choice(["user", "assistant"]), "content": maybe(text()), "weight": maybe(0.5)}
    chats = [{"id": i, "messages": [message() for _ in range(r.randrange(1, 4))], "extra": maybe({"a": {"b": [text()]}})} for i in range(n)]
    yield "chats", pa.Table.from_pylist(chats)
    yield "binary", pa.table({"bytes": [os.urandom(0) + text().encode() for _ in range(n)]})
    yield "dictionary", pa.table({
        "word": pa.array([maybe(r.choice(words)) for _ in range(n)]).dictionary_encode(),
        "small": pa.DictionaryArray.from_arrays(pa.array([r.randrange(3) for _ in range(n)], pa.int8()), words)})
    yield "views", pa.table({
        "text": pa.array([maybe(text() * r.choice([1, 3])) for _ in range(n)], pa.string_view()),
        "bytes": pa.array([(text() * r.choice([1, 3])).encode() for _ in range(n)], pa.binary_view()),
        "list": pa.array([maybe([text()] * r.randrange(3)) for _ in range(n)], pa.list_view(pa.string())),
        "large": pa.array([[r.randrange(9)] * r.randrange(3) for _ in range(n)], pa.large_list_view(pa.int16()))})
    yield "slice", pa.Table.from_pylist(chats)[1 : n - 1]


def typed():
    """A table with types that JSON lacks, and its rows: values inside a struct, and columns of their own."""
    d = lambda v: decimal.Decimal(v)
    when = datetime.datetime(2024, 2, 29, 23, 59, 58, 250000)
    values = [  # name, type, value, what mt makes of it inside a struct, its type in errors
        ("half", pa.float16(), 1.5, 1.5, "float16"),
        ("small", pa.float16(), -(2.0**-24), -5.9604645e-08, "float16"),
        ("price", pa.decimal128(9, 2), d("-0.05"), -0.05, "decimal128"),
        ("whole", pa.decimal128(9, 0), d("7"), 7, "decimal128"),
        ("long", pa.decimal256(60, 3), d("123456789012345678901234567890.125"), d("123456789012345678901234567890.125"), "decimal256"),
        ("short", pa.decimal32(5, 1), d("12.5"), 12.5, "decimal32"),
        ("day", pa.date32(), datetime.date(1969, 12, 31), "1969-12-31", "date"),
        ("day64", pa.date64(), datetime.date(2024, 2, 29), "2024-02-29", "date"),
        ("clock", pa.time32("s"), datetime.time(1, 2, 3), "01:02:03", "time"),
        ("clock64", pa.time64("us"), datetime.time(1, 2, 3, 4), "01:02:03.000004", "time"),
        ("local", pa.timestamp("ms"), when, "2024-02-29T23:59:58.25", "timestamp"),
        ("utc", pa.timestamp("ns", "UTC"), when.replace(tzinfo=datetime.timezone.utc), "2024-02-29T23:59:58.25Z", "timestamp"),
        ("before", pa.timestamp("us"), datetime.datetime(1969, 12, 31, 23, 59, 59, 500000), "1969-12-31T23:59:59.5", "timestamp"),
        ("span", pa.duration("ms"), datetime.timedelta(seconds=90, milliseconds=500), "90.5s", "duration"),
        ("parts", pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3_000_000_000]), "1 months 2 days 3s", "interval")]
    opaque = [("raw", pa.binary(), b"\xff\x00"), ("fixed", pa.binary(2), b"ab")]
    struct = pa.struct([(n, t) for n, t, *_ in values])
    table = pa.table({"in": pa.array([{n: v for n, _, v, *_ in values}], struct)}
                     | {n: pa.array([v], t) for n, t, v, *_ in values} | {n: pa.array([v], t) for n, t, v in opaque})
    names = {"raw": "binary in Base64", "fixed": "fixed_size_binary(2) in Base64"}
    text = lambda v: v if isinstance(v, str) else str(v) if isinstance(v, (decimal.Decimal, int)) else repr(v)
    row = {"in": {n: f"@{x}" if isinstance(x, decimal.Decimal) else x for n, _, _, x, _ in values}}
    number = lambda t: pa.types.is_decimal(t) or pa.types.is_float16(t)
    row |= {n: text(v if pa.types.is_decimal(t) else x) if number(t) else {k: text(x)} for n, t, v, x, k in values}
    row |= {n: {names[n]: base64.b64encode(v).decode()} for n, _, v in opaque}
    return table, [row]


def documents(r):
    """A table with text in JSON at several depths, and its rows."""
    def any_value(depth=0):
        kind = r.randrange(7 if depth < 2 else 4)
        if kind < 4:
            return [None, True, r.randrange(-9, 9), "a\"b\n"][kind]
        return {"k": any_value(depth + 1), "n": None} if kind < 6 else [any_value(depth + 1) for _ in range(2)]

    js = lambda values, storage=pa.string(): pa.ExtensionArray.from_storage(
        pa.json_(storage), pa.array([json.dumps(v) for v in values], storage))
    top, held, inner = ([any_value() for _ in range(4)] for _ in range(3))
    table = pa.table({
        "top": js(top, pa.large_string()),
        "held": pa.StructArray.from_arrays([js(held), pa.array(["[1]"] * 4)], ["json", "text"]),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), js(inner))})
    rows = [{"top": top[i], "held": {"json": held[i], "text": "[1]"}, "list": inner[a:b]}
            for i, (a, b) in enumerate([(0, 1), (1, 1), (1, 3), (3, 4)])]
    return table, rows


def main():
    out, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    cases = []

    def add(name, content, rows):
        cases.append({"name": name, "file": base64.b64encode(content).decode(), "rows": [plain(row) for row in rows]})

    for name, table in tables(random.Random(seed)):
        add(name, stream(table), table.to_pylist())
        if name in ("text", "chats"):
            add(name + " as a file", file(table), table.to_pylist())
    skipped = pa.table({  # columns that mt does not read, between columns that it reads
        "a": ["x", "y"], "when": [datetime.datetime(2020, 1, 1)] * 2, "view": pa.array(["p", "q" * 20], pa.string_view()),
        "union": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), "half": pa.array([1.0, 2.0], pa.float16()),
        "decimal": pa.array([None, None], pa.decimal128(5, 2)), "z": [1, 2]})
    add("others between", stream(skipped), [{"a": "x", "z": 1}, {"a": "y", "z": 2}])
    for name, (table, rows) in {"json": documents(random.Random(seed)), "typed": typed()}.items():
        cases.append({"name": name, "file": base64.b64encode(stream(table)).decode(), "rows": rows})
        buffer = pa.BufferOutputStream()
        if name == "typed":  # Parquet lacks intervals of Arrow, and keeps durations as whole numbers
            table = table.drop_columns(["in", "span", "parts", "fixed"])
            kinds = {"day": "DATE", "day64": "DATE", "clock": "TIME(isAdjustedToUTC=false,unit=MILLIS)", "clock64": "TIME(isAdjustedToUTC=false,unit=MICROS)",
                     "local": "TIMESTAMP(isAdjustedToUTC=false,unit=MILLIS)", "utc": "TIMESTAMP(isAdjustedToUTC=true,unit=NANOS)",
                     "before": "TIMESTAMP(isAdjustedToUTC=false,unit=MICROS)", "raw": "BYTE_ARRAY in Base64"}
            rows = [{k: {kinds[k]: list(v.values())[0]} if isinstance(v, dict) else v for k, v in row.items() if k in table.column_names} for row in rows]
        pq.write_table(table, buffer)
        cases.append({"name": name + " in Parquet", "file": base64.b64encode(buffer.getvalue().to_pybytes()).decode(), "rows": rows})
    features = datasets.Features({"messages": datasets.List(datasets.Json()), "n": datasets.Value("int64")})
    rows = [{"messages": [{"role": "user", "content": "h", "extra": {"a": i, "none": None}}, {"role": "assistant", "content": ["g"] * i}], "n": i} for i in range(3)]
    add("save_to_disk of Json", saved(rows, features), rows)
    rows = [{"messages": [{"role": "user", "content": f"h{i}"}, {"role": "assistant", "content": "g"}], "n": i} for i in range(5)]
    add("save_to_disk", saved(rows), rows)
    with open(out, "w") as f:
        f.write(re.sub(r'"@([-.0-9]+)"', r"\1", json.dumps(cases, indent=1)) + "\n")  # unquotes numbers that were written as "@…" to keep all digits


main()
