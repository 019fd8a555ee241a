package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// parse reads a row of any form, with or without white space around it, and checks it
// against a vocabulary of vocab ids. The error names the field, the value and the way out.
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
			if err := r.parse([]byte(tt.line), 10); err != nil {
				t.Fatal(err)
			}
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

// FuzzParseRow: a row that is accepted means what encoding/json reads in it, and has what
// the rest of the package relies on.
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
			if err := json.Unmarshal(fields["text"], &want); err != nil {
				t.Fatal(err)
			}
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

// checkArray reads content as an array of rows. Where content is valid JSON, the rows must
// be its elements.
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
