package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// newTalker trains a model and returns the run's output_dir. The model has learnt to translate
// numbers to German, and to repeat itself when asked "again". end is the chat template's end of a
// turn.
func newTalker(t *testing.T, end string) (out string) {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	for range 20 {
		for _, w := range [][2]string{{"one", "eins"}, {"two", "zwei"}, {"é", "ü"}} {
			fmt.Fprintf(&rows, `{"messages":[{"role":"user","content":%q},{"role":"assistant","content":%q},{"role":"user","content":"again"},{"role":"assistant","content":%q}]}`+"\n", w[0], w[1], w[1])
		}
	}
	const turns = "{% for m in messages %}{% if loop.previtem and loop.previtem.role == m.role %}{{ raise_exception('twice') }}{% endif %}{{ m.role[0] }}:{{ m.content }}END{% endfor %}{% if add_generation_prompt %}{% if loud %}{{ raise_exception('too loud') }}{% endif %}a:{% endif %}"
	for name, text := range map[string]string{"chats.jsonl": rows.String(), "chat.jinja": strings.ReplaceAll(turns, "END", end)} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out = filepath.Join(dir, "out")
	must(t, "train", "--model", "tiny", "--dataset", filepath.Join(dir, "chats.jsonl"), "--template", filepath.Join(dir, "chat.jinja"), "--cache-dir", dir,
		"--output-dir", out, "--max-seq-len", "64", "--learning-rate", "3e-3", "--max-steps", "120", "--save-steps", "110", "--report-to", "none", "--threads", "1")
	return out
}

// TestChat covers a conversation from a pipe, answers to a file, the message for each mistake, and the newest
// checkpoint of a run without a model.
func TestChat(t *testing.T) {
	out := newTalker(t, "{{ eos_token }}")
	dir := filepath.Dir(out)
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	say := func(text string) string { return `{"role":"user","content":"` + text + `"}` }
	two := file("two.jsonl", `{"messages":[`+say("two")+"]}\n"+`{"messages":[`+say("é")+"]}\n")
	one := file("one.json", "["+say("one")+"]")
	before := file("before.json", "["+say("two")+`,{"role":"assistant","content":"zwei"}]`)
	for _, c := range []struct {
		name, stdin string
		args        []string
		want        string
		notes       []string
	}{
		{"a conversation", "one\n\n  \nagain\n", []string{"--chat"}, "eins\neins\n", nil},
		{"its history", "two\nagain", []string{"--chat"}, "zwei\nzwei\n", nil},
		{"anew", "two\n/reset\n\n /reset\none\nagain\n/exit\ntwo\n", []string{"--chat"}, "zwei\neins\neins\n", nil},
		{"one turn", "", []string{"--chat", "--prompt", "é"}, "ü\n", nil},
		{"one turn from a pipe", "one", []string{"--chat", "--prompt", "-"}, "eins\n", nil},
		{"a file", "", []string{"--messages", two}, "zwei\nü\n", nil},
		{"a file's JSON", "", []string{"--messages", two, "--json"},
			`{"messages":[` + say("two") + `,{"role":"assistant","content":"zwei"}]}` + "\n" + `{"messages":[` + say("é") + `,{"role":"assistant","content":"ü"}]}` + "\n", nil},
		{"messages from a pipe", say("two"), []string{"--messages", "-"}, "zwei\n", nil},
		{"a file that goes on", "again\n/reset\nagain\n", []string{"--chat", "--messages", before}, "zwei\nzwei\n", nil},
		{"a file that waits for an answer", "again\n", []string{"--chat", "--messages", one}, "eins\neins\n", nil},
		{"a file that was answered, anew", "/reset\nagain\n", []string{"--chat", "--messages", one}, "eins\neins\n", nil},
		{"a file and a turn", "", []string{"--messages", before, "--prompt", "again"}, "zwei\n", nil},
		{"what is cut", "one\n", []string{"--chat", "--max-new-tokens", "2"}, "ei\n", []string{"the answer was cut after 2 tokens"}},
		{"a variable without effect", "one\n", []string{"--chat", "--enable-thinking", "false"}, "eins\n", []string{"enable_thinking has no effect"}},
	} {
		code, stdout, stderr := mt(t, c.stdin, append([]string{"generate", "--model", out}, c.args...)...)
		if code != exitDone || stdout != c.want {
			t.Errorf("%s: exit code %d, printed %q, want %q\n%s", c.name, code, stdout, c.want, stderr)
		}
		for _, note := range append(c.notes, "note") {
			if !strings.Contains(stderr, note) {
				t.Errorf("%s: %q is not in %q", c.name, note, stderr)
			}
		}
		if c.notes == nil && strings.Contains(stderr, "cut") {
			t.Errorf("%s: an answer did not end: %s", c.name, stderr)
		}
	}
	bad := file("bad.jsonl", say("one")+"\n"+`{"role":"king","content":"x"}`+"\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--system", "x", "--prompt", "y"}, exitUsage, "--system goes with --chat or --messages"},
		{[]string{"--json", "--prompt", "y"}, exitUsage, "--json goes with"},
		{[]string{"--chat", "--messages", two}, exitUsage, "holds 2 conversations, and --chat goes on with one"},
		{[]string{"--chat", "--messages", "-"}, exitUsage, "--messages - reads the standard input, and so does --chat"},
		{[]string{"--chat", "--json"}, exitUsage, "--json is for answers"},
		{[]string{"--prompt", "-", "--messages", "-"}, exitUsage, "both read the standard input"},
		{[]string{"--messages", dir + "/nowhere"}, exitUsage, "--messages: open "},
		{[]string{"--messages", bad}, exitFailed, bad + `: messages[1].role is "king"`},
		{[]string{"--messages", before}, exitFailed, before + ": the conversation ends with the assistant's turn"},
		{[]string{"--messages", file("s.json", `[{"role":"system","content":"s"},`+say("one")+"]"), "--system", "x"}, exitFailed, "has a system's turn already"},
		{[]string{"--chat", "--prompt", "one", "--chat-template-kwargs", "{loud: true}"}, exitFailed, "the chat template refuses the row: "},
		{[]string{"--chat", "--template", dir + "/nowhere"}, exitUsage, "a chat needs a chat template: template "},
		{[]string{"--chat", "--prompt", strings.Repeat("long ", 100)}, exitFailed, "tokens and the model has 256 positions"},
	} {
		code, stdout, stderr := mt(t, "", append([]string{"generate", "--model", out}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%q: exit code %d, %q is not in %q; printed %q", c.args, code, c.want, stderr, stdout)
		}
	}
	if got, want := must(t, "generate", "--model", out, "--prompt", "u:one<|endoftext|>a:"), "u:one<|endoftext|>a:eins\n"; got != want {
		t.Errorf("a prompt goes on as %q, want %q", got, want)
	}
	checkLogitKeys(t, out)
	checkNewest(t, out)
}

// checkLogitKeys checks how keys of generation_config.json, and the flags that override them,
// change an answer. Without them the model of newTalker answers "eins".
func checkLogitKeys(t *testing.T, out string) {
	t.Helper()
	name := filepath.Join(out, "generation_config.json")
	keys := func(text string) {
		t.Helper()
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, c := range []struct {
		file, args string
		free       bool // the answer is the unconstrained one
	}{
		{`{"suppress_tokens": [101]}`, "--chat --prompt one", false}, // e
		{`{"suppress_tokens": [101]}`, "--prompt u:one<|endoftext|>a:", false},
		{`{"suppress_tokens": [-1, 122, 9999]}`, "--chat --prompt one", true},
		{`{"repetition_penalty": 100}`, "--chat --prompt one", false}, // e and n are in the prompt
		{`{"repetition_penalty": 100}`, "--chat --prompt one --repetition-penalty 1", true},
		{`{"min_new_tokens": 5}`, "--chat --prompt one", false},
		{`{"min_new_tokens": 5}`, "--chat --prompt one --min-new-tokens 4", true},
		{`{"min_p": 1}`, "--chat --prompt one --temperature 50", true},
		{`{"min_p": 1}`, "--chat --prompt one --temperature 50 --min-p 0", false},
	} {
		keys(c.file)
		answer := must(t, append([]string{"generate", "--model", out, "--max-new-tokens", "6"}, strings.Fields(c.args)...)...)
		if strings.TrimPrefix(answer, "u:one<|endoftext|>a:") == "eins\n" != c.free {
			t.Errorf("%s, %q: answered %q", c.file, c.args, answer)
		}
	}
	keys(`{"min_p": 2}`)
	if code, _, stderr := mt(t, "", "generate", "--model", out, "--prompt", "x"); code == exitDone || !strings.Contains(stderr, name+": min_p is 2") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	testkit.NoError(t, os.Remove(name))
}

// TestChatStopsAtTheTemplatesEnd: generation stops at the special token that the chat template writes after an answer,
// even if no other setting marks it as an end.
func TestChatStopsAtTheTemplatesEnd(t *testing.T) {
	testkit.NotShort(t)
	out := newTalker(t, "|")
	name := filepath.Join(out, "tokenizer.json")
	text := testkit.Must(os.ReadFile(name))(t)
	special := strings.Replace(string(text), `"added_tokens": [`, `"added_tokens": [{"id": 124, "content": "|", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},`, 1)
	testkit.NoError(t, os.WriteFile(name, []byte(special), 0o600))
	if got := must(t, "generate", "--model", out, "--chat", "--prompt", "one"); got != "eins\n" {
		t.Errorf("printed %q", got)
	}
}

// checkNewest checks which model commands use if a run has no final model. generate, eval and
// export use the newest checkpoint. mt train instead names this checkpoint in an error.
func checkNewest(t *testing.T, out string) {
	t.Helper()
	for _, name := range []string{"config.json", "model.safetensors"} {
		testkit.NoError(t, os.Remove(filepath.Join(out, name)))
	}
	chats := filepath.Join(filepath.Dir(out), "chats.jsonl")
	newest := out + " holds no model yet; its newest checkpoint is " + out + "/checkpoint-120, of step 120"
	for _, args := range [][]string{
		{"generate", "--model", out, "--chat", "--prompt", "one"},
		{"generate", "--model", out, "--prompt", "u:one", "--max-new-tokens", "3"},
		{"eval", "--model", out, "--dataset", chats, "--max-seq-len", "64", "--cache-dir", filepath.Dir(out)},
		{"export", "--model", out, "--format", "gguf", "--out", out + ".gguf"},
	} {
		code, stdout, stderr := mt(t, "", args...)
		if code != exitDone || !strings.Contains(stderr, "note: "+newest+", which is taken") || stdout == "" {
			t.Errorf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	code, _, stderr := mt(t, "", "train", "--model_name_or_path", out, "--dataset", chats, "--output-dir", out+"2")
	if code != exitUsage || !strings.Contains(stderr, newest+"; give that directory") {
		t.Errorf("training from it: exit code %d, %s", code, stderr)
	}
}

// TestChatEndsPolitely: Ctrl-C at the prompt for a turn ends a conversation without an error.
func TestChatEndsPolitely(t *testing.T) {
	out, args := smallRun(t, "--max-steps", "1", "--report-to", "none")
	must(t, args...)
	stdin, typed := io.Pipe()
	defer typed.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	var said, errs bytes.Buffer
	a := &app{stdin: stdin, stdout: &said, stderr: cancelAt{&errs, "> ", func() { cancel(settings.ErrInterrupted) }}, asks: true}
	if code := a.run(ctx, []string{"generate", "--model", out, "--chat", "--template", "default"}); code != exitDone || said.Len() > 0 {
		t.Errorf("exit code %d, %s%s", code, said.String(), errs.String())
	}
	if want := "/reset begins anew, /exit or Ctrl-D ends"; !strings.Contains(errs.String(), want) {
		t.Errorf("%q is not in %q", want, errs.String())
	}
}

// cancelAt calls f when text has been written.
type cancelAt struct {
	w    *bytes.Buffer
	text string
	f    func()
}

func (c cancelAt) Write(b []byte) (int, error) {
	if string(b) == c.text {
		c.f()
	}
	return c.w.Write(b)
}

// TestTerminalTakesTurnsBack: at a terminal, a turn that is too long to be answered is reported and
// dropped, and the conversation continues.
func TestTerminalTakesTurnsBack(t *testing.T) {
	out, args := smallRun(t, "--max-steps", "1", "--report-to", "none")
	must(t, args...)
	var said, errs bytes.Buffer
	in := strings.Repeat("long ", 100) + "\nhi\n"
	a := &app{stdin: strings.NewReader(in), stdout: &said, stderr: &errs, asks: true}
	code := a.run(t.Context(), []string{"generate", "--model", out, "--chat", "--template", "default", "--max-new-tokens", "3"})
	if code != exitDone || strings.Count(errs.String(), "positions (max_position_embeddings): shorten it; the turn is taken back") != 1 || strings.Count(errs.String(), "> ") != 3 {
		t.Errorf("exit code %d, %s%s", code, said.String(), errs.String())
	}
}

// noEnd is a standard input that never ends.
type noEnd struct{}

func (noEnd) Read(p []byte) (int, error) { return len(p), nil }

// TestEndlessPrompt: a prompt that is too long is an error, and is not truncated silently.
func TestEndlessPrompt(t *testing.T) {
	testkit.NotShort(t)
	a := &app{stdin: noEnd{}}
	text, err := a.prompt("-")
	if want := "prompt: the standard input: longer than 64 MiB"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%d bytes, %v; want %s", len(text), err, want)
	}
}
