package data

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// TestReadConversations: ReadConversations accepts single messages, one chat and several chats, as
// JSON and as JSONL.
func TestReadConversations(t *testing.T) {
	const (
		one = `{"role": "user", "content": "h<é>"}`
		two = `{"role":"assistant","content":"g"}`
		say = `{"messages":[{"role":"user","content":"h<é>"}]}`
	)
	for _, c := range []struct {
		name, text, want string
	}{
		{"a list of messages", "[" + one + ",\n" + two + "," + one + "]", "uau"},
		{"lines of messages", one + "\n\n" + two + "\n", "ua"},
		{"a chat", say, "u"},
		{"a chat over several lines", " {\n\"messages\": [\n" + one + "\n,\n" + two + "]\n}\n", "ua"},
		{"a message over several lines", "{\n\"role\": \"user\",\n\"content\": \"h<é>\"}", "u"},
		{"a list of chats", "[" + say + "," + say + "]", "u u"},
		{"lines of chats", say + "\n" + say, "u u"},
		{"a list of lists", "[[" + one + "]\n,[" + one + "," + two + "]]\n", "u ua"},
		{"ShareGPT", `{"system":"s","conversations":[{"from":"human","value":"h<é>"}]}`, "su"},
		{"a chat over several lines with a mark before it", "\xef\xbb\xbf{\"messages\":\n[" + one + "]}", "u"},
		{"a chat with a mark before it", "\xef\xbb\xbf" + say + "\n" + say, "u u"},
	} {
		all, err := ReadConversations(strings.NewReader(c.text), "x.json")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, v := range all {
			roles := ""
			for _, m := range v.v.messages {
				roles += roleOf(m)[:1]
			}
			got = append(got, roles)
			if raw, err := json.Marshal(v); err != nil || !strings.Contains(string(raw), "h") || !json.Valid(raw) {
				t.Errorf("%s: JSON %s, %v", c.name, raw, err)
			}
			if !strings.HasPrefix(v.Where, "x.json") {
				t.Errorf("%s: it was read at %q", c.name, v.Where)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                "x.json holds no messages",
		"[]":              "x.json holds no messages",
		one + "\n" + say:  "x.json:2: some rows are messages and some whole conversations",
		say + "\n" + two:  "x.json:2: some rows are messages",
		`{"text":"a"}`:    "this is no chat; give {\"messages\"",
		say + "\n{":       "x.json:2: not a JSON object",
		`{"role":"king"}`: `messages[0].role is "king"; known roles are`,
		one + "\n" + `{"role":"user","content":7}`: "x.json: messages[1].content is 7",
		"{\"role\":\"user\xff\"}":                  "x.json is no valid UTF-8",
		"[" + one:                                  "x.json: row",
		`{"instruction":"a","output":"b"}`:         "this is no chat",
	} {
		_, err := ReadConversations(strings.NewReader(text), "x.json")
		wantError(t, err, want)
	}
}

// TestConversation: turns can be added, cut off at the end and put first. A clone is independent of
// the original.
func TestConversation(t *testing.T) {
	c := &Conversation{}
	if c.LastRole() != "" || c.Turns() != 0 {
		t.Errorf("an empty one has %d turns, the last of %q", c.Turns(), c.LastRole())
	}
	c.Add("user", "a\"<")
	c.Add("assistant", "b")
	c.Add("user", "x")
	other := c.Clone()
	other.Cut(2)
	other.Add("user", "c")
	testkit.NoError(t, c.Begin("be good"))
	wantError(t, c.Begin("again"), "has a system's turn already")
	c.Add("assistant", "y")
	c.Cut(4)
	for v, want := range map[*Conversation]string{
		c:     `{"messages":[{"role":"system","content":"be good"},{"role":"user","content":"a\"<"},{"role":"assistant","content":"b"},{"role":"user","content":"x"}]}`,
		other: `{"messages":[{"role":"user","content":"a\"<"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`,
	} {
		raw, err := v.MarshalJSON()
		if got := strings.ReplaceAll(string(raw), "\n", ""); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if c.LastRole() != "user" || c.Turns() != 4 {
		t.Errorf("%d turns, the last of %q", c.Turns(), c.LastRole())
	}
}

// dialogue returns a Dialogue for s, whose field Template gives the chat template.
func dialogue(t *testing.T, s Spec) *Dialogue {
	t.Helper()
	if s.Tokenizer == nil {
		s.Tokenizer = tokenizer.Bytes()
	}
	if s.VocabSize == 0 {
		s.VocabSize = s.Tokenizer.VocabSize()
	}
	d := testkit.Must(NewDialogue(s))(t)
	return d
}

// TestPromptsAreWhatWasLearned: the prompt that Dialogue makes of a conversation equals, token by
// token, the tokens before its answer in a training row.
func TestPromptsAreWhatWasLearned(t *testing.T) {
	rows := []string{
		chat("user", "h", "assistant", "g", "user", "é", "assistant", "y"),
		`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`,
		callingChat(`"content":null,`),
	}
	for _, tmpl := range []string{small, "default"} {
		for _, row := range rows {
			if tmpl == "default" && strings.Contains(row, "tools") {
				continue
			}
			s := chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row))
			if tmpl == "default" {
				s.Template = tmpl
			}
			learned := mustOpen(t, s).Row(0)
			all := testkit.Must(ReadConversations(strings.NewReader(row), "a.jsonl"))(t)
			v, d := all[0], dialogue(t, s)
			v.v.tools = nil // the template small writes tools at the end, which no prompt contains
			answers := 0
			for n := v.Turns(); n > 0; n-- {
				if v.LastRole() == "assistant" {
					v.Cut(n - 1)
					ids := testkit.Must(d.Prompt(v))(t)
					if n := len(ids); n >= len(learned.IDs) || !slices.Equal(ids, learned.IDs[:n]) || learned.Labels[n] == IgnoreIndex || learned.Labels[n-1] != IgnoreIndex {
						t.Errorf("%s, %s: the prompt %q is not what stands before an answer of %q", tmpl, row, rowText(Row{IDs: ids}), masked(learned))
					}
					answers++
				} else {
					v.Cut(n - 1)
				}
			}
			if answers == 0 {
				t.Errorf("%s has no answer", row)
			}
		}
	}
}

// TestPromptTakesVariables: Spec.TemplateVars reach the template when Dialogue writes a prompt. A
// variable that the template does not read is reported in Notes.
func TestPromptTakesVariables(t *testing.T) {
	s := Spec{Template: write(t, t.TempDir(), "chat.jinja", "{{ level }}{{ messages[-1].content + '' }}{% if add_generation_prompt %}:{% endif %}"), TemplateVars: map[string]any{"level": int64(3), "nope": true}}
	d := dialogue(t, s)
	v := &Conversation{}
	v.Add("user", "h")
	ids, err := d.Prompt(v)
	if got := rowText(Row{IDs: ids}); err != nil || got != "3h:" {
		t.Errorf("%q, %v", got, err)
	}
	if !slices.Equal(d.Notes, []string{"nope has no effect: the chat template does not read it"}) {
		t.Errorf("notes %q", d.Notes)
	}
}

func TestPromptRefuses(t *testing.T) {
	refusing := dialogue(t, Spec{Template: write(t, t.TempDir(), "chat.jinja", "{% for m in messages %}{% if m.content == 'x' %}{{ raise_exception('no x') }}{% endif %}{% endfor %}")})
	for _, c := range []struct {
		turns []string
		want  string
	}{
		{nil, "the conversation is empty"},
		{[]string{"user", "h", "assistant", "g"}, "nothing to answer; remove that turn"},
		{[]string{"user", "h\xff"}, "the user's turn is no valid UTF-8: byte 1 is 0xff"},
		{[]string{"user", "h", "user", "x"}, "the user's turn: the chat template refuses the row: "},
	} {
		v := &Conversation{}
		for i := 0; i < len(c.turns); i += 2 {
			v.Add(c.turns[i], c.turns[i+1])
		}
		_, err := refusing.Prompt(v)
		wantError(t, err, c.want)
	}
	v := &Conversation{}
	v.Add("user", "h")
	_, err := dialogue(t, Spec{Template: "default", VocabSize: 100}).Prompt(v)
	wantError(t, err, "and the model's vocabulary has 100; leave it out, or take the model's own tokenizer")
	_, err = NewDialogue(Spec{Tokenizer: tokenizer.Bytes()})
	wantError(t, err, "the model has no chat template; set template")
	plain := dialogue(t, Spec{Template: "default"})
	all, err := ReadConversations(strings.NewReader(`{"tools":[{"name":"f"}],"messages":[{"role":"user","content":"h"}]}`), "x")
	testkit.NoError(t, err)
	_, err = plain.Prompt(all[0])
	wantError(t, err, "default has no place for tools")
}

// TestEnds: Ends finds the special token that the template writes after an answer.
func TestEnds(t *testing.T) {
	const turn = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
	const end = "{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	for name, c := range map[string]struct {
		template string
		want     []int32
	}{
		"its own":                 {turn + "\x01" + end, []int32{1}},
		"behind other text":       {turn + ".\x01{{ eos_token }}\n" + end, []int32{1}},
		"the text's":              {turn + "{{ eos_token }}" + end, []int32{0}},
		"none":                    {turn + "|" + end, nil},
		"marked":                  {turn + "{% generation %}{{ m.content }}\x01{% endgeneration %}" + end, []int32{1}},
		"a template that refuses": {"{% if messages | length < 3 %}{{ raise_exception('too few') }}{% endif %}" + turn + end, nil},
		"default":                 {"", nil},
	} {
		s := Spec{Tokenizer: withBOS{tokenizer.Bytes()}, Template: "default"}
		if c.template != "" {
			s.Template = write(t, t.TempDir(), "chat.jinja", c.template)
		}
		if got := dialogue(t, s).Ends(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
