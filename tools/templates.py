#!/usr/bin/env python3
"""Runs conversations through chat templates with mt, and counts what is learned rightly, learned wrongly, and refused.

    tools/templates.py MT DIR [-v] [--only TEXT] [--json FILE]

MT is the program. DIR holds chat templates: files *.jinja and *.jinja2, and files *.json with a key chat_template (a
tokenizer_config.json or a chat_template.json; one that lists several templates counts as several). -v prints every
finding, --only takes the pairs TEMPLATE/CONVERSATION that hold a text, --json writes all outcomes to a file.

Templates are not part of the repository. Public repositories have them: clone, and copy their *.jinja into one folder.

    ggml-org/llama.cpp          models/templates          vllm-project/vllm       examples/*.jinja
    ikawrakow/ik_llama.cpp      models/templates          sgl-project/sglang      examples/chat_template
    huggingface/trl             trl/chat_templates        axolotl-ai-cloud/axolotl  src/axolotl/utils/chat_templates/templates
    chujiezheng/chat_templates  chat_templates            EricLBuehler/mistral.rs   chat_templates
    xorbitsai/inference         xinference/model/llm/llm_family.json

The script builds one small model directory for each template, whose tokenizer has the bytes and the special tokens that the
template's source names. It needs Python's jinja2 3.1, set up as Transformers sets it up; without jinja2 it checks less.

Every text of a conversation is a word of its own, so what is learned shows whose text it is:

- no word of a user, of a system's turn, of a tool's result or of a tool's description is learned, nor one of a turn of weight 0
- every word of an answer that the template writes is learned
- with jinja2, the text is that of jinja2 for the row or for one of the repairs of docs/data.md
- with jinja2, an answer begins where the prompt before it ends, and ends where the template ends the turn, or one special
  token behind where the template writes none there; or what {% generation %} marks is learned
- a refusal says a reason, and nothing panics
"""

import argparse
import collections
import copy
import datetime
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    jinja2 = None

# The words of a text begin with a letter for its author or place: user, system, result,
# description; answer, value of an argument, thought.
WORD = re.compile(r"[USRDAVT]zq\d+")
OTHERS = "USRD"
BAD = re.compile("WRONG|panics|refused without a reason")
OPEN, SHUT = "\ue010", "\ue011"  # around what {% generation %} marks

ENDS = ["<|im_end|>", "<|eot_id|>", "<|eot|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|end_of_text|>",
        "<｜end▁of▁sentence｜>", "<|endoftext|>", "[|endofturn|]", "<eos>"]
SPECIAL = re.compile(r"<[|｜][^\s<>{}'\"]{1,40}?[|｜]>|<[|｜]?(?:start|end|begin|eos|bos|pad|unk|turn)[\w▁|｜]*>|</?s>|<\|\w{1,30}>|<\w{1,30}\|>|\[\|\w+\|\]|\[/?[A-Z][A-Z_]{2,}\]|<(?:SPECIAL_\d+|extra_id_\d+)>")


# --- conversations


def say(role, text, **more):
    return {"role": role, "content": text, **more}


def user(n=1, text="Uzq{}", **more):
    return say("user", text.format(n), **more)


def answer(n=1, text="Azq{}", **more):
    return say("assistant", text.format(n), **more)


def result(n=1, text="Rzq{}", name="clock"):
    return say("tool", text.format(n), name=name, tool_call_id=f"call{n:05}")


def call(n=1, arguments=None, name="clock", text=False):
    arguments = {"zone": f"Vzq{n}"} if arguments is None else arguments
    return {"id": f"call{n:05}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments) if text else arguments}}


def calls(*all_, content="", **more):
    return {"role": "assistant", "content": content, "tool_calls": list(all_), **more}


def tool(name="clock", n=1):
    return {"type": "function", "function": {"name": name, "description": f"Dzq{n} tells.", "parameters": {
        "type": "object", "properties": {"zone": {"type": "string", "description": f"Dzq{n + 1} of it"}}, "required": ["zone"]}}}


def part(text, kind="text"):
    return {"type": kind, "text" if kind == "text" else kind: text}


def conversations():
    """All conversations by name: the row, and the keys of mt that it is read with."""
    system, t, deep = say("system", "Szq1 rules."), [tool()], {"zone": "Vzq1", "list": [1, 2.5, "é", None], "in": {"a": True, "b": "x \"y\"\n"}}
    plain = {
        "plain": [user(), answer()],
        "system": [system, user(), answer()],
        "developer": [say("developer", "Szq1 rules."), user(), answer()],
        "two turns": [user(), answer(), user(2), answer(2)],
        "system and three turns": [system, user(), answer(), user(2), answer(2), user(3), answer(3)],
        "the user is last": [user(), answer(), user(2)],
        "two users": [user(), user(2), answer()],
        "two answers": [user(), answer(), answer(2)],
        "a later system": [user(), answer(), say("system", "Szq2 more."), user(2), answer(2)],
        "parts of a user": [{"role": "user", "content": [part("Uzq1 "), part("Uzq2")]}, answer()],
        "parts of an answer": [user(), {"role": "assistant", "content": [part("Azq1 "), part("Azq2")]}],
        "parts of all": [say("system", [part("Szq1")]), say("user", [part("Uzq1")]), say("assistant", [part("Azq1")]), say("user", [part("Uzq2")]), say("assistant", [part("Azq2")])],
        "a thought as part": [user(), say("assistant", [part("Tzq1", "thinking"), part("Azq1")])],
        "a thought in the text": [user(), answer(text="<think>\nTzq1\n</think>\n\nAzq{}")],
        "thoughts in two texts": [user(), answer(text="<think>\nTzq1\n</think>\n\nAzq{}"), user(2), answer(2, text="<think>\nTzq2\n</think>\n\nAzq{}")],
        "an empty thought": [user(), answer(text="<think>\n\n</think>\n\nAzq{}")],
        "reasoning": [user(), answer(reasoning_content="Tzq1")],
        "reasoning twice": [user(), answer(reasoning_content="Tzq1"), user(2), answer(2, reasoning_content="Tzq2")],
        "weight 0 first": [user(), answer(weight=0), user(2), answer(2)],
        "weight 0 last": [user(), answer(), user(2), answer(2, weight=0)],
        "weight 0 between": [user(), answer(), user(2), answer(2, weight=0), user(3), answer(3)],
        "an empty answer": [user(), answer(text="")],
        "an empty answer first": [user(), answer(text=""), user(2), answer(2)],
        "unicode": [user(text="Uzq{} 你好 👩‍👩‍👧 é"), answer(text="Azq{} ñ🙂 日本 ﷽")],
        "half a surrogate": [user(), answer(text="Azq{} \ud83d")],
        "spaces before": [user(text="  Uzq{}"), answer(text="  Azq{}"), user(2), answer(2, text="\n\nAzq{}")],
        "spaces behind": [user(text="Uzq{}  "), answer(text="Azq{}  "), user(2), answer(2, text="Azq{} \n\n")],
        "lines": [user(text="Uzq{}\n\n- a\n- b\n"), answer(text="Azq{}:\n\n```py\nif x:\n    y\n```\nAzq7 end")],
        "jinja in the text": [user(text="Uzq{} {{{{ x }}}}"), answer(text="Azq{} {{% if x %}} {{{{ y }}}} {{# z #}}")],
        "the same words": [user(text="yes"), answer(text="yes"), user(text="no"), answer(text="no")],
        "short answers": [user(), answer(text="a"), user(2), answer(text=".")],
    }
    tools = {
        "a call": [user(), calls(call()), result(), answer()],
        "a call in text": [user(), calls(call(text=True)), result(), answer()],
        "a call without arguments": [user(), calls(call(arguments={})), result(), answer()],
        "a call without arguments in text": [user(), calls(call(arguments={}, text=True)), result(), answer()],
        "a call is last": [user(), calls(call())],
        "text beside a call": [user(), calls(call(), content="Azq1"), result(), answer(2)],
        "null beside a call": [user(), calls(call(), content=None), result(), answer()],
        "nothing beside a call": [user(), {k: v for k, v in calls(call()).items() if k != "content"}, result(), answer()],
        "two calls": [user(), calls(call(), call(2)), result(), result(2), answer()],
        "two calls are last": [user(), calls(call(), call(2))],
        "calls one after the other": [system, user(), calls(call()), result(), calls(call(2)), result(2), answer()],
        "a turn behind a call": [user(), calls(call()), result(), answer(), user(2), answer(2)],
        "a result is last": [user(), answer(), user(2), calls(call()), result()],
        "deep arguments": [user(), calls(call(arguments=deep)), result(), answer()],
        "a result of several lines": [user(), calls(call()), result(text='{{"a": "Rzq{}",\n "b": "Rzq9"}}\n'), answer()],
        "reasoning and a call": [user(), calls(call(), reasoning_content="Tzq1"), result(), answer(reasoning_content="Tzq2")],
        "a call of weight 0": [user(), calls(call(), weight=0), result(), answer()],
        "a call in the older form": [user(), {"role": "assistant", "content": None, "function_call": {"name": "clock", "arguments": '{"zone": "Vzq1"}'}}, result(), answer()],
        "tools and no call": [user(), answer()],
        "tools and a system": [system, user(), answer(), user(2), answer(2)],
    }
    rows = {k: ({"messages": m}, {}) for k, m in plain.items()}
    rows |= {k: ({"messages": m, "tools": t}, {}) for k, m in tools.items()}
    rows["several tools"] = {"messages": tools["two calls"][:1] + [calls(call(), call(2, name="bell"))] + [result(), result(2, name="bell"), answer()], "tools": [tool(), tool("bell", 3)]}, {}
    for k in ("thinking", "no thinking"):
        rows[k] = {"messages": plain["two turns"], "chat_template_kwargs": {"enable_thinking": k == "thinking"}}, {}
    for k in ("two turns", "a call", "reasoning twice"):
        rows["last turn alone: " + k] = *rows[k][:1], {"mask_history": True}
    for k in ("two turns", "weight 0 first", "weight 0 last"):
        rows["prompts too: " + k] = *rows[k][:1], {"train_on_prompt": True}
    return rows


# --- jinja2, as Transformers sets it up


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("around"), [], [], body).set_lineno(line)

        def around(self, caller):
            return OPEN + caller() + SHUT

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    return env


class Reference:
    """What jinja2 writes of a row."""

    def __init__(self, source, tokens):
        self.compiled, self.tokens = environment().from_string(source), tokens

    def write(self, row, until=None, prompt=False, marked=False, more=()):
        """The text of the first messages; None where the template fails."""
        try:
            out = self.compiled.render(messages=copy.deepcopy(row["messages"][:until]) + list(more), tools=copy.deepcopy(row.get("tools")), documents=None, add_generation_prompt=prompt,
                                       **self.tokens, **row.get("chat_template_kwargs", {}))
        except Exception:  # whatever Python raises, the template has no text for the row
            return None
        return out if marked else out.replace(OPEN, "").replace(SHUT, "")


def normal(row):
    """The row as mt gives it to a template: the older form of calls rewritten."""
    row = copy.deepcopy(row)
    for m in row["messages"]:
        if one := m.pop("function_call", None):
            m["tool_calls"] = [{"type": "function", "function": one}]
        m.setdefault("content", None)
        if thought := m.get("reasoning_content"):
            m["thinking"] = thought  # mt gives thoughts both names
    return row


def repaired(row, empty, join, split, as_parts, arguments):
    row = copy.deepcopy(row)
    for m in row["messages"]:
        if m["content"] is None and empty:
            m["content"] = ""
        if isinstance(m["content"], list):
            thoughts = [p for p in m["content"] if p["type"] == "thinking"]
            if thoughts and split:
                m["reasoning_content"] = m["thinking"] = "".join(p["thinking"] for p in thoughts)
                m["content"] = [p for p in m["content"] if p["type"] == "text"]
            if join and all(p["type"] == "text" for p in m["content"]):
                m["content"] = "".join(p["text"] for p in m["content"])
        elif isinstance(m["content"], str) and as_parts:
            m["content"] = [part(m["content"])]
        for c in m.get("tool_calls", []):
            f = c["function"]
            if arguments == "decoded" and isinstance(f["arguments"], str):
                f["arguments"] = json.loads(f["arguments"])
            elif arguments == "encoded" and isinstance(f["arguments"], dict):
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=False)
    return row


def forms(row):
    """The row and all repairs of it, those with fewer changes first."""
    row = normal(row)
    options = itertools.product(*[(False, True)] * 4, ("", "decoded", "encoded"))
    seen = []
    for o in sorted(options, key=lambda o: sum(map(bool, o))):
        form = repaired(row, *o)
        if form not in seen:
            seen.append(form)
            yield form


# --- mt


def byte_names():
    """The letters that stand for bytes in tokenizers of bytes."""
    plain = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


class Model:
    """A model directory with a template, and the tokens of its tokenizer."""

    def __init__(self, folder, source):
        self.folder = folder
        end = next((e for e in ENDS if e in source), "</s>")
        special = sorted({"<s>", "</s>", end, *SPECIAL.findall(source)})
        names = byte_names()
        self.tokens = [bytes([b]) for b in range(256)] + [s.encode() for s in special]
        self.special = range(256, len(self.tokens))
        self.named = {"bos_token": "<s>", "eos_token": end}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        added = [{"id": 256 + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, s in enumerate(special)]
        files = {
            "tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                                         "vocab": {names[b]: b for b in range(256)}, "merges": []}},
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **self.named},
            "config.json": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                            "num_key_value_heads": 2, "vocab_size": len(self.tokens), "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                            "tie_word_embeddings": True, "torch_dtype": "float32"},
        }
        for name, value in files.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
        (folder / "chat_template.jinja").write_text(source, encoding="utf-8")

    def spans(self, sample):
        """The text of a row, and the two ends in it of each stretch of learned tokens."""
        text, stretches, at = b"", [], None
        for token, label in zip(sample["input_ids"], sample["labels"], strict=True):
            if label == -100:
                at = None
            elif at is None:
                at = len(stretches)
                stretches.append([len(text), 0])
            text += self.tokens[token]
            if label != -100:
                stretches[at][1] = len(text)
        where = {b: i for i, b in enumerate(itertools.accumulate((len(c.encode()) for c in text.decode("utf-8", "replace")), initial=0))}
        return text.decode("utf-8", "replace"), [Stretch(where.get(a, 0), where.get(b, 0)) for a, b in stretches]


Stretch = collections.namedtuple("Stretch", "start end")


def inspect(mt, model, rows, keys, skip=True):
    """What mt makes of rows: the samples by number of row, and what stands on standard error."""
    file = model.folder / "rows.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    args = [mt, "data", "inspect", "--json", "--rows", "1000", "--packing=false", "--max-seq-len", "65536", "--dataset", file, "--model", model.folder, "--cache-dir", model.folder / "cache"]
    p = subprocess.run([*map(str, args), *(["--skip-bad-rows"] if skip else []), *(f"--{k.replace('_', '-')}" for k in keys)], capture_output=True, timeout=300)
    err = p.stderr.decode("utf-8", "replace").strip()
    try:
        samples = json.loads(p.stdout)["samples"]
    except (ValueError, KeyError):
        samples = []
    return {s["documents"][0]["line"] - 1: s for s in samples}, err


# --- what is right


def learned(row, keys):
    """The numbers of the messages that are to be learned."""
    own = [i for i, m in enumerate(row["messages"]) if m["role"] == "assistant"]
    if keys.get("mask_history"):
        own = own[-1:]
    return [i for i in own if row["messages"][i].get("weight") != 0]


def words(value):
    return set(WORD.findall(json.dumps(value, ensure_ascii=False)))


def loose(row, keys, text, said):
    """What is wrong with the learned text said, by its words."""
    due = learned(row, keys)
    mine = set().union(*(words(row["messages"][i]) for i in due))
    if keys.get("train_on_prompt"):
        mine |= set().union(*(words(m) for m in row["messages"] if m["role"] != "assistant"), words(row.get("tools")))
    got = set(WORD.findall("\n".join(said)))
    for w in sorted(got - mine):
        yield ("learns others' text" if w[0] in OTHERS else "learns a turn that is not to be learned"), w
    for w in sorted(mine & set(WORD.findall(text)) - got):
        yield "does not learn a text", w


def exact(model, reference, row, keys, text, stretches):
    """What is wrong with the places of the learned text, where jinja2 tells them; and how many places it told."""
    full = reference.write(row, marked=True)
    if OPEN in full:
        plain = not keys and all("weight" not in m for m in row["messages"])
        return (list(marked(full, text, stretches)), 1) if plain else ([], 0)
    if keys.get("train_on_prompt"):
        return [], 0
    wrong, begun = [], {}
    for i in learned(row, keys):
        before = reference.write(row, i, prompt=True)
        if before is not None and text.startswith(before):
            begun[i] = len(before)
    for i, at in begun.items():
        if row["messages"][i - 1]["role"] == "assistant":
            continue  # no prompt ends with an answer
        alone = reference.write(row, i + 1)
        turn = alone[at:].rstrip() if alone is not None and alone.startswith(text[:at]) else None
        stretch = next((s for s in stretches if s.start <= at < s.end), None)
        if stretch is None:
            if words(row["messages"][i]) & set(WORD.findall(text[at:])) and (turn is None or WORD.search(turn)):
                wrong.append(("begins elsewhere", text[at:at + 60]))
            continue
        if stretch.start < at and not any(stretch.start <= a < at for a in begun.values()):
            wrong.append(("begins too early", text[stretch.start:at + 20]))
        run = text[at:min([stretch.end, *(a for a in begun.values() if a > at)])]  # answers may touch
        if i + 1 < len(row["messages"]) and row["messages"][i + 1]["role"] == "assistant" and i + 1 not in begun:
            continue
        if turn is not None:
            wrong += ends(model, reference, row, i, text, at, turn, run)
    return wrong, len(begun)


def shared(turn, other, special):
    """What turn and other begin with alike: a template may write more behind the last turn of a text."""
    n = next((n for n, (a, b) in enumerate(zip(turn, other, strict=False)) if a != b), min(len(turn), len(other)))
    cut = [m.start() for s in special for m in re.finditer(re.escape(s), turn) if m.start() < n < m.end()]
    return turn[:min([n, *cut])].rstrip()


def ends(model, reference, row, i, text, at, turn, run):
    """What is wrong with the end of the learned text run. turn is what the template writes for the message where none follows."""
    special = [model.tokens[t].decode() for t in model.special]
    ended = any(run.rstrip().endswith(s) for s in special)
    following = reference.write(row, i + 1, more=[user(8)])
    if following is not None and following.startswith(text[:at]) and turn != run.rstrip() and turn.startswith(run.rstrip()):
        turn = shared(turn, following[at:], special)
    if run.rstrip() == turn:
        behind = text[at + len(turn):].lstrip()
        if not ended and turn and any(behind.startswith(s) for s in special):
            yield "does not learn the end", run[-30:] + " | " + behind[:30]
        if not ended and not behind and following is not None and turn and following.startswith(text[:at] + turn):
            marker = following[at + len(turn):].lstrip()
            if any(marker.startswith(s) for s in special):
                yield "does not learn the end", run[-30:] + " | " + marker[:30]
        return
    if run.startswith(turn):
        more = run[len(turn):].strip()
        if more not in special or any(turn.endswith(s) for s in special if s in ENDS):
            yield "learns more than the turn", run[-60:]
        return
    more = turn[len(run.rstrip()):].strip()
    opens = more in text[max(0, at - 200):at]  # it begins turns, as where a prompt stands behind every text
    if not text[at:].startswith(turn) or ended and (opens or not any(s in more for s in special)):
        return  # in front of other messages the turn is another, and behind the last one more tokens may end the text
    yield "ends too early", run[-30:] + " | " + turn[len(run):][:30]


def marked(full, text, stretches):
    """What is wrong with the learned text, where the template marks it."""
    want, at = [], 0
    for piece in re.split(f"([{OPEN}{SHUT}])", full):
        if piece == OPEN:
            want.append([at, at])
        elif piece == SHUT:
            want[-1][1] = at
        else:
            at += len(piece)
    joined = []
    for a, b in want:
        if joined and joined[-1][1] == a:
            joined[-1][1] = b
        elif a < b:
            joined.append([a, b])
    if joined != [[s.start, s.end] for s in stretches]:
        yield "learns other than the marks", repr([text[s.start:s.end] for s in stretches])[:200]


def judge(model, reference, row, keys, sample):
    """The outcome of a row that mt takes, and findings."""
    text, stretches = model.spans(sample)
    wrong = list(loose(row, keys, text, [text[s.start:s.end] for s in stretches]))
    if reference is None:
        return "taken, no jinja2", wrong
    for n, form in enumerate(forms(row)):
        out = reference.write(form)
        marker = text[len(out):] if out is not None and text.startswith(out) else None
        if marker is not None and (not marker or marker.encode() in model.tokens[256:]):
            more, told = exact(model, reference, form, keys, text[:len(out)] if not marker else text, stretches)
            wrong += more
            return ("taken" if n == 0 else "taken, repaired") + (", places checked" if told else ", words checked"), wrong
    return "taken", [*wrong, ("writes another text than jinja2", text[:200])]


def refusal(reference, row, err):
    """The outcome of a row that mt refuses."""
    reason = re.sub(r"\S*/(?:rows\.jsonl|chat_template\.jinja)(?::\d+)*:? ?", "", err.splitlines()[-1] if err else "")
    if "panic" in err or "goroutine " in err:
        return "panics", err[:300]
    if len(reason) < 30:
        return "refused without a reason", reason
    own = reference is not None and all(reference.write(form) is None for form in forms(row))
    return "refused as by the template" if own else "refused by mt", reason


def kind_of(reason):
    """A reason without what differs between rows."""
    reason = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', reason)
    return re.sub(r"\d+", "N", re.sub(r"\w+\[\d+\](?:\.\w+)*", "MESSAGE", reason))[:170]


def run(mt, name, source, rows, only):
    """The outcomes of all rows with one template: (conversation, outcome, what)."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model(pathlib.Path(folder), source)
        reference = None
        if jinja2:
            try:
                reference = Reference(source, model.named)
            except Exception as e:  # a template of another language
                return [("", "no template for jinja2", str(e))]
        rows = {k: v for k, v in rows.items() if only in f"{name}/{k}"}
        out = []
        for keys in ({}, {"mask_history": True}, {"train_on_prompt": True}):
            these = {k: row for k, (row, own) in rows.items() if own == keys}
            samples, _ = inspect(mt, model, these.values(), keys) if these else ({}, "")
            for n, (k, row) in enumerate(these.items()):
                if n in samples:
                    outcome, wrong = judge(model, reference, row, keys, samples[n])
                    if k == "half a surrogate":
                        wrong = [("takes half a surrogate", "")]
                    out += [(k, outcome, "")] if not wrong else [(k, "WRONG: " + w, what) for w, what in dict(wrong).items()]
                else:
                    _, err = inspect(mt, model, [row], keys, skip=False)
                    out.append((k, "refused as it must be", err) if k == "half a surrogate" and "surrogate" in err else (k, *refusal(reference, row, err)))
        return out


def templates(folder):
    for p in sorted(pathlib.Path(folder).rglob("*")):
        if p.suffix in (".jinja", ".jinja2", ".j2"):
            yield p.stem, p.read_text(encoding="utf-8")
        elif p.suffix == ".json":
            found = json.loads(p.read_text(encoding="utf-8")).get("chat_template", [])
            for t in [{"name": "default", "template": found}] if isinstance(found, str) else found:
                yield f"{p.parent.name}-{p.stem}-{t['name']}", t["template"]


def main():
    a = argparse.ArgumentParser(usage="tools/templates.py MT DIR [-v] [--only TEXT] [--json FILE]")
    a.add_argument("mt")
    a.add_argument("dir")
    a.add_argument("-v", action="store_true")
    a.add_argument("--only", default="")
    a.add_argument("--json")
    a = a.parse_args()
    rows, count, reasons, everything, n = conversations(), collections.Counter(), collections.Counter(), {}, 0
    for name, source in templates(a.dir):
        outcomes = run(a.mt, name, source, rows, a.only)
        n += 1
        for k, outcome, what in outcomes:
            everything.setdefault(f"{name}/{k}", []).append([outcome, what])
            count[outcome] += 1
            if outcome == "refused by mt":
                reasons[kind_of(what)] += 1
            if a.v and BAD.match(outcome):
                print(f"{name}/{k}: {outcome}: {what!r}")
    print(f"{n} templates, {len(rows)} conversations")
    for outcome, times in sorted(count.items()):
        print(f"{times:7} {outcome}")
    print("refused by mt, of rows that jinja2 writes:")
    for reason, times in reasons.most_common(40):
        print(f"{times:7} {reason}")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(everything, ensure_ascii=True, indent=0), encoding="utf-8")
    sys.exit(any(map(BAD.match, count)))


if __name__ == "__main__":
    main()
