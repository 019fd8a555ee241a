package data

import (
	"errors"
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
	"time"

	"golang.org/x/sys/unix"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// cacheFile returns the path of the only cache in dir.
func cacheFile(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], ".tokens") {
		t.Fatalf("the cache folder holds %q (%v), want one cache", names, err)
	}
	return names[0]
}

// age sets a file's modification time to an hour ago. The cache recognises a file as unchanged by
// its size and time only if the file had not changed shortly before it was read.
func age(t *testing.T, name string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	testkit.NoError(t, os.Chtimes(name, old, old))
}

func TestCacheIsReusedAndRebuilt(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "a.txt", "first")
	age(t, name)
	s := textSpec(t, 32, name)
	steps := []struct {
		what   string
		do     func()
		cached bool
		text   string
	}{
		{"made", func() {}, false, "first$"},
		{"nothing changed", func() {}, true, "first$"},
		{"touched", func() {
			testkit.NoError(t, os.Chtimes(name, time.Time{}, time.Now()))
		}, true, "first$"},
		{"changed at once, size and time kept", func() {
			info := testkit.Must(os.Stat(name))(t)
			write(t, dir, "a.txt", "FIRST")
			testkit.NoError(t, os.Chtimes(name, time.Time{}, info.ModTime()))
		}, false, "FIRST$"},
		{"grown", func() { write(t, dir, "a.txt", "second"); age(t, name) }, false, "second$"},
		{"unchanged again", func() {}, true, "second$"},
		{"same size, other time", func() { write(t, dir, "a.txt", "SECOND") }, false, "SECOND$"},
	}
	ids := map[string]string{}
	for _, st := range steps {
		st.do()
		d, cached := reopen(t, s)
		if got := texts(d.All()); cached != st.cached || !slices.Equal(got, []string{st.text}) || len(d.Warnings()) != 0 {
			t.Errorf("%s: cached %v, rows %q, warnings %q; want %v, %q, none", st.what, cached, got, d.Warnings(), st.cached, st.text)
		}
		cacheFile(t, s.CacheDir)
		if other, ok := ids[d.ID()]; ok && other != st.text {
			t.Errorf("%s: the ID is that of %q", st.what, other)
		}
		ids[d.ID()] = st.text
	}
	if len(ids) != 4 {
		t.Errorf("IDs %v, want one for each content", ids)
	}
}

func TestCacheIsKeyedByHowItIsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", `{"text":"ab"}`)
	s := textSpec(t, 64, dir)
	mustOpen(t, s)
	changes := map[string]func(*Spec){
		"format": func(s *Spec) { s.Format = "text" },
		"vocab":  func(s *Spec) { s.VocabSize = 70000 },
		"named":  func(s *Spec) { s.Paths = []string{filepath.Join(dir, "a.jsonl")} },
	}
	for what, change := range changes {
		other := s
		change(&other)
		if _, cached := reopen(t, other); cached {
			t.Errorf("another %s uses the same cache", what)
		}
	}
	same := s
	same.MaxSeqLen, same.Packing, same.Seed, same.Shuffle = 3, set(false), 5, true
	if d, cached := reopen(t, same); !cached || !slices.Equal(texts(d.All()), []string{"ab$"}) {
		t.Error("other rows of the same tokens need another cache")
	}
}

// TestCacheOfChatsIsKeyed: every setting that changes the tokens of chats leads to another cache, and no other
// setting does.
func TestCacheOfChatsIsKeyed(t *testing.T) {
	dir := t.TempDir()
	name := write(t, dir, "a.jsonl", `{"x":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}],"messages":[{"role":"user","content":"i"},{"role":"assistant","content":"j"}]}`)
	age(t, name)
	s := chatSpec(t, small, name)
	mustOpen(t, s)
	for what, change := range map[string]func(*Spec){
		"template":        func(s *Spec) { s.Template = write(t, t.TempDir(), "other.jinja", "x"+small) },
		"built-in one":    func(s *Spec) { s.Template = "default" },
		"tokenizer":       func(s *Spec) { s.Tokenizer = withChatML(t) },
		"mask_history":    func(s *Spec) { s.MaskHistory = true },
		"train_on_prompt": func(s *Spec) { s.TrainOnPrompt = true },
		"skip_bad_rows":   func(s *Spec) { s.SkipBadRows = true },
		"columns": func(s *Spec) {
			write(t, dir, infoName, `{"named":{"file_name":"a.jsonl","formatting":"sharegpt","columns":{"messages":"x"},"tags":{"role_tag":"role","content_tag":"content","user_tag":"user","assistant_tag":"assistant"}}}`)
			s.Dir, s.Paths = dir, []string{"named"}
		},
	} {
		other := s
		change(&other)
		if _, cached := reopen(t, other); cached {
			t.Errorf("another %s uses the same cache", what)
		}
		if _, cached := reopen(t, other); !cached {
			t.Errorf("with another %s the cache is made twice", what)
		}
	}
	same := s
	same.Template = write(t, t.TempDir(), "copy.jinja", small)
	same.Threads, same.MaxSeqLen, same.Packing, same.Seed = 3, 100, nil, 9
	if _, cached := reopen(t, same); !cached {
		t.Error("the same template elsewhere, and other rows of the same tokens, need another cache")
	}
}

func TestIDIsOfTheContentAlone(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		write(t, dir, "x.txt", "one")
		write(t, dir, "y.txt", "two")
	}
	write(t, b, "z.bin", "\x00")
	id := func(dirs ...string) string { return mustOpen(t, textSpec(t, 8, dirs...)).ID() }
	if id(a) != id(b) {
		t.Error("the same files elsewhere, beside a binary one, have another ID")
	}
	if id(filepath.Join(a, "y.txt"), filepath.Join(a, "x.txt")) == id(a) {
		t.Error("another order has the same ID")
	}
	rows := func(lines string) string {
		return mustOpen(t, idsSpec(t, 8, 300, write(t, t.TempDir(), "a.jsonl", lines))).ID()
	}
	if rows(`{"input_ids":[1,2,3]}`) == rows(`{"input_ids":[1,2,3],"labels":[-100,2,-100]}`) {
		t.Error("labels do not count in the ID")
	}
}

// TestCacheDamage: a cache in which any byte is changed, or that is truncated anywhere, is
// recognised as damaged and built again.
func TestCacheDamage(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", `{"input_ids":[1,2,3],"labels":[-100,2,3]}
{"input_ids":[4,5],"labels":[-100,5]}`)
	age(t, name)
	s := idsSpec(t, 8, 300, name)
	d := mustOpen(t, s)
	want := []Row{d.Row(0), d.Row(1)}
	file := cacheFile(t, s.CacheDir)
	whole := testkit.Must(os.ReadFile(file))(t)
	check := func(what string, content []byte) {
		t.Helper()
		// The damaged content goes into a new file, since d still has the old one mapped into
		// memory.
		testkit.NoError(t, os.Remove(file))
		testkit.NoError(t, os.WriteFile(file, content, 0o644))
		again, cached := reopen(t, s)
		if w := again.Warnings(); cached || len(w) != 1 || !strings.Contains(w[0], "damaged") {
			t.Errorf("%s: cached %v, warnings %q", what, cached, w)
		}
		if !equalRows([]Row{again.Row(0), again.Row(1)}, want) {
			t.Errorf("%s: other rows", what)
		}
	}
	for at := 0; at < len(whole); at += 7 {
		b := slices.Clone(whole)
		b[at] ^= 0x10
		check(fmt.Sprintf("byte %d of %d changed", at, len(whole)), b)
	}
	for _, n := range []int{0, 1, trailerBytes - 1, trailerBytes, len(whole) / 2, len(whole) - 1} {
		check(fmt.Sprintf("cut to %d bytes of %d", n, len(whole)), whole[:n])
	}
	check("a byte too many", append(slices.Clone(whole), 0))
	check("a byte too many in front", append([]byte{0}, whole...))
}

func TestAbandonedCacheFilesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "no[pattern")
	testkit.NoError(t, os.Mkdir(dir, 0o755))
	name := filepath.Join(dir, "x.tokens")
	dead, locked, fresh := write(t, dir, "x.tokens.tmp-1", "a"), write(t, dir, "x.tokens.tmp-2", "b"), write(t, dir, "x.tokens.tmp-3", "c")
	other := write(t, dir, "y.tokens.tmp-1", "d")
	for _, n := range []string{dead, locked, other} {
		age(t, n)
	}
	f := testkit.Must(os.Open(locked))(t)
	defer f.Close()
	testkit.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	w := testkit.Must(newCacheWriter(name, manifest{TokenBytes: 2}))(t)
	testkit.NoError(t, w.close())
	if left, want := namesIn(dir, "", ""), []string{locked, fresh, other}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// TestSweepOfAnyFolder: leftover files are removed from a cache folder even if its name contains
// wildcards such as "[".
func TestSweepOfAnyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "no[pattern")
	testkit.NoError(t, os.Mkdir(dir, 0o755))
	for _, end := range besides {
		write(t, dir, "gone.tokens"+end, "x")
	}
	own := write(t, dir, "x.tokens", "x")
	sweep(own)
	if left := namesIn(dir, "", ""); !slices.Equal(left, []string{own}) {
		t.Errorf("left are %q", left)
	}
}

// TestLeftPartsAreSwept: the next run removes files of killed processes, unless a living process uses them or a
// later one could continue with them.
func TestLeftPartsAreSwept(t *testing.T) {
	name := write(t, t.TempDir(), "a.txt", "some text")
	age(t, name)
	s := textSpec(t, 8, name)
	mustOpen(t, s)
	own := cacheFile(t, s.CacheDir)
	for _, cached := range []bool{true, false} {
		for _, locked := range []bool{false, true} {
			if !cached {
				write(t, filepath.Dir(name), "a.txt", fmt.Sprint("other text ", locked))
			}
			kept := []string{own}
			for _, end := range append([]string{".part"}, besides...) {
				write(t, s.CacheDir, "gone"+".tokens"+end, "x")
				kept = append(kept, write(t, s.CacheDir, "resumable.tokens"+end, "x"))
				if n := write(t, "", own+end, "x"); locked {
					kept = append(kept, n)
				}
			}
			testkit.NoError(t, os.Remove(filepath.Join(s.CacheDir, "gone.tokens.part")))
			f, err := os.Open(own + ".part")
			testkit.NoError(t, err)
			if locked {
				testkit.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
			}
			if _, got := reopen(t, s); got != cached {
				t.Errorf("cached %v, want %v", got, cached)
			}
			left, err := filepath.Glob(filepath.Join(s.CacheDir, "*"))
			if slices.Sort(kept); err != nil || !slices.Equal(left, kept) {
				t.Errorf("cached %v, locked %v: left are %q (%v), want %q", cached, locked, left, err, kept)
			}
			f.Close()
		}
	}
}

// TestFinishedWriterLeavesTheNextAlone: after a cache is finished, closing its writer removes no
// files with the names of unfinished parts. They may belong to another writer.
func TestFinishedWriterLeavesTheNextAlone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tokens")
	first := testkit.Must(newCacheWriter(name, manifest{TokenBytes: 2}))(t)
	testkit.NoError(t, first.finish())
	if left, _ := filepath.Glob(name + "*"); !slices.Equal(left, []string{name}) {
		t.Errorf("beside a whole cache lie %q", left)
	}
	second := testkit.Must(newCacheWriter(name, manifest{TokenBytes: 2}))(t)
	if err := errors.Join(first.close(), second.finish(), second.close()); err != nil {
		t.Errorf("a writer took another's files: %v", err)
	}
}

func TestCacheFolderThatCannotBe(t *testing.T) {
	s := textSpec(t, 8, write(t, t.TempDir(), "a.txt", "abc"))
	s.CacheDir = filepath.Join(write(t, t.TempDir(), "file", ""), "sub")
	_, err := Open(s)
	wantError(t, err, "cache", "cache_dir")
}

func TestDefaultCacheFolder(t *testing.T) {
	if _, err := os.UserCacheDir(); err != nil {
		t.Skip("no cache folder here: ", err)
	}
	got, err := cachePath(&Spec{}, nil)
	user, _ := os.UserCacheDir()
	if err != nil || filepath.Dir(got) != filepath.Join(user, "mt") {
		t.Errorf("caches go to %q (%v)", got, err)
	}
}

func TestProgress(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.txt", strings.Repeat("x", 5<<20)))
	seen := map[string][]int64{}
	var total int64
	s.Progress = func(done, all int64, what string) {
		seen[what] = append(seen[what], done)
		if done > all {
			t.Errorf("%s: %d of %d", what, done, all)
		}
		if what == tokenizing {
			total = all
		}
	}
	mustOpen(t, s)
	told := seen[tokenizing]
	if !slices.IsSorted(told) || len(told) < 2 || told[len(told)-1] != 5<<20 || total != 5<<20 {
		t.Errorf("told %v of %d", told, total)
	}
	if len(seen[CheckingCache]) == 0 {
		t.Errorf("told of %v only", seen)
	}
}

// manyFiles writes data sets as text, JSON, Parquet and compressed files, large enough to be
// tokenized in many chunks.
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

// counting is a tokenizer that counts the texts it encodes. When left reaches zero, it calls stop
// once.
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

// TestStoppedTokenisationGoesOn: if reading is stopped repeatedly, each run continues where the
// last one stopped. The final cache equals that of an uninterrupted run.
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
		testkit.NoError(t, w.close())
	}
}

// leftOver opens the unfinished cache of an interrupted run and returns its writer and the number
// of documents it holds.
func leftOver(t *testing.T, s Spec) (*cacheWriter, int64) {
	t.Helper()
	s, err := s.resolved()
	testkit.NoError(t, err)
	sources, _, err := findSources(&s)
	testkit.NoError(t, err)
	name, err := cachePath(&s, sources)
	testkit.NoError(t, err)
	w, err := newCacheWriter(name, manifest{Tokenizer: s.tokenizerID(), TokenBytes: 2})
	testkit.NoError(t, err)
	testkit.Must(w.resume(sources))(t)
	return w, w.Docs
}

// TestKilledTokenisationGoesOn: after a tokenizing process is killed, the next one continues from
// the last commit. It ignores data that was written after that commit.
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
	testkit.NoError(t, err)
	testkit.Must(f.WriteString("half a part"))(t)
	testkit.NoError(t, f.Close())
	d := mustOpen(t, s)
	if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "went on with an interrupted tokenisation") {
		t.Errorf("warnings %q", w)
	}
	if want := mustOpen(t, textSpec(t, 2048, filepath.Join(dir, "data"))); d.ID() != want.ID() {
		t.Error("the data set is another one")
	}
}

// TestLeftoversOfOtherContent: an unfinished cache is not continued if its sources or its own files
// have changed since.
func TestLeftoversOfOtherContent(t *testing.T) {
	testkit.NotShort(t)
	for name, spoil := range map[string]func(t *testing.T, paths []string, cache string){
		"nothing": func(*testing.T, []string, string) {},
		"a file that was done": func(t *testing.T, paths []string, _ string) {
			text := testkit.Must(os.ReadFile(paths[0]))(t)
			write(t, filepath.Dir(paths[0]), "a.jsonl", strings.Replace(string(text), "row 7 ", "ROW 7 ", 1))
		},
		"the file at work": func(t *testing.T, paths []string, _ string) {
			age(t, write(t, filepath.Dir(paths[1]), "b.json.gz", squeeze(t, "b.gz", "[]")))
		},
		"the tokens": func(t *testing.T, _ []string, cache string) {
			f := testkit.Must(os.OpenFile(cache+partNames[0], os.O_WRONLY, 0))(t)
			testkit.Must(f.WriteAt([]byte("x"), 1000))(t)
			f.Close()
		},
		"the journal": func(t *testing.T, _ []string, cache string) {
			testkit.NoError(t, os.Truncate(cache+journalName, 40))
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
	testkit.NoError(t, w.close())
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
	testkit.NotShort(t)
	if testing.Short() {
		t.Skip("-short leaves it out: it writes and reads two files of 30 MB, which takes seconds")
	}
	const rows, size = 3000, 10000
	text := strings.Repeat("0123456789", size/10)
	dir := t.TempDir()
	f := testkit.Must(os.Create(filepath.Join(dir, "large.json")))(t)
	pq := make([]pqText, rows)
	for i := range rows {
		fmt.Fprintf(f, "%c{\"text\":\"%s\"}", "[,"[min(i, 1)], text)
		pq[i].Text = text
	}
	fmt.Fprint(f, "]")
	testkit.NoError(t, f.Close())
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
		// The bound has three parts. Eight chunks are in work, each with 256 KiB of rows and twice
		// 4 bytes of tokens for each byte: 18 MiB. File buffers come in addition, and so do the
		// Parquet library's pages, packed and unpacked, which it keeps for reuse. The whole file at
		// once would be 30 MB of text and 120 MB of tokens.
		if used := int64(peak) - int64(before.HeapAlloc); used > 48<<20 || d.Stats().Documents != rows {
			t.Errorf("%s: %d MiB were used for %d documents", name, used>>20, d.Stats().Documents)
		}
	}
}

// TestTruncatedCache: if a cache is truncated during use, to any length, every way of reading
// returns an error that names the cache. The next Open builds it again.
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
			testkit.NoError(t, os.Truncate(file, left))
			wantError(t, read(d), file, "changed while it was in use", "bytes of", "made anew")
			if again, cached := reopen(t, s); cached || read(again) != nil {
				t.Errorf("%s: %d bytes of a cache still serve", what, left)
			}
		}
	}
}

// TestFaultWhileReading: if the cache file shrinks after Read has checked its length, the access
// faults, and Read returns an error. Other panics inside Read stay panics.
func TestFaultWhileReading(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.txt", strings.Repeat("x", 100_000)))
	d := mustOpen(t, s)
	file := cacheFile(t, s.CacheDir)
	err := d.Read(func() {
		testkit.NoError(t, os.Truncate(file, 0))
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
