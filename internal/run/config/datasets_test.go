package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"mt/data"
	"mt/internal/testkit"
)

// TestDatasetDir: a data set of the Hugging Face Hub is found in the local cache. If it is absent,
// the error has the command that fetches it.
func TestDatasetDir(t *testing.T) {
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	want := filepath.Join(hub, "datasets--org--name", "snapshots", "abc")
	refs := filepath.Join(hub, "datasets--org--name", "refs")
	for _, dir := range []string{want, refs} {
		testkit.NoError(t, os.MkdirAll(dir, 0o700))
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(refs, "main"), []byte("abc\n"), 0o600))
	for name, dir := range map[string]string{"org/name": want, "data/train.jsonl": "", "chats.json.gz": "", "a/b/c": "", "*.txt": "", "./x": ""} {
		if got, err := DatasetDir(name); got != dir || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, dir)
		}
	}
	for _, name := range []string{"org/other", "squad"} {
		_, err := DatasetDir(name)
		if err == nil || !strings.HasSuffix(err.Error(), "hf download --repo-type dataset "+name) || !strings.Contains(err.Error(), hub) {
			t.Errorf("%s: %v", name, err)
		}
	}
	testkit.NoError(t, os.RemoveAll(want))
	if _, err := DatasetDir("org/name"); err == nil || !strings.Contains(err.Error(), "hf download") {
		t.Errorf("a snapshot that is gone: %v", err)
	}
}

// TestHubThatCannotBeRead: a model or data set in the cache that cannot be read is not reported as
// absent.
func TestHubThatCannotBeRead(t *testing.T) {
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	for kind, find := range map[string]func(string) (string, error){"models": ModelDir, "datasets": DatasetDir} {
		repo := filepath.Join(hub, kind+"--org--name")
		loop := filepath.Join(repo, "snapshots", "abc")
		for _, dir := range []string{"refs", "snapshots"} {
			testkit.NoError(t, os.MkdirAll(filepath.Join(repo, dir), 0o700))
		}
		testkit.NoError(t, errors.Join(os.WriteFile(filepath.Join(repo, "refs", "main"), []byte("abc\n"), 0o600), os.Symlink("abc", loop)))
		dir, err := find("org/name")
		if dir != "" || !errors.Is(err, syscall.ELOOP) || !strings.Contains(err.Error(), loop) || strings.Contains(err.Error(), "hf download") {
			t.Errorf("%s: %q, %v", kind, dir, err)
		}
	}
}

// TestDataSpecColumns: DataSpec and EvalSpec pass on the configured column names. All rows of
// EvalSpec are held out, and none of DataSpec's.
func TestDataSpecColumns(t *testing.T) {
	c, err := Parse("t.yaml", []byte("dataset: org/name\neval_dataset: org/name\nprompt_column: q\nresponse_column: a\n"), Args{})
	testkit.NoError(t, err)
	for held, s := range map[bool]data.Spec{false: c.DataSpec(), true: c.EvalSpec()} {
		if s.Columns != (data.Columns{Prompt: "q", Response: "a"}) || s.Held != held || s.Hub == nil {
			t.Errorf("held %v: columns %+v, held %v", held, s.Columns, s.Held)
		}
	}
	if c, err = Parse("t.yaml", []byte("dataset_text_field: body\nmessages_column: talk\n"), Args{}); err != nil {
		t.Fatal(err)
	}
	if got := c.DataSpec().Columns; got != (data.Columns{Text: "body", Messages: "talk"}) {
		t.Errorf("columns %+v", got)
	}
}

// TestDatasetsKey: a list of data sets with keys of their own parses the same from a file, from a
// flag and from its own printed form.
func TestDatasetsKey(t *testing.T) {
	want := []data.Set{
		{Path: "org/name", Config: "en", Files: []string{"a.jsonl", "b/*.jsonl"}, Split: "train[:10%]", Shards: 3, Shard: 1, Kept: "json", Format: "messages",
			Fields: map[string]string{"messages": "conversations", "role": "from", "content": "value", "tools": "fns"}, Roles: map[string]string{"human": "user", "bot": "assistant", "gpt": "assistant"}},
		{Path: "b.jsonl", Format: "text", Fields: map[string]string{"text": "chapter"}},
		{Path: "12", Format: "alpaca", Fields: map[string]string{"instruction": "q", "input": "more", "output": "a", "system": "s"}},
		{Path: "plain.txt"},
	}
	c := mustParse(t, `
datasets:
  - path: org/name
    name: en
    data_files: [a.jsonl, "b/*.jsonl"]
    split: train[:10%]
    shards: 3
    shards_idx: 1
    ds_type: json
    type: chat_template
    field_messages: conversations
    message_property_mappings: {role: from, content: value}
    field_tools: fns
    roles:
      user: human
      assistant: [bot, gpt]
  - path: b.jsonl
    type: completion
    field: chapter
    shards:
    field_system:
  - {path: "12", type: alpaca, field_instruction: q, field_input: more, field_output: a, field_system: s}
  - plain.txt
test_datasets: held.jsonl
`)
	if !reflect.DeepEqual(c.Datasets, want) {
		t.Errorf("%+v, want\n%+v", c.Datasets, want)
	}
	again := mustParse(t, string(c.YAML("")))
	if !reflect.DeepEqual(again.Datasets, want) || !reflect.DeepEqual(again.EvalDatasets, []data.Set{{Path: "held.jsonl"}}) {
		t.Errorf("printed and read again: %+v, %+v\n%s", again.Datasets, again.EvalDatasets, c.YAML(""))
	}
	s, e := c.DataSpec(), c.EvalSpec()
	testkit.Check(t, "specs",
		testkit.Is("sets", len(s.Sets), 4),
		testkit.Is("paths", len(s.Paths), 0),
		testkit.Is("ValSize", s.ValSize, 0),
		testkit.Is("evaluation sets", len(e.Sets), 1),
		testkit.Is("evaluation Held", e.Held, true),
		testkit.Is("HasEvalData", c.HasEvalData(), true),
	)
	if err := c.Require("dataset"); err != nil {
		t.Error(err)
	}
	for flag, want := range map[string][]data.Set{
		"a.jsonl,b.jsonl":                              {{Path: "a.jsonl"}, {Path: "b.jsonl"}},
		"[{path: a, split: 'train[1:2]'}, b]":          {{Path: "a", Split: "train[1:2]"}, {Path: "b"}},
		"{path: a, type: pretrain, field: '{x}, [y]'}": {{Path: "a", Format: "text", Fields: map[string]string{"text": "{x}, [y]"}}},
	} {
		if got := mustParse(t, "", "--datasets="+flag).Datasets; !reflect.DeepEqual(got, want) {
			t.Errorf("--datasets %s: %+v, want %+v", flag, got, want)
		}
	}
	for text, want := range map[string]string{
		"datasets: [{path: a}, {pathh: b}]":                                           `t.yaml:1:24: datasets[1] has an unknown key "pathh"; did you mean "path"?`,
		"datasets:\n  - type: alpaca":                                                 `t.yaml:2:5: datasets[0] has no path`,
		"datasets: [[a]]":                                                             `datasets[0] must be a path, or a mapping such as {path: ORG/NAME, type: alpaca}, not a list`,
		"datasets: [{path: a, type: alpacca}]":                                        `t.yaml:1:11: datasets[0]: type "alpacca" is unknown; it is one of text, messages, sharegpt, alpaca, prompt_completion`,
		"datasets: [{path: a, shards: x}]":                                            `t.yaml:1:30: datasets[0].shards must be a whole number, not x`,
		"datasets: [{path: a, shards: -1}]":                                           `datasets[0].shards must be at least 0, not -1`,
		"datasets: [{path: a, split: 3}]":                                             `datasets[0].split must be text (put quotes around it), not 3`,
		"datasets: [{path: a, roles: {boss: [x]}}]":                                   `t.yaml:1:30: roles: unknown role "boss"; the roles are user, assistant, system and tool`,
		"datasets: [{path: a, roles: x}]":                                             `must be a mapping such as {user: [human], assistant: [gpt]}, not x`,
		"datasets: [{path: a, message_property_mappings: {thinking: x}}]":             `datasets[0].message_property_mappings: unknown key "thinking"; mt reads role and content`,
		"datasets: [{path: a, message_property_mappings: x}]":                         `must be a mapping such as {role: from, content: value}, not x`,
		"datasets: [a]\ndataset: b":                                                   `t.yaml:1:11: datasets and dataset are both given: move the paths in dataset to datasets`,
		"eval_datasets: [a]\nval_size: 0.1":                                           `val_size and eval_datasets are both given: give one of them (val_size holds out rows of the training data)`,
		"datasets: [a]\nmix_strategy: interleave_under\ninterleave_probs: [0.5, 0.5]": `interleave_probs needs one value per entry of datasets (1), but has 2`,
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestPerEpoch: evals_per_epoch and saves_per_epoch become eval_steps and save_steps, as fractions
// of all steps.
func TestPerEpoch(t *testing.T) {
	for _, tc := range []struct {
		text, flag  string
		eval, save  Interval
		when, saved string
	}{
		{"evals_per_epoch: 4\nnum_train_epochs: 2", "", 0.125, 500, "steps", "steps"},
		{"saves_per_epoch: 2", "", 0, 1.0 / 6, "steps", "steps"},
		{"saves_per_epoch: 1\nnum_train_epochs: 1", "", 0, 0, "steps", "steps"},
		{"saves_per_epoch: 0\nevals_per_epoch:", "", 0, 500, "steps", "steps"},
		{"evals_per_epoch: 4\nnum_train_epochs: 2\neval_strategy: steps", "", 0.125, 500, "steps", "steps"},
		{"evals_per_epoch: 4", "--eval-steps=7", 7, 500, "steps", "steps"},
		{"eval_steps: 7\nnum_train_epochs: 1", "--evals-per-epoch=2", 0.5, 500, "steps", "steps"},
	} {
		var flags []string
		if tc.flag != "" {
			flags = []string{tc.flag}
		}
		c := mustParse(t, tc.text+"\nval_size: 2", flags...)
		if c.EvalSteps != tc.eval || c.SaveSteps != tc.save || c.EvalStrategy != tc.when || c.SaveStrategy != tc.saved || c.EvalsPerEpoch+c.SavesPerEpoch != 0 {
			t.Errorf("%q %s: eval_steps %v, save_steps %v, %s, %s", tc.text, tc.flag, c.EvalSteps, c.SaveSteps, c.EvalStrategy, c.SaveStrategy)
		}
		if again := mustParse(t, string(c.YAML(""))); len(again.Differences(c)) > 0 {
			t.Errorf("%q: printed and read again: %v", tc.text, again.Differences(c))
		}
	}
	for text, want := range map[string]string{
		"evals_per_epoch: 4\neval_steps: 5":        `t.yaml:1:18: evals_per_epoch and eval_steps are both given: give one of them`,
		"saves_per_epoch: 4\nsave_strategy: epoch": `saves_per_epoch needs save_strategy: steps, but save_strategy is epoch: remove one of them`,
		"saves_per_epoch: 4\nmax_steps: 10":        `saves_per_epoch counts per epoch of num_train_epochs, but max_steps is given: give save_steps instead`,
		"saves_per_epoch: -1":                      `saves_per_epoch must be at least 0, not -1`,
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestSpecialTokens: special_tokens gives named tokens, such as eos_token, and a list of additional
// tokens.
func TestSpecialTokens(t *testing.T) {
	c := mustParse(t, "special_tokens:\n  eos_token: <|im_end|>\n  pad_token: \"</s>\"\n  bos_token:\n  additional_special_tokens: [\"<a>\", <b>]\n")
	if got := c.NamedTokens(); !reflect.DeepEqual(got, map[string]string{"eos_token": "<|im_end|>", "pad_token": "</s>"}) {
		t.Errorf("names %v", got)
	}
	if got := c.MoreSpecialTokens(); !reflect.DeepEqual(got, []string{"<|im_end|>", "</s>", "<a>", "<b>"}) {
		t.Errorf("tokens %q", got)
	}
	c.Clone().SpecialTokens["eos_token"] = "x"
	if c.SpecialTokens["eos_token"] != "<|im_end|>" {
		t.Error("a clone shares special_tokens")
	}
	if c := mustParse(t, "special_tokens:\n"); len(c.NamedTokens())+len(c.MoreSpecialTokens()) != 0 {
		t.Errorf("nothing gives %v", c.SpecialTokens)
	}
	for text, want := range map[string]string{
		"special_tokens: x":                                     `special_tokens must be a mapping`,
		"special_tokens: {eos: x}":                              `t.yaml:1:23: special_tokens.eos: unknown key; special_tokens takes bos_token, eos_token, unk_token, pad_token and additional_special_tokens`,
		"special_tokens: {eos_token: 2}":                        `special_tokens.eos_token must be a token in quotes, not 2`,
		"special_tokens: {eos_token: ''}":                       `must be a token`,
		"special_tokens: {additional_special_tokens: <a>}":      `special_tokens.additional_special_tokens must be a list of tokens, not "<a>"`,
		"special_tokens: {additional_special_tokens: [a, [b]]}": `special_tokens.additional_special_tokens must be a list of tokens: put each token in quotes`,
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
