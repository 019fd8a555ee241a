#!/usr/bin/env python3
"""Turns the JSON files that bench/gpu.sh leaves into one Markdown page.

    python3 bench/peers/gpu_report.py DIR [PART=OUTCOME ...]

Prints to standard output. Needs the standard library alone. Tokens a second are
medians of the timed steps; a ratio is that of the two sides of one part, and its
range that of the parts that compare the same.
"""

import json
import pathlib
import statistics
import sys


def load(folder, name):
    file = folder / f"{name}.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def rates_of_mt(run):
    if not run:
        return []
    tokens = run["shape"]["rows"] * run["shape"]["seq_len"]
    return [tokens / s for s in run["step_seconds"]["ours"]]


def middle(values):
    return f"{statistics.median(values):,.0f} [{min(values):,.0f}–{max(values):,.0f}]" if values else "not measured"


def table(rows):
    widths = [max(len(str(r[i])) for r in rows) for i in range(len(rows[0]))]
    line = lambda r: "| " + " | ".join(str(c).ljust(w) for c, w in zip(r, widths)) + " |"
    print("\n".join([line(rows[0]), "| " + " | ".join("-" * w for w in widths) + " |"] + [line(r) for r in rows[1:]]))
    print()


def selftest(run):
    print("## Self test\n")
    if not run:
        print("Not there.\n")
        return
    failed = [c for c in run["checks"] or [] if not c["ok"]]
    print(f"{run['device']}: {'passed' if run['ok'] else str(len(failed)) + ' checks FAILED'}, {len(run['checks'] or [])} checks.\n")
    if run.get("running"):
        print(f"It was cut off while {run['running']} ran.\n")
    if run.get("error"):
        print(f"It ended before its end: {run['error']}\n")
    for c in failed:
        print(f"- {c['name']}: {'; '.join(c.get('errors', []))}")
    table([["what", "figure", ""]] + [[r["name"], f"{r['value']:.4g} {r['unit']}", r.get("detail", "")] for r in run["rates"] or []])


def run_rows(folder, names):
    rows = [["part", "tokens a step", "tokens/s", "model TFLOP/s", "compute stalled", "device memory", "host to device", "device to host"]]
    for name in names:
        r = load(folder, name)
        if not r:
            continue
        t = r["details"]
        rows.append([
            name, f"{r['shape']['rows'] * r['shape']['seq_len']:,}", middle(rates_of_mt(r)), f"{t['tflops']:.1f}",
            f"{100 * r['pipeline']['stall_share']:.1f} %", f"{t['device_bytes'] / 2**30:.2f} GiB",
            f"{t['h2d_gbps']:.1f} GB/s", f"{t['d2h_gbps']:.1f} GB/s",
        ])
    return rows


PEERS = (
    ("FSDP2 with CPU offload, rows of 1024", ("fsdp2-1024", "fsdp2-again")),
    ("FSDP2 with CPU offload, rows of 8192", ("fsdp2-8192",)),
    ("ZeRO-3 with CPU offload, rows of 1024", ("zero3-1024", "zero3-again")),
    ("ZeRO-3 with CPU offload, rows of 8192", ("zero3-8192",)),
    ("MegaTrain, rows of 1024", ("megatrain-1024",)),
    ("plain PyTorch, 2 blocks, rows of 1024", ("torch-1024",)),
)


def ratios(folder):
    """Both sides' model TFLOP/s count the same; how far losses and norms of the gradients were
    apart shows that they train the same."""
    rows = [["beside", "mt tokens/s", "peer tokens/s", "model TFLOP/s", "ratio", "losses, norms differ by", "the peer's setting"]]
    for label, names in PEERS:
        runs = [r for r in (load(folder, n) for n in names) if r and r.get("ratio")]
        if not runs:
            ours = [r["ours_tok_per_s"]["median"] for r in (load(folder, n) for n in names) if r and r.get("ours_tok_per_s")]
            rows.append([label, middle(ours), "not measured", "", "", "", ""])
            continue
        every = sorted(r["ratio"]["median"] for r in runs)
        agreement = [r["agreement"] for r in runs if r.get("agreement")]
        about = runs[-1].get("peer") or {}
        rows.append([
            label + (", ended early" if any(r.get("error") for r in runs) else ""), middle([r["ours_tok_per_s"]["median"] for r in runs]), middle([r["peer_tok_per_s"]["median"] for r in runs]),
            f"{runs[-1]['ours_model_tflops']:.3g} and {runs[-1]['peer_model_tflops']:.3g}",
            f"{statistics.median(every):.2f} [{every[0]:.2f}–{every[-1]:.2f}]",
            f"{max(a['loss'] for a in agreement):.1g}, {max(a['grad_norm'] for a in agreement):.1g}" if agreement else "",
            f"{about.get('micro_rows')} rows at once {json.dumps(about.get('setting')) if about.get('setting') else ''}".strip(),
        ])
    return rows


RATES = ("attention", "copy", "matmul")


def rates(name, run):
    """A table of mt bench attention, copy or matmul: what was timed, and its figure."""
    if not run:
        return
    print(f"## {name}\n")
    rows = [["what", "figure", "least to most"]]
    for r in run["rows"]:
        unit, figure = next((k, v) for k, v in r.items() if isinstance(v, dict) and "median" in v)
        what = ", ".join(str(v) if isinstance(v, str) else f"{k} {v:,}" for k, v in r.items() if isinstance(v, (str, int)) and v not in (True, False) and k != "runs")
        rows.append([what, f"{figure['median']:.4g} {unit}", f"{figure['min']:.4g} to {figure['max']:.4g}"])
    table(rows)


def notes(folder, names):
    """What the device had to say: memory that could not be pinned, products that cuBLASLt refused."""
    said = {}
    for name in names:
        r = load(folder, name) or {}
        for n in r.get("notes") or (r.get("details") or {}).get("notes") or []:
            said.setdefault(n, []).append(name)
    print("## Notes of the device\n")
    for n, where in said.items():
        print(f"- {n} ({', '.join(where)})")
    print("" if said else "None.\n")


def profile(run):
    print("## Where the time of a step goes\n")
    if not run or not run.get("profile"):
        print("Not measured.\n")
        return
    total = sum(p["total_ns"] for p in run["profile"])
    rows = [["operation", "calls", "ms", "share", "TFLOP/s"]]
    for p in run["profile"][:40]:
        flops = f"{p['flops'] / p['total_ns'] / 1e3:.0f}" if p.get("flops") else ""
        rows.append([f"{p['op']} {p.get('shape', '')}".strip(), p["calls"], f"{p['total_ns'] / 1e6:.2f}", f"{100 * p['total_ns'] / total:.1f} %", flops])
    table(rows)
    steps, timed = run["profile_steps"], len(run["step_seconds"]["ours"])
    print(f"Operations together {total / steps / 1e9:.3f} s a step, over {steps} steps, of {run['pipeline']['compute_s'] / timed:.3f} s "
          "of the compute stream; with events around each, so slower than the runs above.\n")


def sanitized(folder):
    """What compute-sanitizer found, tool by tool."""
    logs = sorted(folder.glob("sanitize-*.txt"))
    if not logs:
        return
    print("## compute-sanitizer\n")
    for log in logs:
        lines = [line.rstrip() for line in log.read_text(errors="replace").splitlines()]
        summary = [line.strip("= ") for line in lines if "SUMMARY" in line] or ["it was stopped before its summary"]
        print(f"{log.stem.removeprefix('sanitize-')}: {summary[-1]}\n")
        found = [line for line in lines if line.startswith("=========") and line.strip("= ") and "SUMMARY" not in line and "COMPUTE-SANITIZER" not in line]
        if found:
            print("\n".join(["```", *found[:40], *(["…"] if len(found) > 40 else []), "```\n"]))


def main():
    folder, outcomes = pathlib.Path(sys.argv[1]), [a.split("=", 1) for a in sys.argv[2:]]
    machine = load(folder, "machine") or {}
    print(f"# mt on {machine.get('gpu') or 'an unknown device'}\n")
    if machine.get("scale") == "small":
        print("**A trial of the script at toy sizes: the figures mean nothing.**\n")
    print(f"{machine.get('date')}, {machine.get('mt')}, {machine.get('cores')} cores of {machine.get('processor')}, "
          f"{machine.get('host_memory_available', 0) / 2**30:.0f} GiB of host memory free; {machine.get('blocks')} blocks where not said otherwise.\n")
    selftest(load(folder, "selftest"))
    sanitized(folder)
    print("## Training steps\n")
    gpus = sorted((f.stem for f in folder.glob("gpus-*.json")), key=lambda n: int(n.split("-")[1]))
    names = ["blocks-2", "seq1024", *gpus, "seq8192", "slots-1", "slots-2", "slots-3", "kernels-fused", "kernels-sm90a", "budget-14b", "budget-32k",
             "batch-16", "batch-32", "batch-64", "depth-slots4", "depth-grad1", "full-7b"]
    table(run_rows(folder, names))
    table(ratios(folder))
    profile(load(folder, "profile"))
    for name in RATES:
        rates(name, load(folder, name))
    notes(folder, ["selftest", *names, "profile", *(n for _, parts in PEERS for n in parts)])
    print("## Parts\n")
    for name, outcome in outcomes:
        print(f"- {name}: {outcome}")
    print("\nThe full configuration of every run is in its JSON file beside this page.")


if __name__ == "__main__":
    main()
