package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/data"
)

// TestDatasetDir: a data set of the Hub is found in the local cache; where it is not
// there, the error has the command that fetches it.
func TestDatasetDir(t *testing.T) {
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	want := filepath.Join(hub, "datasets--org--name", "snapshots", "abc")
	refs := filepath.Join(hub, "datasets--org--name", "refs")
	for _, dir := range []string{want, refs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(refs, "main"), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"org/name": want, "data/train.jsonl": "", "chats.json.gz": "", "a/b/c": "", "*.txt": "", "./x": ""} {
		if got, err := DatasetDir(name); got != dir || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, dir)
		}
	}
	for _, name := range []string{"org/other", "squad"} {
		_, err := DatasetDir(name)
		if err == nil || !strings.HasSuffix(err.Error(), "hf download --repo-type dataset "+name) || !strings.Contains(err.Error(), hub) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.RemoveAll(want); err != nil {
		t.Fatal(err)
	}
	if _, err := DatasetDir("org/name"); err == nil || !strings.Contains(err.Error(), "hf download") {
		t.Errorf("a snapshot that is gone: %v", err)
	}
}

// TestHubThatCannotBeRead: what lies in the cache and cannot be read is not reported as
// absent.
func TestHubThatCannotBeRead(t *testing.T) {
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	for kind, find := range map[string]func(string) (string, error){"models": ModelDir, "datasets": DatasetDir} {
		repo := filepath.Join(hub, kind+"--org--name")
		loop := filepath.Join(repo, "snapshots", "abc")
		for _, dir := range []string{"refs", "snapshots"} {
			if err := os.MkdirAll(filepath.Join(repo, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(filepath.Join(repo, "refs", "main"), []byte("abc\n"), 0o600), os.Symlink("abc", loop)); err != nil {
			t.Fatal(err)
		}
		dir, err := find("org/name")
		if dir != "" || !errors.Is(err, syscall.ELOOP) || !strings.Contains(err.Error(), loop) || strings.Contains(err.Error(), "hf download") {
			t.Errorf("%s: %q, %v", kind, dir, err)
		}
	}
}

// TestDataSpecColumns: the names of columns reach the data sets, and eval_dataset
// takes what is held out.
func TestDataSpecColumns(t *testing.T) {
	c, err := Parse("t.yaml", []byte("dataset: org/name\neval_dataset: org/name\nprompt_column: q\nresponse_column: a\n"), Args{})
	if err != nil {
		t.Fatal(err)
	}
	for held, s := range map[bool]data.Spec{false: c.DataSpec(), true: c.EvalSpec()} {
		if s.Columns != (data.Columns{Prompt: "q", Response: "a"}) || s.Held != held || s.Hub == nil {
			t.Errorf("held %v: columns %+v, held %v", held, s.Columns, s.Held)
		}
	}
	if c, err = Parse("t.yaml", []byte("dataset_text_field: body\nmessages_column: talk\n"), Args{}); err != nil {
		t.Fatal(err)
	}
	if got := c.DataSpec().Columns; got != (data.Columns{Text: "body", Messages: "talk"}) {
		t.Errorf("columns %+v", got)
	}
}
