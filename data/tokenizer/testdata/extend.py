#!/usr/bin/env python3
"""Tokens that mt adds are those that Transformers would add, and what mt then writes Transformers loads.

    pip install torch transformers
    python3 extend.py MT [NAME...]

MT is the binary; a NAME is that of a shape in shapes.json beside this file, or a directory with a tokenizer.json. Each of them,
without any those of SHAPES, becomes the tokenizer of a small Llama, with the files beside it in several spellings; mt trains it with a learning rate of 0, add_tokens, new_special_tokens and resize_vocab. Held against
Transformers: the ids of texts (of mt, of the tokenizer that mt wrote, of the one that Transformers extends), what is special,
the size of the tables, the rows that were there, and the new ones, which resize_token_embeddings draws from around the mean
that mt takes. Prints one line for each and ends with an error where something does not hold.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

PLAIN = ["<tool>", "<tool_call>", "zzQ"]
SPECIAL = ["<|begin_x|>", "<|end_x|>", "é<s>ö", "<old>"]
TEXTS = ["a <tool>b<|end_x|> the <tool_call>", "<|begin_x|>user\nzzQ zzQ<|end_x|>\n<|begin_x|>", "the é<s>ö word", " <tool> <|end_x|>  x", "nothing new here",
         "zzQQ <tool <|end_x|><|end_x|>", "WORD the WORDs", "<tool>", "an <old> token"]
MULTIPLE = 64
SHAPES = ["gpt4", "llama2", "gemma", "NFC", "added normalized lstrip single_word", "added chars lstrip rstrip", "template", "metaspace first normalized"]


def write(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=2)


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def tokenizers(names):
    """Yields the name of a tokenizer and its tokenizer.json, each."""
    shapes, models = {}, {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.json"), encoding="utf-8") as f:
        for line in map(json.loads, f):
            models.update(line.get("models", {}))
            if "name" in line:
                shapes[line["name"]] = line["tokenizer"]
    for name in names:
        if name in shapes:
            of = shapes[name]["model"]
            yield name, {**shapes[name], "model": {**models[of["name"]], **of["change"]}}
        else:
            yield os.path.basename(name), read(os.path.join(name, "tokenizer.json"))


def spellings(folder, first):
    """Writes the files of a tokenizer in each spelling; yields its name and folder."""
    free = 1 + max([*first["model"]["vocab"].values(), *(t["id"] for t in first["added_tokens"])])
    first["added_tokens"].append({"id": free, "content": "<old>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False, "special": False})
    added = {t["id"]: {k: v for k, v in t.items() if k != "id"} for t in first["added_tokens"]}
    specials = [t["content"] for t in first["added_tokens"] if t["special"]]
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": specials[0]}
    for name, config, others in [
        ("no more than a name", plain, {}),
        ("Transformers 4", {**plain, "added_tokens_decoder": {str(i): t for i, t in added.items()}, "additional_special_tokens": specials[1:]},
         {"special_tokens_map.json": {"eos_token": specials[0], "additional_special_tokens": specials[1:]},
          "added_tokens.json": {t["content"]: i for i, t in added.items() if i >= len(first["model"]["vocab"])}}),
        ("older", plain, {"special_tokens_map.json": {"eos_token": {"content": specials[0], "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}}}),
        ("Transformers 5", {**plain, "backend": "tokenizers", "extra_special_tokens": specials[1:]}, {}),
        ("tokens by name", {**plain, "extra_special_tokens": {"image_token": specials[-1]}}, {}),
    ]:
        if name == "Transformers 5" and transformers.__version__ < name[-1]:
            continue  # older versions do not read such files
        to = os.path.join(folder, name.replace(" ", "-"))
        os.makedirs(to)
        for file, value in {"tokenizer.json": first, "tokenizer_config.json": config, **others}.items():
            write(os.path.join(to, file), value)
        yield name, to
    to = os.path.join(folder, "saved")
    AutoTokenizer.from_pretrained(os.path.join(folder, "Transformers-4")).save_pretrained(to)
    yield "as saved", to


def mt(binary, *args):
    r = subprocess.run([binary, *args], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"mt {' '.join(args)}: {r.stderr}")
    return r.stdout


def check(binary, source, name, base, tied, seed):
    torch.manual_seed(seed)
    old = AutoTokenizer.from_pretrained(base)
    vocab = read(os.path.join(base, "tokenizer.json"))["model"]["vocab"]
    # a token that the vocabulary already has as a word, and one that is already a special token
    word = max((t for t in vocab if t.isalpha() and t.isascii()), key=lambda t: (len(t), t))
    plain, special = PLAIN + [word], SPECIAL + [old.eos_token]
    texts = [t.replace("WORD", word) for t in TEXTS]
    rows = len(old)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=rows, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                                         head_dim=8, initializer_range=0.5, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=0, pad_token_id=None))
    model.save_pretrained(base)
    data, out = os.path.join(base, "data.jsonl"), base + "-out"
    with open(data, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
    keys = ["--dataset", data, "--packing", "false", "--shuffle", "false", "--cache-dir", base + "-cache"]
    config = base + ".yaml"
    write(config, {"model_name_or_path": base, "add_tokens": plain, "new_special_tokens": special, "resize_vocab": True, "resize_vocab_to_multiple_of": MULTIPLE})
    mt(binary, "train", config, *keys, "--output-dir", out, "--device", "cpu", "--compute-dtype", "fp32", "--save-dtype", "fp32", "--learning-rate", "0",
       "--weight-decay", "0", "--max-steps", "1")
    samples = json.loads(mt(binary, "data", "inspect", "--model", out, "--json", "--rows", str(len(texts)), *keys))["samples"]

    old.add_tokens(plain)
    old.add_tokens(special, special_tokens=True)
    old.save_pretrained(base + "-extended")  # saved and loaded again: only then decode drops <old>, which was no special token before
    old = AutoTokenizer.from_pretrained(base + "-extended")
    model.resize_token_embeddings(len(old), pad_to_multiple_of=MULTIPLE)
    for d in [out, os.path.join(out, "checkpoint-1")]:
        new = AutoTokenizer.from_pretrained(d)
        loaded, info = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, output_loading_info=True)
        for what, keys_ in info.items():
            assert not keys_, f"{what}: {keys_}"
        assert loaded.config.vocab_size == model.config.vocab_size, (loaded.config.vocab_size, model.config.vocab_size)
        assert len(new) == len(old) <= loaded.config.vocab_size, (len(new), len(old))
        for token in plain + special:
            assert new.convert_tokens_to_ids(token) == old.convert_tokens_to_ids(token), token
        assert all(t in new.all_special_tokens for t in SPECIAL), new.all_special_tokens
        for text, sample in zip(texts, samples):
            want = old(text, add_special_tokens=False)["input_ids"]
            assert new(text, add_special_tokens=False)["input_ids"] == want, (text, new.tokenize(text), old.tokenize(text))
            assert new(text)["input_ids"] == old(text)["input_ids"], text
            assert new.decode(want, skip_special_tokens=True) == old.decode(want, skip_special_tokens=True), text
            ours = sample["input_ids"]
            assert any(ours[i:i + len(want)] == want for i in (0, 1)) and len(ours) <= len(want) + 3, (text, ours, want)
        for table in ("get_input_embeddings", "get_output_embeddings"):
            ours, theirs = getattr(loaded, table)().weight.detach(), getattr(model, table)().weight.detach()
            assert torch.equal(ours[:rows], theirs[:rows]), f"{table}: rows that were there have changed"
            mean, std = ours[:rows].double().mean(0), float(ours[:rows].std())
            assert float((ours[rows:].double() - mean).abs().max()) <= 1e-7, f"{table}: new rows are not the mean"  # the bound is the fp32 rounding of values below 1
            off = float((ours[rows:] - theirs[rows:]).abs().max()) / std
            assert off <= 6 * 1e-9**0.5, f"{table}: Transformers' new rows are {off} standard deviations away"  # six standard deviations of the noise that Transformers adds
    print(f"{source}, {name}{', tied' if tied else ''}: {rows} to {loaded.config.vocab_size} rows", flush=True)


def main():
    for n, (source, first) in enumerate(tokenizers(sys.argv[2:] or SHAPES)):
        with tempfile.TemporaryDirectory() as folder:
            for i, (name, base) in enumerate(spellings(folder, first)):
                check(sys.argv[1], source, name, base, (n + i) % 2 == 1, i)


if __name__ == "__main__":
    main()
