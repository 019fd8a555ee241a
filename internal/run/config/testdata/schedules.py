"""Learning rates of transformers.optimization, for TestSchedulesOfTransformers.

stdin: a JSON list of {type, kwargs, lr, warmup, steps}; stdout: for each, the rate of every step.
Needs torch and transformers.
"""

import json
import sys

import torch
from transformers import get_scheduler


def rates(case):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=case["lr"])
    scheduler = get_scheduler(case["type"], optimizer, num_warmup_steps=case["warmup"],
                              num_training_steps=case["steps"], scheduler_specific_kwargs=case["kwargs"])
    out = []
    for _ in range(case["steps"]):
        out.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return out


json.dump([rates(case) for case in json.load(sys.stdin)], sys.stdout)
