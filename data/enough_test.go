package data

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// lines are n rows of text: prefix0, prefix1, …
func lines(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"text\":\"%s%d\"}\n", prefix, i)
	}
	return b.String()
}

// TestNoMoreIsRead stops reading a data set where no more of it is needed, in every kind of file. What
// lies behind is not looked at, not even where it is damaged.
func TestNoMoreIsRead(t *testing.T) {
	type row = pqText
	var rows []row
	for i := range 50 {
		rows = append(rows, row{fmt.Sprint("p", i)})
	}
	for name, tt := range map[string]struct{ content, first string }{
		"a.jsonl":    {lines("l", 3) + strings.Repeat("no JSON\n", 5000), "l"},
		"a.json":     {`[{"text":"l0"},{"text":"l1"},{"text":"l2"},` + strings.Repeat("no JSON,", 5000), "l"},
		"a.csv":      {"text\nl0\nl1\nl2\n" + strings.Repeat("one,two\n", 5000), "l"},
		"a.jsonl.gz": {squeeze(t, "a.gz", lines("l", 3)+strings.Repeat("no JSON\n", 5000)), "l"},
		"a.parquet":  {parquetOf(t, rows...), "p"},
	} {
		s := textSpec(t, 64, write(t, t.TempDir(), name, tt.content))
		s.MaxSamples, s.Packing = 3, set(false)
		want := []string{tt.first + "0$", tt.first + "1$", tt.first + "2$"}
		d := mustOpen(t, s)
		if got := texts(d.All()); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
		if r := d.Report().Sets[0]; r.Documents != 3 || r.Used != 3 {
			t.Errorf("%s: %d documents were read", name, r.Documents)
		}
		s.MaxSamples = 0
		if d, err := Open(s); name != "a.parquet" && err == nil {
			t.Errorf("%s: no error behind the rows", name)
		} else if err == nil {
			if n := d.Rows(); n != 50 {
				t.Errorf("%s: %d rows in all", name, n)
			}
			d.Close()
		}
	}
}

// TestUpTo says how many rows of a data set's start a part of it needs.
func TestUpTo(t *testing.T) {
	for _, tt := range []struct {
		split      string
		most, want int64
	}{
		{"train", 0, 0}, {"train", 5, 5}, {"train[:8]", 0, 8}, {"train[:8]", 5, 5}, {"train[2:8]", 5, 7}, {"train[2:8]", 50, 8},
		{"train[2:]", 5, 7}, {"train[2:]", 0, 0}, {"train[:50%]", 5, 0}, {"train[10%:]", 5, 0}, {"train[10%:20]", 0, 0},
	} {
		p, err := parseSplit(tt.split)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.upTo(tt.most); got != tt.want {
			t.Errorf("%s, the first %d: %d, want %d", tt.split, tt.most, got, tt.want)
		}
	}
	if got := (split{Shards: 2}).upTo(5); got != 0 {
		t.Errorf("a shard needs %d", got)
	}
}

// TestEnoughOfSeveral reads of several data sets, of several files and with bad rows as much as is needed
// of each, and takes the same rows as from all of them.
func TestEnoughOfSeveral(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		write(t, dir, fmt.Sprintf("a/%d.jsonl", i), "bad\n"+lines(fmt.Sprint("a", i), 2))
		write(t, dir, fmt.Sprintf("b/%d.jsonl", i), lines(fmt.Sprint("b", i), 3)+"bad\n")
	}
	write(t, dir, "c.txt", "one")
	s := textSpec(t, 64, dir+"/a", dir+"/b", dir+"/c.txt")
	s.SkipBadRows, s.Packing, s.MaxSamples = true, set(false), 4
	want := []string{"a00$", "a01$", "a10$", "a11$", "b00$", "b01$", "b02$", "b10$", "one$"}
	d := mustOpen(t, s)
	if got := texts(d.All()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r := d.Report(); r.Sets[0].Documents != 4 || r.Sets[1].Documents != 4 {
		t.Errorf("read %d and %d documents", r.Sets[0].Documents, r.Sets[1].Documents)
	}
	s.Threads = 1
	s.CacheDir = t.TempDir()
	if other := mustOpen(t, s); other.ID() != d.ID() {
		t.Error("the same rows have two IDs")
	}
	s.MaxSamples = 5
	if other := mustOpen(t, s); other.ID() == d.ID() {
		t.Error("other rows have the same ID")
	}
	ids := idsSpec(t, 64, 256, write(t, dir, "ids.jsonl", `{"input_ids":[97,98,99,100],"position_ids":[0,1,0,1]}`+"\n"+strings.Repeat(`{"input_ids":[97,98]}`+"\n", 20)))
	ids.MaxSamples = 3
	if d := mustOpen(t, ids); d.Rows() != 2 || d.Report().Sets[0].Documents != 3 {
		t.Errorf("rows of several documents: %d rows, %d documents", d.Rows(), d.Report().Sets[0].Documents)
	}
}

// TestCacheOfAPart is used again as long as what was read is the same.
func TestCacheOfAPart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", lines("x", 20000))
	other := write(t, dir, "b.jsonl", lines("y", 2))
	s := textSpec(t, 64, dir)
	s.MaxSamples = 2
	mustOpen(t, s)
	if _, cached := reopen(t, s); !cached {
		t.Error("the cache is not used again")
	}
	write(t, dir, "b.jsonl", lines("z", 2)) // of the same size, and never read
	if _, cached := reopen(t, s); !cached {
		t.Error("a file that is not needed counts")
	}
	if err := os.Chtimes(other, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.jsonl", strings.Replace(lines("x", 20000), "x0", "w0", 1))
	d, cached := reopen(t, s)
	if got := texts(d.All()); cached || got[0] != "w0$x1$" {
		t.Errorf("after a change of the first row: %q, from the cache: %v", got, cached)
	}
}

// TestPartIsResumed goes on with the reading of a part that was stopped, and comes to the same rows.
func TestPartIsResumed(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", lines("some text in row ", 3000))
	if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // a young file is read from its start
		t.Fatal(err)
	}
	s := textSpec(t, 64, name)
	s.MaxSamples = 2000
	want := mustOpen(t, s)
	s.CacheDir, s.part = t.TempDir(), 2000
	stop := make(chan struct{})
	s.Tokenizer, s.Stop = countTo(1000, func() { close(stop) }), stop
	if _, err := Open(s); err == nil {
		t.Fatal("the reading was not stopped")
	}
	s.Tokenizer, s.Stop = want.spec.Tokenizer, nil
	got := mustOpen(t, s)
	if len(got.Warnings()) != 1 || got.ID() != want.ID() || !slices.Equal(texts(got.All()), texts(want.All())) {
		t.Errorf("%d rows, warnings %q", got.Rows(), got.Warnings())
	}
}
