package data

import (
	"fmt"
	"testing"
)

// TestMaskHistory: with mask_history only the last answer of a chat is supervised, in every
// format and in every way that a format has to write it.
func TestMaskHistory(t *testing.T) {
	const (
		asAlpaca   = `{"instruction":"x","output":"y","history":[["a","b"],["c","d"]]}`
		asShareGPT = `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},{"from":"human","value":"c"},{"from":"gpt","value":"d"},{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}`
		asMessages = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`
		// Answers inside a prompt are never supervised, those in its completion are.
		asPrompt = `{"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"completion":[{"role":"assistant","content":"d"},{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`
		asPair   = `{"prompt":"x","completion":"y"}`
		touching = `{% for m in messages %}{% if m.role == "assistant" %}{% generation %}{{ m.content }}{% endgeneration %}{% generation %}|{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}`
		marked   = `{% for m in messages %}{{ m.role[0] }}:{% if m.role == "assistant" %}{% generation %}{{ m.content }}|{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}`
	)
	layouts := []struct {
		name   string
		change func(*testing.T, *Spec)
		turns  string // a row with three pairs of turns, with brackets around the last answer
		pair   string
	}{
		{"template", func(t *testing.T, s *Spec) { s.Template = write(t, t.TempDir(), "t.jinja", small) },
			"u:a|a:%s|u:c|a:%s|u:x|a:[y|]", "u:x|a:[y|]"},
		{"template that marks", func(t *testing.T, s *Spec) { s.Template = write(t, t.TempDir(), "t.jinja", marked) },
			"u:a|a:%s|u:c|a:%s|u:x|a:[y|]", "u:x|a:[y|]"},
		{"default", func(_ *testing.T, s *Spec) { s.Template = "default" },
			"Human: a$\nAssistant:%s$\nHuman: c$\nAssistant:%s$\nHuman: x$\nAssistant:[y$\n]", "Human: x$\nAssistant:[y$\n]"},
		{"an end that all answers share", func(_ *testing.T, s *Spec) { s.Template = "fewshot" },
			"a%s\n\nc%s\n\nx[y\n\n$]", "x[y\n\n$]"},
		{"marks that touch", func(t *testing.T, s *Spec) { s.Template = write(t, t.TempDir(), "t.jinja", touching) },
			"a%s|c%s|x[y|]", "x[y|]"},
		{"none", func(*testing.T, *Spec) {},
			"Human: a$\nAssistant:%s$\nHuman: c$\nAssistant:%s$\nHuman: x$\nAssistant:[y$\n]", "x[y$]"},
	}
	for _, l := range layouts {
		for name, row := range map[string]string{"alpaca": asAlpaca, "sharegpt": asShareGPT, "messages": asMessages, "prompt and completion": asPrompt, "pair": asPair} {
			want := fmt.Sprintf(l.turns, "b", "d")
			switch {
			case l.name == "none" && (row == asShareGPT || row == asMessages || row == asPrompt):
				continue // chats need a template
			case row == asPair:
				want = l.pair
			}
			s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", row))
			s.Packing, s.MaskHistory = set(false), true
			l.change(t, &s)
			if got := masked(mustOpen(t, s).Row(0)); got != want {
				t.Errorf("%s, %s: %q, want %q", name, l.name, got, want)
			}
		}
	}
}

// TestEndOfUnlearnedAnswer: where EOS ends answers without standing in the text, it is
// learned behind the answers that are learned themselves.
func TestEndOfUnlearnedAnswer(t *testing.T) {
	for _, template := range []string{"fewshot", "breeze", "falcon"} {
		for weight, want := range map[string]int{"0": 0, "1": 1} {
			s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl",
				`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":`+weight+`},{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`))
			s.Packing, s.Template = set(false), template
			r := mustOpen(t, s).Row(0)
			ends := 0
			for _, label := range r.Labels[:len(r.Labels)-1] { // the row itself ends with EOS
				if label == 0 {
					ends++
				}
			}
			if ends != want {
				t.Errorf("%s, weight %s: %d ends of the first answer are learned, want %d: %q %v", template, weight, ends, want, rowText(r), r.Labels)
			}
		}
	}
}
