package jinja

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// family parses the template called name in testdata/templates.
func family(t testing.TB, name string) *Template {
	t.Helper()
	source := testkit.Must(os.ReadFile(filepath.Join("testdata", "templates", name+".jinja")))(t)
	return parse(t, name, string(source))
}

func parse(t testing.TB, name, source string) *Template {
	t.Helper()
	tmpl := testkit.Must(Parse(name, source))(t)
	tmpl.Now = clock
	return tmpl
}

// chat returns messages, made of pairs of a role and a content.
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
	// This template writes no header before an answer that follows a tool's result.
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

// TestEndsWithPrompt: to find an answer's header, such as <|assistant|>, the template is rendered
// with and without add_generation_prompt. If it ends with {% if add_generation_prompt %}, one
// rendering is enough and gives the same header.
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

// TestSupervisedEmptyThoughts: with thinking disabled, the template's add_generation_prompt writes
// an empty thinking block. Answers in the history lack the block, and begin after the header's
// first line.
func TestSupervisedEmptyThoughts(t *testing.T) {
	vars := withTokens(twoTurns)
	vars["enable_thinking"] = false
	out, turns, err := family(t, "thinking").SupervisedSpans(vars)
	testkit.NoError(t, err)
	for i, want := range []string{"A1<|im_end|>", "A2 <b><|im_end|>"} {
		if got := out.Text[turns[i].From:turns[i].To]; got != want {
			t.Errorf("turn %d: %q, want %q", i, got, want)
		}
	}
}

// TestTurns: a loop over values made from messages, such as a slice of them, still records which
// message each Turn belongs to.
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

// TestSharedMessage: if one object is in the list twice, it counts as two messages, each with a
// turn.
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

// TestMarks: every {% generation %} block becomes one Turn that spans exactly the block's text. The
// Turn names the message if it can be known.
func TestMarks(t *testing.T) {
	const (
		answer = "{% generation %}{{ m.content }};{% endgeneration %}"
		loop   = "{% for m in messages %}{% if m.role == 'assistant' %}" + answer + "{% else %}{{ m.content }}{% endif %}{% endfor %}"
		tail   = "{% generation %}{{ eos_token }}{% endgeneration %}"
	)
	two := twoTurns[1:] // user, assistant, user, assistant
	for _, c := range []struct {
		name, source string
		messages     []any
		want         []string
	}{
		{"one to a message", loop, two, []string{"1:A1;", "3:A2 <b>;"}},
		{"one more behind the loop", loop + tail, two, []string{"1:A1;", "3:A2 <b>;", "3:</s>"}},
		{"several in a message", "{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}" + answer + "." + answer + "{% endif %}{% endfor %}", two,
			[]string{"1:A1;", "1:A1;", "3:A2 <b>;", "3:A2 <b>;"}},
		{"some messages without", "{% for m in messages %}{% if loop.last %}" + answer + "{% else %}{{ m.content }}{% endif %}{% endfor %}", two, []string{"3:A2 <b>;"}},
		{"no loop, as many as answers", "{% generation %}a{% endgeneration %}b{% generation %}c{% endgeneration %}", two, []string{"1:a", "3:c"}},
		{"no loop, another number", tail, two, []string{"-1:</s>"}},
		{"before the loop", tail + loop, two, []string{"-1:</s>", "1:A1;", "3:A2 <b>;"}},
		{"empty ones", "{% generation %}{% endgeneration %}" + loop, two, []string{"1:A1;", "3:A2 <b>;"}},
		{"behind a question", loop + tail, two[:3], []string{"1:A1;", "1:</s>"}},
	} {
		out, turns, err := parse(t, "marks", c.source).SupervisedSpans(withTokens(c.messages))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, turn := range turns {
			got = append(got, fmt.Sprint(turn.Message, ":", out.Text[turn.From:turn.To]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestStop: a long rendering ends with ErrStopped soon after Stop returns true, in every part of
// the work, for templates with {% generation %} blocks and without.
func TestStop(t *testing.T) {
	const slow = "{% for m in messages %}{{ m.content }}{% for a in range(9999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
	for _, source := range []string{slow, slow + "{% generation %}x{% endgeneration %}", "{% if add_generation_prompt %}" + slow + "{% else %}{% for m in messages %}{{ m.content }}{% endfor %}{% endif %}"} {
		tmpl := parse(t, "slow", source)
		asked := 0
		tmpl.Stop = func() bool { asked++; return asked == 3 || asked > 3 }
		out, turns, err := tmpl.SupervisedSpans(withTokens(twoTurns))
		if !errors.Is(err, ErrStopped) || out != nil || turns != nil {
			t.Errorf("%s: %v, %v, %v", source, out, turns, err)
		}
		if asked > 4 { // one more call is allowed, for a second rendering that finds the header
			t.Errorf("%s: Stop was asked %d times", source, asked)
		}
	}
	tmpl := parse(t, "quick", "{% for a in range(9999) %}{% endfor %}x")
	tmpl.Stop = func() bool { return false }
	if out, err := tmpl.Render(withTokens(nil)); err != nil || out.Text != "x" {
		t.Errorf("%v, %v", out, err)
	}
}

// TestErrorNamesMessage: the error of a failing template gives the index of the message at which it
// failed.
func TestErrorNamesMessage(t *testing.T) {
	for source, want := range map[string]int{
		"{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('no') }}{% endif %}{% endfor %}":                           2,
		"{% for m in messages %}{% for c in m.content %}{% if loop.index == 2 %}{{ nope.x }}{% endif %}{% endfor %}{% endfor %}":            1,
		"{% for m in messages %}{% for i in range(1) %}{{ messages[i + 1].nope.x }}{% endfor %}{% endfor %}":                                0,
		"{% for m in messages %}{% endfor %}{{ raise_exception('no') }}":                                                                    NoMessage,
		"{% macro say(m) %}{{ m.nope.x }}{% endmacro %}{% for i in range(5) %}{% if i == 3 %}{{ say(messages[i]) }}{% endif %}{% endfor %}": 3,
	} {
		_, err := parse(t, "failing", source).Render(withTokens(twoTurns))
		var e *Error
		if !errors.As(err, &e) || e.Message != want {
			t.Errorf("%s: message %d, want %d (%v)", source, e.Message, want, err)
		}
	}
	var e *Error
	if _, err := Parse("broken", "{% if %}"); !errors.As(err, &e) || e.Message != NoMessage {
		t.Errorf("%v names message %d", err, e.Message)
	}
}

// TestPromptOpensTurn: an answer begins where the prompt before it ends, whichever part of the
// template writes the answer's header.
func TestPromptOpensTurn(t *testing.T) {
	const (
		inLoop = "{% for m in messages %}{{ 'U:' if m.role == 'user' else 'A:' }}{{ m.content }}\n{% if loop.last and m.role == 'user' %}A:{% endif %}{% endfor %}"
		ended  = "{% for m in messages %}{{ '</u><' + m.role + '>' if not loop.first else '<' + m.role + '>' }}{{ m.content }}{% endfor %}{{ '</u><assistant>' if add_generation_prompt }}"
		before = "{% for m in messages %}{{ m.content }}{% if m.role == 'user' and (add_generation_prompt or not loop.last) %}<a>{% elif m.role == 'assistant' %}</a>{% endif %}{% endfor %}"
		joined = "{% for m in messages %}{% if m.role == 'user' %}{{ '\n' if not loop.first }}Q {{ m.content }}{% else %}\n\nA:\n{{ m.content }}.{% endif %}{% endfor %}{{ '\n\nA:\n' if add_generation_prompt }}"
	)
	checkAnswers(t, []answersCase{
		{inLoop, chat("user", "q", "assistant", "x", "user", "r", "assistant", "y"), []string{"x", "y"}},
		{ended, chat("user", "q", "assistant", "x", "user", "r", "assistant", "y"), []string{"x", "y"}},
		{before, chat("user", "q", "assistant", "x", "user", "r", "assistant", "y"), []string{"x</a>", "y</a>"}},
		{joined, chat("user", "q", "assistant", "x", "user", "r", "assistant", "y"), []string{"x.", "y."}},
	})
}

// TestOpeningsInOtherSpaces: a header that differs from the prompt's only in white space is not
// supervised, and neither is white space that the template adds. White space at the start of an
// answer's content is supervised.
func TestOpeningsInOtherSpaces(t *testing.T) {
	const (
		indented = "{% for m in messages %}{% if m.role == 'user' %}\n        U: {{ m.content }}\n{% else %}\n        A: {{ m.content }}</s>\n{% endif %}{% endfor %}{{ '    A:\n' if add_generation_prompt }}"
		trimmed  = "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content | trim }}{% else %}\n A:\n\n{{ m.content | trim }}</s>{% endif %}{% endfor %}{{ '\nA: ' if add_generation_prompt }}"
		thinking = "{% for m in messages %}{{ '\n' if not loop.first and m.role == 'user' }}[{{ m.role }}]{{ m.content }}{{ '\n' if not loop.last and m.role == 'user' }}{% endfor %}{{ '\n[assistant]<thought>\n' if add_generation_prompt }}"
	)
	checkAnswers(t, []answersCase{
		{indented, chat("user", "q", "assistant", "x", "user", "r", "assistant", "  y "), []string{"x</s>", "  y </s>"}},
		{trimmed, chat("user", "q", "assistant", "\n x", "user", "r", "assistant", "y"), []string{"x</s>", "y</s>"}},
		{thinking, chat("user", "q", "assistant", "x", "user", "r", "assistant", " y"), []string{"x", " y"}},
	})
	for _, source := range []string{
		"{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ '[Assistant]' if add_generation_prompt }}",
		"{% for m in messages %}({{ m.role }}) {{ m.content }}{% endfor %}{{ '[assistant]' if add_generation_prompt }}",
		"{% for m in messages %}\nA: {{ m.content }}{% endfor %}{{ 'B:' if add_generation_prompt }}",
	} {
		if _, turns, err := parse(t, "other", source).SupervisedSpans(withTokens(chat("user", "q", "assistant", "x"))); err == nil {
			t.Errorf("%s: %v", source, turns)
		}
	}
}

// answersCase is a template with a conversation. want lists the supervised spans.
type answersCase struct {
	source   string
	messages []any
	want     []string
}

func checkAnswers(t *testing.T, cases []answersCase) {
	t.Helper()
	for _, c := range cases {
		out, turns, err := parse(t, "answers", c.source).SupervisedSpans(withTokens(c.messages))
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		var got []string
		for _, turn := range turns {
			got = append(got, out.Text[turn.From:turn.To])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q\ntext %q", c.source, got, c.want, out.Text)
		}
	}
}

// callChat returns a chat with two calls in one message and their results. The message's own field
// tool_responses holds a further result.
func callChat(content any) []any {
	call := func(name string) any { return NewObject("function", NewObject("name", name, "arguments", NewObject())) }
	return []any{
		NewObject("role", "user", "content", "q"),
		NewObject("role", "assistant", "content", content, "tool_calls", []any{call("f"), call("g")},
			"tool_responses", []any{NewObject("name", "f", "response", "R5")}),
		NewObject("role", "tool", "content", "R1"),
		NewObject("role", "tool", "content", "R2"),
		NewObject("role", "assistant", "content", "A1"),
		NewObject("role", "user", "content", "bye"),
	}
}

const (
	turnOpen  = "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}</u>{% elif m.role == 'assistant' %}{% if not ns.open %}<a>{% endif %}{% set ns.open = false %}"
	turnCalls = "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}"
	turnClose = "{{ m.content or '' }}{% if not ns.open %}</a>{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt and not ns.open %}<a>{% endif %}"
)

// TestOthersInside: tool results that a template writes into the assistant's turn are not
// supervised, in whatever way the template finds the results.
func TestOthersInside(t *testing.T) {
	for _, c := range []struct{ name, inside, content, want string }{
		{"by numbers, through a macro", "{% macro result(x) %}<r>{{ x }}</r>{% endmacro %}" + turnOpen + turnCalls +
			"{% if m.tool_calls %}{% for k in range(loop.index0 + 1, messages | length) %}{% if messages[k].role == 'tool' %}{% set ns.open = true %}{{ result(messages[k].content) }}{% endif %}{% endfor %}{% endif %}" + turnClose,
			"", "1:<call>f</call><call>g</call> 4:A1</a>"},
		{"in brackets, with text behind", turnOpen + turnCalls + "{% if m.tool_calls %}[{% for r in messages[loop.index:] if r.role == 'tool' %}{{ r.content }}{{ ', ' if not loop.last }}{% set ns.open = true %}{% endfor %}]{% endif %}" + turnClose,
			"so", "1:<call>f</call><call>g</call>[ 1:so 4:A1</a>"},
		{"each behind its call", turnOpen + "{% set at = loop.index %}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% for r in messages[at + loop.index0:at + loop.index] %}<r>{{ r.content }}</r>{% set ns.open = true %}{% endfor %}{% endfor %}" + turnClose,
			"", "1:<call>f</call> 1:<call>g</call> 4:A1</a>"},
		{"in the message itself", turnOpen + turnCalls + "{% for r in m.tool_responses or [] %}<r>{{ r.response }}</r>{% set ns.open = true %}{% endfor %}" + turnClose,
			"", "1:<call>f</call><call>g</call> 4:A1</a>"},
	} {
		out, turns, err := parse(t, c.name, c.inside).SupervisedSpans(withTokens(callChat(c.content)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, turn := range turns {
			got = append(got, fmt.Sprint(turn.Message, ":", out.Text[turn.From:turn.To]))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\n got %q\nwant %q\ntext %q", c.name, got, c.want, out.Text)
		}
		if alone := turns[0].Alone; !strings.HasPrefix(alone, "<call>f</call>") || !strings.Contains(alone, "g</call>") {
			t.Errorf("%s: alone the message is %q", c.name, alone)
		}
	}
}

// TestOthersWithoutLoop: if a template writes text of another message into an answer without a loop
// over messages, it is an error. The assistant itself may use the same words.
func TestOthersWithoutLoop(t *testing.T) {
	const end = "{% if add_generation_prompt %}<a>{% endif %}"
	for source, refused := range map[string]bool{
		"{% for m in messages if m.role == 'assistant' %}<a>{{ messages[1 + loop.index].content }}{{ m.content }}</a>{% endfor %}" + end:                                               true,
		"{% for m in messages if m.role == 'assistant' %}<a>{% set before = messages[0].content %}{{ before | upper | lower }}{{ m.content }}</a>{% endfor %}" + end:                   true,
		"{% for m in messages %}{% if m.role == 'assistant' %}<a>{% for c in m.tool_calls or [] %}{{ messages[loop.index + 1].content }}{% endfor %}</a>{% endif %}{% endfor %}" + end: true,
		"{{ messages[0].content }}{% for m in messages if m.role == 'assistant' %}<a>q{{ m.content }}</a>{% endfor %}" + end:                                                           false,
	} {
		_, turns, err := parse(t, "without", source).SupervisedSpans(withTokens(callChat("")))
		if refused != (err != nil && strings.Contains(err.Error(), "generation")) || !refused && err != nil {
			t.Errorf("%s: %v, %v", source, turns, err)
		}
	}
}

// TestOpenings: text before an answer that is already the end of the prompt is not supervised. This
// may be the end tag of a list of tool results, or nothing if the assistant's turn is still open.
func TestOpenings(t *testing.T) {
	const results = "{% set ns = namespace(in=false) %}{% for m in messages %}{% if m.role == 'tool' %}{{ '<results>' if not ns.in }}<r>{{ m.content }}</r>{% set ns.in = true %}" +
		"{% elif m.role == 'user' %}<u>{{ m.content }}{% else %}{{ '</results>' if ns.in else '<a>' }}{% set ns.in = false %}{% for c in m.tool_calls or [] %}!{% endfor %}{{ m.content }}</a>{% endif %}{% endfor %}" +
		"{{ '</results>' if ns.in }}{{ '<a>' if add_generation_prompt and not ns.in }}"
	const goesOn = "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<a>' if loop.first or loop.previtem.role == 'user' else '+' }}{{ m.content }};{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}{{ '<a>' if add_generation_prompt }}"
	for _, c := range []struct {
		source string
		chat   []any
		want   []string
	}{
		{results, callChat(""), []string{"!!</a>", "A1</a>"}},
		{results, chat("user", "q", "assistant", "x", "tool", "r", "assistant", "y", "user", "z", "assistant", "w"), []string{"x</a>", "y</a>", "w</a>"}},
		{goesOn, chat("user", "q", "assistant", "x", "assistant", "y", "tool", "r", "assistant", "z"), []string{"x;", "+y;", "+z;"}},
	} {
		out, turns, err := parse(t, "openings", c.source).SupervisedSpans(withTokens(c.chat))
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		var got []string
		for _, turn := range turns {
			got = append(got, out.Text[turn.From:turn.To])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q\ntext %q", c.source, got, c.want, out.Text)
		}
	}
}
