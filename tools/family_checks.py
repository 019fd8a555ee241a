#!/usr/bin/env python3
"""Print which checks of each recorded model passed, from the log of the tests.

    MT_LONG=1 MT_PYTHON=PYTHON go test -json -run 'Fixture|Recordings|TransformersLoads|LlamaCpp' \\
        ./actors ./checkpoint/... ./internal/run/... ./cmd/mt > LOG
    tools/family_checks.py LOG

The second table in bench/reports/families.md is the output. A cell says "yes" if all tests of the
check passed for the recording. It is empty if mt lacks the feature for the model, or the tests were
skipped, and says "failed" otherwise. Needs only Python.
"""

import collections
import json
import sys

# Column of the table: the test, as package and name, with NAME for the recording.
CHECKS = {
    "fp32": ["mt/internal/run TestFixtures/NAME/default", "mt/internal/run TestRecordings/NAME/default"],
    "bf16": ["mt/internal/run TestFixtures/NAME/bf16", "mt/internal/run TestRecordings/NAME/bf16"],
    "emulated CUDA": ["mt/internal/run TestFixtures/NAME/cuda-bf16", "mt/internal/run TestRecordings/NAME/cuda-bf16"],
    "2 devices": ["mt/internal/run TestFixtures/NAME/lanes-2", "mt/internal/run TestRecordings/NAME/lanes-2"],
    "2 ranks": ["mt/internal/run TestRecordingsTogether/NAME/default/2"],
    "packed rows": ["mt/internal/run TestPackedRecordings/NAME"],
    "logits": ["mt/internal/run/generate TestFixtureLogits/NAME/cpu"],
    "plan": ["mt/actors TestRecordingsArePlanned/NAME"],
    "virtual time": ["mt/internal/run/predict TestRecordingsInVirtualTime/NAME"],
    "byte for byte": ["mt/checkpoint TestFixtures/NAME"],
    "Transformers loads": ["mt/cmd/mt TestTransformersLoads/NAME/same", "mt/cmd/mt TestTransformersLoads/NAME/trained"],
    "64 tokens": ["mt/cmd/mt TestTransformersLoads/NAME/chat"],
    "llama.cpp": ["mt/checkpoint/export TestLlamaCpp/NAME"],
}


def results(log):
    """Maps package and test to pass, fail or skip."""
    out = {}
    with open(log, encoding="utf-8") as f:
        for line in f:
            event = json.loads(line)
            if event.get("Test") and event["Action"] in ("pass", "fail", "skip"):
                out[event["Package"] + " " + event["Test"]] = event["Action"]
    return out


def cell(found):
    if "fail" in found:
        return "failed"
    return "yes" if "pass" in found else ""


def main():
    got = results(sys.argv[1])
    rows = collections.defaultdict(dict)
    for column, tests in CHECKS.items():
        for pattern in tests:
            before, after = pattern.split("NAME")
            for test, action in got.items():
                name = test.removeprefix(before).removesuffix(after)
                if test == before + name + after and name and "/" not in name:
                    rows[name].setdefault(column, []).append(action)
    print("| recording | " + " | ".join(CHECKS) + " |\n" + "| --- " * (len(CHECKS) + 1) + "|")
    for name in sorted(rows):
        print(f"| {name} | " + " | ".join(cell(rows[name].get(c, [])) for c in CHECKS) + " |")


if __name__ == "__main__":
    main()
