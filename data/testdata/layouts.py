"""Tokens and labels of LLaMA-Factory's templates, for TestLayoutsOfLLaMAFactory.

    layouts.py DIR NAME...

Makes a small tokenizer in DIR, which has the special tokens of all templates, and writes DIR/cases.json: for each
template NAME that the installed llamafactory has, what SupervisedDatasetProcessor makes of a few conversations:
[{"template", "case", "ids", "labels"}, ...]. Ends with 3 where llamafactory is not installed.

Needs llamafactory, transformers and tokenizers. Of llamafactory only the files about templates are
read, so that what else it depends on need not be there.
"""

import importlib.machinery
import importlib.util
import json
import re
import sys
import types

spec = importlib.util.find_spec("llamafactory")
if spec is None:
    print("llamafactory is not installed", file=sys.stderr)
    sys.exit(3)


class Absent(types.ModuleType):
    """A module that is not there and not needed."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name, needs in {"torchaudio": "torchaudio", "peft": "peft", "peft.utils": "peft"}.items():
    if isinstance(sys.modules.get(needs), Absent) or importlib.util.find_spec(needs) is None:
        sys.modules[name] = Absent(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
for name in ("llamafactory", "llamafactory.data", "llamafactory.data.processor", "llamafactory.extras"):
    bare = types.ModuleType(name)
    bare.__path__ = [f"{spec.submodule_search_locations[0]}/{'/'.join(name.split('.')[1:])}"]
    sys.modules[name] = bare

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
from llamafactory.data.mm_plugin import get_mm_plugin
from llamafactory.data.template import TEMPLATES, get_template_and_fix_tokenizer

TEXT = ["What is the capital of France? Paris.\n\n", "<think>\nIt is simple.\n</think>\n\n", "Below is an instruction.", "  spaces\tand\n\nlines  "] * 20

CONVERSATIONS = {
    "one": {"messages": ["What is it?", "It is Paris."]},
    "system": {"system": "Be brief.", "messages": ["What is\nit?", "It is Paris."]},
    "turns": {"messages": ["a b", "c", "d  e", "  f\n", "\ng", "h i j"]},
    "thoughts": {"messages": ["What?", "<think>\nIt is simple.\n</think>\n\nParis.", "And?", "Then."]},
    "system and turns": {"system": "s", "messages": ["été 漢字", "Ja.", "?", "!"]},
}


def special_tokens():
    """Every token that a template names or ends answers with."""
    found = {"<bos>", "</s>"}
    for t in TEMPLATES.values():
        for formatter in (t.format_user, t.format_assistant, t.format_system, t.format_prefix):
            for slot in formatter.slots:
                if isinstance(slot, dict):
                    found.update(slot.values())
                elif isinstance(slot, str):
                    found.update(re.findall(r"<[|｜][^<>|｜]*[|｜]>|<\w+>", slot))
        found.update(t.stop_words)
    return sorted(found)


def make_tokenizer(folder):
    special = special_tokens()
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<bos>", eos_token="</s>").save_pretrained(folder)


def encode(tokenizer, name, conversation, **more):
    args = types.SimpleNamespace(**{"template": name, "train_on_prompt": False, "mask_history": False, "tool_format": None, "default_system": None, "enable_thinking": True,
                                    "preserve_thinking": False, "cutoff_len": 10000, **more})
    template = get_template_and_fix_tokenizer(tokenizer, args)
    template.mm_plugin = get_mm_plugin("base")  # the other plugins need an image processor, and there are no images
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(conversation["messages"])]
    processor = SupervisedDatasetProcessor(template=template, tokenizer=tokenizer, processor=None, data_args=args)
    return processor._encode_data_example(turns[:-1], turns[-1:], conversation.get("system", ""), "", [], [], [])


def main():
    folder = sys.argv[1]
    make_tokenizer(folder)
    out = []
    for name in sys.argv[2:]:
        if name not in TEMPLATES:
            continue
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        for case, conversation in CONVERSATIONS.items():
            for more in ({}, {"mask_history": True}, {"enable_thinking": False}, {"train_on_prompt": True}):
                if more.get("train_on_prompt") and TEMPLATES[name].efficient_eos:
                    continue
                ids, labels = encode(tokenizer, name, conversation, **more)
                out.append({"template": name, "case": case, "more": more, "system": conversation.get("system", ""), "messages": conversation["messages"], "ids": ids, "labels": labels})
    with open(folder + "/cases.json", "w", encoding="utf-8") as f:
        json.dump(out, f)


if __name__ == "__main__":
    main()
