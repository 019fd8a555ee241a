#!/usr/bin/env python3
"""Writes ../unicode.bin: what each code point is to PyPI `tokenizers`, whose regular expressions know another version of
Unicode than Go does and whose normalizers know a third.

    pip install tokenizers
    python3 testdata/unicode.py

The file is a sequence of runs over all code points from 0: a varint (7 bits a byte, low bits first) with the length of
the run, then one byte for all of its code points: the general category (its index in CATEGORIES; 28, 29 and 30: Mn, Mc
and Me that StripAccents leaves; 31: none of them), +32 where [\\w] matches, +64 where the normalizers neither decompose the code point nor move it, +128 where \\p{Han} matches.
"""
import os

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# One combining mark of each of the canonical combining classes 1, 8, 9, 10, 220, 230 and 240.
MARKS = "\u0334\u3099\u094d\u05b0\u0323\u0301\u0345"


def matching(pattern):
    """The code points that pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str("".join(ALL)) for c in piece}


def inert(c, nfd, nfkd):
    """Whether the normalizers neither decompose c nor give it a combining class."""
    if nfkd.normalize_str(c) != c:
        return False
    text = "x".join("a" + c + m + "xa" + m + c for m in MARKS)
    return nfd.normalize_str(text) == text


def main():
    table = [31] * 0x110000
    for i, category in enumerate(CATEGORIES):
        for c in matching(r"\p{%s}" % category):
            table[c] = i
    nfd, nfkd, strip = normalizers.NFD(), normalizers.NFKD(), normalizers.StripAccents()
    for c in ALL:
        if CATEGORIES[table[ord(c)] % 31][0] == "M" and strip.normalize_str(c):
            table[ord(c)] += 28 - CATEGORIES.index("Mn")
        table[ord(c)] |= 64 * inert(c, nfd, nfkd)
    for bit, pattern in ((32, r"[\w]"), (128, r"\p{Han}")):
        for c in matching(pattern):
            table[c] |= bit
    out, start = bytearray(), 0
    for c in range(1, len(table) + 1):
        if c < len(table) and table[c] == table[start]:
            continue
        n = c - start
        while n >= 128:
            out.append(n & 127 | 128)
            n >>= 7
        out += bytes((n, table[start]))
        start = c
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unicode.bin")
    with open(path, "wb") as f:
        f.write(out)
    print(f"{len(out)} bytes, by tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
