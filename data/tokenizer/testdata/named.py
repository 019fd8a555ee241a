#!/usr/bin/env python3
"""Writes named.json: what Transformers makes of directories in which tokens are not only in tokenizer.json but also, or
otherwise, in tokenizer_config.json, special_tokens_map.json and added_tokens.json.

    pip install tokenizers transformers
    python3 testdata/named.py

named.json is a list of name, files (by name, as text), bos, eos (-1: none), special (the special tokens' ids) and cases of
text, ids, ids_plain, decoded, decoded_clean as in the shared fixtures.
"""
import json
import os
import tempfile

from transformers import PreTrainedTokenizerFast

VOCAB = ["<unk>", " ", "a", "b", "c", "<", ">", "x", "y", "z", "ab", "abc", "n", "\n"]
N = len(VOCAB)
TEXTS = ["ab abc a", " <x>  <y> c", "<z>ab<n>", "<n> \n <x>", "abc<zz> <y>\n<a>", "AB <X> <y><y>", " <a> b <b>"]


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True, **flags}


def tokenizer(*added, vocab=VOCAB, **members):
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, **t} for i, t in added],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(vocab)}, "merges": ["a b", "ab c"]},
        **members,
    }  # fmt: skip


def post(i):
    special = {"<x>": {"id": "<x>", "ids": [i], "tokens": ["<x>"]}}
    piece = {"SpecialToken": {"id": "<x>", "type_id": 0}}
    single = [piece, {"Sequence": {"id": "A", "type_id": 0}}, piece]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}


def directories():
    """(name, tokenizer.json, tokenizer_config.json or None, other files), each."""
    two = tokenizer((N, token("<x>")), (N + 1, token("<y>", special=False)))
    typed = lambda content, **flags: {"__type": "AddedToken", **token(content, **flags)}
    yield "ids with gaps", tokenizer((N + 7, token("<x>")), (N + 30, token("<y>", special=False)), (5, token("<z>"))), None, {}
    yield "ids in another order", tokenizer((N + 1, token("<x>")), (N, token("<y>", special=False))), None, {}
    yield "ids of others", tokenizer((3, token("<x>")), (9, token("ab", special=False)), (N, token("<x>", rstrip=True))), None, {}
    yield "a token twice", tokenizer((N, token("<x>", special=False, normalized=True)), (N, token("<x>", lstrip=True))), None, {}
    more = {"added_tokens_decoder": {N + 2: token("<z>"), N + 3: token("<n>", special=False, lstrip=True), N: token("<x>")}}
    yield "more tokens", two, {**more, "eos_token": "<z>"}, {}
    yield "other flags", two, {"added_tokens_decoder": {N: token("<x>", lstrip=True), N + 1: token("<y>", rstrip=True)}, "eos_token": "<y>"}, {}
    yield "normalized", two, {"added_tokens_decoder": {N: token("<x>", normalized=True), N + 1: token("<y>", normalized=True, special=False)}}, {}
    yield "other ids", two, {"added_tokens_decoder": {N + 30: token("<z>"), N + 50: token("<n>")}, "eos_token": "<n>"}, {}
    yield "a name for a word", two, {"eos_token": "ab", "pad_token": typed("c", lstrip=True)}, {}
    yield "a name for a word, with a list", two, {"added_tokens_decoder": {N: token("<x>")}, "eos_token": "ab", "unk_token": "<unk>"}, {}
    yield "a name makes special", two, {"added_tokens_decoder": {N + 1: token("<y>", special=False)}, "eos_token": "<y>"}, {}
    yield "a name does not", two, {"added_tokens_decoder": {}, "eos_token": "<y>"}, {}
    yield "a name does without a list", two, {"bos_token": "<y>"}, {}
    yield "extra tokens", two, {"additional_special_tokens": ["<y>", "abc", typed("n", rstrip=True)], "image_token": "a", "add_bos_token": True}, {}
    yield "extra tokens by name", two, {"extra_special_tokens": {"image_token": "a", "x_token": "abc"}, "bos_token": "<x>"}, {}
    old = {"special_tokens_map.json": {"eos_token": token("ab", lstrip=True), "pad_token": "c", "additional_special_tokens": ["n"]}}
    yield "a map", two, {"eos_token": "<x>"}, old
    yield "a map that does not count", two, {"eos_token": "<x>", "added_tokens_decoder": {N: token("<x>")}}, old
    yield "a map alone", two, None, {"special_tokens_map.json": {"bos_token": "<y>"}}
    yield "a list of ids", two, {"eos_token": "<z>"}, {"added_tokens.json": {"<z>": N + 3, "<n>": N + 2, "<x>": N, "ab": 10}}
    yield "flags without a say", tokenizer((N, token("<x>")), post_processor=post(N)), {"add_bos_token": False, "add_eos_token": False}, {}


def main():
    out = []
    for name, first, config, files in directories():
        files = {"tokenizer.json": first, **files, **({} if config is None else {"tokenizer_config.json": config})}
        files = {k: json.dumps(v, ensure_ascii=False) for k, v in files.items()}
        with tempfile.TemporaryDirectory() as folder:
            for k, v in files.items():
                with open(os.path.join(folder, k), "w", encoding="utf-8") as f:
                    f.write(v)
            t = PreTrainedTokenizerFast.from_pretrained(folder)
        inner, cases = t.backend_tokenizer, []
        special = sorted(i for i, a in inner.get_added_tokens_decoder().items() if not inner.decode([i], skip_special_tokens=True))
        for text in TEXTS:
            plain = inner.encode(text, add_special_tokens=False).ids
            clean = [i for i in plain if i not in special]
            cases.append({"text": text, "ids": t(text)["input_ids"], "ids_plain": plain, "decoded": inner.decode(plain, skip_special_tokens=False), "decoded_clean": inner.decode(clean)})
        none = lambda i: -1 if i is None else i
        out.append({"name": name, "files": files, "bos": none(t.bos_token_id), "eos": none(t.eos_token_id), "special": special, "cases": cases})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "named.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(o, ensure_ascii=False, separators=(",", ":")) for o in out) + "\n]\n")
    print(f"{len(out)} directories, {os.path.getsize(path) >> 10} KiB")


if __name__ == "__main__":
    main()
