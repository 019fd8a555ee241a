package data

import (
	"errors"
	"strings"
	"testing"
)

// TestColumns: rows are read by the names that are given for their columns. Where a given
// name is not in a row, the error says which names are.
func TestColumns(t *testing.T) {
	const chatted = `[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]`
	tests := []struct {
		name, format, row string
		columns           Columns
		want              string
		says              []string // instead of want
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

// TestColumnsThatContradict: columns that contradict each other, or that the format does
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
	// Beside an entry that has columns of its own, other files are read by those given here.
	write(t, dir, "c.jsonl", `{"body":"cd"}`)
	s := textSpec(t, 16, "named", "c.jsonl")
	s.Dir, s.Columns = dir, Columns{Text: "body"}
	if got := strings.Join(texts(mustOpen(t, s).All()), ""); got != "ab$cd$" {
		t.Errorf("rows %q", got)
	}
}
