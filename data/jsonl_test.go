package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// parse parses a row of any form, with or without surrounding white space, and checks it against a vocabulary of
// vocab ids. Errors name the field, the value and what to do.
func (r *jsonRow) parse(line []byte, vocab int) error {
	fields, err := fieldsOf(line)
	if err != nil {
		return err
	}
	f, err := recognised(fields)
	if err != nil {
		return err
	}
	return r.fill(f, fields, vocab)
}

func TestParseRow(t *testing.T) {
	tests := []struct {
		name, line string
		text       string
		ids, labs  []int32
	}{
		{"text", `{"text": "hello", "id": 7}`, "hello", nil, nil},
		{"escapes", `{"text": "a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude42z"}`, "a\"\\/\b\f\n\r\té🙂z", nil, nil},
		{"raw bytes", "{\"text\": \"\xff\xc3é\"}", "\xff\xc3é", nil, nil},
		{"text beside labels of another kind", `{"text": "ab", "labels": 1}`, "ab", nil, nil},
		{"ids", `{"input_ids": [1, 2,3 ]}`, "", []int32{1, 2, 3}, nil},
		{"ids and null", `{"text": null, "input_ids": [0,9], "labels": null}`, "", []int32{0, 9}, nil},
		{"labels", `{"labels":[-100,-100,3],"input_ids":[1,2,3]}`, "", []int32{1, 2, 3}, []int32{-100, -100, 3}},
	}
	var r jsonRow // reused for every row, as a reader does
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.NoError(t, r.parse([]byte(tt.line), 10))
			if string(r.text) != tt.text || !slices.Equal(r.ids, tt.ids) || !slices.Equal(r.labels, tt.labs) || (r.labels == nil) != (tt.labs == nil) {
				t.Errorf("text %q, ids %v, labels %v; want %q, %v, %v", r.text, r.ids, r.labels, tt.text, tt.ids, tt.labs)
			}
		})
	}
}

func TestParseRowErrors(t *testing.T) {
	tests := []struct {
		name, line string
		want       []string // parts of the error
	}{
		{"half a pair", `{"text": "a\ud83dx"}`, []string{`text: byte 2: \ud83d is half of a surrogate pair`, "mend it, or remove the row"}},
		{"no JSON", `hello`, []string{"not a JSON object", "one whole object a line"}},
		{"cut off", `{"text": "a`, []string{"not a JSON object"}},
		{"number", `7`, []string{"not a JSON object"}},
		{"array", `[{"text": "a"}]`, []string{"a JSON array", "one object a line"}},
		{"nothing known", `{"body": "a"}`, []string{"neither text nor input_ids", "body"}},
		{"null", `null`, []string{"not a JSON object: it is null"}},
		{"chat", `{"messages": []}`, []string{"messages is empty", "remove the row"}},
		{"alpaca", `{"instruction": "x", "output": 7}`, []string{"output is 7", "string"}},
		{"both", `{"text": "a", "input_ids": [1, 2]}`, []string{"both text and input_ids"}},
		{"text is a number", `{"text": 12}`, []string{"text is 12", "string"}},
		{"empty text", `{"text": ""}`, []string{"text is empty", "remove"}},
		{"ids are a string", `{"input_ids": "1 2"}`, []string{`input_ids is "1 2"`, "list"}},
		{"nested ids", `{"input_ids": [[1, 2]]}`, []string{"input_ids[0] is [1"}},
		{"fraction", `{"input_ids": [1, 2.5]}`, []string{"input_ids[1] is 2.5", "whole number"}},
		{"exponent", `{"input_ids": [1, 1e1]}`, []string{"input_ids[1] is 1e1"}},
		{"string in ids", `{"input_ids": [1, "2"]}`, []string{`input_ids[1] is "2"`}},
		{"null in ids", `{"input_ids": [1, null]}`, []string{`input_ids[1] is null`}},
		{"huge id", `{"input_ids": [1, 99999999999999999999]}`, []string{"input_ids[1] is 99999999999999999999"}},
		{"id too large", `{"input_ids": [1, 10]}`, []string{"input_ids[1] is 10", "0 to 9", "this model's tokenizer"}},
		{"negative id", `{"input_ids": [-1, 1]}`, []string{"input_ids[0] is -1"}},
		{"no ids", `{"input_ids": []}`, []string{"input_ids has 0 token", "at least 2"}},
		{"one id", `{"input_ids": [3]}`, []string{"input_ids has 1 token", "remove it"}},
		{"fewer labels", `{"input_ids": [1, 2], "labels": [1]}`, []string{"labels has 1 values and input_ids 2"}},
		{"label out of range", `{"input_ids": [1, 2], "labels": [1, 10]}`, []string{"labels[1] is 10", "-100", "an id from 0 to 9"}},
		{"other ignored label", `{"input_ids": [1, 2], "labels": [1, -1]}`, []string{"labels[1] is -1"}},
		{"labels no list", `{"input_ids": [1, 2], "labels": {}}`, []string{"labels is {}"}},
		{"nothing supervised", `{"input_ids": [1, 2], "labels": [1, -100]}`, []string{"no token is supervised", "labels[0] never counts"}},
	}
	var r jsonRow
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := r.parse([]byte(tt.line), 10)
			if err == nil {
				t.Fatalf("passes as %+v", r)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// FuzzParseRow: if a row is accepted, its fields have the values that encoding/json reads, and its
// ids and labels are valid.
func FuzzParseRow(f *testing.F) {
	for _, s := range []string{
		`{"text": "a\u00e9\ud83d\ude42\ud83d"}`, `{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}`,
		`{"input_ids": [1 ,]}`, `{"input_ids": [-]}`, `[]`, `{"text": null}`, "{\"text\": \"\xff\"}",
		`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"{\"name\":\"f\"}"}],"tools":"[{}]"}`,
		`{"instruction":"a","input":"b","output":"c","history":[["d","e"]]}`, `{"prompt":"a","completion":"b"}`,
		`{"input_ids":[1,2147483648]}`, `{"input_ids":[0,-0]}`, `{"text":"x","text":"y"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var r jsonRow
		if r.parse(line, 50) != nil {
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("passes, and is no JSON: %v", err)
		}
		if r.kind == kindChat {
			if r.chat.check() != nil || len(r.chat.messages) < 2 {
				t.Fatalf("a chat of %d messages passes", len(r.chat.messages))
			}
			return
		}
		if r.kind == kindText {
			var want string
			testkit.NoError(t, json.Unmarshal(fields["text"], &want))
			// encoding/json replaces each byte that is not UTF-8 by U+FFFD.
			if got := string([]rune(string(r.text))); got != want || want == "" {
				t.Fatalf("text %q, want %q", got, want)
			}
			return
		}
		var ids, labels []int32
		if err := json.Unmarshal(fields["input_ids"], &ids); err != nil || !slices.Equal(ids, r.ids) || len(ids) < 2 {
			t.Fatalf("ids %v, want %v, error %v", r.ids, ids, err)
		}
		if r.labels == nil {
			return
		}
		if err := json.Unmarshal(fields["labels"], &labels); err != nil || !slices.Equal(labels, r.labels) || len(labels) != len(ids) || supervised(labels) == 0 {
			t.Fatalf("labels %v, want %v, error %v", r.labels, labels, err)
		}
	})
}

// checkArray reads content as an array of rows. If content is valid JSON, the rows must be its elements.
func checkArray(t *testing.T, content []byte) {
	t.Helper()
	var unit string
	r := newJSONRows(bytes.NewReader(content), &unit)
	if unit != unitRow {
		return
	}
	var got []json.RawMessage
	for {
		row, n, err := r.next(nil)
		if bad := (*badRow)(nil); err != nil && err != io.EOF && !errors.As(err, &bad) {
			got = nil
			break
		} else if err == io.EOF {
			break
		} else if int(n) != len(got)+1 {
			t.Fatalf("row %d follows %d rows", n, len(got))
		}
		got = append(got, row)
	}
	var want []json.RawMessage
	text := bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if json.Unmarshal(text, &want) != nil {
		return
	}
	if !slices.EqualFunc(got, want, func(a, b json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(a), b) }) {
		t.Fatalf("rows %q, want %q", got, want)
	}
}

func TestArrayRows(t *testing.T) {
	for _, s := range []string{`[]`, ` [ 1 , "a]" ,{"b":"\"}"} , [[]],null,true,-1.5e3 ]  `, `["\\",{"a":[{"b":"]"}]}]`, `[{"a":"\u005d"}]`,
		"\xef\xbb\xbf[\n{}\n]\n", "[" + strings.Repeat("{}, ", 1000) + "{}]", strings.Repeat(" ", 3000) + `["x"]`} {
		checkArray(t, []byte(s))
	}
}

// TestListsInTexts: a list that a row holds as JSON text in a string is read as that list. Files
// whose columns have fixed types hold lists in this way.
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

// TestNaN: rows with NaN or Infinity, which Python's json module writes and JSON does not have, are
// read.
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

// TestTrueCauses: an error names the cause of a fault, such as a null field or a truncated line,
// instead of its consequence.
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
	// With skip_bad_rows, the rows after a truncated row are still read.
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

// TestLongWindow: a zstd file whose window is larger than mt allows is an error that tells how to
// compress it again.
func TestLongWindow(t *testing.T) {
	row := `{"text":"a"}`
	for _, log := range []uint{28, 30, 31} { // source of the layout: RFC 8878, 3.1.1
		frame := append([]byte("\x28\xb5\x2f\xfd\x00"), byte((log-10)<<3))
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(row)<<3|1))[:len(frame)+3], row...)
		_, err := Open(textSpec(t, 64, write(t, t.TempDir(), "a.jsonl.zst", string(frame))))
		wantError(t, err, "a.jsonl.zst: zstd: window size exceeded: it was written with --long", "zstd -d --long=31", "recompress")
	}
}

// TestAddresses: a URL as a path is an error that names a download tool, and "~" is the home
// folder.
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

// badRowTable holds rows that are errors, with parts of the error. The file's first row is good and decides the
// format.
var badRowTable = []struct {
	name, good, bad string
	says            []string
}{
	{"no JSON", `{"text":"ab"}`, `{"text":`, []string{"not a JSON object"}},
	{"another format", `{"text":"ab"}`, `{"instruction":"i","output":"o"}`, []string{"this is alpaca", "came before is text", `"instruction"`}},
	{"null", `{"text":"ab"}`, `null`, []string{"not a JSON object: it is null"}},
	{"a number", `{"text":"ab"}`, `5`, []string{"not a JSON object: it is 5"}},
	{"text is null", `{"text":"ab"}`, `{"text":null}`, []string{"text is null", "remove the row"}},
	{"output is null", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":null}`, []string{"output is null"}},
	{"text is a number", `{"text":"ab"}`, `{"text":5}`, []string{"text is 5", "string"}},
	{"text is NUL", `{"text":"ab"}`, `{"text":"a\u0000"}`, []string{"NUL"}},
	{"empty text", `{"text":"ab"}`, `{"text":""}`, []string{"text is empty"}},
	{"id", `{"input_ids":[1,2]}`, `{"input_ids":[1,256]}`, []string{"input_ids[1] is 256"}},
	{"no field", `{"instruction":"i","output":"o"}`, `{"instruction":"i"}`, []string{`"output" is missing`}},
	{"empty instruction", `{"instruction":"i","output":"o"}`, `{"instruction":"","output":"o"}`, []string{"instruction is empty"}},
	{"output is a list", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":["o"]}`, []string{`output is ["o"]`, "string"}},
	{"empty output", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":""}`, nil},
	{"history of strings", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":"o","history":["a"]}`, []string{`history is ["a"]`, "pairs"}},
	{"history of three", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":"o","history":[["a","b","c"]]}`, []string{"history[0] has 3"}},
	{"empty chat", chat("user", "h", "assistant", "g"), `{"messages":[]}`, []string{"messages is empty"}},
	{"messages are a string", chat("user", "h", "assistant", "g"), `{"messages":"hello"}`, []string{`messages is "hello"`, "list of messages"}},
	{"a message is a string", chat("user", "h", "assistant", "g"), `{"messages":["hello"]}`, []string{`messages[0] is "hello"`, "role"}},
	{"unknown role", chat("user", "h", "assistant", "g"), chat("user", "h", "bot", "g"), []string{`messages[1].role is "bot"`, "assistant"}},
	{"no role", chat("user", "h", "assistant", "g"), `{"messages":[{"content":"x"}]}`, []string{"messages[0] has no role"}},
	{"no content", chat("user", "h", "assistant", "g"), `{"messages":[{"role":"user"}]}`, []string{"messages[0] has no content"}},
	{"null content", chat("user", "h", "assistant", "g"), `{"messages":[{"role":"user","content":null}]}`, []string{"messages[0].content is null"}},
	{"content is a number", chat("user", "h", "assistant", "g"), `{"messages":[{"role":"user","content":7}]}`, []string{"messages[0].content is 7"}},
	{"an image", chat("user", "h", "assistant", "g"), `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, []string{`messages[0].content[0].type is "image_url"`, "text"}},
	{"an image beside", share("human", "h", "gpt", "g"), strings.Replace(share("human", "h", "gpt", "g"), "{", `{"images":["a.png"],`, 1), []string{`images is ["a.png"]`, "text alone"}},
	{"a video beside", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":"o","video":"a.mp4"}`, []string{`video is "a.mp4"`}},
	{"no image beside", `{"instruction":"i","output":"o"}`, `{"instruction":"i","output":"o","images":[],"image":null,"audio":""}`, nil},
	{"assistant first", chat("user", "h", "assistant", "g"), chat("system", "s", "assistant", "g", "user", "h"), []string{"assistant's turn comes first"}},
	{"no assistant", chat("user", "h", "assistant", "g"), chat("user", "h"), []string{"no token is supervised", "no turn is the assistant's"}},
	{"bad tools", chat("user", "h", "assistant", "g"), strings.Replace(chat("user", "h", "assistant", "g"), "{", `{"tools":"nope",`, 1), []string{"tools: ", "list of tools"}},
	{"bad call", chat("user", "h", "assistant", "g"), `{"messages":[{"role":"user","content":"h"},{"role":"assistant","tool_calls":[{"id":1}]}]}`, []string{"messages[1].tool_calls[0] has no name"}},
	{"the template raises", chat("user", "h", "assistant", "g"), chat("user", "raise", "assistant", "g"), []string{"the chat template refuses the row", "no such talk"}},
	{"no UTF-8", chat("user", "h", "assistant", "g"), chat("user", "h\xff", "assistant", "g"), []string{"messages is no valid UTF-8", "0xff", "iconv"}},
	{"unknown from", share("human", "h", "gpt", "g"), share("human", "h", "claude", "g"), []string{`conversations[1].from is "claude"`, "gpt"}},
	{"a call that is no JSON", share("human", "h", "gpt", "g"), share("human", "h", "function_call", "f(x)"), []string{"conversations[1].value is f(x)", "JSON"}},
	{"prompt alone", `{"prompt":"p","completion":"c"}`, `{"prompt":"p"}`, []string{"neither text"}},
	{"prompt is empty", `{"prompt":"p","completion":"c"}`, `{"prompt":"","completion":"c"}`, []string{"prompt is empty"}},
}

const raising = `{% for m in messages %}{% if m.content == "raise" %}{{ raise_exception("no such talk") }}{% endif %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}`

func talk(field, role, content string, turns []string) string {
	var b strings.Builder
	for i := 0; i < len(turns); i += 2 {
		b.WriteString(`,{"` + role + `":"` + turns[i] + `","` + content + `":"` + turns[i+1] + `"}`)
	}
	return `{"` + field + `":[` + b.String()[1:] + `]}`
}

func chat(turns ...string) string  { return talk("messages", "role", "content", turns) }
func share(turns ...string) string { return talk("conversations", "from", "value", turns) }

// TestBadRows: in every container a bad row is an error that names the file, row, field and value.
// With skip_bad_rows the row is counted instead.
func TestBadRows(t *testing.T) {
	for _, tt := range badRowTable {
		for _, name := range []string{"a.jsonl", "a.json.gz", "b.json.zst"} {
			array := strings.HasPrefix(name, "b")
			if array && tt.name == "no JSON" {
				continue // its open brace would swallow the following rows
			}
			t.Run(tt.name+" "+name, func(t *testing.T) {
				content, where := "\n"+tt.good+"\n"+tt.bad+"\n"+tt.good, ":3: "
				if array {
					content, where = "["+tt.good+","+tt.bad+","+tt.good+"]", ": row 2: "
				}
				s := chatSpec(t, raising, write(t, t.TempDir(), name, squeeze(t, name, content)))
				d, err := Open(s)
				if tt.says == nil {
					testkit.NoError(t, err)
					d.Close()
					return
				}
				wantError(t, err, append([]string{name + where, "set skip_bad_rows"}, tt.says...)...)
				s.SkipBadRows = true
				d = mustOpen(t, s)
				if st := d.Stats(); st.Skipped != 1 || d.Rows() != 2 {
					t.Errorf("%d rows, %d skipped; want 2 and 1", d.Rows(), st.Skipped)
				}
				if r := d.Report(); !strings.Contains(r.FirstSkipped, tt.says[0]) || r.Sets[0].Skipped != 1 || len(d.Warnings()) == 0 || !strings.Contains(d.Warnings()[0], "skipped 1 bad row(s)") {
					t.Errorf("report %+v, warnings %q", r, d.Warnings())
				}
			})
		}
	}
}

// TestBadFiles: a fault that makes a whole file unreadable is an error even with skip_bad_rows.
func TestBadFiles(t *testing.T) {
	row := `{"text":"ab"}`
	tests := []struct {
		name, file, content string
		want                []string
	}{
		{"gzip cut off", "a.jsonl.gz", squeeze(t, "x.gz", strings.Repeat(row+"\n", 1000))[:60], []string{"a.jsonl.gz: gzip: unexpected EOF"}},
		{"no gzip", "a.jsonl.gz", row, []string{"a.jsonl.gz: gzip: "}},
		{"no zstd", "a.txt.zst", row, []string{"a.txt.zst: zstd: "}},
		{"array cut off behind a row", "a.json", "[" + row, []string{"a.json: the array does not end after row 1"}},
		{"array cut off behind a comma", "a.json", "[" + row + ",", []string{"a.json: the array does not end after row 1"}},
		{"no comma", "a.json", "[" + row + row + "]", []string{"a.json: behind row 1 stands '{'"}},
		{"two commas", "a.json", "[" + row + ",," + row + "]", []string{"a.json: row 2: an element of the array is missing"}},
		{"comma at the end", "a.json", "[" + row + ",]", []string{"a.json: behind row 1 stands a comma"}},
		{"two arrays", "a.json", "[" + row + "][" + row + "]", []string{"a.json: behind the array stands '['"}},
		{"empty array", "a.json", "[ ]", []string{"is empty", "a.json"}},
		{"UTF-16", "a.jsonl", "\xff\xfe{\x00}\x00", []string{"a.jsonl: it is text in UTF-16", "iconv"}},
		{"a Git LFS pointer", "a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", []string{"a.txt is a Git LFS pointer", "git lfs pull"}},
		{"a Git LFS pointer for Parquet", "a.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", []string{"a.parquet is a Git LFS pointer"}},
		{"text and chats", "a.jsonl", "", nil},
		{"only bad rows", "b.jsonl", "{}\n[]\n", []string{"is empty", "2 bad row(s)", "b.jsonl:1: "}},
	}
	for _, tt := range tests {
		dir := t.TempDir()
		s := chatSpec(t, small, write(t, dir, tt.file, tt.content))
		s.SkipBadRows = true // has no effect on these errors
		if tt.want == nil {
			s.Paths = []string{write(t, dir, "a.jsonl", row), write(t, dir, "c.jsonl", chat("user", "h", "assistant", "g"))}
			tt.want = []string{"c.jsonl:1: this is chat, and what came before is text", "of one kind"}
		}
		_, err := Open(s)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		wantError(t, err, tt.want...)
	}
	// If the file is truncated inside a row, only that row is lost.
	s := chatSpec(t, small, write(t, t.TempDir(), "a.json", "["+row+`,{"text":"b`))
	_, err := Open(s)
	wantError(t, err, "a.json: row 2: the file ends inside this row")
	s.SkipBadRows = true
	if d := mustOpen(t, s); d.Rows() != 1 || d.Stats().Skipped != 1 {
		t.Errorf("%d rows, %d skipped, want 1 and 1", d.Rows(), d.Stats().Skipped)
	}
}
