package jinja

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// callChat is a chat with two calls in one message and their results, of which a further one stands in
// the message itself.
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

// TestOthersInside: what tools returned is not the assistant's where a template writes it
// into the assistant's turn, however it finds the results.
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

// TestOthersWithoutLoop: a template that writes what others say into an answer, and does not
// loop over it, is refused. Equal words of the assistant's own are no reason.
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

// TestOpenings: what a prompt already has before an answer is not learned: the end of a list
// of results that comes with the answer, or nothing where the turn is open still.
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
