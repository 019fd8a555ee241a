package jinja

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// family is a template of testdata.
func family(t testing.TB, name string) *Template {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "templates", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, name, string(source))
}

func parse(t testing.TB, name, source string) *Template {
	t.Helper()
	tmpl, err := Parse(name, source)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.Now = clock
	return tmpl
}

// chat makes messages of pairs of role and content.
func chat(pairs ...string) []any {
	var out []any
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, NewObject("role", pairs[i], "content", pairs[i+1]))
	}
	return out
}

func withTokens(messages []any) map[string]any {
	return map[string]any{"messages": messages, "bos_token": "<s>", "eos_token": "</s>"}
}

var twoTurns = chat("system", "S", "user", "one", "assistant", "A1", "user", "two", "assistant", "A2 <b>")

var withCall = []any{
	NewObject("role", "user", "content", "q"),
	NewObject("role", "assistant", "content", "", "tool_calls", []any{NewObject("function", NewObject("name", "f", "arguments", NewObject("a", 1)))}),
	NewObject("role", "tool", "content", "r"),
	NewObject("role", "assistant", "content", "done"),
}

var afterResult = chat("user", "q", "assistant", "A1", "tool", "r", "assistant", "done", "user", "q2", "assistant", "A2")

var thoughts = chat("user", "one", "assistant", "<think>\nold\n</think>\n\nA1", "user", "two", "assistant", "<think>\nnew\n</think>\n\nA2")

var supervised = []struct {
	template string
	messages []any
	want     []string
}{
	{"chatml", twoTurns, []string{"A1<|im_end|>", "A2 <b><|im_end|>"}},
	{"marked", twoTurns, []string{"A1<|im_end|>", "A2 <b><|im_end|>"}},
	{"marked_tail", twoTurns, []string{"A1[E]\n", "A2 <b>[E]\n", "</s>"}},
	{"marked_macro", twoTurns, []string{"A1</s>", "A2 <b></s>"}},
	{"header", twoTurns, []string{"A1<|eot_id|>", "A2 <b><|eot_id|>"}},
	{"header_tools", twoTurns, []string{"A1<|eot_id|>", "A2 <b><|eot_id|>"}},
	{"header_tools", withCall, []string{`{"name": "f", "parameters": {"a": 1}}<|eot_id|>`, "done<|eot_id|>"}},
	{"inst", twoTurns, []string{" A1 </s>", " A2 <b> </s>"}},
	{"inst_tools", twoTurns, []string{" A1</s>", " A2 <b></s>"}},
	{"sections", twoTurns, []string{"A1</s>", "A2 <b></s>"}},
	{"chatml_tools", withCall, []string{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>", "done<|im_end|>"}},
	{"thinking", twoTurns, []string{"A1<|im_end|>", "<think>\n\n</think>\n\nA2 <b><|im_end|>"}},
	{"thinking", thoughts, []string{"A1<|im_end|>", "<think>\nnew\n</think>\n\nA2<|im_end|>"}},
	{"thinking", withCall, []string{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>", "<think>\n\n</think>\n\ndone<|im_end|>"}},
	{"xml", withCall, []string{"<function=f>\n<parameter=a>\n1\n</parameter>\n</function><|im_end|>", "done<|im_end|>"}},
	{"turns", twoTurns, []string{"A1<end_of_turn>", "A2 <b><end_of_turn>"}},
	{"pipes", twoTurns, []string{"A1<|end|>", "A2 <b><|end|>"}},
	{"pipes_sep", twoTurns, []string{"A1<|im_end|>", "A2 <b><|im_end|>"}},
	{"lines", twoTurns, []string{"A1</s>", "A2 <b></s>"}},
	{"channels", twoTurns, []string{"<|channel|>final<|message|>A1<|end|>", "<|channel|>final<|message|>A2 <b><|return|>"}},
	{"channels", withCall, []string{" to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>", "<|channel|>final<|message|>done<|return|>"}},
	{"flags", twoTurns, []string{"A1<｜end｜>", "A2 <b><｜end｜>"}},
	// after a result this template has no header to begin an answer with
	{"flags", afterResult, []string{"A1<｜end｜>", "<｜A｜>done<｜end｜>", "A2<｜end｜>"}},
	{"numbers", twoTurns, []string{"A1</assistant>", "A2 <b></assistant>"}},
}

func TestSupervisedSpans(t *testing.T) {
	for _, c := range supervised {
		tmpl := family(t, c.template)
		out, turns, err := tmpl.SupervisedSpans(withTokens(c.messages))
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		var got []string
		for _, turn := range turns {
			got = append(got, out.Text[turn.From:turn.To])
			if role, _ := c.messages[turn.Message].(*Object).Get("role"); role != "assistant" {
				t.Errorf("%s: message %d is of role %v", c.template, turn.Message, role)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q\ntext %q", c.template, got, c.want, out.Text)
		}
	}
}

// A template that ends with the prompt has its headers found by one rendering
// instead of two: they are equal.
func TestEndsWithPrompt(t *testing.T) {
	const prompt = "{% if add_generation_prompt %}A{% endif %}"
	for source, want := range map[string]bool{
		"x" + prompt:                           true,
		prompt + "\n":                          true, // a template's last line break is none
		prompt + "x":                           false,
		"":                                     false,
		"{{ add_generation_prompt }}" + prompt: false,
		"{% macro add_generation_prompt() %}{% endmacro %}" + prompt:                    false,
		"{% if add_generation_prompt %}A{% else %}B{% endif %}":                         false,
		"{% if add_generation_prompt and x %}A{% endif %}":                              false,
		"{% for m in messages %}{% if add_generation_prompt %}A{% endif %}{% endfor %}": false,
		"{% if x %}B{% endif %}":                          false,
		"{% set add_generation_prompt = true %}" + prompt: false,
	} {
		if got := parse(t, "prompt", source).endsWithPrompt; got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
	short := 0
	for _, c := range supervised {
		once := family(t, c.template)
		if !once.endsWithPrompt {
			continue
		}
		short++
		twice := *once
		twice.endsWithPrompt = false
		messages := c.messages[:len(c.messages)-1]
		got, err1 := once.promptOf(withTokens(nil), messages)
		want, err2 := twice.promptOf(withTokens(nil), messages)
		if err1 != nil || err2 != nil || got != want || got.header == "" || !strings.HasSuffix(got.tail, got.header) {
			t.Errorf("%s: header %q %v, want %q %v", c.template, got, err1, want, err2)
		}
	}
	if short == 0 {
		t.Error("no template of testdata ends with the prompt")
	}
}

// TestSupervisedEmptyThoughts: where add_generation_prompt closes the thoughts
// itself, an answer in the history begins behind the header's first line.
func TestSupervisedEmptyThoughts(t *testing.T) {
	vars := withTokens(twoTurns)
	vars["enable_thinking"] = false
	out, turns, err := family(t, "thinking").SupervisedSpans(vars)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"A1<|im_end|>", "A2 <b><|im_end|>"} {
		if got := out.Text[turns[i].From:turns[i].To]; got != want {
			t.Errorf("turn %d: %q, want %q", i, got, want)
		}
	}
}

// Loops over what is made of messages keep telling which message they stand at.
func TestTurns(t *testing.T) {
	const body = "{{ m.content }},{% endfor %}"
	for source, want := range map[string]string{
		"{% for m in messages %}" + body:                                                                                               "0:S, 1:one, 2:A1, 3:two, 4:A2 <b>,",
		"{% for m in messages[1:] %}" + body:                                                                                           "1:one, 2:A1, 3:two, 4:A2 <b>,",
		"{% for m in messages[::-1] %}" + body:                                                                                         "4:A2 <b>, 3:two, 2:A1, 1:one, 0:S,",
		"{% for m in messages | reverse %}" + body:                                                                                     "4:A2 <b>, 3:two, 2:A1, 1:one, 0:S,",
		"{% for m in messages if m.role == 'user' %}" + body:                                                                           "1:one, 3:two,",
		"{% for m in messages | selectattr('role', 'eq', 'assistant') %}" + body:                                                       "2:A1, 4:A2 <b>,",
		"{% for m in [messages[2]] + messages[:1] %}" + body:                                                                           "2:A1, 0:S,",
		"{% for r in messages %}{% set m = messages[loop.index0] %}" + body:                                                            "0:S, 1:one, 2:A1, 3:two, 4:A2 <b>,",
		"{% for i in range(messages | length) %}{% set m = messages[i] %}" + body:                                                      "0:S, 1:one, 2:A1, 3:two, 4:A2 <b>,",
		"{% for i in range(4) %}{% set m = messages[1:][loop.index0] %}" + body:                                                        "1:one, 2:A1, 3:two, 4:A2 <b>,",
		"{% for i in range(2) %}{% set m = messages[i + 1] %}" + body:                                                                  "",
		"{% for i in [7] %}{{ i }}{% endfor %}{% for m in messages[:1] %}{% for c in m.content %}{{ c }}" + "{% endfor %}{% endfor %}": "0:S",
		"{% macro all(l) %}<{% for m in l %}" + body + ">{% endmacro %}x{{ all(messages[1:3]) }}y":                                     "1:one, 2:A1,",
		"{% set a %}{% for m in messages[:2] %}" + body + "{% endset %}é{{ a }}":                                                       "0:S, 1:one,",
		"{% for m in messages[:2] recursive %}" + body:                                                                                 "0:S, 1:one,",
		"{% for m in messages[:1] %}{% for n in messages[1:2] %}{{ n.content }}{% endfor %}.{% endfor %}":                              "1:one 0:one.",
		"{% for m in messages[:1] %}{% for m in [m] %}{{ m.content }}{% endfor %}.{% endfor %}":                                        "0:S.",
		"{% for m in messages %}{% endfor %}":                                                                                          "",
	} {
		out, err := parse(t, "turns", source).Render(withTokens(twoTurns))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var got []string
		for _, turn := range out.Turns {
			got = append(got, string(rune('0'+turn.Message))+":"+out.Text[turn.From:turn.To])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\n got %s\nwant %s", source, strings.Join(got, " "), want)
		}
	}
}

func TestSupervisedSpansRefuses(t *testing.T) {
	for _, c := range []struct{ template, source, want string }{
		{"pairs", "", "message 3, an assistant's: it may merge turns; mark what the model learns"},
		{"noloop", "", "writes no message inside a loop over messages"},
		{"twice", "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}", "in 2 places; mark"},
		{"other header", "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}[ASK]{% endif %}", `has no "[ASK]", which add_generation_prompt writes`},
		{"a part of the header inside the text", "{% for m in messages %}{{ m.content }}>{% endfor %}{% if add_generation_prompt %}>[ASK]{% endif %}", `has no ">[ASK]", which add_generation_prompt writes`},
		{"filtered", "{% for m in messages %}{% filter trim %}{% generation %}{{ m.content }}{% endgeneration %}{% endfilter %}{% endfor %}", "write nothing into the text"},
	} {
		var tmpl *Template
		if c.source == "" {
			tmpl = family(t, c.template)
		} else {
			tmpl = parse(t, c.template, c.source)
		}
		_, turns, err := tmpl.SupervisedSpans(withTokens(twoTurns[1:]))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v, want an error with %q", c.template, turns, err, c.want)
		}
	}
}

// One object that stands for two messages is two turns.
func TestSharedMessage(t *testing.T) {
	m := NewObject("role", "assistant", "content", "x")
	out, turns, err := parse(t, "shared", "{% for m in messages %}<a>{{ m.content }}</a>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}").
		SupervisedSpans(map[string]any{"messages": []any{m, m}})
	if err != nil || len(turns) != 2 || turns[1].Message != 1 || out.Text[turns[1].From:turns[1].To] != "x</a>" {
		t.Fatalf("%v %v", turns, err)
	}
}

func TestNoAssistant(t *testing.T) {
	_, turns, err := family(t, "chatml").SupervisedSpans(withTokens(chat("user", "x")))
	if err != nil || len(turns) != 0 {
		t.Fatalf("%v %v", turns, err)
	}
}
