"""Conversations that templates are rendered with."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says how the weather is.\nIn a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name, e.g. \"Köln\""},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": ["integer", "null"], "minimum": 0},
                "where": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


PLAIN = [user("Hi"), assistant("Hello! How can I help?"), user("What is 2+2?"), assistant("4")]
TOOLS = [
    system("Use tools."),
    user("Weather in Köln and Rome?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Köln", "days": 2, "where": [50.9, 6.96]}, id="abcdefghi")]),
    {"role": "tool", "name": "get_weather", "content": '{"t": 21.5}', "tool_call_id": "abcdefghi"},
    assistant("One more.", tool_calls=[call("get_weather", {"city": "Rome", "unit": None}, id="123456789"), call("clock", {}, id="000000000")]),
    {"role": "tool", "name": "get_weather", "content": {"t": 30, "ok": True}, "tool_call_id": "123456789"},
    {"role": "tool", "name": "clock", "content": "noon", "tool_call_id": "000000000"},
    assistant("Köln 21.5, Rome 30."),
]
ONE_TOOL = [
    system("Use tools."),
    user("Weather in Köln?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Köln", "where": [50.9, 6.96], "deep": {"a": None, "b": [True, "<&>"]}}, id="abcdefghi")]),
    {"role": "tool", "name": "get_weather", "content": '{"t": 21.5}', "tool_call_id": "abcdefghi"},
    assistant("It is 21.5."),
    user("Thanks, and time?"),
    assistant("Let me look.", tool_calls=[call("clock", {}, id="000000000")]),
    {"role": "tool", "name": "clock", "content": "noon", "tool_call_id": "000000000"},
    assistant("Noon.", thinking="simple"),
]
THINKING = [
    user("Think."),
    assistant("<think>\nfirst thought\n</think>\n\nAnswer one."),
    user("Again."),
    assistant("Answer two.", reasoning_content="second\nthought\n"),
    user("And now?"),
    assistant("<think>\n\n</think>\n\nAnswer three."),
]
PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": " what?"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
]

CONVERSATIONS = {
    "plain": {"messages": PLAIN, **TOKENS},
    "prompt": {"messages": PLAIN[:3], "add_generation_prompt": True, **TOKENS},
    "one": {"messages": [user("Hi")], "add_generation_prompt": True, **TOKENS},
    "system": {"messages": [system("You are terse.")] + PLAIN, **TOKENS},
    "spaces": {"messages": [system("  You \n"), user(" \n Hi\t\n"), assistant("\n Hello  \n\n")], **TOKENS},
    "unicode": {"messages": [user("Grüße 你好 🙂 ‘x’ \u00a0\u2028"), assistant("ÀÉ ñ — “ok” 👩‍👩‍👧 \\n <|im_end|>")], **TOKENS},
    "empty": {"messages": [], **TOKENS},
    "empty prompt": {"messages": [], "add_generation_prompt": True, **TOKENS},
    "empty content": {"messages": [user(""), assistant("")], **TOKENS},
    "none content": {"messages": [user("Call."), assistant(None, tool_calls=[call("clock", "{}", id="aaaaaaaaa")])], **TOKENS},
    "tools": {"messages": TOOLS, "tools": [WEATHER, CLOCK], **TOKENS},
    "tools prompt": {"messages": TOOLS[:4], "tools": [WEATHER, CLOCK], "add_generation_prompt": True, **TOKENS},
    "tools no system": {"messages": TOOLS[1:], "tools": [CLOCK], **TOKENS},
    "tools empty": {"messages": PLAIN, "tools": [], **TOKENS},
    "one tool": {"messages": ONE_TOOL, "tools": [WEATHER, CLOCK], **TOKENS},
    "one tool system": {"messages": ONE_TOOL, "tools": [WEATHER], "tools_in_user_message": False, "builtin_tools": ["clock", "python"], **TOKENS},
    "one tool prompt": {"messages": ONE_TOOL[:8], "tools": [CLOCK], "add_generation_prompt": True, **TOKENS},
    "one tool only": {"messages": ONE_TOOL[1:4], "tools": [CLOCK], "builtin_tools": ["get_weather"], **TOKENS},
    "tool text": {"messages": [user("x"), assistant("", tool_calls=[call("f", '{"a": "b\\u00e9"}', id="abc")])], "tools": [CLOCK], **TOKENS},
    "thinking": {"messages": THINKING, **TOKENS},
    "thinking prompt": {"messages": THINKING[:5], "add_generation_prompt": True, "enable_thinking": True, **TOKENS},
    "no thinking": {"messages": THINKING[:5], "add_generation_prompt": True, "enable_thinking": False, **TOKENS},
    "thinking tools": {"messages": THINKING[2:4] + TOOLS[1:5], "tools": [WEATHER], **TOKENS},
    "parts": {"messages": PARTS, **TOKENS},
    "assistant first": {"messages": [assistant("Hi."), user("Hello.")], **TOKENS},
    "two users": {"messages": [user("a"), user("b"), assistant("c"), assistant("d")], **TOKENS},
    "system last": {"messages": PLAIN[:2] + [system("late")], **TOKENS},
    "odd role": {"messages": [user("a"), {"role": "narrator", "content": "b"}], **TOKENS},
    "no content": {"messages": [user("a"), {"role": "assistant"}], **TOKENS},
    "no tokens": {"messages": PLAIN},
    "documents": {"messages": PLAIN[:1], "documents": [{"title": "T", "text": "x\ny"}, {"title": "U", "text": ""}], "add_generation_prompt": True, **TOKENS},
    "options": {"messages": PLAIN, "date_string": "01 Jan 2025", "reasoning_effort": "high", "model_identity": "You are us.",
                "tools_in_user_message": False, "builtin_tools": ["browser", "python"], **TOKENS},
    "strict tools": {"messages": [system("S")] + PLAIN[:3], "tools": [WEATHER], "tools_in_user_message": False, "add_generation_prompt": True, **TOKENS},
}
