"""Writes cases.json: what PyPI jinja2, set up as Transformers sets it up for chat
templates, makes of our own templates.

    python3 -m venv V && V/bin/pip install jinja2==3.1.6
    V/bin/python jinja/testdata/render.py

templates/*.jinja are rendered with every conversation of conversations.py, the
short ones of snippets.py with the variables there. A rendering that fails is
recorded as a failure; the Go test wants all texts equal and the same failures.
"""

import json
import os
import sys

import environment
from conversations import CONVERSATIONS
from snippets import SNIPPETS, VARIABLES

HERE = os.path.dirname(os.path.abspath(__file__))


def case(name, source, variables, vars_name):
    out = {"name": name, "vars": vars_name}
    try:
        text, spans = environment.render(source, variables)
        text.encode()  # fails for half of a surrogate pair
        out["text"] = text
        if spans:
            out["generation"] = spans
    except Exception as e:  # of any kind: what fails in Python must fail in Go
        out["error"] = f"{type(e).__name__}: {e}"
    return out


def main():
    families = {}
    for file in sorted(os.listdir(os.path.join(HERE, "templates"))):
        with open(os.path.join(HERE, "templates", file), newline="") as f:
            families[file] = f.read()
    snippets = {f"{group}/{i}": s for group, list in SNIPPETS.items() for i, s in enumerate(list)}
    cases = [case(n, s, CONVERSATIONS[c], c) for n, s in families.items() for c in CONVERSATIONS]
    cases += [case(n, s, VARIABLES, "VARIABLES") for n, s in snippets.items()]
    data = {"vars": {**CONVERSATIONS, "VARIABLES": VARIABLES}, "snippets": snippets, "cases": cases}
    with open(os.path.join(HERE, "cases.json"), "w") as f:
        json.dump(data, f, ensure_ascii=True, indent=1)
        f.write("\n")
    failed = sum("error" in c for c in cases)
    print(f"{len(families)} templates, {len(snippets)} snippets, {len(cases)} cases, {failed} of them failures")
    if "-v" in sys.argv:
        for c in cases:
            if "error" in c:
                print(c["name"], c["vars"], c["error"])


main()
