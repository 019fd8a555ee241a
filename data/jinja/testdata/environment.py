"""jinja2 as Transformers sets it up for chat templates: what render.py and
differences.py compare with. The behaviour is that of
transformers/utils/chat_template_utils.py (5.23)."""

import copy
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26, 14, 5, 9, 1234)


class Generation(jinja2.ext.Extension):
    """{% generation %}: notes which characters of the output a block wrote."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        self.blocks, self.spans = [], []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        start = len("".join(self.blocks))
        self.spans.append([start, start + len(text)])
        return text


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"name {name!r}")


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def with_reasoning(message):
    for name in ("reasoning_content", "thinking", "reasoning"):
        if message.get(name) is not None:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message


def render(source, variables):
    """The text, and the spans of characters that {% generation %} wrote."""
    env = make()
    tracker = next(e for e in env.extensions.values() if isinstance(e, Generation))
    variables = {"tools": None, "documents": None, "add_generation_prompt": False, **copy.deepcopy(variables)}  # a copy, since the filter indent changes lists
    if "messages" in variables:
        variables["messages"] = [with_reasoning(m) for m in variables["messages"]]
    for block in env.from_string(source).generate(**variables):
        tracker.blocks.append(block)
    return "".join(tracker.blocks), tracker.spans
