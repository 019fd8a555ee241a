package jinja

import (
	"slices"
	"testing"
)

// TestPromptOpensTurn: an answer begins where the prompt before it ends, whichever part of the
// template writes the opening.
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

// TestOpeningsInOtherSpaces: an opening that differs from the prompt's in white space alone is
// not learned, nor is white space that the template writes; what an answer itself begins with is.
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

// answersCase is a template with a conversation, and what is learned.
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
