package data

import (
	"strings"
	"testing"
)

// TestTurnMarks: a row can mark turns as not to be trained on, with the fields of OpenAI, ms-swift,
// axolotl and other programs. These turns are not supervised.
func TestTurnMarks(t *testing.T) {
	marks := []struct{ off, on string }{
		{`"weight":0`, `"weight":1.0`}, {`"weight":false`, `"weight":true`}, {`"weight":"0"`, `"weight":"1"`}, {`"weight":" False"`, `"weight":"TRUE"`},
		{`"loss":false`, `"loss":true`}, {`"loss":0.0`, `"loss":1`}, {`"loss_scale":0`, `"loss_scale":1`},
		{`"train":false`, `"train":true`}, {`"training":"false"`, `"training":"true"`},
		{`"loss_mask":0`, `"loss_mask":1`}, {`"step_loss_mask":0`, `"step_loss_mask":1`}, {`"masked":true`, `"masked":false`},
		{`"loss_weight":0.0`, `"loss_weight":1.0`}, {`"trainable":false`, `"trainable":true`},
		{`"weight":1,"loss":false`, `"weight":1,"loss":true`}, {`"weight":0`, `"weight":null`},
	}
	var rows strings.Builder
	for _, tt := range marks {
		rows.WriteString(`{"messages":[{"role":"user","content":"h","weight":1},{"role":"assistant","content":"g",` + tt.off + `},{"role":"user","content":"x","train":false},{"role":"assistant","content":"y",` + tt.on + "}]}\n")
	}
	d := mustOpen(t, chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", rows.String())))
	for i, tt := range marks {
		if got := masked(d.Row(i)); got != "u:h|a:g|u:x|a:[y|]" {
			t.Errorf("%s: %s", tt.off, got)
		}
	}
	call := `{"conversations":[{"from":"human","value":"h"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}","weight":0},{"from":"observation","value":"r"},{"from":"gpt","value":"y"}]}`
	if got := masked(mustOpen(t, chatSpec(t, telling, write(t, t.TempDir(), "a.jsonl", call))).Row(0)); got != "u:h|a:!f{}|t:r|a:[y|]" {
		t.Errorf("a call of ShareGPT: %s", got)
	}
	answer := func(key string) string {
		return `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g",` + key + `}]}`
	}
	for row, want := range map[string]string{
		answer(`"weight":0.5`):     "messages[1].weight is 0.5 (OpenAI's mark of what is trained on): mt trains on a message or not",
		answer(`"loss":"maybe"`):   `messages[1].loss is "maybe" (ms-swift's`,
		answer(`"train":[1]`):      "messages[1].train is a list of 1 (axolotl's",
		answer(`"train_detail":1`): "messages[1].train_detail divides the message into parts",
		answer(`"weight":0`):       "no token is supervised",
		`{"conversations":[{"from":"human","value":"h","train":true},{"from":"gpt","value":"g"}]}`: "conversations[0].train is true: the message is the user's, and mt trains on the assistant's alone",
		`{"prompt":"h","completion":"g","label":false}`:                                            "label is false: the answer is marked as one not to give",
		`{"instruction":"h","output":"g","kto_tag":false}`:                                         "kto_tag is false",
	} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row)))
		wantError(t, err, "a.jsonl:1: ", want)
	}
}

// TestMutedPrompts: with train_on_prompt all tokens are supervised, except turns of weight 0, of
// any role, and the tokens that end them.
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
