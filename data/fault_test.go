package data

import (
	"os"
	"strings"
	"testing"
)

// TestTruncatedCache: a cache that is cut off while it is in use is an error that names it,
// wherever it is cut and however it is read. The next Open makes it anew.
func TestTruncatedCache(t *testing.T) {
	name := write(t, t.TempDir(), "a.txt", strings.Repeat("some text of a row. ", 5000))
	age(t, name)
	for what, read := range map[string]func(*Dataset) error{
		"batch":  func(d *Dataset) error { _, err := d.Sampler(4).Batch(d.Sampler(4).StepsPerEpoch(), 1<<20); return err },
		"bigram": func(d *Dataset) error { _, err := BigramLoss(d.All(), d.All()); return err },
		"stats":  func(d *Dataset) error { return d.Read(func() { d.Stats() }) },
	} {
		for _, left := range []int64{0, 4096, -1} {
			s := textSpec(t, 64, name)
			d := mustOpen(t, s)
			if err := read(d); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			file := cacheFile(t, s.CacheDir)
			if left < 0 {
				left += int64(len(d.c.mapped))
			}
			if err := os.Truncate(file, left); err != nil {
				t.Fatal(err)
			}
			wantError(t, read(d), file, "changed while it was in use", "bytes of", "made anew")
			if again, cached := reopen(t, s); cached || read(again) != nil {
				t.Errorf("%s: %d bytes of a cache still serve", what, left)
			}
		}
	}
}

// TestFaultWhileReading: what is gone only when it is touched is an error as well. A panic
// of another kind stays a panic.
func TestFaultWhileReading(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.txt", strings.Repeat("x", 100_000)))
	d := mustOpen(t, s)
	file := cacheFile(t, s.CacheDir)
	err := d.Read(func() {
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		d.Row(d.Rows() - 1)
		t.Error("what is gone was read")
	})
	wantError(t, err, file, "it has 0 bytes of")
	other := mustOpen(t, textSpec(t, 64, write(t, t.TempDir(), "b.txt", "abc")))
	defer func() {
		if recover() == nil {
			t.Error("a row that is not there does not panic")
		}
	}()
	err = other.Read(func() { other.Row(-1) })
	t.Errorf("a row that is not there is the error %v", err)
}
