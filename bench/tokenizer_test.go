package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

func TestTokenizerReports(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	for name, content := range map[string][]byte{
		"tokenizer.json": tokenizer.Bytes().Files()["tokenizer.json"], "text": []byte(strings.Repeat("A line of text.\n", 100) + "cut off"),
	} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	r := testkit.Must(Tokenizer(t.Context(), TokenizerOptions{Dir: dir, Text: text, Rounds: 3, Document: 100}))(t)
	if r.Bytes != 1600 || r.Tokens != 1600 || r.Documents != 15 || !(r.Ours.Min > 0) || r.Peer != nil {
		t.Errorf("%+v", r)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "1600 tokens") {
		t.Errorf("table %v\n%s", err, table.String())
	}
	if b, err := json.Marshal(r); err != nil || !bytes.Contains(b, []byte(`"ours_mb_s":{"median":`)) {
		t.Errorf("JSON %v %s", err, b)
	}
	if _, err := Tokenizer(t.Context(), TokenizerOptions{Dir: dir, Text: filepath.Join(dir, "none")}); err == nil {
		t.Error("no error for a text that is not there")
	}
	if _, err := Tokenizer(t.Context(), TokenizerOptions{Dir: t.TempDir(), Text: text}); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("a directory without tokenizer.json: %v", err)
	}
}

func TestDocuments(t *testing.T) {
	text := []byte("aaa\nb\n\ncccc\nd")
	docs := documents(text, 3)
	var got []string
	for _, d := range docs {
		got = append(got, string(d))
	}
	if want := "aaa\n|b\n\n|cccc\n|d"; strings.Join(got, "|") != want || !bytes.Equal(bytes.Join(docs, nil), text) {
		t.Errorf("%q, want %q", got, want)
	}
}
