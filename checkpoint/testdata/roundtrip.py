"""What mt writes, Transformers loads: no missing, unexpected or mismatched key,
and the same numbers.

  python roundtrip.py MT FIXTURE_DIR...

MT is the binary; a FIXTURE_DIR holds model/, train.jsonl and logits.safetensors
(the logits of the first two rows). For each, twice: training with a learning rate
of 0 must give back every tensor byte for byte, and so the recorded logits; after
three real steps Transformers' loss of the output must be the one that mt eval
computes. Needs torch, transformers and safetensors. Prints one line per model and
ends with an error where something does not hold.
"""
import glob, json, os, subprocess, sys, tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

# Transformers computes both logits, but its matrix products may add in another order
# on another machine. The bound is some fp32 roundings of logits below 4.
LOGITS = 1e-5
# Relative. mt and Transformers add some ten thousand fp32 terms in different orders.
LOSS = 1e-5


def tensors(d):
    out = {}
    for path in glob.glob(d + "/*.safetensors"):
        with safe_open(path, "pt") as f:
            for k in f.keys():
                out[k] = f.get_tensor(k)
    return out


def mt(binary, *args):
    r = subprocess.run([binary, *args], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"mt {' '.join(args)}: {r.stderr}")
    return r.stdout


def train(binary, d, out, rate, steps):
    mt(binary, "train", "--model-name-or-path", d + "/model", "--dataset", d + "/train.jsonl", "--output-dir", out,
       "--save-dtype", "fp32", "--compute-dtype", "fp32", "--device", "cpu", "--learning-rate", str(rate), "--weight-decay", "0",
       "--max-steps", str(steps), "--per-device-train-batch-size", "4", "--packing", "false", "--shuffle", "false",
       "--cache-dir", out + "/cache")


def load(d):
    auto = AutoModelForImageTextToText if hasattr(AutoConfig.from_pretrained(d), "vision_config") else AutoModelForCausalLM
    m, info = auto.from_pretrained(d, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what, keys in info.items():
        assert not keys, f"{d}: {what}: {keys}"
    return m.eval()


def same(a, b):
    a, b = tensors(a), tensors(b)
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    for k in a:
        assert a[k].dtype == b[k].dtype and torch.equal(a[k].reshape(-1).view(torch.uint8), b[k].reshape(-1).view(torch.uint8)), k


def check(binary, d):
    rows = [json.loads(line) for line in open(d + "/train.jsonl")]
    with tempfile.TemporaryDirectory() as tmp:
        train(binary, d, tmp + "/same", 0, 1)
        for out in [tmp + "/same"] + glob.glob(tmp + "/same/checkpoint-*"):
            same(d + "/model", out)
        m, want, worst = load(tmp + "/same"), load_file(d + "/logits.safetensors"), 0.0
        with torch.no_grad():
            for i in (0, 1):
                worst = max(worst, float((m(input_ids=torch.tensor([rows[i]["input_ids"]])).logits[0] - want[f"row{i}"]).abs().max()))
        assert worst <= LOGITS, f"logits are off by {worst}"

        train(binary, d, tmp + "/trained", 1e-3, 3)
        ours = json.loads(mt(binary, "eval", "--model", tmp + "/trained", "--dataset", d + "/train.jsonl", "--packing", "false",
                             "--compute-dtype", "fp32", "--device", "cpu", "--cache-dir", tmp + "/cache", "--json"))
        m, total, count = load(tmp + "/trained"), 0.0, 0
        with torch.no_grad():
            for r in rows:
                ids = torch.tensor([r["input_ids"]])
                labels = torch.tensor(r.get("labels", r["input_ids"]))[1:]
                logits = m(input_ids=ids).logits[0, :-1]
                total += float(torch.nn.functional.cross_entropy(logits.double(), labels, ignore_index=-100, reduction="sum"))
                count += int((labels != -100).sum())
        off = abs(ours["loss"] - total / count) / (total / count)
        assert off <= LOSS, f"mt eval says {ours['loss']}, Transformers {total / count}"
    print(f"{os.path.basename(d)}: logits {worst:.1e}, loss {off:.1e}", flush=True)


for d in sys.argv[2:]:
    check(sys.argv[1], d.rstrip("/"))
