"""Transformers loads the models that mt writes, and computes the same numbers.

  python roundtrip.py MT FIXTURE_DIR...

MT is the binary. A FIXTURE_DIR holds model/, train.jsonl and logits.safetensors (the
logits of the first two rows). The script checks three parts for each directory:

  same    Training with a learning rate of 0 keeps every tensor byte for byte, and
          Transformers computes the recorded logits from the saved model.
  trained After three steps Transformers loads the model without a missing, unexpected
          or mismatched key, and its loss is the one that mt eval computes.
  chat    mt generate --chat writes the greedy answer of Transformers' generate, up to
          64 tokens, from the trained model.

Needs torch, transformers, tokenizers and safetensors. Prints one line for each part:
"ok" or "failed", the directory's name, the part, and figures or the reason.
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
# The character of token 0 in the tokenizer that chats use.
FIRST = 0x4E00


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
        raise RuntimeError(f"mt {' '.join(args)}: {r.stderr}")
    return r.stdout


def train(binary, d, out, rate, steps):
    mt(binary, "train", "--model-name-or-path", d + "/model", "--dataset", d + "/train.jsonl", "--output-dir", out,
       "--save-dtype", "fp32", "--compute-dtype", "fp32", "--device", "cpu", "--learning-rate", str(rate), "--weight-decay", "0",
       "--max-steps", str(steps), "--per-device-train-batch-size", "4", "--packing", "false", "--shuffle", "false",
       "--cache-dir", out + "/cache")


def load(d):
    config = AutoConfig.from_pretrained(d)  # Mistral 4 without a tower is in the table of models with one alone
    tower = hasattr(config, "vision_config") or config.model_type == "mistral4"
    auto = AutoModelForImageTextToText if tower else AutoModelForCausalLM
    m, info = auto.from_pretrained(d, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what, keys in info.items():
        assert not keys, f"{d}: {what}: {keys}"
    return m.eval()


def same(a, b):
    a, b = tensors(a), tensors(b)
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    for k in a:
        assert a[k].dtype == b[k].dtype and torch.equal(a[k].reshape(-1).view(torch.uint8), b[k].reshape(-1).view(torch.uint8)), k


def check_same(binary, d, rows, tmp):
    train(binary, d, tmp + "/same", 0, 1)
    for out in [tmp + "/same"] + glob.glob(tmp + "/same/checkpoint-*"):
        same(d + "/model", out)
    m, want, worst = load(tmp + "/same"), load_file(d + "/logits.safetensors"), 0.0
    with torch.no_grad():
        for i in (0, 1):
            worst = max(worst, float((m(input_ids=torch.tensor([rows[i]["input_ids"]])).logits[0] - want[f"row{i}"]).abs().max()))
    assert worst <= LOGITS, f"logits are off by {worst}"
    return f"logits differ by {worst:.1e}"


def check_trained(binary, d, rows, tmp):
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
    return f"the loss differs by {off:.1e}"


def add_tokenizer(d, vocab):
    """Gives the model in d a tokenizer whose token i is the character FIRST + i, and a chat template."""
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {chr(FIRST + i): i for i in range(vocab)}, "merges": []}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}
    for name, v in (("tokenizer.json", whole),
                    ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})):
        with open(f"{d}/{name}", "w") as f:
            json.dump(v, f)


def check_chat(binary, d, rows, tmp):
    out = tmp + "/trained"
    m = load(out)
    text = m.config.get_text_config()
    add_tokenizer(out, text.vocab_size)
    prompt = rows[0]["input_ids"][:8]
    n = min(64, (getattr(text, "max_position_embeddings", None) or 256) - len(prompt))
    with torch.no_grad():
        want = m.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=n)[0, len(prompt):].tolist()
    ends = m.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    if want[-1] in ends:
        want.pop()
    asked = "".join(chr(FIRST + i) for i in prompt)
    got = mt(binary, "generate", "--model", out, "--chat", "--prompt", asked, "--temperature", "0", "--max-new-tokens", str(n),
             "--compute-dtype", "fp32", "--device", "cpu")
    got = [ord(c) - FIRST for c in got.strip()]
    assert got == want, f"mt answers {got}, Transformers {want}"
    return f"{len(want)} tokens agree"


def check(binary, d):
    with open(d + "/train.jsonl") as f:
        rows = [json.loads(line) for line in f]
    with tempfile.TemporaryDirectory() as tmp:
        for part in (check_same, check_trained, check_chat):
            try:
                result = "ok", part(binary, d, rows, tmp)
            except Exception as e:
                result = "failed", " ".join(f"{type(e).__name__}: {e}".split())
            print(result[0], os.path.basename(d), part.__name__.removeprefix("check_"), result[1], flush=True)


for d in sys.argv[2:]:
    check(sys.argv[1], d.rstrip("/"))
