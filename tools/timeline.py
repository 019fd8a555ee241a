#!/usr/bin/env python3
"""Draws the timeline of one training step as SVG, from a trace that `mt train --trace` wrote.

    python3 tools/timeline.py TRACE.json STEP > docs/pictures/timeline.svg

The trace may be compressed (.gz). The picture begins with the step's batch and ends with its last
update, so it also shows what the following step does in that time, in paler colours. It needs no packages.
tools/pictures.sh makes docs/pictures/timeline.svg.
"""
import gzip
import json
import sys

TRACKS = [("h2d", "copies to the device"), ("compute", "compute stream"), ("d2h", "copies to the host"),
          ("optimizer", "Optimizer, on the CPU")]
LEGEND = [("fetch", "fetch weights"), ("forward", "forward"), ("backward", "backward"), ("offload", "offload gradients"),
          ("measure", "measure norms"), ("update", "update"), ("wait", "compute waits")]
WIDTH, LEFT, TOP, HEIGHT, GAP = 960, 172, 78, 34, 16
STYLE = """
.paper{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d8dde3}
.fetch{fill:#0072b2}.forward{fill:#008f6b}.backward{fill:#d55e00}.offload{fill:#b0479a}.measure{fill:#8a6d00}
.update{fill:#6a3fb5}.wait{fill:#c9ced6}.other{opacity:.4}.span{stroke:#fff;stroke-width:.6}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#30363d}
.fetch{fill:#56b4e9}.forward{fill:#2fcf9f}.backward{fill:#ff8c42}.offload{fill:#e58fc9}.measure{fill:#e6c229}
.update{fill:#b79cff}.wait{fill:#3d444d}.span{stroke:#0d1117}}
"""


def spans(path):
    """All spans of the drawn tracks: (track, kind, name, step, begin, end), in milliseconds."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        events = json.loads(f.read().rstrip().rstrip(",").rstrip("]").rstrip().rstrip(",") + "]")
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    wanted = dict(TRACKS)
    for e in events:
        if e["ph"] == "X" and names.get(e["tid"]) in wanted:
            begin = e["ts"] / 1000
            yield names[e["tid"]], e["name"].split()[0], e["name"], e["args"].get("step"), begin, begin + e["dur"] / 1000


def main():
    path, step = sys.argv[1], int(sys.argv[2])
    found = list(spans(path))
    mine = [s for s in found if s[3] == step and s[1] != "wait"]
    if not mine:
        sys.exit(f"{path} has no spans of step {step}")
    start, end = min(s[4] for s in mine if s[0] == "h2d"), max(s[5] for s in mine)
    scale = (WIDTH - LEFT - 20) / (end - start)
    height = TOP + len(TRACKS) * (HEIGHT + GAP) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
           f'font-family="system-ui,sans-serif" font-size="13"><title>Timeline of one step</title><style>{STYLE}</style>'
           f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
           f'<text class="ink" x="20" y="28" font-size="16">Step {step}, {end - start:.0f} ms: copies, computing and updates overlap</text>']
    at = 20
    for kind, label in LEGEND:
        out.append(f'<rect class="{kind}" x="{at}" y="44" width="12" height="12"/><text class="soft" x="{at + 17}" y="55">{label}</text>')
        at += 40 + 7 * len(label)
    tick = next(t for t in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if (end - start) / t < 12)
    bottom = height - 30
    for k in range(int((end - start) // tick) + 1):
        x = LEFT + k * tick * scale
        out.append(f'<path class="grid" d="M{x:.1f} {TOP - 6}V{bottom}"/><text class="soft" x="{x:.1f}" y="{bottom + 18}" '
                   f'text-anchor="middle">{k * tick} ms</text>')
    for i, (track, label) in enumerate(TRACKS):
        y = TOP + i * (HEIGHT + GAP)
        out.append(f'<text class="ink" x="20" y="{y + 22}">{label}</text>')
        for _, kind, name, of, a, b in (s for s in found if s[0] == track and s[5] > start and s[4] < end):
            a, b = max(a, start), min(b, end)
            long = "span " if (b - a) * scale > 4 else ""
            other = " other" if of != step else ""
            out.append(f'<rect class="{long}{kind}{other}" x="{LEFT + (a - start) * scale:.1f}" y="{y}" width="{max((b - a) * scale, 1.2):.1f}" '
                       f'height="{HEIGHT}"><title>{name}, step {of}: {b - a:.1f} ms</title></rect>')
    print("\n".join(out) + "\n</svg>")


main()
