#!/usr/bin/env python3
"""Write topk.json: which of many equal scores torch.topk chooses on a CPU.

    python topk.py >topk.json

Each case has the scores (null: minus infinity), k, and the chosen indices in ascending order.
"""
import json
import random

import torch

random.seed(7)
cases = []
for n in (1, 2, 3, 4, 5, 13, 37, 48, 96, 200):
    for k in sorted({1, max(1, n // 70), max(1, n // 4), max(1, n // 2), n}):
        for kind in ("zeros", "some", "few"):
            if kind == "zeros":
                v = [0.0 if random.random() < 0.6 else round(random.uniform(-1, 1), 3) for _ in range(n)]
            elif kind == "some":
                m = random.randint(1, n)
                v = [random.choice([0.0, 0.5, round(random.uniform(-1, 1), 3)]) for _ in range(m)] + [-float("inf")] * (n - m)
            else:
                v = [random.choice([0.0, 0.25]) for _ in range(n)]
            chosen = sorted(torch.tensor(v).topk(k).indices.tolist())
            cases.append({"k": k, "scores": [None if x == -float("inf") else x for x in v], "chosen": chosen})
print(json.dumps(cases, separators=(",", ":")))
