package jinja

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestMarks: {% generation %} blocks are taken as they are, however many there
// are, each with the message that it belongs to, where that can be known.
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

// TestStop: a long rendering ends with ErrStopped soon after Stop is true, whatever it is
// doing, with and without marks.
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
		if asked > 4 { // once more where the header is looked for in two ways
			t.Errorf("%s: Stop was asked %d times", source, asked)
		}
	}
	tmpl := parse(t, "quick", "{% for a in range(9999) %}{% endfor %}x")
	tmpl.Stop = func() bool { return false }
	if out, err := tmpl.Render(withTokens(nil)); err != nil || out.Text != "x" {
		t.Errorf("%v, %v", out, err)
	}
}

// TestErrorNamesMessage: an error says at which message the template failed.
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
