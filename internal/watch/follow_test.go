package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestFollow: each complete line is passed once, and again after the file was replaced or truncated.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l := &lines{path: filepath.Join(dir, "x")}
	expect := func(what string, again bool, want ...string) {
		t.Helper()
		var got []string
		if is := l.read(func(line json.RawMessage) { got = append(got, string(line)) }); is != again || !slices.Equal(got, want) {
			t.Errorf("%s: %q, again %t; want %q, %t", what, got, is, want, again)
		}
	}
	expect("no file", false)
	write(t, dir, "x", "1\n{\"a\": 2}\r\n")
	expect("a file", false, "1", `{"a":2}`)
	expect("nothing new", false)
	appendTo(t, dir, "x", "[3,")
	expect("half a line", false)
	appendTo(t, dir, "x", " 4]\n5")
	expect("its other half", false, "[3,4]")
	appendTo(t, dir, "x", "\n\x00\x00\n\nnope\n6\n")
	expect("lines that are not JSON", false, "5", "6")
	appendTo(t, dir, "x", `"`+strings.Repeat("x", 2*maxLine)+"\"\n7\n")
	expect("a line without measure", false, "7")
	write(t, dir, "x", "1\n2\n")
	expect("a shorter file in its place", true, "1", "2")
	appendTo(t, dir, "x", "3\n")
	expect("which goes on", false, "3")
	write(t, dir, "x", "1\n2\n9\n4\n")
	expect("a longer file in its place", true, "1", "2", "9", "4")
	testkit.NoError(t, os.Truncate(l.path, 4))
	expect("cut", true, "1", "2")
	testkit.NoError(t, os.Remove(l.path))
	expect("gone", true)
	expect("still gone", false)
	testkit.NoError(t, os.Mkdir(l.path, 0o755))
	expect("a directory", false)
}

// TestFollowAFileInGrowth: read returns even if the file grows as fast as it is read.
func TestFollowAFileInGrowth(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "x", "1\n2\n")
	l := &lines{path: filepath.Join(dir, "x"), most: 10}
	for round := range 3 {
		got := 0
		l.read(func(json.RawMessage) {
			if got++; got < 1000 {
				appendTo(t, dir, "x", "3\n")
			}
		})
		if got != 2 {
			t.Errorf("round %d: %d lines of a file that had 2 new ones", round, got)
		}
	}
}

// stepsOf returns the steps in the lines of l.
func stepsOf(t *testing.T, l *lines) (got []int) {
	l.read(func(line json.RawMessage) {
		var at struct{ Step int }
		if err := json.Unmarshal(line, &at); err != nil {
			t.Error(err)
		}
		got = append(got, at.Step)
	})
	return got
}

// TestFollowThins: of many existing lines, every k-th, the selected ones and the last are passed; of new lines, all.
func TestFollowThins(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "{\"step\":%d%s}\n", i, map[bool]string{true: `,"skipped":true`}[i == 501])
	}
	write(t, dir, "x", text.String())
	l := &lines{path: filepath.Join(dir, "x"), most: 100, keep: always}
	got := stepsOf(t, l)
	if len(got) != 102 || got[1] != 10 || !slices.Contains(got, 501) || got[101] != 999 || !slices.IsSorted(got) {
		t.Errorf("of 1000 lines: %v", got)
	}
	appendTo(t, dir, "x", "{\"step\":1000}\n{\"step\":1001}\n")
	if got := stepsOf(t, l); !slices.Equal(got, []int{1000, 1001}) {
		t.Errorf("of two more: %v", got)
	}
}

// TestFollowSamples: of a very large file, lines from all over the file are passed once each, including the first and
// the last; of new lines, all.
func TestFollowSamples(t *testing.T) {
	defer func(was int64) { sampledFrom = was }(sampledFrom)
	sampledFrom = 1000
	dir := t.TempDir()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "{\"step\":%d}\n", i)
	}
	text.WriteString("{\"step\":")
	write(t, dir, "x", text.String())
	l := &lines{path: filepath.Join(dir, "x"), most: 20, keep: always}
	got := stepsOf(t, l)
	if len(got) != 21 || got[0] != 0 || got[20] != 999 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 21 || got[10]-got[9] > 60 {
		t.Errorf("of 1000 lines: %v", got)
	}
	appendTo(t, dir, "x", "1000}\n{\"step\":1001}\n")
	if got := stepsOf(t, l); !slices.Equal(got, []int{1000, 1001}) {
		t.Errorf("of two more: %v", got)
	}
}

func TestWholeFiles(t *testing.T) {
	dir := t.TempDir()
	w := &whole{path: filepath.Join(dir, "x")}
	expect := func(what, want string, changed bool) {
		t.Helper()
		if got, is := w.read(); string(got) != want || is != changed {
			t.Errorf("%s: %q, %t", what, got, is)
		}
	}
	expect("no file", "", false)
	write(t, dir, "x", "a")
	expect("a file", "a", true)
	expect("the same", "", false)
	write(t, dir, "x", "b")
	expect("another of its size", "b", true)
	testkit.NoError(t, os.Truncate(w.path, maxFile+1))
	if _, changed := w.read(); changed {
		t.Error("a file without measure is sent")
	}
}

func TestCheckRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	write(t, filepath.Join(dir, "run"), metricsFile, "")
	write(t, filepath.Join(dir, "begun"), configFile, "")
	write(t, filepath.Join(dir, "other"), "x", "")
	for name, want := range map[string]string{"run": "", "begun": "", "none": "there is no such directory", "file": "is a file", "other": "holds no metrics.jsonl"} {
		err := CheckRun(filepath.Join(dir, name))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if got := names([]string{"out/a", "out/b/", "old/a"}); !slices.Equal(got, []string{"out/a", "b", "old/a"}) {
		t.Errorf("names %q", got)
	}
}

// TestFollowSamplesLongLines: a line that spans several sample places is passed once, and so are the lines after it.
func TestFollowSamplesLongLines(t *testing.T) {
	defer func(was int64) { sampledFrom = was }(sampledFrom)
	sampledFrom = 1000
	dir := t.TempDir()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "%d%s\n", i, map[bool]string{true: strings.Repeat(" ", 3000)}[i == 500])
	}
	write(t, dir, "x", text.String())
	l := &lines{path: filepath.Join(dir, "x"), most: 20, keep: always}
	var got []int
	l.read(func(line json.RawMessage) {
		var i int
		if err := json.Unmarshal(line, &i); err != nil {
			t.Error(err)
		}
		got = append(got, i)
	})
	// The long line takes three sevenths of the file, so eight or nine of the sampled places lie in
	// it. Only one of them returns a line.
	if n := len(got); n < 10 || n > 14 || got[0] != 0 || got[n-1] != 999 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != n {
		t.Errorf("of 1000 lines with a long one: %v", got)
	}
}

// TestLinesInBatches: many lines are sent in several events, each line once. Only the first event voids earlier lines.
func TestLinesInBatches(t *testing.T) {
	dir := t.TempDir()
	const n = 2*batch + 1
	write(t, dir, "x", strings.Repeat("1\n", n+1))
	l := &lines{path: filepath.Join(dir, "x")}
	r := &run{index: 3}
	for _, tc := range []struct{ lines, events int }{{n + 1, 3}, {n, 3}, {batch, 1}} { // each file replaces a longer one
		write(t, dir, "x", strings.Repeat("1\n", tc.lines))
		again, events, lines := l.at != nil, 0, 0
		err := r.newLines("metrics", l, func(_ string, e any) error {
			sent := e.(linesEvent)
			if sent.Run != 3 || sent.Again != (again && events == 0) || len(sent.Lines) > batch {
				t.Errorf("event %d of %d lines: run %d, again %t, %d lines", events, tc.lines, sent.Run, sent.Again, len(sent.Lines))
			}
			events++
			lines += len(sent.Lines)
			return nil
		})
		if err != nil || events != tc.events || lines != tc.lines {
			t.Errorf("%d lines came in %d events, %v; want %d in %d", lines, events, err, tc.lines, tc.events)
		}
	}
}
