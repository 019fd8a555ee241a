package data

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/ulikunitz/xz"

	"mt/internal/testkit"
)

// telling is a chat template that writes each message's text and calls, and then the tools, so that
// tests see all fields.
const telling = `{% for m in messages %}{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}{% endif %}` +
	`{% for c in m.tool_calls or [] %}!{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}` +
	`{% for t in tools or [] %}T{{ t | tojson }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}`

type (
	pqJSONChat struct {
		Messages []pqJSONTurn `parquet:"messages,list"`
		Tools    string       `parquet:"tools,json"`
	}
	pqJSONTurn struct {
		Role    string `parquet:"role"`
		Content string `parquet:"content"` // JSON only if the metadata of datasets says so
	}
	pqJSONList struct {
		Messages []string `parquet:"messages,list"`
	}
	pqArguments struct {
		Zone *string  `parquet:"zone,optional"`
		Hour *int64   `parquet:"hour,optional"`
		In   *pqInner `parquet:"in,optional"`
	}
	pqInner struct {
		A *string `parquet:"a,optional"`
		B *string `parquet:"b,optional"`
	}
	pqPaddedCall struct {
		Name      string      `parquet:"name"`
		Arguments pqArguments `parquet:"arguments"`
	}
	pqPaddedTool struct {
		Function pqPaddedCall `parquet:"function"`
	}
	pqPaddedTurn struct {
		Role    string         `parquet:"role"`
		Content *string        `parquet:"content,optional"`
		Calls   []pqPaddedTool `parquet:"tool_calls,list"`
	}
	pqPadded struct {
		Messages []pqPaddedTurn `parquet:"messages,list"`
		Tools    *string        `parquet:"tools,optional"`
	}
)

// TestJSONColumns: a text column is read as JSON if Parquet's annotation or the metadata of the
// library datasets says so. Otherwise its values stay texts.
func TestJSONColumns(t *testing.T) {
	features := func(text string) []parquet.WriterOption {
		return []parquet.WriterOption{parquet.KeyValueMetadata(featuresKey, `{"info":{"features":`+text+`}}`)}
	}
	turn := `{"role":{"dtype":"string","_type":"Value"},"content":{"_type":"Json"}}`
	chat := pqJSONChat{[]pqJSONTurn{{"user", `"h"`}, {"assistant", `"g"`}}, `[{"name":"f","parameters":{"n":null}}]`}
	bare := `T{"name": "f", "parameters": {"n": null}}`
	list := pqJSONList{[]string{`{"role":"user","content":"h"}`, ` {"role":"assistant","content":"g","score":NaN}`}}
	for name, tt := range map[string]struct{ file, want string }{
		"features in a list":      {parquetWith(t, features(`{"messages":{"feature":`+turn+`,"_type":"List"}}`), chat), "u:h|a:[g|]" + bare},
		"features in a bare list": {parquetWith(t, features(`{"messages":[`+turn+`]}`), chat), "u:h|a:[g|]" + bare},
		"no features":             {parquetWith(t, nil, chat), `u:"h"|a:["g"|]` + bare},
		"damaged features":        {parquetWith(t, features(`{"messages":`), chat), `u:"h"|a:["g"|]` + bare},
		"whole messages":          {parquetWith(t, features(`{"messages":{"feature":{"_type":"Json"},"_type":"List"}}`), list), "u:h|a:[g|]"},
	} {
		d := mustOpen(t, chatSpec(t, telling, write(t, t.TempDir(), "a.parquet", tt.file)))
		if got := masked(d.Row(0)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	bad := parquetWith(t, features(`{"messages":{"feature":`+turn+`,"_type":"List"}}`), pqJSONChat{Messages: []pqJSONTurn{{"user", "h"}, {"assistant", `"g"`}}, Tools: "[]"}, chat)
	s := chatSpec(t, telling, write(t, t.TempDir(), "a.parquet", bad))
	_, err := Open(s)
	wantError(t, err, "a.parquet: row 1: ", `column "messages": the column's type is JSON, and its value is h, which is not`)
	s.SkipBadRows = true
	if d := mustOpen(t, s); d.Rows() != 1 || masked(d.Row(0)) != "u:h|a:[g|]"+bare {
		t.Errorf("without the bad row: %q", maskedRows(d.All()))
	}
}

// TestSavedFeatures: in a folder that save_to_disk wrote, a column is read as JSON if only
// dataset_info.json says that it is.
func TestSavedFeatures(t *testing.T) {
	dir := t.TempDir()
	c := arrowNamed(t, "save_to_disk")
	write(t, dir, "data.arrow", string(c.File))
	write(t, dir, "state.json", `{"_data_files":[{"filename":"data.arrow"}]}`)
	write(t, dir, "dataset_info.json", `{"features":{"messages":{"feature":{"role":{"_type":"Value"},"content":{"_type":"Json"}},"_type":"List"}}}`)
	_, err := Open(chatSpec(t, small, dir))
	wantError(t, err, "data.arrow: row 1: ", "the column's type is JSON, and its value is h0, which is not")
}

// TestPaddedArguments: a struct column of Parquet has all fields in every row, and null where a row
// lacks the field. Such nulls are dropped from a call's arguments, unless the tool's schema allows
// null for the parameter.
func TestPaddedArguments(t *testing.T) {
	zone, a := "utc", "x"
	file := func(tools string, args pqArguments) string {
		row := pqPadded{Messages: []pqPaddedTurn{{Role: "user", Content: &a}, {Role: "assistant", Calls: []pqPaddedTool{{pqPaddedCall{"f", args}}}}}}
		if tools != "" {
			row.Tools = &tools
		}
		return parquetWith(t, nil, row)
	}
	schema := func(properties string) string {
		return `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{` + properties + `}}}}]`
	}
	for _, tt := range []struct {
		tools string
		args  pqArguments
		want  string
	}{
		{"", pqArguments{Zone: &zone}, `{"zone": "utc"}`},
		{"", pqArguments{}, `{}`},
		{"", pqArguments{In: &pqInner{A: &a}}, `{"in": {"a": "x"}}`},
		{schema(`"zone":{"type":"string"},"hour":{"type":"integer"}`), pqArguments{Zone: &zone}, `{"zone": "utc"}`},
		{schema(`"hour":{"type":["integer","null"]}`), pqArguments{Zone: &zone}, `{"zone": "utc", "hour": null}`},
		{schema(`"hour":{"type":"integer","nullable":true}`), pqArguments{}, `{"hour": null}`},
		{schema(`"hour":{"anyOf":[{"type":"integer"},{"type":"null"}]}`), pqArguments{}, `{"hour": null}`},
		{schema(`"hour":{"enum":[1,null]}`), pqArguments{}, `{"hour": null}`},
		{schema(`"in":{"properties":{"b":{"type":["string","null"]}}}`), pqArguments{In: &pqInner{A: &a}}, `{"in": {"a": "x", "b": null}}`},
	} {
		d := mustOpen(t, chatSpec(t, telling, write(t, t.TempDir(), "a.parquet", file(tt.tools, tt.args))))
		if got, want := masked(d.Row(0)), "u:x|a:[!f"+tt.want+"|]"; len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: %s, want %s", tt.tools, got, want)
		}
	}
	// JSONL stores no nulls for absent fields, so a null in JSONL was written on purpose and stays.
	line := `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"zone":null}}}]}]}`
	if got := maskedRows(mustOpen(t, chatSpec(t, telling, write(t, t.TempDir(), "a.jsonl", line))).All()); got[0] != `u:x|a:[!f{"zone": null}|]` {
		t.Errorf("JSONL: %s", got)
	}
}

// TestPaddedTools: a struct column of Parquet has null where a row lacks a field. Such nulls are
// dropped from a row's tools, also if the tools are structs without nested structs.
func TestPaddedTools(t *testing.T) {
	type tool struct {
		Name        string  `parquet:"name"`
		Description *string `parquet:"description,optional"`
	}
	a := "x"
	row := struct {
		Messages []pqPaddedTurn `parquet:"messages,list"`
		Tools    []tool         `parquet:"tools,list"`
	}{[]pqPaddedTurn{{Role: "user", Content: &a}, {Role: "assistant", Content: &a}}, []tool{{"f", nil}, {"g", &a}}}
	d := mustOpen(t, chatSpec(t, telling, write(t, t.TempDir(), "a.parquet", parquetWith(t, nil, row))))
	if got := masked(d.Row(0)); !strings.Contains(got, `T{"name": "f"}T{`) || strings.Contains(got, "null") {
		t.Errorf("the template has %s", got)
	}
}

// TestMapColumns: maps inside lists and structs are read as JSON objects, whatever types their keys
// and values have.
func TestMapColumns(t *testing.T) {
	type call struct {
		Name      string            `parquet:"name"`
		Arguments map[string]string `parquet:"arguments"`
	}
	type turn struct {
		Role    string           `parquet:"role"`
		Content string           `parquet:"content"`
		Calls   []call           `parquet:"tool_calls,list"`
		Scores  map[int32]uint32 `parquet:"scores"`
	}
	type row struct {
		Messages []turn `parquet:"messages,list"`
	}
	file := parquetWith(t, nil, row{[]turn{{"user", "h", nil, nil}, {"assistant", "g", []call{{"f", map[string]string{"k": "x"}}}, map[int32]uint32{3: 1<<32 - 1}}}})
	body := `{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{{ m.scores | tojson }}{% endfor %}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}`
	d := mustOpen(t, chatSpec(t, body, write(t, t.TempDir(), "a.parquet", file)))
	if got, want := masked(d.Row(0)), `u:h|a:[g{"k": "x"}{"3": 4294967295}|]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTypedColumns: a column of numbers that JSON lacks, such as decimals, can be the text to train
// on. A column of dates, times or similar types is an error as text.
func TestTypedColumns(t *testing.T) {
	typed := string(arrowNamed(t, "typed").File)
	inParquet := string(arrowNamed(t, "typed in Parquet").File)
	for column, want := range map[string]string{"half": "1.5$", "price": "-0.05$", "whole": "7$", "long": "123456789012345678901234567890.125$", "short": "12.5$"} {
		for _, file := range []string{typed, inParquet} {
			s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", file)) // known by its first bytes
			s.Columns.Text = column
			if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q, want %q", column, got, want)
			}
		}
	}
	for column, want := range map[string]string{"day": "date", "clock64": "time", "utc": "timestamp", "raw": "binary in Base64"} {
		for i, file := range []string{typed, inParquet} {
			s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", file))
			s.Columns.Text = column
			_, err := Open(s)
			wantError(t, err, column+` is {"`, []string{want, map[string]string{"day": "DATE", "clock64": "TIME", "utc": "TIMESTAMP", "raw": "BYTE_ARRAY in Base64"}[column]}[i], "it must be a string")
		}
	}
	if got := fmt.Sprint(half(0x7c00), half(0xfc00), half(0x0001), half(0x3555)); got != "+Inf -Inf 5.960464477539063e-08 0.333251953125" {
		t.Errorf("half precision: %s", got)
	}
}

// squeeze compresses text as the ending of name says, such as .gz.
func squeeze(t testing.TB, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(&b)
		testkit.Must(z.Write([]byte(text)))(t)
		testkit.NoError(t, z.Close())
	case strings.HasSuffix(name, ".zst"):
		z := testkit.Must(zstd.NewWriter(&b))(t)
		testkit.Must(z.Write([]byte(text)))(t)
		testkit.NoError(t, z.Close())
	case strings.HasSuffix(name, ".xz"):
		z := testkit.Must(xz.NewWriter(&b))(t)
		testkit.Must(z.Write([]byte(text)))(t)
		testkit.NoError(t, z.Close())
	default:
		return text
	}
	return b.String()
}
