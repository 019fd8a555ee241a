package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/data"
	"mt/internal/testkit"
)

// chats is a folder with a byte-level model, two chats and two templates. One template ends the assistant's turns with
// the end-of-text token, the other does not.
type chats struct{ dir, model string }

func newChats(t *testing.T) chats {
	t.Helper()
	out, args := smallRun(t, "--max_steps=1", "--report-to", "none")
	must(t, args...)
	c := chats{dir: t.TempDir(), model: out}
	c.write(t, "chats.jsonl", `{"messages": [{"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "Ja.\n"}]}
{"messages": [{"role": "user", "content": "2"}, {"role": "assistant", "content": "3"}, {"role": "user", "content": "4"}, {"role": "assistant", "content": "5"}]}
`)
	turns := "{%- for m in messages -%}{{ m.role[0] + ':' + m.content + END }}{%- endfor -%}{%- if add_generation_prompt -%}{{ 'a:' }}{%- endif -%}"
	c.write(t, "ends.jinja", strings.ReplaceAll(turns, "END", "(eos_token if m.role == 'assistant' else '|')"))
	c.write(t, "open.jinja", strings.ReplaceAll(turns, "END", "'|'"))
	return c
}

func (c chats) write(t *testing.T, name, text string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

func (c chats) inspect(t *testing.T, tmpl string, more ...string) (code int, stdout, stderr string) {
	t.Helper()
	return mt(t, "", append([]string{"data", "inspect", "--model", c.model, "--dataset", filepath.Join(c.dir, "chats.jsonl"),
		"--template", filepath.Join(c.dir, tmpl), "--cache-dir", c.dir, "--packing", "false"}, more...)...)
}

func TestInspectShowsWhatIsSupervised(t *testing.T) {
	c := newChats(t)
	code, stdout, stderr := c.inspect(t, "ends.jinja")
	if code != exitDone {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"u·:·H·é·?·|·a·:⟦J·a·.·⏎\n·<|endoftext|>⟧",
		"u·:·2·|·a·:⟦3·<|endoftext|>⟧u·:·4·|·a·:⟦5·<|endoftext|>⟧",
		"chats.jsonl:2 (messages), 16 tokens",
		"row 0: 14 tokens, 5 supervised",
		"(9 supervised)",
		"8–15  ",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	_, coloured, _ := c.inspect(t, "ends.jinja", "--color", "always", "--row", "1", "--rows", "1")
	if want := grey + underline + ":" + plain + green + "3" + plain + green + underline + "<|endoftext|>" + plain + grey + "u"; !strings.Contains(coloured, want) ||
		strings.Contains(coloured, "row 0") {
		t.Errorf("%q is not in\n%q", want, coloured)
	}
	if _, last, _ := c.inspect(t, "ends.jinja", "--mask-history", "true", "--row", "1"); !strings.Contains(last, "a·:·3·<|endoftext|>·u") {
		t.Errorf("with mask_history the first answer is supervised:\n%s", last)
	}
}

func TestInspectWritesFigures(t *testing.T) {
	testkit.NotShort(t)
	c := newChats(t)
	code, stdout, stderr := c.inspect(t, "ends.jinja", "--json")
	var got struct {
		Kind       string
		Supervised int `json:"supervised_tokens"`
		Samples    []struct {
			Labels []int32
			Tokens []string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); code != exitDone || err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if got.Kind != "chat" || got.Supervised != 9 || len(got.Samples) != 2 || len(got.Samples[0].Tokens) != 14 {
		t.Errorf("%+v", got)
	}
	if s := got.Samples[0]; s.Labels[7] != -100 || s.Labels[9] != 'J' || s.Tokens[3] != "" || s.Tokens[4] != "é" {
		t.Errorf("%+v", s)
	}
}

func TestInspectFailsOnWhatTeachesWrong(t *testing.T) {
	c := newChats(t)
	code, stdout, stderr := c.inspect(t, "open.jinja")
	if want := "2 chat(s) have a supervised turn that does not end with a special token (first: "; code != exitFailed ||
		!strings.Contains(stderr, want) || strings.Contains(stderr, "note:") || !strings.Contains(stdout, "rows ") {
		t.Errorf("exit code %d: %q is not in %s, or no figures in %s", code, want, stderr, stdout)
	}
	for flag, want := range map[string]string{"--rows=-1": "--rows", "--row=x": "--row", "--color=red": "--color"} {
		if code, _, stderr := c.inspect(t, "ends.jinja", flag); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", flag, code, stderr)
		}
	}
}

// TestProblemsAreNamedByWhatTheyAreOf: an error about texts does not mention turns, which only chats have.
func TestProblemsAreNamedByWhatTheyAreOf(t *testing.T) {
	for want, s := range map[string]data.Stats{
		"2 document(s) begin with two BOS tokens":                         {Kind: "chat", DoubledBOS: 2, MissingEOS: 1},
		"1 chat(s) have a supervised turn that does not end":              {Kind: "chat", MissingEOS: 1},
		"3 text(s) do not end with an end-of-text token (first: a.txt), ": {Kind: "text", MissingEOS: 3},
	} {
		err := dataStats{Stats: s, Report: data.Report{MissingEOS: []string{"a.txt"}}}.problem()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v does not begin with %q", err, want)
		}
	}
	if err := (dataStats{Stats: data.Stats{Kind: "text", Unused: 1, Truncated: 1}}).problem(); err != nil {
		t.Error(err)
	}
}

// TestExamplesGoOnFromEachOther: the example configs run one after the other, shortened, and each
// later one starts from the model of an earlier one.
func TestExamplesGoOnFromEachOther(t *testing.T) {
	testkit.NotShort(t)
	t.Chdir("../..")
	dir := t.TempDir()
	run := func(name string, more ...string) {
		t.Helper()
		must(t, append([]string{"train", "examples/" + name + ".yaml", "--output-dir", filepath.Join(dir, name), "--max-steps", "2",
			"--cache-dir", dir, "--report-to", "none"}, more...)...)
	}
	run("scratch")
	from := []string{"--model-name-or-path", filepath.Join(dir, "scratch")}
	run("pretrain", append(from, "--save-steps", "0")...)
	run("chat", from...)
	run("dpo", "--model-name-or-path", filepath.Join(dir, "chat"))
	inspect := append([]string{"data", "inspect", "examples/chat.yaml", "--rows", "0", "--cache-dir", dir}, from...)
	if stdout := must(t, inspect...); !strings.Contains(stdout, "chat, packed") {
		t.Errorf("inspect printed\n%s", stdout)
	}
}

// TestReplaceFile: the target of a symbolic link is replaced and keeps its mode. A device is written to.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	file, link, fresh := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fresh")
	err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link))
	for _, name := range []string{link, fresh, os.DevNull} {
		err = errors.Join(err, replaceFile(name, []byte("new")))
	}
	st, staterr := os.Lstat(link)
	if err = errors.Join(err, staterr); err != nil || st.Mode().Type() != os.ModeSymlink {
		t.Errorf("%v, the link is %v", err, st)
	}
	for _, name := range []string{file, fresh} {
		if got, err := os.ReadFile(name); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("a file of mode 0600 has become %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 3 {
		t.Errorf("%v is left", left)
	}
}

// TestInspectShowsWhatTheTemplateLeavesOut: the report lists dropped parts by kind, each with its first occurrence,
// and the template variables without effect.
func TestInspectShowsWhatTheTemplateLeavesOut(t *testing.T) {
	c := newChats(t)
	c.write(t, "chats.jsonl", `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>why</think>b"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"tools": [{"name": "find"}], "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "let me see", "tool_calls": [{"name": "find", "arguments": {}}]}, {"role": "tool", "content": "a"}, {"role": "assistant", "content": "b"}]}
`)
	c.write(t, "leaves.jinja", "{%- for m in messages -%}{{ m.role[0] + ':' + (m.content.split('</think>')[-1] if not m.tool_calls else '') + (eos_token if m.role == 'assistant' else '|') }}{%- endfor -%}{%- if add_generation_prompt -%}{{ 'a:' }}{%- endif -%}")
	code, stdout, stderr := c.inspect(t, "leaves.jinja", "--chat-template-kwargs", "{level: 1}", "--enable-thinking", "false")
	if code != exitDone {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"chats.jsonl:2 (messages), 16 tokens; the template leaves out thoughts\n", "tokens; the template leaves out text, tools or calls\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	table := strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{
		"chats of which the template leaves out text 1 (first: " + filepath.Join(c.dir, "chats.jsonl") + ":3)",
		"chats of which the template leaves out tools or calls 1 (first: " + filepath.Join(c.dir, "chats.jsonl") + ":3)",
		"chats of which the template leaves out thoughts 1 (first: " + filepath.Join(c.dir, "chats.jsonl") + ":2)",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	for _, want := range []string{"note: level has no effect: the chat template does not read it", "note: enable_thinking has no effect"} {
		if !strings.Contains(stderr, want) || strings.Contains(stderr, "leaves out") {
			t.Errorf("%q is not in %s", want, stderr)
		}
	}
}

// TestInspectShowsPairs: the prompt of a pair is shown once, followed by both answers.
func TestInspectShowsPairs(t *testing.T) {
	dir := t.TempDir()
	c := chats{dir: dir}
	c.write(t, "pairs.jsonl", `{"prompt":"Hi: ","chosen":"yes","rejected":"no, I will not"}`)
	code, stdout, stderr := mt(t, "", "data", "inspect", "--dataset", filepath.Join(dir, "pairs.jsonl"), "--cache-dir", dir, "--max-seq-len", "9")
	for _, want := range []string{
		"(pair 0, chosen), 8 tokens\nprompt: H·i·:· \nchosen: ⟦y·e·s·<|endoftext|>⟧\n",
		"(pair 0, rejected), 19 tokens, cut to 9\nrejected: ⟦n·o·,· ·I⟧\n",
		"pairs with an answer cut to max_seq_len", "pairs by their tokens", "kind ",
	} {
		if code != exitDone || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d: %q is not in\n%s%s", code, want, stdout, stderr)
		}
	}
}
