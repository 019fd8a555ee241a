package data

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSets: each data set follows its own keys for fields, splits, ranges of rows, shards and
// files.
func TestSets(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "own.jsonl", `{"q":"i","more":"j","a":"o","sys":"s"}`)
	write(t, dir, "share.json", `[{"chat":[{"who":"me","says":"h"},{"who":"bot","says":"g"}],"sys":"s","text":"no"}]`)
	write(t, dir, "mixed.jsonl", `{"conversations":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}],"text":"no"}`)
	write(t, dir, "openai.jsonl", chat("developer", "s", "user", "h", "assistant", "g"))
	write(t, dir, "lines.txt", "ab\ncd\n")
	write(t, dir, "rows", "text,other\nab,x\n")
	seven := strings.Builder{}
	for c := 'a'; c < 'h'; c++ {
		seven.WriteString(`{"text":"` + string(c) + "\"}\n")
	}
	write(t, dir, "seven.jsonl", seven.String())
	hub := laidOut(t, "data/train-00000-of-00001.jsonl", "data/gen-00000-of-00001.jsonl", "data/test-00000-of-00001.jsonl", "extra/more.jsonl")
	cards := laidOut(t, "one/a.jsonl", "two/b.jsonl")
	write(t, cards, "README.md", "---\nconfigs:\n- config_name: one\n  data_files: one/*.jsonl\n- config_name: two\n  data_files:\n  - split: train\n    path: two/*.jsonl\n---\n")
	for _, tt := range []struct {
		name string
		set  Set
		want []string
	}{
		{"alpaca", Set{Path: "own.jsonl", Format: "alpaca", Fields: map[string]string{"instruction": "q", "input": "more", "output": "a", "system": "sys"}}, []string{"s:s|u:i\nj|a:[o|]"}},
		{"fields tell the format", Set{Path: "own.jsonl", Fields: map[string]string{"instruction": "q", "output": "a"}}, []string{"u:i|a:[o|]"}},
		{"messages", Set{Path: "share.json", Fields: map[string]string{"messages": "chat", "role": "who", "content": "says", "system": "sys"}, Roles: map[string]string{"me": "user", "bot": "assistant"}}, []string{"s:s|u:h|a:[g|]"}},
		{"messages with names of ShareGPT", Set{Path: "mixed.jsonl", Format: "messages", Fields: map[string]string{"messages": "conversations", "role": "from", "content": "value"}}, []string{"u:h|a:[g|]"}},
		{"messages of OpenAI", Set{Path: "openai.jsonl", Format: "messages"}, []string{"d:s|u:h|a:[g|]"}},
		{"sharegpt", Set{Path: "mixed.jsonl", Format: "sharegpt"}, []string{"u:h|a:[g|]"}},
		{"a column of text", Set{Path: "mixed.jsonl", Fields: map[string]string{"text": "text"}}, []string{"[no$]"}},
		{"lines", Set{Path: "lines.txt", Format: "text"}, []string{"[ab$]", "[cd$]"}},
		{"lines by their kind", Set{Path: "lines.txt", Kept: "text"}, []string{"[ab$]", "[cd$]"}},
		{"a table without a name", Set{Path: "rows", Kept: "csv"}, []string{"[ab$]"}},
		{"a builder", Set{Path: "json", Files: []string{"sev*.jsonl", "mixed.jsonl"}, Format: "text", Split: "train[:1]"}, []string{"[no$]"}},
		{"a part", Set{Path: "seven.jsonl", Split: "train[2:4]"}, []string{"[c$]", "[d$]"}},
		{"the first shard is longer", Set{Path: "seven.jsonl", Shards: 3}, []string{"[a$]", "[b$]", "[c$]"}},
		{"the next is not", Set{Path: "seven.jsonl", Shards: 3, Shard: 1}, []string{"[d$]", "[e$]"}},
		{"the last shard", Set{Path: "seven.jsonl", Shards: 3, Shard: 2}, []string{"[f$]", "[g$]"}},
		{"a shard of a part", Set{Path: "seven.jsonl", Split: "train[3:]", Shards: 2, Shard: 1}, []string{"[f$]", "[g$]"}},
		{"train", Set{Path: hub, Split: "train"}, []string{"[data/train-00000-of-00001.jsonl$]"}},
		{"another split", Set{Path: hub, Split: "gen[:100%]"}, []string{"[data/gen-00000-of-00001.jsonl$]"}},
		{"a held-out split", Set{Path: hub, Split: "test"}, []string{"[data/test-00000-of-00001.jsonl$]"}},
		{"files", Set{Path: hub, Files: []string{"extra/*.jsonl"}}, []string{"[extra/more.jsonl$]"}},
		{"a config", Set{Path: cards, Config: "two"}, []string{"[two/b.jsonl$]"}},
		{"another config", Set{Path: cards, Config: "one"}, []string{"[one/a.jsonl$]"}},
	} {
		s := chatSpec(t, small)
		s.Sets, s.Dir = []Set{tt.set}, dir
		d, err := Open(s)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := maskedRows(d.All()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		d.Close()
	}
	for want, set := range map[string]Set{
		"has no split called valid":                     {Path: hub, Split: "valid"},
		"is not laid out by splits":                     {Path: dir, Split: "test"},
		"one file, which has no splits but train":       {Path: "seven.jsonl", Split: "test"},
		"a part of one is written as in \"train[:10":    {Path: "seven.jsonl", Split: "train[x]"},
		"it is a split's name":                          {Path: "seven.jsonl", Split: "train+test"},
		`has "*.csv", and no file matches`:              {Path: hub, Files: []string{"*.csv"}},
		`has "../x", which is not in`:                   {Path: hub, Files: []string{"../x"}},
		`there is no config "three"; there are one, tw`: {Path: cards, Config: "three"},
		"has no card that lists configs":                {Path: hub, Config: "three"},
		"datasets[0]: path is missing":                  {},
		"type \"x\" is unknown; it is one of text, mes": {Path: "a", Format: "x"},
		"ds_type \"x\" is unknown":                      {Path: "a", Kept: "x"},
		"name the files in data_files":                  {Path: "json"},
		"shards_idx is 3 of 3 shards":                   {Path: "a", Shards: 3, Shard: 3},
		"shards_idx is 1 of 0 shards":                   {Path: "a", Shard: 1},
		"input has no place in type prompt_completion":  {Path: "a", Format: "prompt_completion", Fields: map[string]string{"input": "x"}},
		"field tools says nothing of what rows hold":    {Path: "a", Fields: map[string]string{"tools": "x"}},
		"roles have no place in type alpaca":            {Path: "a", Format: "alpaca", Roles: map[string]string{"me": "user"}},
	} {
		s := chatSpec(t, small)
		s.Sets, s.Dir = []Set{set}, dir
		_, err := Open(s)
		wantError(t, err, want)
	}
}

// TestSetsTogether: two data sets may take different parts of one file. Keys beside a name of
// dataset_info.json are an error. If a file is to be read in another container format, another
// cache is used.
func TestSetsTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "two.jsonl", "{\"text\":\"a\",\"b\":\"x\"}\n{\"text\":\"c\",\"b\":\"y\"}\n")
	write(t, dir, "own/"+infoName, `{"named": {"file_name": "../two.jsonl", "columns": {"prompt": "text"}}}`)
	s := textSpec(t, 4096)
	s.Packing, s.Dir = set(false), dir
	s.Sets = []Set{{Path: "two.jsonl", Split: "train[:1]"}, {Path: "two.jsonl", Fields: map[string]string{"text": "b"}}}
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"a$", "x$", "y$"}) {
		t.Errorf("two sets of a file: %q", got)
	}
	s.Dir, s.Sets = filepath.Join(dir, "own"), []Set{{Path: "named"}}
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"a$", "c$"}) {
		t.Errorf("a name of %s: %q", infoName, got)
	}
	s.Sets[0].Split = "train[:1]"
	_, err := Open(s)
	wantError(t, err, infoName, `"named"`, "remove the keys beside that path")
	s.Sets, s.Columns = []Set{{Path: filepath.Join(dir, "two.jsonl"), Format: "text"}}, Columns{Text: "b"}
	_, err = Open(s)
	wantError(t, err, "text_column is given, and datasets says which columns")
	s.Columns, s.Sets = Columns{}, []Set{{Path: filepath.Join(dir, "two.jsonl"), Kept: "json"}}
	mustOpen(t, s)
	s.Sets[0].Kept = "text"
	if got := texts(mustOpen(t, s).All()); len(got) != 2 || !strings.HasPrefix(got[0], `{"text"`) {
		t.Errorf("lines of the same file: %q", got)
	}
}

// TestColumns: rows are read from the columns that the configuration names. If a row lacks such a
// column, the error lists the row's columns.
func TestColumns(t *testing.T) {
	const chatted = `[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]`
	tests := []struct {
		name, format, row string
		columns           Columns
		want              string
		says              []string // parts of the error; nil: no error, and the row is want
	}{
		{"text", "", `{"body":"abc","text":"no"}`, Columns{Text: "body"}, "[abc$]", nil},
		{"messages", "", `{"talk":` + chatted + `,"text":"no"}`, Columns{Messages: "talk"}, "u:h|a:[g|]", nil},
		{"messages of from and value", "", `{"talk":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}]}`, Columns{Messages: "talk"}, "u:h|a:[g|]", nil},
		{"messages by their format", "sharegpt", `{"talk":[{"from":"human","value":"h"},{"from":"gpt","value":"g"}]}`, Columns{Messages: "talk"}, "u:h|a:[g|]", nil},
		{"prompt and response", "", `{"question":"q","answer":"a","text":"no"}`, Columns{Prompt: "question", Response: "answer"}, "u:q|a:[a|]", nil},
		{"prompt alone", "", `{"question":"q","completion":"a"}`, Columns{Prompt: "question"}, "u:q|a:[a|]", nil},
		{"prompt beside output", "", `{"question":"q","output":"a"}`, Columns{Prompt: "question"}, "u:q|a:[a|]", nil},
		{"response alone", "", `{"prompt":"q","answer":"a"}`, Columns{Response: "answer"}, "u:q|a:[a|]", nil},
		{"response of an instruction", "", `{"instruction":"q","input":"i","answer":"a"}`, Columns{Response: "answer"}, "u:q\ni|a:[a|]", nil},
		{"alpaca by its format", "alpaca", `{"question":"q","input":"i","answer":"a"}`, Columns{Prompt: "question", Response: "answer"}, "u:q\ni|a:[a|]", nil},
		{"prompts of messages", "", `{"q":[{"role":"user","content":"h"}],"a":[{"role":"assistant","content":"g"}]}`, Columns{Prompt: "q", Response: "a"}, "u:h|a:[g|]", nil},

		{"no such text", "", `{"body":"abc"}`, Columns{Text: "boby"}, "", []string{"a.jsonl:1: text_column: ", `"boby" is missing`, `["body"]`}},
		{"no such messages", "", `{"talk":[]}`, Columns{Messages: "talks"}, "", []string{"messages_column: ", `"talks" is missing`, `["talk"]`}},
		{"no such prompt", "", `{"q":"q","completion":"a"}`, Columns{Prompt: "p"}, "", []string{"prompt_column: ", `"p" is missing`}},
		{"no such response", "", `{"prompt":"q","a":"a"}`, Columns{Response: "b"}, "", []string{`"b" is missing`}},
		{"no response", "", `{"q":"q","a":"a"}`, Columns{Prompt: "q"}, "", []string{"response_column is not", "completion, response, output", `["a" "q"]`}},
		{"no prompt", "", `{"q":"q","a":"a"}`, Columns{Response: "a"}, "", []string{"prompt_column is not", "prompt, instruction", `["a" "q"]`}},
		{"nothing known", "", `{"q":"q","a":"a"}`, Columns{}, "", []string{`["a" "q"]`, "text_column, messages_column, or prompt_column and response_column"}},
	}
	for _, tt := range tests {
		s := chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", tt.row))
		s.Format, s.Columns = tt.format, tt.columns
		d, err := Open(s)
		if tt.says != nil {
			wantError(t, err, tt.says...)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := masked(d.Row(0)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		s.Columns = Columns{Text: "other"}
		if s.Format == "" {
			if again, err := Open(s); err == nil {
				again.Close()
				t.Errorf("%s: the cache of other columns serves", tt.name)
			}
		}
	}
}

// TestColumnsThatContradict: configured columns that contradict each other, or that the format does
// not have, are an error that names the key.
func TestColumnsThatContradict(t *testing.T) {
	dir := t.TempDir()
	rows, text := write(t, dir, "a.jsonl", `{"text":"ab"}`), write(t, dir, "b.txt", "ab")
	write(t, dir, infoName, `{"named": {"file_name": "a.jsonl", "columns": {"prompt": "text"}}}`)
	for _, tt := range []struct {
		path, format string
		columns      Columns
		key          string
		says         []string
	}{
		{rows, "", Columns{Text: "a", Prompt: "b"}, textColumnKey, []string{"text_column and prompt_column"}},
		{rows, "", Columns{Messages: "a", Response: "b"}, messagesColumnKey, []string{"messages_column and response_column"}},
		{rows, "alpaca", Columns{Messages: "a"}, messagesColumnKey, []string{"no place in dataset_format alpaca", "prompt_column and response_column"}},
		{rows, "sharegpt", Columns{Text: "a"}, textColumnKey, []string{"no place in dataset_format sharegpt"}},
		{rows, "text", Columns{Text: "a"}, textColumnKey, []string{"takes files as they are"}},
		{text, "", Columns{Text: "a"}, "", []string{"b.txt is plain text", "leave out text_column"}},
		{"named", "", Columns{Text: "a"}, textColumnKey, []string{"named", infoName, "columns"}},
	} {
		s := textSpec(t, 8, tt.path)
		s.Format, s.Columns, s.Dir = tt.format, tt.columns, dir
		_, err := Open(s)
		wantError(t, err, tt.says...)
		if wrong, ok := errors.AsType[*SpecError](err); tt.key != "" && (!ok || wrong.Key != tt.key) {
			t.Errorf("%v is not of the key %s", err, tt.key)
		}
	}
	// An entry of dataset_info.json uses its own columns; other files use the columns configured
	// here.
	write(t, dir, "c.jsonl", `{"body":"cd"}`)
	s := textSpec(t, 16, "named", "c.jsonl")
	s.Dir, s.Columns = dir, Columns{Text: "body"}
	if got := strings.Join(texts(mustOpen(t, s).All()), ""); got != "ab$cd$" {
		t.Errorf("rows %q", got)
	}
}
