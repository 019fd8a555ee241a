"""Records what torch.optim.Muon does to a few matrices in 50 steps, for muon_test.go.

    PYTHON muon.py > muon.json

PYTHON has the torch of tools/requirements.txt. A case is a matrix, its gradients and, of every
step, u and o: what goes into the orthogonalisation and what comes out. Then come the weights and
the momentum at the end. Numbers are the bits of fp32, in base64, little-endian; u and o are bf16.
"""
import base64
import json

import torch
import torch.optim._muon as code

STEPS = 50


def bits(x):
    if x.dtype == torch.bfloat16:
        return base64.b64encode(x.contiguous().view(torch.int16).numpy().tobytes()).decode()
    return base64.b64encode(x.contiguous().numpy().tobytes()).decode()


def record(rows, cols, seed, **options):
    gen = torch.Generator().manual_seed(seed)
    w = torch.nn.Parameter(torch.randn(rows, cols, generator=gen) * 0.1)
    first = w.detach().clone()
    seen = []
    whole = code._zeropower_via_newtonschulz

    def watched(grad, *args):
        o = whole(grad, *args)
        seen.append((grad.bfloat16().clone(), o.clone()))
        return o

    code._zeropower_via_newtonschulz = watched
    grads = []
    opt = torch.optim.Muon([w], **options)
    for step in range(STEPS):
        g = torch.randn(rows, cols, generator=gen) * 0.01 + 0.005 * first * (step % 7 - 3)
        grads.append(g)
        w.grad = g.clone()
        opt.step()
    code._zeropower_via_newtonschulz = whole
    return {
        "rows": rows, "cols": cols, "options": options, "first": bits(first),
        "grads": bits(torch.stack(grads)), "u": bits(torch.stack([u for u, _ in seen])), "o": bits(torch.stack([o for _, o in seen])),
        "last": bits(w.detach()), "momentum": bits(opt.state[w]["momentum_buffer"]),
    }


torch.set_num_threads(1)
cases = [
    record(6, 16, 1, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"),
    record(16, 6, 2, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="original"),
    record(10, 10, 3, lr=0.003, weight_decay=0.0, momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw"),
    record(16, 6, 4, lr=0.003, weight_decay=0.3, momentum=0.4, nesterov=True, adjust_lr_fn="match_rms_adamw", ns_steps=3),
]
print(json.dumps({"torch": torch.__version__, "cases": cases}))
