#!/usr/bin/env python3
"""Writes shapes.json: small tokenizers of every part that the Go code reads, with strings and what PyPI `tokenizers`
makes of them, offsets included. Vocabularies are trained on the text below, and differ a little from run to
run, as the trainer breaks ties by chance; strings come from a seeded generator.

    pip install tokenizers
    python3 testdata/make.py [--out FILE] [--seed N] [--strings N]

shapes.json has models (by name), and shapes: name, tokenizer (tokenizer.json, with the name of its model in place of the
model) and cases of text, ids, ids_plain, decoded, decoded_clean as in the shared fixtures, and starts: for each of
ids_plain the byte where its text starts.
"""
import argparse
import itertools
import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
TEXT = """It is a truth that those who count words don't agree on what a word is. We'll say that they're letters, that
numbers like 12, 345 and 6789 are not, and that (brackets) [of] {all} kinds; belong: to nobody! They've said it's so.
    def count(words):
        return {w: sum(1 for x in words if x == w) for w in set(words)}
Größe und Maß, naïve cafés, Ελληνικά κείμενα, русский текст, 中文分词测试，日本語のテキスト、한국어 텍스트.
""" * 4
PARTS = """ |  |   |\n|\n\n|\t|\r\n|'s|'LL|'re|12|345|6|½|²|٣|a|b|Bc|the|word|Words|é|e\u0301|q\u0307\u0323|é\u0323|ſ|İ|ß|Ⅷ|ﬁ|!|...|?|_|-|--|/|(|$
|中文|日本|がば|か\u3099|한국|\u1112\u1161\u11ab|ก็|🙂|👩‍👧|\u00a0|\u3000|\u2028|\u0085|\u200b|\u0897|\u11938|ǅ|ʰ|X|XYZ|<x>|<y>|<X>|[w]|<|>|x|▁|Ġ|<0x41>
|\u0300|\U0001d518|-a-|z|zz|XX|Å|\u212b|ΑΣ|\x1c|\x00|don't|I'M""".replace("\n|", "|").split("|")
PARTS[3:3] = ["\n", "\n\n"]


def strings(n, seed):
    r = random.Random(seed)
    out = ["", " ", "Hello  world, don't 'LL  12345!\n\n x ", "<x> a<y>b <X>[w] a[w]", "e\u0301 q\u0307\u0323 \u212b 한국 \u1112\u1161\u11ab ﬁ"]
    while len(out) < n:
        if r.random() < 0.2:
            out.append("".join(chr(r.choice([r.randrange(32, 0x250), r.randrange(0x300, 0xD800), r.randrange(0xE000, 0x1F000)])) for _ in range(r.randrange(1, 12))))
        else:
            out.append("".join(r.choice(PARTS) for _ in range(r.randrange(1, 14))))
    return out[:n]


def vocabulary(kind):
    """A model: byte-level, of characters with metaspaces, or the latter without byte fallback and with other flags."""
    if kind == "bytes":
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
        trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        lines = [TEXT]
    else:
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=kind == "chars", fuse_unk=kind != "plain"))
        t.normalizer = normalizers.Replace(" ", "▁")
        special = ["<unk>"] + ([f"<0x{i:02X}>" for i in range(256)] if kind == "chars" else [])
        trainer = trainers.BpeTrainer(vocab_size=len(special) + 190, special_tokens=special, max_token_length=8, limit_alphabet=90, show_progress=False)
        lines = TEXT.split("\n")
    t.train_from_iterator(lines, trainer)
    return json.loads(t.to_str())["model"]


def added(content, i, **flags):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def shapes(sizes):
    """(name, name of the model, tokenizer.json without the model), each."""
    P, N, D, S = pre_tokenizers, normalizers, decoders, processors

    def shape(name, model, normalizer=None, pre=None, decoder=None, post=None, tokens=None, legacy=None, change=None):
        t = Tokenizer(models.BPE())
        for key, part in (("normalizer", normalizer), ("pre_tokenizer", pre), ("decoder", decoder), ("post_processor", post)):
            if part is not None:
                setattr(t, key, part)
        j = json.loads(t.to_str())
        j.update(legacy or {})
        n = sizes[model]
        j["added_tokens"] = tokens(n) if tokens else [added("<x>", n), added("<y>", n + 1, special=False)]
        j["model"] = model
        return name, j, change or {}

    letters = lambda *steps: P.Sequence([*steps, P.ByteLevel(False, use_regex=False)])
    regex = lambda pattern, behavior="isolated", invert=False: P.Split(Regex(pattern), behavior, invert)
    byte = dict(model="bytes", decoder=D.ByteLevel())
    spm = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    yield shape("gpt2 prefix", pre=P.ByteLevel(True), **byte)
    yield shape("gpt4", pre=letters(regex(GPT4)), change={"ignore_merges": True}, **byte)
    # "engine": a group around the pattern hides that it is a known one, so that the Go code uses its regex engine and no scanner
    for name, pattern in (("gpt2", GPT2), ("gpt4", GPT4), ("qwen2", GPT4.replace("{1,3}", "")), ("o200k", O200K)):
        yield shape("engine " + name, pre=letters(regex(f"(?:{pattern})")), **byte)
        yield shape("scanner " + name, pre=letters(regex(pattern)), **byte)
    yield shape("removed inverted", pre=letters(regex(GPT4, "removed", True)), **byte)
    yield shape("possessive", pre=letters(regex(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")), **byte)
    yield shape("several splits", pre=letters(regex(r"\p{N}{1,3}"), regex("[一-龥぀-ゟ゠-ヿ]+"), regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")), **byte)
    for i, pattern in enumerate([r"(?<=\p{L})\p{N}|(?<!a)b+?", r"\bw\w*|^\s|[^\W\d_]{2}", r"(?>a|ab)c?|[\p{L}&&[^a-m]]+", r"(?i)WORD|x{2,}|\h{2}", r"[\p{Han}\p{Hiragana}]+|(?:-a)*-|\P{L}\z", r"(?=b)|z*", r"(a|b|-)+?-|\S\s??$"]):
        yield shape(f"pattern {i}", pre=letters(regex(pattern)), **byte)
    for b, invert in itertools.product(("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"), (False, True)):
        yield shape(f"{b} {invert}", pre=letters(regex(r"-|\s|\d", b, invert), P.Split("a", b, invert)), **byte)
    yield shape("digits", pre=P.Sequence([P.Digits(True), P.ByteLevel(False)]), **byte)
    yield shape("number runs", pre=P.Sequence([P.Digits(False), P.ByteLevel(True)]), **byte)
    yield shape("byte normalizer", normalizer=N.ByteLevel(), pre=regex("Ġ", "merged_with_next"), **byte)
    yield shape("words", "plain", pre=P.Whitespace())
    yield shape("bert words", "plain", pre=P.BertPreTokenizer(), decoder=D.Fuse())
    yield shape("punctuation", "plain", pre=P.Sequence([P.WhitespaceSplit(), P.Punctuation("merged_with_previous")]))
    yield shape("delimiter", "plain", pre=P.CharDelimiterSplit("a"))
    for scheme, split in itertools.product(("always", "first", "never"), (True, False)):
        yield shape(f"metaspace {scheme} {split}", "chars", pre=P.Metaspace("▁", scheme, split), decoder=D.Metaspace("▁", scheme, split))
    yield shape("metaspace first normalized", "chars", normalizer=N.Sequence([N.NFKC(), N.Strip()]), pre=P.Metaspace("▁", "first"), decoder=spm)
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    yield shape("old metaspace", "chars", legacy={"pre_tokenizer": old, "decoder": old})
    yield shape("llama2", "chars", normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), decoder=spm)
    yield shape("gemma", "chars", normalizer=N.Replace(" ", "▁"), pre=P.Split(" ", "merged_with_previous"), decoder=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]))
    yield shape("no fallback", "fused", normalizer=N.Replace(" ", "▁"), decoder=spm)
    yield shape("unknown apart", "plain", normalizer=N.Replace(" ", "▁"), decoder=spm)
    yield shape("unknown dropped", "plain", normalizer=N.Replace(" ", "▁"), change={"unk_token": None})
    yield shape("end of word", "plain", pre=P.WhitespaceSplit(), decoder=D.BPEDecoder("s"), change={"end_of_word_suffix": "s"})
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield shape(form, normalizer=getattr(N, form)(), pre=letters(regex(GPT4)), **byte)
        yield shape(form + " chars", "fused", normalizer=N.Sequence([getattr(N, form)(), N.StripAccents(), N.Lowercase()]))
    yield shape("strip", normalizer=N.Sequence([N.Strip(True, False), N.Replace(Regex(r"\s{2,}"), " - "), N.Replace("the", "THE"), N.Strip()]), pre=P.ByteLevel(False), **byte)
    yield shape("lowercase", normalizer=N.Sequence([N.Lowercase(), N.Prepend("ab")]), pre=P.ByteLevel(False), **byte)
    flags = lambda **f: lambda n: [added("<x>", n, **f), added("<y>", n + 1, **f), added("[w]", n + 2, **f), added("<x> a", n + 3, **f), added("  ", n + 4, special=False), added("zz", n + 5, single_word=True), added("XX", n + 6, normalized=True, special=False)]
    for f in ({"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True}, {"normalized": True, "lstrip": True, "single_word": True}):
        yield shape("added " + " ".join(f), normalizer=N.Lowercase(), pre=P.ByteLevel(False), tokens=flags(**f), **byte)
        yield shape("added chars " + " ".join(f), "chars", normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), decoder=spm, tokens=flags(**f))
    x, y = ("<x>", sizes["bytes"]), ("<y>", sizes["bytes"] + 1)
    yield shape("bert", pre=P.ByteLevel(False), post=S.BertProcessing(y, x), **byte)
    yield shape("roberta", pre=P.ByteLevel(False), post=S.RobertaProcessing(y, x, trim_offsets=False), **byte)
    twice = S.TemplateProcessing(single="<x> $A <y> <x>", special_tokens=[x, y])
    yield shape("template", pre=P.ByteLevel(False), post=S.Sequence([S.ByteLevel(trim_offsets=False), twice]), **byte)


def record(t, text):
    e = t.encode(text, add_special_tokens=False)
    special = {i for i, token in t.get_added_tokens_decoder().items() if token.special}
    clean = [i for i in e.ids if i not in special]
    starts, last = [], 0
    for start, _ in e.offsets:
        last = max(last, len(text[:start].encode()))
        starts.append(last)
    return {"text": text, "ids": t.encode(text).ids, "ids_plain": e.ids, "starts": starts, "decoded": t.decode(e.ids, skip_special_tokens=False), "decoded_clean": t.decode(clean)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.json"))
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--strings", type=int, default=6)
    a = ap.parse_args()
    kinds = {kind: vocabulary(kind) for kind in ("bytes", "chars", "fused", "plain")}
    out = []
    for i, (name, j, change) in enumerate(shapes({kind: len(m["vocab"]) for kind, m in kinds.items()})):
        model = j["model"]
        t = Tokenizer.from_str(json.dumps({**j, "model": {**kinds[model], **change}}))
        j["model"] = {"name": model, "change": change}
        out.append({"name": name, "tokenizer": j, "cases": [record(t, s) for s in strings(a.strings, a.seed + i)]})
    with open(a.out, "w", encoding="utf-8") as f:
        json.dump({"models": kinds}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
        for s in out:
            json.dump(s, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
    print(f"{len(out)} shapes, {os.path.getsize(a.out) >> 10} KiB")


if __name__ == "__main__":
    main()
