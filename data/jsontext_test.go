package data

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/tokenizer"
)

// TestListsInTexts reads lists that a row has as texts in JSON, as people keep them where columns have
// fixed types.
func TestListsInTexts(t *testing.T) {
	for row, want := range map[string]string{
		`{"messages":"[{\"role\":\"user\",\"content\":\"h\"},{\"role\":\"assistant\",\"content\":\"g\"}]"}`:                                                               "u:h|a:[g|]",
		`{"messages":" [ {\"role\":\"user\",\"content\":\"h\"}, {\"role\":\"assistant\",\"content\":\"g\",\"score\":NaN}]\n"}`:                                            "u:h|a:[g|]",
		`{"messages":["{\"role\":\"user\",\"content\":\"h\"}","{\"role\":\"assistant\",\"content\":\"g\"}"]}`:                                                             "u:h|a:[g|]",
		`{"conversations":"[{\"from\":\"human\",\"value\":\"h\"},{\"from\":\"gpt\",\"value\":\"g\"}]","tools":["{\"name\":\"f\"}"]}`:                                      "u:h|a:[g|]T1f",
		`{"prompt":"[{\"role\":\"user\",\"content\":\"h\"}]","completion":"[{\"role\":\"assistant\",\"content\":\"g\"}]"}`:                                                "u:h|a:[g|]",
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":"[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"}}]"}]}`: `u:h|a:[!f{"k": 1}|]`,
		`{"prompt":"[1, 2]","completion":"[3]"}`:                                              "u:[1, 2]|a:[[3]|]", // texts that are no messages
		`{"instruction":"i","output":"o","history":"[[\"a\",\"b\"]]"}`:                        "u:a|a:[b|]u:i|a:[o|]",
		`{"messages":[{"role":"user","content":"[{}]"},{"role":"assistant","content":"[]"}]}`: "u:[{}]|a:[[]|]",
	} {
		if got := masked(mustOpen(t, chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row))).Row(0)); got != want {
			t.Errorf("%s: %s, want %s", row, got, want)
		}
	}
	for row, want := range map[string]string{
		`{"messages":"[{'role': 'user'}]"}`:   "a list as Python prints it",
		`{"messages":"[{\"role\": \"user\""}`: "begins like a list in JSON and is none; it may be cut off",
	} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row)))
		wantError(t, err, "a.jsonl:1: messages is ", want)
	}
	name := write(t, t.TempDir(), "a.jsonl", `{"input_ids":"[97, 98, 99]","labels":"[-100, -100, 99]"}`)
	if got := masked(mustOpen(t, idsSpec(t, 64, 256, name)).Row(0)); got != "ab[c]" {
		t.Errorf("ids: %s", got)
	}
}

// TestNaN reads rows with the numbers that Python's json writes and JSON does not have.
func TestNaN(t *testing.T) {
	for row, want := range map[string]string{
		`{"text":"NaN","score":NaN}`:                        "NaN$",
		`{"text":"a \"NaN, b","s":[-Infinity, Infinity,1]}`: `a "NaN, b$`,
		`{"id":{"x":NaN},"text":"Infinity\\"}`:              `Infinity\$`,
		`[{"text":"a","s":NaN}]`:                            "a$",
	} {
		if got := texts(mustOpen(t, textSpec(t, 64, write(t, t.TempDir(), "a.json", row))).All()); got[0] != want {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
	for row, want := range map[string]string{
		`{"input_ids":[1,NaN]}`:           "input_ids[1] is null; it must be a whole number, as in [1, 2, 3] (the row has NaN or Infinity, which count as null)",
		`{"prompt":"a","completion":NaN}`: "completion is null",
		`{"text":NaNa}`:                   "not a JSON object",
	} {
		_, err := Open(idsSpec(t, 64, 256, write(t, t.TempDir(), "a.jsonl", row)))
		wantError(t, err, "a.jsonl:1: ", want)
	}
}

// TestTrueCauses names what is wrong, and not what failed because of that.
func TestTrueCauses(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"a.jsonl", `{"prompt":"a","completion":null}`, "a.jsonl:1: completion is null; remove the row"},
		{"a.jsonl", `{"prompt":"a","response":null,"id":1}`, "a.jsonl:1: response is null"},
		{"a.jsonl", `{"instruction":"a","output":null}`, "a.jsonl:1: output is null"},
		{"a.json", "{\n \"version\": 1,\n \"data\": [\n  {\"text\": \"a\"}\n ]\n}", `a.json:1: the file is one object over several lines, with a list of objects in its field "data": if these are the rows, write one on each line (jq -c '.["data"][]' FILE)`},
		{"a.json", "{\n \"rows\": {\"x\": [{\"y\": 1}]},\n \"train\": [ {\"text\": \"a\"}, {\"text\": \"b\"}]}", `in its field "train"`},
		{"a.json", `{"version":1,"all":[{"text":"a"}]}`, `field "all" is a list of objects: if these are the rows, write one on each line (jq -c '.["all"][]' FILE)`},
		{"a.jsonl", "{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n}\n", "a.jsonl:1: an object goes on over several lines; write each object on one line (jq -c . FILE)"},
		{"a.jsonl", "{\"text\": \"a\n{\"text\":\"b\"}\n", "a.jsonl:1: not a JSON object"},
	} {
		_, err := Open(textSpec(t, 64, write(t, t.TempDir(), tt.name, tt.content)))
		wantError(t, err, tt.want)
	}
	// Rows behind one that was cut off are read where bad rows are left out.
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\": \"a\n{\"text\":\"b\"}\n"))
	s.SkipBadRows = true
	if got := texts(mustOpen(t, s).All()); got[0] != "b$" {
		t.Errorf("behind a cut row: %q", got)
	}
	long := strings.Repeat("x", 60)
	for _, row := range []string{`{"messages":[{"role":"user","content":"` + long + `"},{"role":"assistant","content":"g"}]}`, `{"prompt":"` + long + `","completion":"g"}`,
		`{"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`} {
		for _, packing := range []bool{true, false} {
			s := chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row+"\n"+row))
			s.MaxSeqLen, s.Packing = 32, set(packing)
			_, err := Open(s)
			wantError(t, err, "no row has a token to predict: max_seq_len is 32, and in all 2 rows none of the first 32 tokens is supervised", "a.jsonl:1)", "raise max_seq_len")
		}
	}
}

// TestLongWindow says what to do with a file of zstd whose window is larger than memory should be.
func TestLongWindow(t *testing.T) {
	row := `{"text":"a"}`
	for _, log := range []uint{28, 30, 31} { // source of the layout: RFC 8878, 3.1.1
		frame := append([]byte("\x28\xb5\x2f\xfd\x00"), byte((log-10)<<3))
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(row)<<3|1))[:len(frame)+3], row...)
		_, err := Open(textSpec(t, 64, write(t, t.TempDir(), "a.jsonl.zst", string(frame))))
		wantError(t, err, "a.jsonl.zst: zstd: window size exceeded: it was written with --long", "zstd -d --long=31", "recompress")
	}
}

// TestAddresses: a URL is no path, and "~" is the home folder.
func TestAddresses(t *testing.T) {
	for path, want := range map[string]string{
		"https://example.org/a.jsonl": "curl -LO", "s3://bucket/a.parquet": "the tool for s3://", "hf://datasets/org/name": "hf download",
	} {
		err := CheckFiles(textSpec(t, 64, path))
		wantError(t, err, path+" is a URL, and mt reads local files only and downloads nothing", want)
		err = CheckFiles(Spec{Sets: []Set{{Path: "json", Files: []string{path}}}})
		wantError(t, err, "data_files: "+path+" is a URL")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	name := write(t, home, "d/a.jsonl", `{"text":"a"}`)
	for _, s := range []Spec{textSpec(t, 64, "~/d/a.jsonl"), textSpec(t, 64, "~/d/*.jsonl"), textSpec(t, 64, "~/d"), textSpec(t, 64, "file://"+name),
		{Paths: []string{"a.jsonl"}, Dir: "~/d", Tokenizer: tokenizer.Bytes(), CacheDir: "~/cache"},
		{Sets: []Set{{Path: "json", Files: []string{"~/d/a.jsonl"}}}, Tokenizer: tokenizer.Bytes(), CacheDir: "~/cache"}} {
		if got := texts(mustOpen(t, s).All()); got[0] != "a$" {
			t.Errorf("%v: %q", s.Paths, got)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "cache")); err != nil {
		t.Errorf("cache_dir: %v", err)
	}
}
