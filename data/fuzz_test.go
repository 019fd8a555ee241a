package data

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// fuzzOpen opens a file with any content as a data set and reads every row. Errors are fine;
// panics, and rows that break the package's promises, are not.
func fuzzOpen(t *testing.T, name string, content []byte) {
	if len(content) > 1<<16 {
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	testkit.NoError(t, os.WriteFile(path, content, 0o644))
	times := 2
	if bytes.Contains(content, []byte(chosenField)) {
		times = 4 // also read the file as pairs
	}
	for i := range times {
		skip := i%2 == 1
		s := textSpec(t, 64, path)
		s.Pairs = i >= 2
		s.Template, s.SkipBadRows, s.Threads, s.Tokenizer = "chatml", skip, 1, withChatML(t)
		d, err := Open(s)
		if err != nil {
			if strings.Contains(err.Error(), "runtime error") && !strings.Contains(err.Error(), "the file is damaged") {
				t.Fatal(err)
			}
			continue
		}
		st := d.Stats()
		if st.Rows == 0 || st.Tokens == 0 || st.Supervised == 0 {
			t.Errorf("stats %+v", st)
		}
		for i := range d.Rows() {
			pieces, r := d.Pieces(i), d.Row(i)
			sum := int64(0)
			for _, p := range pieces {
				sum += p.Tokens
			}
			if sum != int64(len(r.IDs)) || r.Docs != nil && len(r.Docs) != len(pieces) || len(r.IDs) > RowTokens(64, d.IsPairs()) {
				t.Fatalf("row %d has %d tokens, its pieces %+v", i, len(r.IDs), pieces)
			}
		}
		testkit.NoError(t, d.Close())
	}
}

// FuzzJSONL: a JSONL file of any content gives rows or an error, never a panic.
func FuzzJSONL(f *testing.F) {
	for _, tt := range formatRows {
		f.Add([]byte(tt.row + "\n" + tt.row))
	}
	for _, tt := range pairRows {
		f.Add([]byte(tt.row))
	}
	for _, tt := range badRowTable {
		f.Add([]byte(tt.good + "\n" + tt.bad))
	}
	f.Add([]byte("\xef\xbb\xbf" + `{"messages":[{"role":"user","content":"\ud83d"}` + strings.Repeat("[", 2000)))
	f.Fuzz(func(t *testing.T, content []byte) { fuzzOpen(t, "a.jsonl", content) })
}

// FuzzJSON: a JSON array of any content gives rows or an error, and its elements end where
// encoding/json says they end.
func FuzzJSON(f *testing.F) {
	for _, tt := range formatRows {
		f.Add([]byte("[" + tt.row + " ,\n" + tt.row + "]"))
	}
	for _, tt := range badRowTable {
		f.Add([]byte(" [" + tt.good + "," + tt.bad + "]"))
	}
	for _, s := range []string{`[1,"a]",{"b":"\"}"},[[]],null]`, `[}`, `["\`, `[,]`, `[1 2]`, `[[`, `[]]`, `[{},]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		checkArray(t, content)
		fuzzOpen(t, "a.json", content)
	})
}

// FuzzParquet: a Parquet file of any content gives rows or an error. The library's panics become
// errors. Sizes that a header claims cost neither memory nor time.
func FuzzParquet(f *testing.F) {
	f.Add([]byte(parquetOf(f, pqText{"abc"}, pqText{"def"}, pqText{"ghi"})))
	f.Add([]byte(parquetOf(f, pqTextNull{1, ptr("ab")}, pqTextNull{2, nil})))
	f.Add([]byte(parquetOf(f, pqIDs{[]int32{97, 98}, []int64{-100, 98}}, pqIDs{[]int32{99, 100, 101}, []int64{-100, -100, 101}})))
	f.Add([]byte(parquetOf(f, pqAlpaca{Instruction: "i", Output: "o"}, pqAlpaca{Instruction: "i", Input: ptr("j"), Output: "p"})))
	f.Add([]byte(parquetOf(f, pqShareGPT{ptr("s"), []pqTurn{{"human", "h"}, {"gpt", "g"}}})))
	f.Add([]byte(parquetOf(f, pqMessages{`[{"name":"f"}]`, []pqMessage{{"user", ptr("h"), nil}, {"assistant", nil, []pqCall{{pqFunction{"f", "{}"}}}}}})))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 4 && !bytes.HasSuffix(content, []byte("PAR1")) {
			content = append(content[:len(content):len(content)], "PAR1"...) // so that the content passes the first check
		}
		fuzzOpen(t, "a.parquet", content)
	})
}
