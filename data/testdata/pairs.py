"""Tokens and masks of pairs as TRL's DPOTrainer makes them, for TestPairsOfTRL.

    pairs.py pairs.json

Makes two small tokenizers, lets DPOTrainer prepare pairs in each of its forms with them, and writes both: {"tokenizers":
{name: {file: content}}, "cases": [{"name", "tokenizer", "max_length", "rows", "want"}]}, where "want" has, for each row that is
left, what its collator makes of it: "chosen" and "rejected", each with "ids" and "mask".

Needs trl and accelerate (pip install --no-deps trl==1.16.0 accelerate psutil), transformers, tokenizers, datasets and torch.
"""

import json
import os
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402
from trl import DPOConfig, DPOTrainer  # noqa: E402

TEXT = ["What is the colour of the sky? It is blue.", "The answer is that two and two are four.", "Please write a short poem about the sea."]

# Marks the roles of turns. If think is set, the prompt ends with <think>, which a whole conversation lacks.
PLAIN = (
    "{{ bos_token }}{% if tools %}[tools {% for t in tools %}{{ t.function.name }} {% endfor %}]{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if think %}<think>{% endif %}{% endif %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer(bos, eos, special, template):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if bos:
        t.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])
    out = PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos, pad_token=special[-1])
    out.chat_template = template
    return out


def talk(*turns):
    return [{"role": role, "content": content} for role, content in turns]


ASK = [("user", "What is the colour of the sky?")]
BLUE, GREEN = ("assistant", "It is blue."), ("assistant", "Green, surely")
SYSTEM = ("system", "Be short.")

ROWS = {
    "texts": [
        {"prompt": "The sky is", "chosen": " blue.", "rejected": " green, as it is."},
        {"prompt": "Write a poem:\n", "chosen": "The sea", "rejected": ""},
        {"prompt": "The answ", "chosen": "er is four", "rejected": "ering"},  # tokens merge across the end of the prompt
        {"prompt": "é ", "chosen": "ü", "rejected": "ö"},
    ],
    "texts with a beginning in common": [
        {"chosen": "The sky is blue", "rejected": "The sky is green"},
        {"chosen": "Two and two are four", "rejected": "Two and two are"},
        {"chosen": "Two and two", "rejected": "Two and two are four"},
        {"chosen": "about the sea", "rejected": "abort"},
    ],
    "messages": [
        {"prompt": talk(*ASK), "chosen": talk(BLUE), "rejected": talk(GREEN)},
        {"prompt": talk(SYSTEM, *ASK), "chosen": talk(BLUE), "rejected": talk(("assistant", ""))},
        {"prompt": talk(SYSTEM, *ASK, GREEN, ("user", "No.")), "chosen": talk(BLUE, ("user", "Good"), ("assistant", "Yes")), "rejected": talk(BLUE)},
    ],
    "messages with a beginning in common": [
        {"chosen": talk(*ASK, BLUE), "rejected": talk(*ASK, GREEN)},
        {"chosen": talk(*ASK, BLUE, ("user", "Why?"), BLUE), "rejected": talk(*ASK, BLUE, ("user", "Why?"), GREEN)},
        {"chosen": talk(*ASK, BLUE), "rejected": talk(*ASK, GREEN, ("user", "No."), BLUE)},
        {"chosen": talk(*ASK, BLUE), "rejected": talk(*ASK, BLUE)},
    ],
}
LIMITS = {  # by rows and tokenizer: a max_seq_len equal to the tokens of the second row's prompt
    "texts": {"plain": 8, "chatml": 7}, "texts with a beginning in common": {"plain": 5, "chatml": 4},
    "messages": {"plain": 18, "chatml": 38}, "messages with a beginning in common": {"plain": 23, "chatml": 52},
}
CASES = [(name, tok, most) for name in ROWS for tok in ("plain", "chatml") for most in (None, LIMITS[name][tok])]


def main(path):
    toks = {
        "plain": tokenizer("<s>", "</s>", ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<think>", "<pad>"], PLAIN),
        "chatml": tokenizer(None, "<|im_end|>", ["<|im_start|>", "<|im_end|>", "<pad>"], CHATML),
    }
    out = {"tokenizers": {}, "cases": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, tok in toks.items():
            tok.save_pretrained(f"{folder}/{name}")
            files = {f: open(f"{folder}/{name}/{f}", encoding="utf-8").read() for f in sorted(os.listdir(f"{folder}/{name}"))}
            out["tokenizers"][name] = {f: json.dumps(json.loads(c), separators=(",", ":")) if f.endswith(".json") else c for f, c in files.items()}
        for name, tok, most in CASES:
            out["cases"].append(case(folder, name, toks[tok], tok, most, ROWS[name]))
        tools = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {}}}]
        rows = [{**row, "tools": json.dumps(tools), "chat_template_kwargs": {"think": True}} for row in ROWS["messages"]]
        out["cases"].append(case(folder, "tools and variables", toks["plain"], "plain", None, rows))
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"tokenizers":' + json.dumps(out["tokenizers"]) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in out["cases"]) + "\n]}\n")


def case(folder, name, tok, tokname, most, rows):
    LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tok), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
    )).save_pretrained(f"{folder}/model")
    args = DPOConfig(output_dir=folder, max_length=most, report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False)
    trainer = DPOTrainer(model=f"{folder}/model", args=args, train_dataset=Dataset.from_list(rows), processing_class=tok)
    want = []
    for row in trainer.train_dataset:
        b = trainer.data_collator([row])
        sides = {}
        for i, side in enumerate(("chosen", "rejected")):
            n = int(b["attention_mask"][i].sum())
            sides[side] = {"ids": b["input_ids"][i][:n].tolist(), "mask": b["completion_mask"][i][:n].tolist()}
        want.append(sides)
    return {"name": name, "tokenizer": tokname, "max_length": most or 0, "rows": rows, "want": want}


main(sys.argv[1])
