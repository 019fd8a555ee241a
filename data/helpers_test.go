package data

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// write writes a file below dir, makes the directories it needs, and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	testkit.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	testkit.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	return name
}

// textSpec returns a Spec that reads paths with the byte tokenizer and keeps its token cache in a
// temporary folder.
func textSpec(t *testing.T, maxSeqLen int, paths ...string) Spec {
	return Spec{Paths: paths, Tokenizer: tokenizer.Bytes(), MaxSeqLen: maxSeqLen, CacheDir: t.TempDir()}
}

// idsSpec returns a Spec that reads paths as rows of input_ids, all below vocab.
func idsSpec(t *testing.T, maxSeqLen, vocab int, paths ...string) Spec {
	return Spec{Paths: paths, VocabSize: vocab, MaxSeqLen: maxSeqLen, CacheDir: t.TempDir()}
}

func mustOpen(t *testing.T, s Spec) *Dataset {
	t.Helper()
	d := testkit.Must(Open(s))(t)
	testkit.Close(t, d)
	return d
}

// reopen opens a data set and reports whether an existing token cache was used. It keeps the
// existing caches open meanwhile: no new file can then get the inode of an old one and be taken for
// it.
func reopen(t *testing.T, s Spec) (d *Dataset, cached bool) {
	t.Helper()
	names := testkit.Must(filepath.Glob(filepath.Join(s.CacheDir, "*.tokens")))(t)
	var before []os.FileInfo
	for _, name := range names {
		f := testkit.Must(os.Open(name))(t)
		defer f.Close()
		info := testkit.Must(f.Stat())(t)
		before = append(before, info)
	}
	d = mustOpen(t, s)
	now := testkit.Must(os.Stat(d.file))(t)
	return d, slices.ContainsFunc(before, func(b os.FileInfo) bool { return os.SameFile(b, now) })
}

// texts returns the rows as strings, with "$" for the token that ends a document.
func texts(v View) []string {
	out := []string{}
	for i := range v.Rows() {
		out = append(out, rowText(v.Row(i)))
	}
	return out
}

func rowText(r Row) string {
	var b strings.Builder
	for _, id := range r.IDs {
		if id == 0 {
			id = '$'
		}
		b.WriteByte(byte(id))
	}
	return b.String()
}

// wantError checks that err is an error that contains all of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func equalRows(a, b []Row) bool {
	return slices.EqualFunc(a, b, func(a, b Row) bool {
		return slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Docs, b.Docs)
	})
}

// set returns a pointer to b, for Spec.Packing.
func set(b bool) *bool { return &b }

// TestFixtures: mt reads the rows of recorded training runs unchanged and in file order, and takes
// as many rows per step as were recorded.
func TestFixtures(t *testing.T) {
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			name := filepath.Join(dir, "train.jsonl")
			f := testkit.Must(os.Open(name))(t)
			defer f.Close()
			d := mustOpen(t, idsSpec(t, 2048, 1<<20, name))
			n := 0
			for lines := bufio.NewScanner(f); lines.Scan(); n++ {
				var want struct {
					IDs    []int32 `json:"input_ids"`
					Labels []int32
				}
				testkit.NoError(t, json.Unmarshal(lines.Bytes(), &want))
				got := d.Row(n)
				if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Labels, want.Labels) || got.Docs != nil {
					t.Errorf("row %d is %+v, want %+v", n, got, want)
				}
			}
			if d.Rows() != n || n == 0 || len(d.Warnings()) != 0 {
				t.Errorf("%d rows of %d lines, warnings %q", d.Rows(), n, d.Warnings())
			}
		})
	}
}

func TestMain(m *testing.M) { os.Exit(testkit.InMemory(m)) }
