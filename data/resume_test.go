package data

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mt/internal/long"
	"mt/tokenizer"

	"golang.org/x/sys/unix"
)

// manyFiles are data sets in every container, large enough to be tokenised in many parts.
func manyFiles(t *testing.T, dir string) []string {
	t.Helper()
	var lines, array strings.Builder
	var rows []pqText
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 3000 {
		text := strings.Repeat(fmt.Sprintf("row %d ", i), 1+r.IntN(20))
		fmt.Fprintf(&lines, "{\"text\":%q}\n", text)
		fmt.Fprintf(&array, "%c{\"text\":%q}", "[,"[min(i, 1)], text)
		rows = append(rows, pqText{Text: text})
	}
	paths := []string{
		write(t, dir, "a.jsonl", lines.String()),
		write(t, dir, "b.json.gz", squeeze(t, "b.gz", array.String()+"]")),
		write(t, dir, "c.parquet", parquetIn(t, 700, 5000, rows...)),
		write(t, dir, "d.txt", lines.String()),
		write(t, dir, "e.jsonl.zst", squeeze(t, "e.zst", lines.String())),
	}
	for _, p := range paths {
		age(t, p)
	}
	return paths
}

// counting is a tokenizer that counts the texts it encodes; after so many it calls stop, once.
type counting struct {
	tokenizer.Tokenizer
	left *atomic.Int64
	stop func()
}

func countTo(n int64, stop func()) counting {
	c := counting{tokenizer.Bytes(), new(atomic.Int64), sync.OnceFunc(stop)}
	c.left.Store(n)
	return c
}

func (c counting) Encode(dst []int32, text []byte) ([]int32, error) {
	if c.left.Add(-1) < 0 {
		c.stop()
	}
	return c.Tokenizer.Encode(dst, text)
}

// TestStoppedTokenisationGoesOn stops the reading again and again. Each time it goes on from
// where it was, and at the end the cache is what it would be without any stop.
func TestStoppedTokenisationGoesOn(t *testing.T) {
	paths := manyFiles(t, t.TempDir())
	want := mustOpen(t, textSpec(t, 64, paths...))
	s := textSpec(t, 64, paths...)
	s.part, s.Threads = 4096, 2 // bytes between two commits
	done, stops := int64(0), 0
	for {
		stop := make(chan struct{})
		s.Tokenizer, s.Stop = countTo(4500, func() { close(stop) }), stop
		d, err := Open(s)
		if err == nil {
			defer d.Close()
			if stops < 2 || !slices.ContainsFunc(d.Warnings(), func(w string) bool { return strings.Contains(w, "went on with an interrupted tokenisation") }) {
				t.Errorf("stopped %d times; warnings %q", stops, d.Warnings())
			}
			if d.ID() != want.ID() || !reflect.DeepEqual(d.Stats(), want.Stats()) || !reflect.DeepEqual(d.Report(), want.Report()) {
				t.Error("the data set is another one")
			}
			if c := cacheFile(t, s.CacheDir); !strings.HasSuffix(c, ".tokens") {
				t.Errorf("left is %s", c)
			}
			return
		}
		if err != ErrStopped || stops > 20 {
			t.Fatalf("after %d stops: %v", stops, err)
		}
		stops++
		w, at := leftOver(t, s)
		if at <= done {
			t.Fatalf("stop %d: %d documents are kept, %d were before", stops, at, done)
		}
		done = at
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// leftOver opens what an interrupted tokenisation left, and says how many documents it
// holds.
func leftOver(t *testing.T, s Spec) (*cacheWriter, int64) {
	t.Helper()
	s, err := s.resolved()
	if err != nil {
		t.Fatal(err)
	}
	sources, _, err := findSources(&s)
	if err != nil {
		t.Fatal(err)
	}
	name, err := cachePath(&s, sources)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newCacheWriter(name, manifest{Tokenizer: s.tokenizerID(), TokenBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.resume(sources); err != nil {
		t.Fatal(err)
	}
	return w, w.Docs
}

// TestKilledTokenisationGoesOn kills a process that tokenises. Another goes on from its last
// commit, and what the files hold beyond that commit does no harm.
func TestKilledTokenisationGoesOn(t *testing.T) {
	if dir := os.Getenv("MT_TEST_KILLED"); dir != "" {
		s := Spec{Paths: []string{dir + "/data"}, CacheDir: dir + "/cache", part: 4096, Threads: 1}
		s.Tokenizer = countTo(5000, func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL); select {} })
		_, err := Open(s)
		t.Fatal("it lives: ", err)
	}
	dir := t.TempDir()
	manyFiles(t, filepath.Join(dir, "data"))
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTokenisationGoesOn$")
	cmd.Env = append(os.Environ(), "MT_TEST_KILLED="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "it lives") {
		t.Fatalf("the process ended with %v: %s", err, out)
	}
	s := textSpec(t, 64, filepath.Join(dir, "data"))
	s.CacheDir, s.MaxSeqLen = filepath.Join(dir, "cache"), 2048
	parts, err := filepath.Glob(filepath.Join(s.CacheDir, "*.part"))
	if err != nil || len(parts) != 1 {
		t.Fatalf("left are %q (%v)", parts, err)
	}
	f, err := os.OpenFile(parts[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half a part"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(t, s)
	if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "went on with an interrupted tokenisation") {
		t.Errorf("warnings %q", w)
	}
	if want := mustOpen(t, textSpec(t, 2048, filepath.Join(dir, "data"))); d.ID() != want.ID() {
		t.Error("the data set is another one")
	}
}

// TestLeftoversOfOtherContent: what an interrupted tokenisation left is not used once the
// sources, or the leftover files themselves, have changed.
func TestLeftoversOfOtherContent(t *testing.T) {
	long.NotShort(t)
	for name, spoil := range map[string]func(t *testing.T, paths []string, cache string){
		"nothing": func(*testing.T, []string, string) {},
		"a file that was done": func(t *testing.T, paths []string, _ string) {
			text, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Dir(paths[0]), "a.jsonl", strings.Replace(string(text), "row 7 ", "ROW 7 ", 1))
		},
		"the file at work": func(t *testing.T, paths []string, _ string) {
			age(t, write(t, filepath.Dir(paths[1]), "b.json.gz", squeeze(t, "b.gz", "[]")))
		},
		"the tokens": func(t *testing.T, _ []string, cache string) {
			f, err := os.OpenFile(cache+partNames[0], os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("x"), 1000); err != nil {
				t.Fatal(err)
			}
			f.Close()
		},
		"the journal": func(t *testing.T, _ []string, cache string) {
			if err := os.Truncate(cache+journalName, 40); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			paths := manyFiles(t, t.TempDir())
			s := textSpec(t, 64, paths...)
			s.part, s.Threads = 4096, 1
			stop := make(chan struct{})
			s.Tokenizer, s.Stop = countTo(4500, func() { close(stop) }), stop
			if _, err := Open(s); err != ErrStopped {
				t.Fatal(err)
			}
			caches, err := filepath.Glob(filepath.Join(s.CacheDir, "*.part"))
			if err != nil || len(caches) != 1 {
				t.Fatalf("left are %q (%v)", caches, err)
			}
			spoil(t, paths, strings.TrimSuffix(caches[0], ".part"))
			s.Tokenizer, s.Stop = tokenizer.Bytes(), nil
			d := mustOpen(t, s)
			if resumed := len(d.Warnings()) > 0; resumed != (name == "nothing") {
				t.Errorf("warnings %q", d.Warnings())
			}
			if want := mustOpen(t, textSpec(t, 64, paths...)); d.ID() != want.ID() {
				t.Error("the data set is another one")
			}
			cacheFile(t, s.CacheDir)
		})
	}
}

// TestTwoAtOnce: two processes that make the same cache at the same time do not disturb
// each other.
func TestTwoAtOnce(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.txt", "hello"))
	w, _ := leftOver(t, s)
	d := mustOpen(t, s) // while w holds the lock
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	_, cached := reopen(t, s)
	if got := texts(d.All()); !slices.Equal(got, []string{"hello$"}) || !cached {
		t.Errorf("rows %q, cached %v", got, cached)
	}
	cacheFile(t, s.CacheDir)
}

// TestThreadsDoNotMatter: the cache is the same for any number of threads.
func TestThreadsDoNotMatter(t *testing.T) {
	paths := manyFiles(t, t.TempDir())
	var want *Dataset
	for _, threads := range []int{1, 2, 7} {
		s := textSpec(t, 64, paths...)
		s.Threads = threads
		d := mustOpen(t, s)
		if want == nil {
			want = d
		}
		if d.ID() != want.ID() || !reflect.DeepEqual(d.Report(), want.Report()) {
			t.Errorf("%d threads make another data set", threads)
		}
	}
}

// TestMemoryIsBounded: reading a large array and a large Parquet file takes a fraction of
// their size.
func TestMemoryIsBounded(t *testing.T) {
	long.NotShort(t)
	if testing.Short() {
		t.Skip("-short leaves it out: it writes and reads two files of 30 MB, which takes seconds")
	}
	const rows, size = 3000, 10000
	text := strings.Repeat("0123456789", size/10)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "large.json"))
	if err != nil {
		t.Fatal(err)
	}
	pq := make([]pqText, rows)
	for i := range rows {
		fmt.Fprintf(f, "%c{\"text\":\"%s\"}", "[,"[min(i, 1)], text)
		pq[i].Text = text
	}
	fmt.Fprint(f, "]")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "large.parquet", parquetIn(t, 500, 100_000, pq...))
	pq = nil
	for _, name := range []string{"large.json", "large.parquet"} {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		peak := uint64(0)
		s := textSpec(t, 64, filepath.Join(dir, name))
		s.Threads = 2
		s.Progress = func(done, total int64, _ string) {
			runtime.GC()
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
		d := mustOpen(t, s)
		// Eight chunks on their way, each with 256 KiB of rows and up to twice 4 bytes of
		// tokens for each byte, make 18 MiB. Buffers of files come in addition, and pages of
		// Parquet, packed and unpacked, which the library keeps for reuse. Everything at once
		// would be 30 MB of text and 120 MB of tokens.
		if used := int64(peak) - int64(before.HeapAlloc); used > 48<<20 || d.Stats().Documents != rows {
			t.Errorf("%s: %d MiB were used for %d documents", name, used>>20, d.Stats().Documents)
		}
	}
}
