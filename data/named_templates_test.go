package data

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// TestLayouts: the built-in layouts, which copy chat templates of LLaMA-Factory, write a
// conversation as that program does. Brackets show the supervised tokens. In the tokenizer every
// byte is a token, with \x00 for EOS and \x01 for BOS.
func TestLayouts(t *testing.T) {
	const chats = `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"x"},{"role":"assistant","content":"<think>\nw\n</think>\n\n\ny"}]}`
	for _, tt := range []struct {
		template, want string
		change         func(*Spec)
	}{
		{"vicuna", "sUSER: h ASSISTANT:[g$]USER: x ASSISTANT:[<think>\nw\n</think>\n\n\ny$]", nil},
		{"alpaca", "s### Instruction:\nh\n\n### Response:\n[g$\n\n]### Instruction:\nx\n\n### Response:\n[<think>\nw\n</think>\n\n\ny$\n\n]", nil},
		{"llama2", "\x01[INST] <<SYS>>\ns\n<</SYS>>\n\nh [/INST][g$]\x01[INST] x [/INST][<think>\nw\n</think>\n\n\ny$]", nil},
		{"deepseekr1", "\x01s<｜User｜>h<｜Assistant｜>[<think>\n\n</think>\n\ng$]<｜User｜>x<｜Assistant｜>[<think>\nw\n</think>\n\n\ny$]", nil},
		{"deepseekr1", "\x01s<｜User｜>h<｜Assistant｜><think>\n\n</think>\n\n[g$]<｜User｜>x<｜Assistant｜><think>\n\n</think>\n\n[y$]", func(s *Spec) { s.TemplateVars = map[string]any{"enable_thinking": false} }},
		{"deepseekr1", "\x01s<｜User｜>h<｜Assistant｜>g$<｜User｜>x<｜Assistant｜>[<think>\nw\n</think>\n\n\ny$]", func(s *Spec) { s.MaskHistory = true }},
		{"aeva", "s", nil},
		{"fewshot", "", nil},
	} {
		s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", chats))
		s.Packing, s.Template, s.Tokenizer = set(false), tt.template, withBOS{tokenizer.Bytes()}
		if tt.change != nil {
			tt.change(&s)
		}
		d, err := Open(s)
		if tt.template == "aeva" {
			wantError(t, err, "template: aeva is made of tokens that the model's tokenizer does not have", `new_special_tokens: ["<|user|>"]`)
			continue
		}
		testkit.NoError(t, err)
		got := masked(d.All().Row(0))
		if tt.template == "fewshot" { // EOS stands only at the row's end, but is also the label after the first answer
			r := d.All().Row(0)
			if got := rowText(r); got != "shg\n\nx<think>\nw\n</think>\n\n\ny\n\n$" {
				t.Errorf("fewshot: %q", got)
			}
			at := strings.Index(rowText(r), "x")
			if r.Labels[at] != 0 || r.Labels[at-1] != '\n' || r.Labels[1] != IgnoreIndex {
				t.Errorf("fewshot: labels %v", r.Labels)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.template, got, tt.want)
		}
	}
	for row, want := range map[string]string{
		`{"messages":[{"role":"user","content":"h"},{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`:   "messages[1]: a turn of user stands where one of assistant is due; in template vicuna",
		`{"messages":[{"role":"user","content":"h"},{"role":"system","content":"s"},{"role":"assistant","content":"g"}]}`: "a turn of system stands where one of assistant is due",
	} {
		s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", row))
		s.Template = "vicuna"
		_, err := Open(s)
		wantError(t, err, "a.jsonl:1: ", want)
	}
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", chats))
	s.Template, s.TrainOnPrompt = "fewshot", true
	_, err := Open(s)
	wantError(t, err, "train_on_prompt: in template fewshot no token ends an answer")
}

// TestLayoutsEndWithTheirOwn: a layout that replaces EOS by a token of its own writes that token.
// Different layouts have different caches.
func TestLayoutsEndWithTheirOwn(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)
	s := textSpec(t, 4096, name)
	s.Packing, s.Tokenizer = set(false), withChatML(t)
	layouts["of this test"] = layout{ends: []string{"<|im_end|>"}, replaces: true}
	defer delete(layouts, "of this test")
	s.Template = "of this test"
	if got := mustOpen(t, s).All().Row(0).IDs; !slices.Equal(got, []int32{'h', 'g', 257}) {
		t.Errorf("ids %v", got)
	}
	for _, template := range []string{"vicuna", "fewshot"} {
		s.Template = template
		if _, cached := reopen(t, s); cached {
			t.Errorf("%s: the cache of another layout is taken", template)
		}
	}
}

// TestStanfordAlpaca: the template stanford_alpaca writes Alpaca's two prompts, for rows with an
// input and for rows without.
func TestStanfordAlpaca(t *testing.T) {
	const with = "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
	const without = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\n"
	for row, want := range map[string]string{
		`{"instruction":"i","input":"j","output":"o"}`:              with + "i\n\n### Input:\nj\n\n### Response:\n[o$]",
		`{"instruction":"i\nk","input":"","output":"o"}`:            without + "i\nk\n\n### Response:\n[o$]",
		`{"instruction":"i","input":"j","output":"o","system":"s"}`: "s\n\n### Instruction:\ni\n\n### Input:\nj\n\n### Response:\n[o$]",
	} {
		s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", row))
		s.Packing, s.Template, s.Tokenizer = set(false), "stanford_alpaca", tokenizer.Bytes()
		d := mustOpen(t, s)
		if got := masked(d.All().Row(0)); got != want {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
		if w := d.Warnings(); len(w) > 0 {
			t.Errorf("%s: %q", row, w)
		}
	}
}

// TestLayoutPrompts: the prompt that a layout makes of a conversation ends exactly where the answer
// would begin.
func TestLayoutPrompts(t *testing.T) {
	v := &Conversation{}
	v.Add("system", "s")
	v.Add("user", "h")
	for _, tt := range []struct {
		template string
		vars     map[string]any
		want     string
	}{
		{"vicuna", nil, "sUSER: h ASSISTANT:"},
		{"deepseekr1", nil, "\x01s<｜User｜>h<｜Assistant｜>"},
		{"deepseekr1", map[string]any{"enable_thinking": false}, "\x01s<｜User｜>h<｜Assistant｜><think>\n\n</think>\n\n"},
	} {
		d := dialogue(t, Spec{Template: tt.template, Tokenizer: withBOS{tokenizer.Bytes()}, TemplateVars: tt.vars})
		ids, err := d.Prompt(v)
		if got := rowText(Row{IDs: ids}); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.template, got, err, tt.want)
		}
		if len(d.Notes) > 0 {
			t.Errorf("%s: notes %q", tt.template, d.Notes)
		}
	}
	ends := dialogue(t, Spec{Template: "qwen3", Tokenizer: withChatML(t)}).Ends()
	if !slices.Equal(ends, []int32{257}) {
		t.Errorf("qwen3 ends with %v", ends)
	}
}

// lastAnswer returns labels with only the last run of supervised tokens left; all earlier labels
// become IgnoreIndex.
func lastAnswer(labels []int32) []int32 {
	out, i := slices.Clone(labels), len(labels)-1
	for i >= 0 && out[i] == IgnoreIndex {
		i--
	}
	for i >= 0 && out[i] != IgnoreIndex {
		i--
	}
	for ; i >= 0; i-- {
		out[i] = IgnoreIndex
	}
	return out
}

// TestLayoutsOfLLaMAFactory: for all layouts, tokens and labels equal those that the installed
// LLaMA-Factory package makes of the same conversations.
func TestLayoutsOfLLaMAFactory(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers", "tokenizers")
	dir := t.TempDir()
	_, err := exec.Command(python, append([]string{"testdata/layouts.py", dir}, Templates...)...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		t.Skip("the Python lacks llamafactory")
	} else if ok {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	var cases []struct {
		Template, Case, System string
		More                   map[string]bool
		Messages               []string
		IDs, Labels            []int32
	}
	out, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	testkit.NoError(t, err)
	if err := json.Unmarshal(out, &cases); err != nil || len(cases) < 1000 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	tok, err := tokenizer.Load(dir, 100000)
	testkit.NoError(t, err)
	compared := map[string]bool{}
	for _, c := range cases {
		s := Spec{Tokenizer: tok, Template: c.Template, MaskHistory: c.More["mask_history"], TrainOnPrompt: c.More["train_on_prompt"]}
		if on, given := c.More["enable_thinking"]; given {
			s.TemplateVars = map[string]any{"enable_thinking": on}
		}
		if s.chat = newChatForm(&s); s.chat.err != nil {
			t.Errorf("%s: %v", c.Template, s.chat.err)
			continue
		}
		v := &Conversation{}
		if c.System != "" {
			v.Add("system", c.System)
		}
		for i, text := range c.Messages {
			v.Add([]string{"user", "assistant"}[i%2], text)
		}
		e := newEncoder(&s)
		if c.Template == "chatml" || c.Template == "stanford_alpaca" {
			continue // chat templates, not layouts
		}
		if err := e.layOut(s.chat.layout, &v.v); err != nil {
			t.Errorf("%s, %s: %v", c.Template, c.Case, err)
			continue
		}
		compared[c.Template] = true
		if c.More["mask_history"] && s.chat.layout.efficient { // here LLaMA-Factory supervises the ends of masked answers, and mt does not
			c.Labels = lastAnswer(c.Labels)
		}
		if !reflect.DeepEqual(e.ids, c.IDs) || !reflect.DeepEqual(e.labs, c.Labels) {
			t.Errorf("%s, %s, %v:\n%q\n%v\n%v, want\n%q\n%v\n%v", c.Template, c.Case, c.More, tok.Decode(e.ids), e.ids, e.labs, tok.Decode(c.IDs), c.IDs, c.Labels)
		}
	}
	t.Logf("%d cases of %d of %d layouts", len(cases), len(compared), len(layouts))
}
