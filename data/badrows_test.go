package data

import (
	"strings"
	"testing"
)

// badRowTable holds rows each of which makes a file an error, with what the error says.
// The first row of the file is good and says the format.
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

// TestBadRows: in every container a bad row is an error that names file, row,
// field and value, or is counted where that is wanted.
func TestBadRows(t *testing.T) {
	for _, tt := range badRowTable {
		for _, name := range []string{"a.jsonl", "a.json.gz", "b.json.zst"} {
			array := strings.HasPrefix(name, "b")
			if array && tt.name == "no JSON" {
				continue // its open brace would make the rows behind it part of it
			}
			t.Run(tt.name+" "+name, func(t *testing.T) {
				content, where := "\n"+tt.good+"\n"+tt.bad+"\n"+tt.good, ":3: "
				if array {
					content, where = "["+tt.good+","+tt.bad+","+tt.good+"]", ": row 2: "
				}
				s := chatSpec(t, raising, write(t, t.TempDir(), name, squeeze(t, name, content)))
				d, err := Open(s)
				if tt.says == nil {
					if err != nil {
						t.Fatal(err)
					}
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

// TestBadFiles: faults that make a whole file unreadable, which skip_bad_rows does not help.
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
		s.SkipBadRows = true // does not help
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
	// Where the file is cut off inside a row, only that row is lost.
	s := chatSpec(t, small, write(t, t.TempDir(), "a.json", "["+row+`,{"text":"b`))
	_, err := Open(s)
	wantError(t, err, "a.json: row 2: the file ends inside this row")
	s.SkipBadRows = true
	if d := mustOpen(t, s); d.Rows() != 1 || d.Stats().Skipped != 1 {
		t.Errorf("%d rows, %d skipped, want 1 and 1", d.Rows(), d.Stats().Skipped)
	}
}
