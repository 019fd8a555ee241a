#!/usr/bin/env python3
"""Draws as SVG what a run keeps on the host and on the device, from the JSON of `mt plan`.

    mt plan --model qwen2.5-7b --gpu rtx4090 --host-memory 128GiB --json |
        python3 tools/memory_picture.py "Qwen2.5 7B on a 24 GB card" > docs/pictures/memory-7b.svg

It needs no packages. tools/pictures.sh makes docs/pictures/memory-7b.svg.
"""
import json
import sys

WIDTH, LEFT, BAR = 960, 20, 46
LIGHT = ["#0072b2", "#56a0cf", "#6a3fb5", "#d55e00", "#008f6b", "#b0479a", "#8a6d00", "#8c959f"]
DARK = ["#56b4e9", "#2f7fb0", "#b79cff", "#ff8c42", "#2fcf9f", "#e58fc9", "#e6c229", "#656c76"]
PLACES = [("host", "Host memory"), ("device", "Device memory, at the same scale")]


def size(n):
    return f"{n / 2**30:.0f} GiB" if n >= 10 * 2**30 else f"{n / 2**30:.1f} GiB"


def parts(rows, where):
    """The seven largest purposes of one side, and the sum of the rest."""
    mine = sorted((r for r in rows if r["where"] == where), key=lambda r: -r["bytes"])
    out = [(r["purpose"], r["detail"], r["bytes"]) for r in mine[:7]]
    rest = sum(r["bytes"] for r in mine[7:])
    return out + ([("all else", "", rest)] if rest > 2**26 else [])


def main():
    memory = json.load(sys.stdin)["memory"]
    style = ".paper{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}" + "".join(f".c{i}{{fill:{c}}}" for i, c in enumerate(LIGHT))
    style += "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}"
    style += "".join(f".c{i}{{fill:{c}}}" for i, c in enumerate(DARK)) + "}"
    scale, y, body = (WIDTH - 2 * LEFT) / memory["host_bytes"], 62, []
    for where, label in PLACES:
        total = memory[where + "_bytes"]
        body.append(f'<text class="ink" x="{LEFT}" y="{y}" font-size="14">{label}: {size(total)}</text>')
        x, found = LEFT, parts(memory["rows"], where)
        for i, (purpose, _, n) in enumerate(found):
            body.append(f'<rect class="c{i}" x="{x:.1f}" y="{y + 10}" width="{max(n * scale - 1, .8):.1f}" height="{BAR}">'
                        f'<title>{purpose}: {size(n)}</title></rect>')
            x += n * scale
        y += BAR + 34
        for i, (purpose, detail, n) in enumerate(found):
            column, line = LEFT + (i % 2) * 470, y + (i // 2) * 22
            text = f"{purpose}, {size(n)}" + (f": {detail}" if detail else "")
            body.append(f'<rect class="c{i}" x="{column}" y="{line - 10}" width="12" height="12"/>'
                        f'<text class="soft" x="{column + 19}" y="{line}">{text}</text>')
        y += (len(found) + 1) // 2 * 22 + 22
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y - 16}" viewBox="0 0 {WIDTH} {y - 16}" role="img" '
          f'font-family="system-ui,sans-serif" font-size="13"><title>{sys.argv[1]}</title><style>{style}</style>'
          f'<rect class="paper" width="{WIDTH}" height="{y - 16}"/><text class="ink" x="{LEFT}" y="30" font-size="16">{sys.argv[1]}</text>')
    print("\n".join(body) + "\n</svg>")


main()
