package data

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTables: CSV and TSV files, with any of the usual separators, give the same rows as JSON with
// the same content.
func TestTables(t *testing.T) {
	const (
		chatted = `[{""role"":""user"",""content"":""h""},{""role"":""assistant"",""content"":""g""}]`
		pairs   = `[[""a"",""b""]]`
	)
	for _, tt := range []struct {
		name, file, content string
		change              func(*Spec)
		want                []string
	}{
		{"text", "a.csv", "text\nabc\n\"d,\"\"e\"\"\nf\"\n", nil, []string{"[abc$]", "[d,\"e\"\nf$]"}},
		{"line ends of Windows and a BOM", "a.csv", "\xef\xbb\xbfid,text\r\n1,abc\r\n\r\n2,d\r\n", nil, []string{"[abc$]", "[d$]"}},
		{"a carriage return inside quotes", "a.csv", "id,text\r\n1,\"a\r\"\r\n2,\"b\r\"\n3,c\r\n", nil, []string{"[a\r$]", "[b\r$]", "[c$]"}},
		{"no line end at the end", "a.csv", "text\nabc", nil, []string{"[abc$]"}},
		{"a quote inside a value", "a.tsv", "id\ttext\n1\t5\" of \"rain\"\n", nil, []string{"[5\" of \"rain\"$]"}},
		{"semicolons", "a.csv", "id;text\n1;a, b\n", nil, []string{"[a, b$]"}},
		{"bars", "a.csv", "id|text\n1|a, b\n", nil, []string{"[a, b$]"}},
		{"tabs in what is called CSV", "a.csv", "id\ttext\n1\ta, b\n", nil, []string{"[a, b$]"}},
		{"commas in what is called TSV", "a.tsv", "id,text\n1,a\n", nil, []string{"[a$]"}},
		{"prompt and completion", "a.csv", "prompt,completion\np,c\n", nil, []string{"u:p|a:[c|]"}},
		{"alpaca", "a.csv", "instruction,input,output,system,history\ni,j,o,s,\"" + pairs + "\"\ni,,o,,\n", nil, []string{"s:s|u:a|a:[b|]u:i\nj|a:[o|]", "u:i|a:[o|]"}},
		{"messages", "a.tsv", "messages\n\"" + chatted + "\"\n", nil, []string{"u:h|a:[g|]"}},
		{"ready ids", "a.csv", "input_ids,labels\n\"[97, 98]\",\"[-100, 98]\"\n\"[97,98]\",\n", nil, []string{"a[b]", "[ab]"}},
		{"columns of other names", "a.csv", ",question,answer\n0,q,a\n", func(s *Spec) { s.Columns = Columns{Prompt: "question", Response: "answer"} }, []string{"u:q|a:[a|]"}},
		{"messages of another name", "a.csv", "talk\n\"" + chatted + "\"\n", func(s *Spec) { s.Columns = Columns{Messages: "talk"} }, []string{"u:h|a:[g|]"}},
		{"a format that is given", "a.csv", "instruction,output\ni,o\n", func(s *Spec) { s.Format = "alpaca" }, []string{"u:i|a:[o|]"}},
		{"another name of the file", "a.dat", "text\nabc\n", func(s *Spec) { s.Format = "csv" }, []string{"[abc$]"}},
		{"compressed", "a.csv.gz", "text\nabc\n", nil, []string{"[abc$]"}},
		{"as text where that is wanted", "a.csv", "text\nabc\n", func(s *Spec) { s.Format = "text" }, []string{"[text\nabc\n$]"}},
	} {
		s := chatSpec(t, small, write(t, t.TempDir(), tt.file, squeeze(t, tt.file, tt.content)))
		if tt.change != nil {
			tt.change(&s)
		}
		d, err := Open(s)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := maskedRows(d.All()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBadTables: the error of a bad row names its line. With skip_bad_rows only that row is lost.
func TestBadTables(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		want          []string
		rows          []string // the rows left with skip_bad_rows; nil: it does not help
	}{
		{"too many values", "text,id\na,1\nb,c,2\nd,3\n", []string{"a.csv:3: the row has 3 values and the header 2 columns", "double quotes"}, []string{"a$", "d$"}},
		{"too few values", "text,id\na\nb,2\n", []string{"a.csv:2: the row has 1 values"}, []string{"b$"}},
		{"more behind a quote", "text,id\n\"a\nb\"c,1\nd,2\n", []string{"a.csv:2: behind a closing quote stands more of value 1", "twice"}, []string{"d$"}},
		{"the next row's line", "text,id\n\"a\nb\",1\nd\n", []string{"a.csv:4: the row has 1 values"}, []string{"a\nb$"}},
		{"a quote that is not closed", "text\na\n\"b\nc\n", []string{"a.csv:3: a value's quote is not closed"}, []string{"a$"}},
		{"columns of one name", "text,text\na,b\n", []string{"a.csv: two columns are called \"text\""}, nil},
		{"a header's quote", "\"text\na\n", []string{"a.csv: line 1: a value's quote is not closed"}, nil},
		{"no header", "a,b\nc,d\n", []string{"a.csv:2: neither text nor input_ids", `["a" "b"]`, "text_column"}, nil},
		{"a header alone", "text\n", []string{"data set is empty"}, nil},
		{"no UTF-8", "prompt,completion\np,\xff\n", []string{"a.csv:2: completion is no valid UTF-8"}, nil},
	} {
		s := chatSpec(t, small, write(t, t.TempDir(), "a.csv", tt.content))
		_, err := Open(s)
		wantError(t, err, tt.want...)
		s.SkipBadRows = true
		d, err := Open(s)
		if tt.rows == nil {
			if err == nil {
				t.Errorf("%s: skip_bad_rows helps", tt.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := texts(d.All()); !slices.Equal(got, tt.rows) {
			t.Errorf("%s: rows %q, want %q", tt.name, got, tt.rows)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzTable: wherever encoding/csv can read a table, tableRows gives the same values.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\n\"x\"\"y\n\"\n\n z \n", "a,b\r\n\"\",\r\n,\n", "a;b\n1;2", "\"a\"\"\",b\n\"1\",", "x\n\"\"\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		table := newTable(bytes.NewReader(content), "a.csv", func(string, []byte) bool { return false }, func(string) bool { return false })
		var got [][]string
		for {
			row, _, err := table.next(nil)
			if err != nil {
				if bad, spoiled := err.(*badRow); spoiled && bad != nil {
					continue
				}
				break
			}
			var fields map[string]string
			if err := json.Unmarshal(row, &fields); err != nil {
				t.Fatalf("%s: %v", row, err)
			}
			var values []string
			for _, name := range table.header {
				values = append(values, fields[name])
			}
			got = append(got, values)
		}
		if !utf8.Valid(content) || bytes.IndexByte(content, '\r') >= 0 || !validHeader(table.header) {
			return // encoding/csv changes line ends inside quotes
		}
		r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))))
		r.Comma = rune(table.comma)
		want, err := r.ReadAll()
		if err != nil || len(want) == 0 {
			return
		}
		if !slices.EqualFunc(got, want[1:], slices.Equal) {
			t.Errorf("%q: rows %q, encoding/csv has %q", content, got, want[1:])
		}
	})
}

// validHeader reports whether the column names are non-empty UTF-8 and all different, so that they
// can be the keys of a JSON object.
func validHeader(names []string) bool {
	for i, n := range names {
		if n == "" || n != strings.ToValidUTF8(n, "") || slices.Contains(names[:i], n) {
			return false
		}
	}
	return len(names) > 0
}

// TestTextRows: if dataset_info.json describes a text file, each of its lines is a row.
func TestTextRows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "one \"line\"\r\n\n \n two\nthree")
	write(t, dir, infoName, `{"lines": {"file_name": "a.txt", "columns": {"prompt": "text"}}, "pairs": {"file_name": "a.txt"}}`)
	s := textSpec(t, 64, "lines")
	s.Dir, s.Packing = dir, set(false)
	d := mustOpen(t, s)
	if got, want := texts(d.All()), []string{"one \"line\"$", " two$", "three$"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if at := d.Pieces(1)[0].Line; at != 4 {
		t.Errorf("the second row is on line %d, want 4", at)
	}
	s.Paths = []string{"pairs"}
	_, err := Open(s)
	wantError(t, err, "a.txt:1: ", `"output" is missing; the row has ["text"]`)
	r := &textRows{r: nil, done: io.ErrUnexpectedEOF}
	if _, _, err := r.next(nil); err != io.ErrUnexpectedEOF {
		t.Errorf("an error of reading became %v", err)
	}
}

// TestEmptyAnswerCells: in a column of answers, an empty cell of a CSV file is a missing answer,
// like null in JSON. In another column it is an empty text.
func TestEmptyAnswerCells(t *testing.T) {
	for _, c := range []struct {
		header, good, empty, column string
		change                      func(*Spec)
	}{
		{"prompt,completion", "p,c", "p,", "completion", nil},
		{"prompt,response", "p,c", `p,""`, "response", nil},
		{"instruction,input,output", "p,,c", "p,,", "output", nil},
		{"question,answer", "p,c", "p,", "answer", func(s *Spec) { s.Columns = Columns{Prompt: "question", Response: "answer"} }},
		{"question,chosen,rejected", "p,c,r", "p,,r", "chosen", func(s *Spec) { s.Pairs, s.Packing = true, nil }},
		{"question,chosen,rejected", "p,c,r", "p,c,", "rejected", func(s *Spec) { s.Pairs, s.Packing = true, nil }},
	} {
		s := chatSpec(t, small, write(t, t.TempDir(), "a.csv", c.header+"\n"+c.good+"\n"+c.empty+"\n"))
		if c.change != nil {
			c.change(&s)
		}
		_, err := Open(s)
		wantError(t, err, "a.csv:3: ", c.column+" is null; remove the row")
		s.SkipBadRows = true
		d := mustOpen(t, s)
		if got := d.Stats().Skipped; got != 1 || d.Rows() != 1 {
			t.Errorf("%s: %d rows skipped, %d read", c.header, got, d.Rows())
		}
	}
	for text, want := range map[string]string{"prompt,completion\np,c\n,c\n": "prompt is empty", "text\nab\n\"\"\n": "text is empty"} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.csv", text)))
		wantError(t, err, "a.csv:3: ", want)
	}
}
