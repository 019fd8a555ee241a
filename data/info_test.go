package data

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDatasetInfo reads data sets by the names that LLaMA-Factory's dataset_info.json gives
// them.
func TestDatasetInfo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "alpaca.json", `[{"instruction":"i","input":"j","output":"o","system":"not named"}]`)
	write(t, dir, "own.jsonl", `{"q":"i","more":"j","a":"o","sys":"s","before":[["x","y"]]}`)
	write(t, dir, "share.json", `[{"chat":[{"who":"me","says":"h"},{"who":"it","says":"g"}],"sys":"s"}]`)
	write(t, dir, "ranked.jsonl", `{"q":"i","more":"j","good":"c","bad":"r","sys":"s"}`)
	write(t, dir, "usual.jsonl", `{"instruction":"i","input":"j","chosen":"c","rejected":"r","system":"not named"}`)
	write(t, dir, "rankedshare.json", `[{"chat":[{"who":"me","says":"h"}],"good":{"who":"it","says":"c"},"bad":{"who":"it","says":"r"}}]`)
	write(t, dir, "openai.jsonl", chat("user", "h", "assistant", "g"))
	write(t, dir, "text.jsonl", "{\"body\":\"abc\"}\n{\"body\":\"de\"}")
	write(t, dir, "sub/many.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n{\"text\":\"d\"}")
	write(t, dir, infoName, `{
		"alpaca": {"file_name": "alpaca.json"},
		"own": {"file_name": "own.jsonl", "columns": {"prompt": "q", "query": "more", "response": "a", "system": "sys", "history": "before", "tools": null}},
		"share": {"file_name": "share.json", "formatting": "sharegpt", "columns": {"messages": "chat", "system": "sys"}, "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "me", "assistant_tag": "it"}},
		"openai": {"file_name": "openai.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}},
		"text": {"file_name": "text.jsonl", "columns": {"prompt": "body"}},
		"some": {"file_name": "text.jsonl", "columns": {"prompt": "body"}, "num_samples": 1},
		"often": {"file_name": "text.jsonl", "columns": {"prompt": "body"}, "num_samples": 5},
		"part": {"file_name": "sub", "columns": {"prompt": "text"}, "split": "train[25%:3]"},
		"ranked": {"file_name": "ranked.jsonl", "ranking": true, "columns": {"prompt": "q", "query": "more", "chosen": "good", "rejected": "bad", "system": "sys"}},
		"ranked usual": {"file_name": "usual.jsonl", "ranking": true},
		"ranked share": {"file_name": "rankedshare.json", "ranking": true, "formatting": "sharegpt", "columns": {"messages": "chat", "chosen": "good", "rejected": "bad"}, "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "me", "assistant_tag": "it"}}
	}`)
	for name, want := range map[string][]string{
		"alpaca": {"u:i\nj|a:[o|]"},
		"own":    {"s:s|u:x|a:[y|]u:i\nj|a:[o|]"},
		"share":  {"s:s|u:h|a:[g|]"},
		"openai": {"u:h|a:[g|]"},
		"text":   {"[abc$]", "[de$]"},
		"part":   {"[b$]", "[c$]"},

		"ranked":       {"s:s|u:i\nj|a:[c|]s:s|u:i\nj|a:[r|]"},
		"ranked usual": {"u:i\nj|a:[c|]u:i\nj|a:[r|]"},
		"ranked share": {"u:h|a:[c|]u:h|a:[r|]"},
	} {
		s := chatSpec(t, small, name)
		s.Dir = dir
		d := mustOpen(t, s)
		if got := maskedRows(d.All()); !slices.Equal(got, want) {
			t.Errorf("%s: rows %q, want %q", name, got, want)
		}
		if r := d.Report(); r.Sets[0].Name != name {
			t.Errorf("%s: report %+v", name, r)
		}
	}
	for name, want := range map[string]int{"some": 1, "often": 5} {
		s := chatSpec(t, small, name)
		s.Dir = dir
		got := maskedRows(mustOpen(t, s).All())
		if len(got) != want || want == 5 && (!slices.Equal(got[:4], []string{"[abc$]", "[de$]", "[abc$]", "[de$]"})) {
			t.Errorf("%s: rows %q, want %d", name, got, want)
		}
	}
	s := chatSpec(t, small, "alpaca", "openai", "share.json")
	s.Dir = dir
	_, err := Open(s)
	wantError(t, err, "share.json: row 1: ", "chat")
	s.Paths = []string{"alpaca", "openai"}
	if got := maskedRows(mustOpen(t, s).All()); len(got) != 2 {
		t.Errorf("two data sets of chats: rows %q", got)
	}
}

func TestDatasetInfoErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.json", `[]`)
	for entry, want := range map[string][]string{
		`{"hf_hub_url": "org/name"}`: {"hf_hub_url", "local files only", "hf download", "file_name"},
		`{"script_url": "x"}`:        {"script_url", "local files only"},
		`{}`:                         {"no file_name"},
		`7`:                          {`"x"`},
		`{"file_name": "none.json"}`: {"none.json"},
		`{"file_name": "a.json", "formatting": "x"}`:                            {`formatting is "x"`, "sharegpt"},
		`{"file_name": "a.json", "ranking": true, "columns": {"prompt": "p"}}`:  {"ranking", "chosen and rejected"},
		`{"file_name": "a.json", "columns": {"prompt": "p", "chosen": "c"}}`:    {`chosen ("c")`, "ranking is not true"},
		`{"file_name": "a.json", "columns": {"images": "i"}}`:                   {"images", "text"},
		`{"file_name": "a.json", "columns": {"promt": "i"}}`:                    {`"promt"`, "prompt"},
		`{"file_name": "a.json", "columns": {"response": "i"}}`:                 {"no prompt"},
		`{"file_name": "a.json", "tags": {"role_tag": "i"}}`:                    {"tags are of formatting sharegpt"},
		`{"file_name": "a.json", "formatting": "sharegpt", "tags": {"x": "i"}}`: {`"x"`, "role_tag"},
		`{"file_name": "a.json", "num_samples": 0}`:                             {"num_samples is 0"},
		`{"file_name": "a.json", "split": "test"}`:                              {`split is "test"`, "train[:1000]"},
	} {
		write(t, dir, infoName, `{"x": `+entry+`}`)
		s := chatSpec(t, small, "x")
		s.Dir = dir
		_, err := Open(s)
		wantError(t, err, want...)
	}
	_, err := Open(chatSpec(t, small, "identity"))
	wantError(t, err, "identity", "if it is a name of dataset_info.json, set dataset_dir")
	write(t, dir, infoName, `{"x": {"file_name": "a.json"}}`)
	s := chatSpec(t, small, "y")
	s.Dir = dir
	_, err = Open(s)
	wantError(t, err, filepath.Join(dir, "y"), "dataset_info.json there has x")
	write(t, dir, infoName, `[`)
	_, err = Open(s)
	wantError(t, err, infoName, "object of data sets")
	if _, err := parseSplit("train[99999999999999999999:]"); err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("a split of too many digits: %v", err)
	}
}

// TestDatasetInfoNamesAFileTwice: two entries may name the same file, for different parts of
// it or for the same rows again.
func TestDatasetInfoNamesAFileTwice(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "m.jsonl", chat("user", "1", "assistant", "a")+"\n"+chat("user", "2", "assistant", "b")+"\n"+chat("user", "3", "assistant", "c"))
	entry := `{"file_name": "m.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "split": "%s",
		"tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}`
	write(t, dir, infoName, `{"head": `+fmt.Sprintf(entry, "train[:1]")+`, "tail": `+fmt.Sprintf(entry, "train[1:]")+`}`)
	for names, want := range map[string][]string{
		"head tail":       {"u:1|a:[a|]", "u:2|a:[b|]", "u:3|a:[c|]"},
		"tail head":       {"u:2|a:[b|]", "u:3|a:[c|]", "u:1|a:[a|]"},
		"head head":       {"u:1|a:[a|]", "u:1|a:[a|]"},
		"head m.jsonl":    {"u:1|a:[a|]", "u:1|a:[a|]", "u:2|a:[b|]", "u:3|a:[c|]"},
		"m.jsonl m.json*": {"u:1|a:[a|]", "u:2|a:[b|]", "u:3|a:[c|]"},
	} {
		s := chatSpec(t, small, strings.Fields(names)...)
		s.Dir = dir
		if got := maskedRows(mustOpen(t, s).All()); !slices.Equal(got, want) {
			t.Errorf("%s: rows %q, want %q", names, got, want)
		}
	}
}
