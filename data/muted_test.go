package data

import "testing"

// TestMutedPrompts: with train_on_prompt everything is learned but turns of weight 0, whoever
// speaks, together with their ends.
func TestMutedPrompts(t *testing.T) {
	const (
		bare    = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'system': 'T'}[m.role] }}{{ m.content }}{% endfor %}{{ 'A' if add_generation_prompt }}"
		marked  = "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}"
		within  = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A'}[m.role] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ 'A' if add_generation_prompt }}"
		without = "{% for m in messages if m.role != 'system' %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}{{ 'a:' if add_generation_prompt }}"
		apart   = "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}{{ 'a:' if add_generation_prompt }}"
		first   = `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g","weight":0},{"role":"user","content":"i"},{"role":"assistant","content":"j"}]}`
		last    = `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i"},{"role":"assistant","content":"j","weight":0}]}`
		asked   = `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i","loss":false},{"role":"assistant","content":"j"}]}`
		system  = `{"messages":[{"role":"system","content":"s","weight":0},{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`
	)
	for _, c := range []struct{ template, row, want string }{
		{small, first, "[u:h|a:]g|[u:i|a:j|]"},
		{small, last, "[u:h|a:g|u:i|a:]j|"},
		{small, asked, "[u:h|a:g|]u:i|[a:j|]"},
		{small, system, "s:s|[u:h|a:g|]"},
		{marked, first, "[u:h|a:]g|[u:i|a:j|]"},
		{bare, first, "[UhA]gU[iAjU]"},
		{bare, last, "[UhAgUiA]j"},
		{bare, asked, "[UhAg]Ui[AjU]"},
		{within, first, "[UhA]g[UiAj]"},
		{without, system, "[u:h|a:g|]"},
		{"default", first, "[Human: h$\nAssistant:]g$\n[Human: i$\nAssistant:j$\n]"},
		{"default", asked, "[Human: h$\nAssistant:g$\n]Human: i$\nAssistant:[j$\n]"},
		{"default", system, "System: s$\n[Human: h$\nAssistant:g$\n]"},
	} {
		s := markedSpec(t, c.template, c.row)
		if c.template == "default" || c.template == small || c.template == marked || c.template == without {
			s = chatSpec(t, c.template, write(t, t.TempDir(), "a.jsonl", c.row))
		}
		if c.template == "default" {
			s.Template = c.template
		}
		s.TrainOnPrompt = true
		got := masked(mustOpen(t, s).Row(0))
		if got != c.want {
			t.Errorf("%s: %s\n got %q\nwant %q", c.template, c.row, got, c.want)
		}
	}
	s := chatSpec(t, apart, write(t, t.TempDir(), "a.jsonl", system))
	s.TrainOnPrompt = true
	_, err := Open(s)
	wantError(t, err, "a.jsonl:1: ", "messages[0] has a mark", "outside of its loop over messages")
}
