package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// laidOut makes a directory of files with these names. Each file has one row, whose text is the
// file's name.
func laidOut(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		content := fmt.Sprintf("{\"text\":%q}\n", name)
		base, _ := uncompressed(name)
		switch filepath.Ext(base) {
		case ".csv":
			content = "text\n" + name + "\n"
		case ".parquet":
			content = parquetOf(t, pqText{name})
		case ".txt", ".md", ".go":
			content = name
		}
		write(t, dir, name, squeeze(t, name, content))
	}
	return dir
}

// read opens the directory as a data set, for evaluation if held is true and else for training. It
// returns the documents and the notes.
func read(t *testing.T, dir string, held bool) ([]string, []string, error) {
	t.Helper()
	s := textSpec(t, 4096, dir)
	s.Packing, s.Held = set(false), held
	d, err := Open(s)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	out := texts(d.All())
	for i := range out {
		out[i] = strings.TrimSuffix(out[i], "$")
	}
	return out, d.Warnings(), nil
}

// TestSplits: from a directory laid out like a data set of the Hub, only the files of the wanted
// split are read. From any other directory all files are read.
func TestSplits(t *testing.T) {
	for _, tt := range []struct {
		name        string
		files       []string
		train, held []string // nil: an error
		note        string   // the note when train is read; "": none
	}{
		{"sharded", []string{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet", "README.md"},
			[]string{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"}, []string{"data/test-00000-of-00001.parquet"},
			"train is read (2 files); not test (1 file): eval_dataset takes test of the same directory; 1 other file(s) are not read"},
		{"files", []string{"train.jsonl", "test.jsonl", "validation.jsonl"}, []string{"train.jsonl"}, []string{"validation.jsonl"},
			"train is read (1 file); not validation (1 file), test (1 file): eval_dataset takes validation"},
		{"other words", []string{"my-Training.csv", "dev.csv", "LICENSE"}, []string{"my-Training.csv"}, []string{"dev.csv"}, "not validation (1 file)"},
		{"numbered and compressed", []string{"train_0.jsonl.gz", "train_1.jsonl.gz", "eval.json"}, []string{"train_0.jsonl.gz", "train_1.jsonl.gz"}, []string{"eval.json"}, "not test (1 file)"},
		{"folders", []string{"train/a.jsonl", "train/sub/b.csv", "validation/c.jsonl", "test/d.jsonl"}, []string{"train/a.jsonl", "train/sub/b.csv"}, []string{"validation/c.jsonl"}, "train is read (2 files)"},
		{"text", []string{"train.txt", "valid.txt", "test.txt"}, []string{"train.txt"}, []string{"valid.txt"}, "not validation (1 file), test (1 file)"},
		{"train alone", []string{"train.jsonl", "README.md"}, []string{"train.jsonl"}, []string{"train.jsonl"}, "1 other file(s) are not read"},
		{"train beside others", []string{"train.jsonl", "notes.jsonl"}, []string{"train.jsonl"}, []string{"train.jsonl"}, "1 other file(s) are not read"},
		{"held out alone has a name", []string{"a.jsonl", "b.csv", "test.jsonl", "README.md"}, []string{"a.jsonl", "b.csv"}, []string{"test.jsonl"}, "train is read (2 files); not test (1 file)"},
		{"nothing to train on", []string{"test.jsonl", "dev.jsonl"}, nil, []string{"dev.jsonl"}, "has no split called train; it has validation (1 file, the first "},
		{"splits of other names", []string{"data/train_sft-00000-of-00001.jsonl", "data/test_sft-00000-of-00001.jsonl"}, nil, nil, "has no split called train; it has test_sft (1 file"},
		{"one split of another name", []string{"data/all-00000-of-00001.jsonl"}, []string{"data/all-00000-of-00001.jsonl"}, []string{"data/all-00000-of-00001.jsonl"}, ""},

		{"no splits", []string{"a.jsonl", "b.jsonl"}, []string{"a.jsonl", "b.jsonl"}, []string{"a.jsonl", "b.jsonl"}, ""},
		{"no splits and what is no data", []string{"a.jsonl", "README.md", "LICENSE.txt", "load.py"}, []string{"a.jsonl"}, []string{"a.jsonl"}, "3 file(s) about the data set are no data, the first LICENSE.txt"},
		{"prose", []string{"README.md", "train.txt", "trains.txt"}, []string{"README.md", "train.txt", "trains.txt"}, []string{"README.md", "train.txt", "trains.txt"}, ""},
		{"sources", []string{"a.go", "b.go", "test/c.go", "test/d.jsonl", "train/e.go"}, []string{"a.go", "b.go", "test/c.go", "test/d.jsonl", "train/e.go"}, nil, ""},
	} {
		dir := laidOut(t, tt.files...)
		got, notes, err := read(t, dir, false)
		switch note := strings.Join(notes, "; "); {
		case tt.train == nil:
			wantError(t, err, dir, tt.note)
		case err != nil || !slices.Equal(got, tt.train):
			t.Errorf("%s: read %q (%v), want %q", tt.name, got, err, tt.train)
		case !strings.Contains(note, tt.note) || tt.note == "" && note != "":
			t.Errorf("%s: notes %q, want %q", tt.name, notes, tt.note)
		}
		if tt.held == nil {
			continue
		}
		if got, _, err := read(t, dir, true); err != nil || !slices.Equal(got, tt.held) {
			t.Errorf("%s: held out are %q (%v), want %q", tt.name, got, err, tt.held)
		}
	}
	_, _, err := read(t, laidOut(t, "data/train_sft-00000-of-00001.jsonl", "data/train_gen-00000-of-00001.jsonl"), true)
	wantError(t, err, "has no validation or test split", "glob")
	// A pattern takes all files that match, whatever split their names belong to.
	dir := laidOut(t, "train.jsonl", "test.jsonl")
	if got, notes, err := read(t, filepath.Join(dir, "*.jsonl"), false); err != nil || len(got) != 2 || len(notes) != 0 {
		t.Errorf("a pattern: %q, notes %q, %v", got, notes, err)
	}
}

// TestCards: the YAML header of a directory's README.md decides which files belong to which split.
func TestCards(t *testing.T) {
	files := []string{"en/one.jsonl", "en/two.jsonl", "de/one.jsonl", "held/x.jsonl"}
	for _, tt := range []struct {
		name, configs string
		train, held   []string // nil: an error
		says          string   // what is in the note, or in the error
	}{
		{"a pattern", "- config_name: default\n  data_files: en/*.jsonl", []string{"en/one.jsonl", "en/two.jsonl"}, []string{"en/one.jsonl", "en/two.jsonl"}, ""},
		{"patterns", "- config_name: x\n  data_files: [\"de/*.jsonl\", \"en/two.*\"]", []string{"de/one.jsonl", "en/two.jsonl"}, nil, ""},
		{"splits", "- config_name: default\n  data_files:\n  - split: train\n    path: [en/one.jsonl, de/**]\n  - split: test\n    path: held/*", []string{"en/one.jsonl", "de/one.jsonl"}, []string{"held/x.jsonl"},
			"train is read (2 files), as README.md says; not test (1 file)"},
		{"one of several", "- config_name: en\n  data_files: en/*\n- config_name: de\n  default: true\n  data_files: de/*\n", []string{"de/one.jsonl"}, nil, ""},
		{"a directory", "- config_name: default\n  data_dir: en", []string{"en/one.jsonl", "en/two.jsonl"}, nil, ""},
		{"in a directory", "- config_name: default\n  data_dir: en\n  data_files: two.jsonl", []string{"en/two.jsonl"}, nil, ""},
		{"no default", "- config_name: en\n  data_files: en/*\n- config_name: de\n  data_files: de/*\n", nil, nil, "README.md: there are the configs en, de and none is the default; give the files of one, for instance en/* of en"},
		{"what is not there", "- config_name: default\n  data_files: fr/*", nil, nil, "README.md: data_files of config default: no file matches \"fr/*\""},
		{"what is elsewhere", "- config_name: default\n  data_files: ../*", nil, nil, "\"../*\": that is not in the directory"},
		{"what is on the net", "- config_name: default\n  data_files: https://example.org/a.jsonl", nil, nil, "that is not in the directory"},
		{"what is no pattern", "- config_name: default\n  data_files: [7]", nil, nil, "it must be a pattern"},
		{"no YAML", "- [", []string{"de/one.jsonl", "en/one.jsonl", "en/two.jsonl", "held/x.jsonl"}, nil, "1 file(s) about the data set"},
		{"no files", "- config_name: default\n  drop_labels: true", []string{"de/one.jsonl", "en/one.jsonl", "en/two.jsonl", "held/x.jsonl"}, nil, "1 file(s) about the data set"},
	} {
		dir := laidOut(t, files...)
		write(t, dir, "README.md", "---\nlicense: mit\nconfigs:\n"+tt.configs+"\n---\n# A data set\n")
		got, notes, err := read(t, dir, false)
		switch note := strings.Join(notes, "; "); {
		case tt.train == nil:
			wantError(t, err, tt.says)
		case err != nil || !slices.Equal(got, tt.train):
			t.Errorf("%s: read %q (%v), want %q", tt.name, got, err, tt.train)
		case !strings.Contains(note, tt.says) || tt.says == "" && note != "":
			t.Errorf("%s: notes %q, want %q", tt.name, notes, tt.says)
		}
		if tt.held == nil {
			continue
		}
		if got, _, err := read(t, dir, true); err != nil || !slices.Equal(got, tt.held) {
			t.Errorf("%s: held out are %q (%v), want %q", tt.name, got, err, tt.held)
		}
	}
}

// TestSavedToDisk: folders that save_to_disk of the library datasets writes are read: a Dataset, or
// a DatasetDict with splits.
func TestSavedToDisk(t *testing.T) {
	file := string(arrowNamed(t, "save_to_disk").File)
	state := func(dir string, more string, names ...string) {
		var list []string
		for _, n := range names {
			list = append(list, fmt.Sprintf(`{"filename": %q}`, n))
		}
		write(t, dir, "state.json", `{"_data_files": [`+strings.Join(list, ",")+`]`+more+`}`)
		write(t, dir, infoName, `{"features": {}}`)
	}
	dir := t.TempDir()
	state(dir, "", "data-00001-of-00002.arrow", "data-00000-of-00002.arrow")
	write(t, dir, "data-00000-of-00002.arrow", file)
	write(t, dir, "data-00001-of-00002.arrow", file)
	write(t, dir, "cache-0123.arrow", file) // datasets leaves such a file after a map in that directory
	rows := func(path string, held bool) int {
		s := chatSpec(t, small, path)
		s.Held = held
		d := mustOpen(t, s)
		if first := d.Pieces(0)[0].File; path == dir && filepath.Base(first) != "data-00001-of-00002.arrow" {
			t.Errorf("the first file is %s, not that of state.json", first)
		}
		return d.Rows()
	}
	if n := rows(dir, false); n != 10 {
		t.Errorf("%d rows, want 10", n)
	}
	dict := t.TempDir()
	write(t, dict, "dataset_dict.json", `{"splits": ["test", "train"]}`)
	for split, files := range map[string]int{"train": 2, "test": 1} {
		var names []string
		for i := range files {
			names = append(names, fmt.Sprintf("data-%d.arrow", i))
			write(t, filepath.Join(dict, split), names[i], file)
		}
		state(filepath.Join(dict, split), "", names...)
	}
	if train, held := rows(dict, false), rows(dict, true); train != 10 || held != 5 {
		t.Errorf("%d rows to train on and %d held out, want 10 and 5", train, held)
	}
	testkit.NoError(t, os.Remove(filepath.Join(dict, "train", "data-1.arrow")))
	_, err := Open(chatSpec(t, small, dict))
	wantError(t, err, "state.json names "+filepath.Join(dict, "train", "data-1.arrow"), "not there", "copy the whole directory")
	testkit.NoError(t, os.RemoveAll(filepath.Join(dict, "train")))
	_, err = Open(chatSpec(t, small, dict))
	wantError(t, err, "dataset_dict.json", `the split "train"`, "no directory of save_to_disk")
	state(dir, `, "_indices_data_files": [{"filename": "indices.arrow"}]`, "data-00000-of-00002.arrow")
	_, err = Open(chatSpec(t, small, dir))
	wantError(t, err, "some rows are chosen", "load_from_disk('"+dir+"').flatten_indices()")
}

// TestHubNames: a path that is not a file may be the name of a data set on the Hugging Face Hub,
// which Spec.Hub finds on this machine.
func TestHubNames(t *testing.T) {
	dir := laidOut(t, "train.jsonl", "test.jsonl")
	s := textSpec(t, 64, "org/name")
	s.Dir, s.Packing = t.TempDir(), set(false)
	asked := ""
	s.Hub = func(name string) (string, error) { asked = name; return dir, nil }
	if got := texts(mustOpen(t, s).All()); asked != "org/name" || !slices.Equal(got, []string{"train.jsonl$"}) {
		t.Errorf("asked for %q, rows %q", asked, got)
	}
	s.Hub = func(string) (string, error) { return "", errors.New("fetch it so") }
	_, err := Open(s)
	wantError(t, err, "no such file or directory: org/name (looked for ", "fetch it so")
	write(t, s.Dir, infoName, `{"mine": {"hf_hub_url": "org/other", "columns": {"prompt": "text"}}, "part": {"hf_hub_url": "org/other", "subset": "x"}}`)
	described := s
	described.Paths = []string{"mine"}
	_, err = Open(described)
	wantError(t, err, infoName, `"mine" has hf_hub_url org/other: fetch it so`)
	described.Hub = func(name string) (string, error) { asked = name; return dir, nil }
	if got := texts(mustOpen(t, described).All()); asked != "org/other" || !slices.Equal(got, []string{"train.jsonl$"}) {
		t.Errorf("asked for %q, rows %q", asked, got)
	}
	described.Paths = []string{"part"}
	_, err = Open(described)
	wantError(t, err, "hf_hub_url", "local files only", "file_name")
	write(t, s.Dir, "org/name/a.txt", "local")
	s.Hub = func(string) (string, error) { t.Error("asked for what is there"); return "", nil }
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"local$"}) {
		t.Errorf("rows %q", got)
	}
	for name, file := range map[string]bool{"org/name": false, "squad": false, "data/a.jsonl": true, "x.csv.gz": true, "v1.5": false, "notes.txt": true} {
		if NamesFile(name) != file {
			t.Errorf("%s names a file: %v", name, !file)
		}
	}
}

// TestDatasetInfo: data sets can be named as LLaMA-Factory's dataset_info.json names them, and are
// read as their entries say.
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

// TestDatasetInfoNamesAFileTwice: two entries of dataset_info.json may name the same file, for
// different parts of it or for the same rows again.
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
