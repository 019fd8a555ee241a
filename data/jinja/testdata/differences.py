"""Renders random templates with jinja2 and has the Go test compare.

    V/bin/python jinja/testdata/differences.py --seed 1 --count 5000

Writes a file of the form of cases.json and runs TestDifferences with it; what
differs is printed by the test. Templates are made from a grammar: expressions of
every operator, filter, test and method over the variables of snippets.py, in
statements that set, loop, define and call.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys

import environment
from snippets import VARIABLES

HERE = os.path.dirname(os.path.abspath(__file__))

ATOMS = (
    "0 1 2 3 -1 5 10 1.5 0.1 -2.5 2.0 1e3 true false none 'a' 'b' '' 'ab' ' x ' 'Hello World' 'a,b,c' '5' '-7' '1.5' 'é🙂' '<b>' '%s' '{}' "
    "[] [1] [1,2,3] ['a','b'] [[1,2],[3]] {} {'a':1} {'b':[1],'a':none} (1,2) () (1,) missing s t e u n z neg f big yes no nil l words empty nested "
    "d ed mixed rows html lines deep quote x y ns.v q loop.index range(3) rows[0] rows[3] d.items() d.keys() m"
).split(" ")
ATOMS = [a for a in ATOMS if a] + ["' x '", "'a b  c'", "'\\n a\\n'", "\"it's\""]
BINARY = "+ - * / // % ~ == != < <= > >= in and or".split() + ["not in", "is", "**"]
FILTERS = {
    "abs": "", "attr": "s", "batch": "i.", "capitalize": "", "center": "w", "count": "", "default": ".b", "d": ".", "dictsort": "", "e": "",
    "first": "", "float": "", "forceescape": "", "format": "..", "groupby": "k", "indent": "wbb", "int": "", "items": "", "join": "s", "last": "",
    "length": "", "list": "", "lower": "", "map": "F", "max": "", "min": "", "reject": "T", "rejectattr": "kT", "replace": "ss", "reverse": "",
    "round": "p", "safe": "", "select": "T", "selectattr": "kT", "slice": "i", "sort": "b", "string": "", "sum": "", "title": "", "tojson": "",
    "trim": "", "truncate": "wb", "unique": "", "upper": "", "wordcount": "",
}
TESTS = {
    "defined": "", "undefined": "", "none": "", "string": "", "number": "", "integer": "", "float": "", "boolean": "", "mapping": "", "sequence": "",
    "iterable": "", "true": "", "false": "", "eq": ".", "ne": ".", "lt": ".", "gt": ".", "le": ".", "ge": ".", "in": ".", "odd": "", "even": "",
    "divisibleby": "i", "lower": "", "upper": "", "escaped": "", "filter": "", "test": "", "==": None, "callable": "",
}
METHODS = {
    "upper": "", "lower": "", "title": "", "capitalize": "", "swapcase": "", "strip": "s", "lstrip": "s", "rstrip": "s", "split": "si", "rsplit": "si",
    "splitlines": "b", "replace": "ssi", "startswith": "s", "endswith": "s", "find": "sii", "rfind": "sii", "count": "s", "join": ".", "format": "...",
    "removeprefix": "s", "removesuffix": "s", "partition": "s", "center": "ws", "ljust": "w", "zfill": "w", "isdigit": "", "isupper": "", "isspace": "",
    "items": "", "keys": "", "values": "", "get": "..", "copy": "", "index": ".", "append": ".", "nope": "", "istitle": "", "isalnum": "", "expandtabs": "i",
}
KEYS = ["'n'", "'v'", "'g.h'", "'a'", "0", "'0'", "'x'"]
FORMATS = ["'%s'", "'%d'", "'%5.1f'", "'%-6s|'", "'%05d'", "'%x'", "'%r'", "'%s %s'", "'%(a)s'", "'%e'", "'%g'", "'%+d'", "'%c'", "'%%'", "'%.2s'"]
SPECS = ["'{}'", "'{:>5}'", "'{:05.1f}'", "'{:d}'", "'{:,}'", "'{!r}'", "'{0}{1}'", "'{:x}'", "'{:^7}|'", "'{:.3}'", "'{0.a}'", "'{0[a]}'", "'{:e}'", "'{:%}'", "'{:g}'", "'{:+}'"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, list):
        return self.r.choice(list)

    def small(self):
        return str(self.r.randint(-3, 6))

    def argument(self, kind, depth):
        if kind == "s":
            return self.pick(["'a'", "'b'", "' '", "','", "'l'", "'o'", "none", "'ab'", "''", "1", "'\\n'", "s", "u"])
        if kind == "i":
            return self.pick([self.small(), "2", "none" if self.r.random() < 0.2 else "1"])
        if kind == "w":
            return self.pick(["3", "8", "12", "0", "'--'", "20"])
        if kind == "p":
            return self.pick(["0", "1", "2", "-1", "1, 'floor'", "0, 'ceil'"])
        if kind == "b":
            return self.pick(["true", "false", "1"])
        if kind == "k":
            return self.pick(KEYS)
        if kind == "F":
            name = self.pick(["upper", "string", "int", "length", "first", "tojson", "trim", "default"])
            return self.pick([f"'{name}'", f"attribute={self.pick(KEYS)}", f"attribute={self.pick(KEYS)}, default={self.pick(['0', '1', chr(39) + 'z' + chr(39)])}"])
        if kind == "T":
            name = self.pick(["odd", "string", "none", "defined", "mapping", "number", "even"])
            return self.pick([f"'{name}'", "", f"'{self.pick(['eq', 'gt', 'in', 'ne', 'lt'])}', {self.expression(depth - 1)}"])
        return self.expression(depth - 1)

    def arguments(self, kinds, depth):
        n = self.r.randint(0, len(kinds)) if self.r.random() < 0.4 else len(kinds)
        return ", ".join(a for a in (self.argument(k, depth) for k in kinds[:n]) if a)

    def expression(self, depth):
        if depth <= 0 or self.r.random() < 0.15:
            return self.pick(ATOMS)
        kind = self.r.randint(0, 15)
        if kind <= 3:
            op = self.pick(BINARY)
            if op == "is":
                return self.test(depth)
            left, right = self.expression(depth - 1), self.expression(depth - 1)
            if op == "**":
                return f"{self.pick(['2', 'n', '1.5', 'true'])} ** {self.small()}"
            return f"{left} {op} {right}" if self.r.random() < 0.5 else f"({left} {op} {right})"
        if kind <= 6:
            name = self.pick(list(FILTERS))
            a = self.arguments(FILTERS[name], depth)
            if name == "format":
                return f"{self.pick(FORMATS)} | format({a})"
            left = self.pick(["s", "t", "u", "lines"]) if name == "wordcount" else self.expression(depth - 1)
            left = left if re.fullmatch(r"[\w.'\[\]]+", left) or self.r.random() < 0.2 else f"({left})"
            return f"{left} | {name}" + (f"({a})" if a else "")
        if kind <= 8:
            name = self.pick(list(METHODS))
            a = self.arguments(METHODS[name], depth)
            on = f"({self.expression(depth - 1)})" if self.r.random() < 0.5 else self.pick(["s", "t", "u", "d", "'a,b,c'", "l", "words", "lines", "quote"])
            if name == "format":
                on = self.pick(SPECS)
            return f"{on}.{name}({a})"
        if kind == 9:
            # no constants without slices, such as numbers: jinja2 evaluates these while it parses, with other results
            on = self.pick(["s", "u", "t", "l", "nested", "rows", "words", "range(5)", "(1, 2)", "missing", "n", "nil", "d", "lines", "q", "x", "m(1)"])
            parts = [self.pick(["", self.small()]) for _ in range(self.r.randint(2, 3))]
            return f"{on}[{':'.join(parts)}]" if self.r.random() < 0.6 else f"{on}[{self.pick([self.small(), KEYS[3], self.expression(depth - 1)])}]"
        if kind == 10:
            return f"{self.expression(depth - 1)} if {self.expression(depth - 1)}" + (f" else {self.expression(depth - 1)}" if self.r.random() < 0.7 else "")
        if kind == 11:
            return f"{self.pick(['not', '-', '+', 'not '])} {self.expression(depth - 1)}"
        if kind == 12:
            return "[" + ", ".join(self.expression(depth - 2) for _ in range(self.r.randint(0, 3))) + "]"
        if kind == 13:
            return "{" + ", ".join(f"{self.pick([chr(39) + 'k' + chr(39), '1', 'n', 's'])}: {self.expression(depth - 2)}" for _ in range(self.r.randint(0, 2))) + "}"
        if kind == 14:
            return f"{self.pick(FORMATS)} % ({self.expression(depth - 1)})"
        return f"m({self.expression(depth - 2)})" if self.r.random() < 0.4 else f"({self.expression(depth - 1)}).{self.pick(['a', 'b', 'x', 'items', 'g', '0'])}"

    def test(self, depth):
        name = self.pick([t for t in TESTS if TESTS[t] is not None])
        a = self.arguments(TESTS[name], depth)
        return f"({self.expression(depth - 1)}) is {self.pick(['', 'not '])}{name}" + (f"({a})" if a else "")

    def space(self):
        return self.pick(["", "", "\n", " ", "\n  ", "  \n", "text", "a\n    "])

    def tag(self, inner):
        return "{%" + self.pick(["", "", "-", "+"]) + f" {inner} " + self.pick(["", "", "-", "+"]) + "%}"

    def body(self, depth):
        return "".join(self.space() + self.statement(depth) for _ in range(self.r.randint(1, 3))) + self.space()

    def statement(self, depth):
        e = self.expression(self.r.randint(0, 3))
        kind = self.r.randint(0, 15) if depth > 0 else self.r.randint(0, 3)
        if kind <= 2:
            return "{{" + self.pick(["", "-"]) + f" {e} " + self.pick(["", "-"]) + "}}"
        if kind == 3:
            return self.tag(f"set {self.pick(['x', 'y', 'q', 'ns.v', 'x, y', 'n', 's'])} = {e}")
        if kind <= 6:
            more = self.tag(f"elif {self.expression(1)}") + self.body(depth - 1) if self.r.random() < 0.3 else ""
            more += self.tag("else") + self.body(depth - 1) if self.r.random() < 0.5 else ""
            return self.tag(f"if {e}") + self.body(depth - 1) + more + self.tag("endif")
        if kind <= 10:
            target = self.pick(["x", "x", "y", "x, y"])
            over = self.pick(["l", "words", "rows", "d", "d.items()", "range(4)", "nested", "empty", e, "words | map('upper')", "s"])
            only = f" if {self.expression(1)}" if self.r.random() < 0.25 else ""
            extra = "{{ loop." + self.pick(["index", "last", "first", "length", "revindex", "previtem", "nextitem", "index0", "changed(x)", "cycle(1,2)"]) + " }}"
            jump = self.tag(f"if {self.expression(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") if self.r.random() < 0.3 else ""
            other = self.tag("else") + self.body(0) if self.r.random() < 0.3 else ""
            return self.tag(f"for {target} in {over}{only}") + extra + jump + self.body(depth - 1) + other + self.tag("endfor")
        if kind == 11:
            return self.tag(self.pick(["set x", "set y | trim", "set ns.v", "set q | upper"])) + self.body(depth - 1) + self.tag("endset")
        if kind == 12:
            head = self.pick(["m()", "m(x)", "m(x, y=2)", f"m(x={self.pick(['1', 'n', 's'])})", "m(y, x=y)"])
            return self.tag(f"macro {head}") + self.body(depth - 1) + self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller is defined }}"]) + self.tag("endmacro")
        if kind == 13:
            return self.tag(f"call m({self.pick(['', '1', 'x'])})") + self.body(depth - 1) + self.tag("endcall")
        if kind == 14:
            head = self.pick(["filter upper", "filter trim", "generation", f"with y = {e}", "filter replace('a', 'b')"])
            return self.tag(head) + self.body(depth - 1) + self.tag("end" + head.split()[0])
        return self.pick(["{# c #}", "{#- c -#}", "{# c -#}", "{% raw %} {{ x }} {% endraw %}"])

    def template(self):
        if self.r.random() < 0.5:
            return "{{ " + self.expression(self.r.randint(1, 4)) + " }}"
        return "{% set ns = namespace(v=1) %}" + self.body(self.r.randint(1, 3))


# Set operations on a dict's views, which are left out: the order of their results is undefined.
VIEWS = re.compile(r"d\.(items|keys)\(\)\)* [-<>]|[-<>]=?\s*\(*d\.(items|keys)")
UNSTABLE = re.compile(r" (?i:[ba]t 0x)|\{\(|set\(|<function|<built-in|<Loop|<class|<bound|<Macro|Markup|(?i:object>|generator|do_|reverseiter|object sync)")


class Late(BaseException):
    pass


def late(*_):
    raise Late


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=5000)
    p.add_argument("--out", default="/tmp/mt_template_cases.json")
    o = p.parse_args()
    signal.signal(signal.SIGALRM, late)
    maker, snippets, cases, failed = Maker(o.seed), {}, [], 0
    while len(cases) < o.count:
        source, name = maker.template(), f"{o.seed}/{len(cases)}"
        if VIEWS.search(source):
            continue
        case = {"name": name, "vars": "VARIABLES"}
        try:
            signal.setitimer(signal.ITIMER_REAL, 2)
            text, spans = environment.render(source, VARIABLES)
            text.encode()
            if len(text) > 100000 or UNSTABLE.search(text):
                continue
            case["text"] = text
            if spans and "filter" not in source and "macro" not in source and "set" not in source[30:]:
                case["generation"] = spans
        except Late:
            continue
        except Exception as e:
            if failed > o.count * 0.4:
                continue  # enough failing templates: those that render test more
            case["error"] = f"{type(e).__name__}: {e}"[:200]
            failed += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        snippets[name] = source
        cases.append(case)
    with open(o.out, "w") as f:
        json.dump({"vars": {"VARIABLES": VARIABLES}, "snippets": snippets, "cases": cases}, f)
    print(f"{len(cases)} templates, {failed} of them fail in jinja2", flush=True)
    env = {**os.environ, "MT_TEMPLATE_CASES": o.out}
    sys.exit(subprocess.call(["go", "test", "-count=1", "-run", "TestDifferences", "-v", "."], cwd=os.path.dirname(HERE), env=env))


main()
