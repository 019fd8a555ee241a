package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/tokenizer"
)

// small is a chat template that writes a role as one letter (s, u, a, t) and "|" after each turn.
const small = `{% for m in messages %}{{ m.role[0] }}:{{ m.content }}` +
	`{% for c in m.tool_calls or [] %}!{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}` +
	`{% if tools %}T{{ tools | length }}{{ tools[0].function.name }}{% endif %}{% if add_generation_prompt %}a:{% endif %}`

// chatSpec reads paths as chats through a template, by the byte vocabulary, not packed.
func chatSpec(t *testing.T, template string, paths ...string) Spec {
	s := textSpec(t, 4096, paths...)
	s.Template, s.Packing = write(t, t.TempDir(), "chat.jinja", template), set(false)
	return s
}

// masked is a row's text with brackets around what is supervised. The first token of a
// row is never supervised.
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

// formatRows are rows that say the same in each of the formats.
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

// TestFormats reads each format in each container, compressed in each way, with its format
// given and recognised, and looks at every token's mask.
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

// TestMasks checks which turns are supervised.
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

// TestTemplatesByPlace: a template is Jinja itself, a file, or a directory with a tokenizer in any of its forms.
func TestTemplatesByPlace(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "own.jinja", small)
	asFile, asConfig, without := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	for _, d := range []string{asFile, asConfig, without} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, asFile, "chat_template.jinja", small)
	quoted, err := json.Marshal(small)
	if err != nil {
		t.Fatal(err)
	}
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

// withChatML is the byte vocabulary with the two special tokens of chatml added.
func withChatML(t *testing.T) tokenizer.Tokenizer {
	t.Helper()
	tok, _, err := tokenizer.Extend(tokenizer.Bytes(), nil, []string{"<|im_start|>", "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestChatMLWithoutItsTokens: without its tokens chatml is an error, since a model would
// have to learn ends of turns that are spelled in several tokens.
func TestChatMLWithoutItsTokens(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`))
	s.Template = "chatml"
	_, err := Open(s)
	wantError(t, err, "template: chatml", "<|im_start|>", "<|im_end|>", "new_special_tokens", "resize_vocab: true", "another template")
	if wrong, ok := errors.AsType[*SpecError](err); !ok || wrong.Key != "template" {
		t.Errorf("%v is not of the key template", err)
	}
	s.Tokenizer, s.Template = withChatML(t), ""
	if got := mustOpen(t, s).ChatTemplates()["chat_template.jinja"]; !strings.HasPrefix(got, "{% if tools %}") { // taken where its tokens are
		t.Errorf("the template is %q", got)
	}
}

// TestWithoutTemplate: prompts with answers need no template; chats without one are an
// error that says what to do.
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

// TestTemplateOfTheModel: the template is that of the model's directory, and one that asks
// for the time is always told the same.
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
	// Tables have objects, and lists of tools, as JSON in a text.
	s.Paths = []string{write(t, t.TempDir(), "a.jsonl", `{"tools":"null","chat_template_kwargs":"{\"kind\":\"K\"}","messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)}
	if got := masked(mustOpen(t, s).Row(0)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
