package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// small is a chat template that writes a role as one letter (s, u, a, t) and "|" after each turn.
const small = `{% for m in messages %}{{ m.role[0] }}:{{ m.content }}` +
	`{% for c in m.tool_calls or [] %}!{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}` +
	`{% if tools %}T{{ tools | length }}{{ tools[0].function.name }}{% endif %}{% if add_generation_prompt %}a:{% endif %}`

// chatSpec returns a Spec that reads paths as chats with this chat template. Its tokenizer has one
// token per byte, and rows are not packed.
func chatSpec(t *testing.T, template string, paths ...string) Spec {
	s := textSpec(t, 4096, paths...)
	s.Template, s.Packing = write(t, t.TempDir(), "chat.jinja", template), set(false)
	return s
}

// masked returns a row's text with brackets around supervised tokens. The first token of a row is
// never supervised.
func masked(r Row) string {
	var b strings.Builder
	in := false
	for i, l := range r.labels() {
		if on := l != IgnoreIndex; on != in {
			b.WriteString(map[bool]string{true: "[", false: "]"}[on])
			in = on
		}
		if l != IgnoreIndex && l != r.IDs[i] {
			b.WriteString("<wrong label>")
		}
		b.WriteString(rowText(Row{IDs: r.IDs[i : i+1]}))
	}
	if in {
		b.WriteString("]")
	}
	return b.String()
}

func maskedRows(v View) []string {
	out := []string{}
	for i := range v.Rows() {
		out = append(out, masked(v.Row(i)))
	}
	return out
}

// formatRows holds the same conversations in each of the formats, with the text and mask that they
// must become.
var formatRows = []struct {
	name, format, row, want string
}{
	{"alpaca", "alpaca", `{"instruction":"i","input":"j","output":"o","system":"s","history":[["a","b"]]}`, "s:s|u:a|a:[b|]u:i\nj|a:[o|]"},
	{"alpaca without input", "alpaca", `{"instruction":"i","input":"","output":"o"}`, "u:i|a:[o|]"},
	{"sharegpt", "sharegpt", `{"system":"s","conversations":[{"from":"human","value":"h"},{"from":"gpt","value":"g"},{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}`, "s:s|u:h|a:[g|]u:x|a:[y|]"},
	{"sharegpt with its system inside", "sharegpt", `{"conversations":[{"from":"system","value":"s"},{"from":"human","value":"h"},{"from":"gpt","value":"g"}]}`, "s:s|u:h|a:[g|]"},
	{"sharegpt with tools", "sharegpt", `{"tools":"[{\"name\":\"f\"}]","conversations":[{"from":"human","value":"h"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"k\":1}}"},{"from":"observation","value":"r"},{"from":"gpt","value":"g"}]}`,
		"u:h|a:[!f{\"k\": 1}|]t:r|a:[g|]T1f"},
	{"messages", "messages", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"h"},{"role":"assistant","content":"é"}]}`, "s:s|u:h|a:[\xc3\xa9|]"},
	{"messages with weights", "messages", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g","weight":0},{"role":"user","content":"x"},{"role":"assistant","content":"y","weight":1}]}`, "u:h|a:g|u:x|a:[y|]"},
	{"messages in parts", "messages", `{"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]},{"role":"assistant","content":"g"},{"role":"user","content":"more"}]}`, "u:hi|a:[g|]u:more|"},
	{"messages with tools", "messages", `{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"k\":1}"}}]},{"role":"tool","content":"r"},{"role":"assistant","content":"g"}]}`,
		"u:h|a:[!f{\"k\": 1}|]t:r|a:[g|]T1f"},
	{"prompt and completion", "prompt_completion", `{"prompt":"p","completion":"c"}`, "u:p|a:[c|]"},
	{"prompt and response", "prompt_completion", `{"prompt":"p","response":"c"}`, "u:p|a:[c|]"},
	{"prompt and completion of messages", "prompt_completion", `{"prompt":[{"role":"user","content":"p"},{"role":"assistant","content":"q"},{"role":"user","content":"r"}],"completion":[{"role":"assistant","content":"c"}]}`, "u:p|a:q|u:r|a:[c|]"},
	{"conversations of roles", "", `{"conversations":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`, "u:h|a:[g|]"},
	{"messages of from and value", "sharegpt", `{"messages":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}]}`, "u:h|a:[g|]"},
	{"pairs of texts", "pairs", `{"prompt":"p","chosen":"c","rejected":"r"}`, "p[c$]p[r$]"},
	{"pairs of instructions", "pairs", `{"instruction":"i","input":"j","chosen":"c","rejected":"r"}`, "u:i\nj|a:[c|]u:i\nj|a:[r|]"},
	{"pairs of messages", "pairs", `{"prompt":[{"role":"user","content":"p"}],"chosen":[{"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r"}]}`, "u:p|a:[c|]u:p|a:[r|]"},
	{"text", "", `{"text":"abc"}`, "[abc$]"},
	{"ready ids", "", `{"input_ids":[97,98,99],"labels":[-100,98,99]}`, "a[bc]"},
}

// TestFormats: each format gives the same text and the same mask in every container and
// compression, whether the configuration names the format or mt recognises it.
func TestFormats(t *testing.T) {
	for _, tt := range formatRows {
		for _, name := range []string{"x.jsonl", "x.json", "array.json", "x.jsonl.gz", "array.json.gz", "x.json.zst", "array.json.zst", "x.jsonl.xz"} {
			for _, format := range []string{"auto", tt.format} {
				if format == "" {
					continue
				}
				t.Run(fmt.Sprint(tt.name, " ", name, " ", format), func(t *testing.T) {
					content := tt.row + "\n" + tt.row
					if strings.HasPrefix(name, "array") {
						content = " [\n" + tt.row + " ,\r\n\t" + tt.row + "]\n"
					}
					s := chatSpec(t, small, write(t, t.TempDir(), name, squeeze(t, name, content)))
					s.Format = format
					d := mustOpen(t, s)
					if got := maskedRows(d.All()); d.Rows() != 2 || got[0] != tt.want || got[1] != tt.want {
						t.Errorf("rows %q, want twice %q", got, tt.want)
					}
				})
			}
		}
	}
}

// TestMasks: the settings and the template decide which turns of a chat are supervised, as the
// table says.
func TestMasks(t *testing.T) {
	row := `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]}`
	tests := []struct {
		name, template string
		change         func(*Spec)
		want           string
		missing        int64
	}{
		{"every turn", small, func(*Spec) {}, "u:h|a:[g|]u:x|a:[y|]u:z|", 1},
		{"the last", small, func(s *Spec) { s.MaskHistory = true }, "u:h|a:g|u:x|a:[y|]u:z|", 1},
		{"everything", small, func(s *Spec) { s.TrainOnPrompt = true }, "[u:h|a:g|u:x|a:y|u:z|]", 1},
		{"as the template marks", `{% for m in messages %}{{ m.role[0] }}{% if m.role == "assistant" %}{% generation %}{{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}`,
			func(*Spec) {}, "uha[g.]uxa[y.]uz", 1},
	}
	for _, tt := range tests {
		s := chatSpec(t, tt.template, write(t, t.TempDir(), "a.jsonl", row))
		tt.change(&s)
		d := mustOpen(t, s)
		if got := masked(d.Row(0)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if got := d.ChatTemplates()["chat_template.jinja"]; got != tt.template {
			t.Errorf("%s: the template is %q", tt.name, got)
		}
		if st := d.Stats(); st.MissingEOS != tt.missing || st.Kind != "chat" || !d.IsChat() {
			t.Errorf("%s: stats %+v", tt.name, st)
		}
	}
}

// TestTemplatesByPlace: a template can be given as Jinja text, as a file, or as a directory that
// holds a tokenizer with its template.
func TestTemplatesByPlace(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "own.jinja", small)
	asFile, asConfig, without := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	for _, d := range []string{asFile, asConfig, without} {
		testkit.NoError(t, os.Mkdir(d, 0o700))
	}
	write(t, asFile, "chat_template.jinja", small)
	quoted := testkit.Must(json.Marshal(small))(t)
	write(t, asConfig, "tokenizer_config.json", `{"chat_template": `+string(quoted)+`}`)
	write(t, without, "tokenizer_config.json", `{}`)
	row := write(t, dir, "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)
	for _, place := range []string{small, file, asFile, asConfig} {
		s := chatSpec(t, small, row)
		s.Template = place
		if got := masked(mustOpen(t, s).Row(0)); got != "u:h|a:[g|]" {
			t.Errorf("%s: %q", place, got)
		}
	}
	for place, want := range map[string]string{without: "has no chat template", "{{ messages": "template:1", filepath.Join(dir, "none"): "neither a file nor a built-in name"} {
		s := chatSpec(t, small, row)
		s.Template = place
		_, err := Open(s)
		wantError(t, err, want)
	}
}

// withChatML returns the byte tokenizer with the two special tokens of the template chatml added.
func withChatML(t *testing.T) tokenizer.Tokenizer {
	t.Helper()
	tok, _, err := tokenizer.Extend(tokenizer.Bytes(), nil, []string{"<|im_start|>", "<|im_end|>"})
	testkit.NoError(t, err)
	return tok
}

// TestChatMLWithoutItsTokens: the template chatml is an error if the tokenizer lacks its special
// tokens. Each end of a turn would be spelled in several ordinary tokens, which a model would have
// to learn.
func TestChatMLWithoutItsTokens(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`))
	s.Template = "chatml"
	_, err := Open(s)
	wantError(t, err, "template: chatml", "<|im_start|>", "<|im_end|>", "new_special_tokens", "resize_vocab: true", "another template")
	if wrong, ok := errors.AsType[*SpecError](err); !ok || wrong.Key != "template" {
		t.Errorf("%v is not of the key template", err)
	}
	s.Tokenizer, s.Template = withChatML(t), ""
	if got := mustOpen(t, s).ChatTemplates()["chat_template.jinja"]; !strings.HasPrefix(got, "{% if tools %}") { // without a setting, chatml is used if the tokenizer has its tokens
		t.Errorf("the template is %q", got)
	}
}

// TestWithoutTemplate: rows with a prompt and an answer need no chat template. Chats without one
// are an error that tells what to do.
func TestWithoutTemplate(t *testing.T) {
	tests := []struct{ row, template, want string }{
		{`{"prompt":"p ","completion":"c"}`, "", "p [c$]"},
		{`{"prompt":"p ","completion":"c","system":"s"}`, "", "s\np [c$]"},
		{`{"instruction":"i","input":"j","output":"o"}`, "", "Human: i\nj$\nAssistant:[o$\n]"},
		{`{"instruction":"i","output":"o","system":"s","history":[["a","b"]]}`, "", "System: s$\nHuman: a$\nAssistant:[b$\n]Human: i$\nAssistant:[o$\n]"},
		{`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`, "default", "Human: h$\nAssistant:[g$\n]"},
		{`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i"},{"role":"assistant","content":"x","weight":0.0}]}`, "default", "Human: h$\nAssistant:[g$\n]Human: i$\nAssistant:x$\n"},
		{`{"prompt":"p","completion":"c"}`, "default", "Human: p$\nAssistant:[c$\n]"},
		{`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`, "chatml",
			"\x00user\nh\x01\n\x00assistant\n[g\x01]\n"}, // ids 256 and 257, as rowText prints them
	}
	for _, tt := range tests {
		s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", tt.row))
		s.Packing, s.Template = set(false), tt.template
		if tt.template == "chatml" {
			s.Tokenizer = withChatML(t)
		}
		if got := masked(mustOpen(t, s).Row(0)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.row, got, tt.want)
		}
	}
	_, err := Open(textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)))
	wantError(t, err, "a.jsonl:1: ", "no chat template", "chatml")
	tools := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"tools":[{"name":"f"}],"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`))
	calls := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":null,"tool_calls":[{"name":"f","arguments":{}}]}]}`))
	calls.Tokenizer, tools.Tokenizer = withChatML(t), withChatML(t)
	for _, name := range []string{"chatml", "stanford_alpaca", "default", "vicuna"} {
		calls.Template = name
		_, err = Open(calls)
		wantError(t, err, "a.jsonl:1: ", name+" has no place for calls of functions")
		tools.Template = name
		_, err = Open(tools)
		wantError(t, err, "a.jsonl:1: ", name+" has no place for tools")
	}
	s := textSpec(t, 64, write(t, t.TempDir(), "a.txt", "abc"))
	s.Template = "qwem"
	_, err = Open(s)
	wantError(t, err, `template "qwem"`, "chatml, qwen3", `did you mean "qwen"?`, "Leave it out")
	if wrong, ok := errors.AsType[*SpecError](err); !ok || wrong.Key != "template" {
		t.Errorf("%v is not of the key template", err)
	}
}

// TestTemplateOfTheModel: without a configured template, the model directory's template is used.
// Its function strftime_now always returns the same time, so the tokens do not depend on the day.
func TestTemplateOfTheModel(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "chat_template.jinja", `{{ bos_token }}{{ eos_token }}{{ strftime_now("%d %b %Y") }}{{ kind }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}`)
	s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", `{"chat_template_kwargs":{"kind":"K"},"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`))
	s.ModelDir, s.Packing = dir, set(false)
	if got := mustOpen(t, s).ChatTemplates(); got != nil {
		t.Errorf("the model's own template is to be saved again: %q", got)
	}
	const want = "$26 Jul 2024Kuha[g]"
	if got := masked(mustOpen(t, s).Row(0)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Tables hold objects, and lists of tools, as JSON text in a string.
	s.Paths = []string{write(t, t.TempDir(), "a.jsonl", `{"tools":"null","chat_template_kwargs":"{\"kind\":\"K\"}","messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)}
	if got := masked(mustOpen(t, s).Row(0)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMaskHistory: with mask_history set, only the last answer of a chat is supervised, in every
// format and in each way that a format can hold a history.
func TestMaskHistory(t *testing.T) {
	const (
		asAlpaca   = `{"instruction":"x","output":"y","history":[["a","b"],["c","d"]]}`
		asShareGPT = `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},{"from":"human","value":"c"},{"from":"gpt","value":"d"},{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}`
		asMessages = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`
		// Answers in the field prompt are never supervised; answers in the field completion are.
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

// TestEndOfUnlearnedAnswer: in templates that end answers with an EOS token outside the text, that
// EOS is supervised only if the answer before it is.
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

// withBOS is the byte tokenizer, but every text begins with a BOS token: byte 1.
type withBOS struct{ tokenizer.Tokenizer }

func (withBOS) BOS() (int32, bool)             { return 1, true }
func (withBOS) AddSpecial(ids []int32) []int32 { return append([]int32{1}, ids...) }
func (t withBOS) IsSpecial(id int32) bool      { return id == 1 || t.Tokenizer.IsSpecial(id) }
func (withBOS) ID() string                     { return "with BOS" }
func (t withBOS) Split(text []byte) int        { return t.Tokenizer.(tokenizer.Splitter).Split(text) }

// withEnd is withBOS, but every text also ends with an EOS token that the tokenizer itself adds.
type withEnd struct{ withBOS }

func (withEnd) AddSpecial(ids []int32) []int32 { return append(append([]int32{1}, ids...), 0) }
func (withEnd) ID() string                     { return "with BOS and EOS" }

// endless is the byte tokenizer without an EOS token.
type endless struct{ tokenizer.Tokenizer }

func (endless) EOS() (int32, bool) { return 0, false }
func (endless) ID() string         { return "endless" }

// TestSpecialTokensOfText: a text begins with BOS if the tokenizer adds one, and ends with EOS. Each appears
// exactly once, even if the text contains it.
func TestSpecialTokensOfText(t *testing.T) {
	bytes := tokenizer.Bytes()
	for _, tok := range []tokenizer.Tokenizer{bytes, withBOS{bytes}, withEnd{withBOS{bytes}}} {
		bos := strings.Repeat("\x01", len(specialOf(tok).before))
		for text, want := range map[string]string{
			"abc":               bos + "abc$",
			"abc<|endoftext|>":  bos + "abc$",
			"a<|endoftext|>c":   bos + "a$c$",
			"\\u0001abc":        "\x01abc$",
			"\\u0001\\u0001abc": "\x01\x01abc$",
		} {
			s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"text":"`+text+`"}`))
			s.Tokenizer = tok
			d := mustOpen(t, s)
			if got := texts(d.All()); !slices.Equal(got, []string{want}) {
				t.Errorf("%s, %q: %q, want %q", tok.ID(), text, got, want)
			}
			doubled := bos != "" && strings.HasPrefix(want, "\x01\x01")
			if st := d.Stats(); st.DoubledBOS != map[bool]int64{true: 1}[doubled] || st.MissingEOS != 0 || doubled != (len(d.Report().DoubledBOS) == 1) {
				t.Errorf("%s, %q: stats %+v", tok.ID(), text, st)
			}
		}
	}
}

// TestTextOfOneToken: a text of one token is a bad row, since it has no token to predict. If an EOS
// token follows the text, the row is good.
func TestTextOfOneToken(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"de\"}\n"))
	s.Packing = set(false)
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"ab$", "c$", "de$"}) {
		t.Errorf("with an end: rows %q", got)
	}
	s.Tokenizer = endless{tokenizer.Bytes()}
	_, err := Open(s)
	wantError(t, err, "a.jsonl:2: the text makes 1 token(s)", "at least 2", "remove it")
	s.SkipBadRows = true
	d := mustOpen(t, s)
	if got := texts(d.All()); !slices.Equal(got, []string{"ab", "de"}) || d.Stats().Skipped != 1 {
		t.Errorf("without: rows %q, %d skipped", got, d.Stats().Skipped)
	}
}

func TestPrompt(t *testing.T) {
	tok := withEnd{withBOS{tokenizer.Bytes()}}
	for text, want := range map[string]string{"ab": "\x01ab", "\x01ab": "\x01ab", "": "\x01"} {
		ids, err := Prompt(tok, []byte(text))
		if got := rowText(Row{IDs: ids}); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := Prompt(tok, []byte("a\xff")); err == nil {
		t.Error("a prompt that is no UTF-8 passes")
	}
}

// TestSpecialTokensOfLongText: a long text that is read in several chunks has one BOS at its start
// and one EOS at its end.
func TestSpecialTokensOfLongText(t *testing.T) {
	testkit.NotShort(t)
	text := strings.Repeat("0123456789abcde\n", wholeFile/16+1)
	for _, name := range []string{"a.txt", "a.txt.gz"} {
		s := textSpec(t, len(text)+2, write(t, t.TempDir(), name, squeeze(t, name, text)))
		s.Tokenizer, s.Threads = withBOS{tokenizer.Bytes()}, 2
		d := mustOpen(t, s)
		row := d.Row(0)
		if n := len(row.IDs); d.Rows() != 1 || n != len(text)+2 || row.IDs[0] != 1 || row.IDs[n-1] != 0 || slices.Contains(row.IDs[1:n-1], 0) || slices.Contains(row.IDs[1:], 1) {
			t.Errorf("%s: %d rows, the first of %d tokens", name, d.Rows(), n)
		}
	}
}

func TestMissingEOS(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}"))
	s.Tokenizer = endless{tokenizer.Bytes()}
	d := mustOpen(t, s)
	if w := d.Warnings(); d.Stats().MissingEOS != 2 || len(w) != 1 || len(d.Notes()) != 0 || !strings.Contains(w[0], "eos_token") || !slices.Equal(texts(d.All()), []string{"abcde"}) {
		t.Errorf("rows %q, %d without EOS, warnings %q", texts(d.All()), d.Stats().MissingEOS, w)
	}
	ended := strings.ReplaceAll(small, "}}|", "}}{{ eos_token }}")
	ended = strings.ReplaceAll(ended, "{% endfor %}|{% endfor %}", "{% endfor %}{{ eos_token }}{% endfor %}")
	d = mustOpen(t, chatSpec(t, ended, write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g"))))
	if got := masked(d.Row(0)); got != "u:h$a:[g$]" || d.Stats().MissingEOS != 0 || len(d.Warnings()) != 0 {
		t.Errorf("%q, %d without EOS, warnings %q", got, d.Stats().MissingEOS, d.Warnings())
	}
}

// TestRecordedTokenizers: with each recorded tokenizer.json, texts begin with BOS exactly if the
// tokenizer's post-processor adds one.
func TestRecordedTokenizers(t *testing.T) {
	names := testkit.Must(filepath.Glob("../../shared/fixtures/tokenizers/*/tokenizer.json"))(t)
	if len(names) == 0 {
		t.Skip("no ../shared/fixtures/tokenizers beside the repository")
	}
	bos := map[string]string{"gemma": "<bos>", "llama2": "<s>", "phi3": "<s>", "llama3": "<|begin_of_text|>"}
	for _, name := range names {
		dir := filepath.Dir(name)
		tok, err := tokenizer.Load(dir, 1<<17)
		testkit.NoError(t, err)
		s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"Hello wörld\"}\n{\"text\":\"no \xff\"}"))
		s.Tokenizer = tok
		_, err = Open(s)
		wantError(t, err, "a.jsonl:2: text is no valid UTF-8: byte 3 is 0xff")
		s.SkipBadRows = true
		first := bos[filepath.Base(dir)]
		if got := string(tok.DecodeSpecial(mustOpen(t, s).Row(0).IDs)); !strings.HasPrefix(got, first) || strings.Count(got, "<") != min(1, len(first)) || !strings.HasSuffix(got, "Hello wörld") {
			t.Errorf("%s: the row decodes to %q", dir, got)
		}
	}
}

// TestOlderCalls: OpenAI's older form of calls, one function_call per message, is read like
// tool_calls.
func TestOlderCalls(t *testing.T) {
	for row, want := range map[string]string{
		`{"functions":[{"name":"f"}],"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{\"k\":1}"}},{"role":"function","name":"f","content":"r"},{"role":"assistant","content":"g"}]}`: `u:h|a:[!f{"k": 1}|]t:r|a:[g|]T1f`,
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}]}`:                                                                                                                 `u:h|a:[!f{}|]`,
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}]}`:                                                                                                                                `u:h|a:[!f{}|]`,
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g","function_call":null}],"functions":null}`:                                                                                                                          `u:h|a:[g|]`,
	} {
		if got := masked(mustOpen(t, chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row))).Row(0)); got != want {
			t.Errorf("%s: %s, want %s", row, got, want)
		}
	}
}

// TestBothFormsOfCalls: if a message has both function_call and tool_calls, both must give the same
// call; otherwise the row is an error.
func TestBothFormsOfCalls(t *testing.T) {
	row := func(calls string) string {
		return `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{\"k\":1}"},"tool_calls":` + calls + `}]}`
	}
	for _, calls := range []string{"null", "[]", `[{"function":{"name":"f","arguments":"{\"k\": 1}"}}]`, `[{"type":"function","function":{"name":"f","arguments":{"k":1}}}]`} {
		if got := masked(mustOpen(t, chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row(calls)))).Row(0)); got != `u:h|a:[!f{"k": 1}|]` {
			t.Errorf("%s: %s", calls, got)
		}
	}
	for _, calls := range []string{
		`[{"function":{"name":"g","arguments":{"k":1}}}]`, `[{"function":{"name":"f","arguments":{}}}]`,
		`[{"function":{"name":"f","arguments":{"k":1}}},{"function":{"name":"g","arguments":{}}}]`, `[7]`, `7`, `"f"`, `{"name":"f","arguments":{"k":1}}`,
	} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row(calls))))
		wantError(t, err, "a.jsonl:1: messages[1] has function_call beside tool_calls", "remove one of the two")
	}
}
