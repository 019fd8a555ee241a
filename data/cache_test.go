package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cacheFile is the only cache in dir.
func cacheFile(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], ".tokens") {
		t.Fatalf("the cache folder holds %q (%v), want one cache", names, err)
	}
	return names[0]
}

// age makes a file look as if it had not changed for a while.
func age(t *testing.T, name string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
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
			if err := os.Chtimes(name, time.Time{}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}, true, "first$"},
		{"changed at once, size and time kept", func() {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "a.txt", "FIRST")
			if err := os.Chtimes(name, time.Time{}, info.ModTime()); err != nil {
				t.Fatal(err)
			}
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

// TestCacheOfChatsIsKeyed: whatever changes the tokens of chats leads to another cache,
// and nothing else does.
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

// TestCacheDamage changes and cuts a cache at many places. Each time the damage must be
// noticed and the cache be made anew.
func TestCacheDamage(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", `{"input_ids":[1,2,3],"labels":[-100,2,3]}
{"input_ids":[4,5],"labels":[-100,5]}`)
	age(t, name)
	s := idsSpec(t, 8, 300, name)
	d := mustOpen(t, s)
	want := []Row{d.Row(0), d.Row(1)}
	file := cacheFile(t, s.CacheDir)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, content []byte) {
		t.Helper()
		// A new file, since d still has the old one mapped.
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
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
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "x.tokens")
	dead, locked, fresh := write(t, dir, "x.tokens.tmp-1", "a"), write(t, dir, "x.tokens.tmp-2", "b"), write(t, dir, "x.tokens.tmp-3", "c")
	other := write(t, dir, "y.tokens.tmp-1", "d")
	for _, n := range []string{dead, locked, other} {
		age(t, n)
	}
	f, err := os.Open(locked)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	w, err := newCacheWriter(name, manifest{TokenBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if left, want := namesIn(dir, "", ""), []string{locked, fresh, other}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// TestSweepOfAnyFolder: a cache folder is swept whatever characters its name has.
func TestSweepOfAnyFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "no[pattern")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, end := range besides {
		write(t, dir, "gone.tokens"+end, "x")
	}
	own := write(t, dir, "x.tokens", "x")
	sweep(own)
	if left := namesIn(dir, "", ""); !slices.Equal(left, []string{own}) {
		t.Errorf("left are %q", left)
	}
}

// TestLeftPartsAreSwept: the next run removes what killed processes left, unless a living
// process works at it or a later one could go on with it.
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
			if err := os.Remove(filepath.Join(s.CacheDir, "gone.tokens.part")); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(own + ".part")
			if err != nil {
				t.Fatal(err)
			}
			if locked {
				if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
					t.Fatal(err)
				}
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

// TestFinishedWriterLeavesTheNextAlone: once a cache has its name, files with the names of
// its parts may belong to another writer.
func TestFinishedWriterLeavesTheNextAlone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tokens")
	first, err := newCacheWriter(name, manifest{TokenBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.finish(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(name + "*"); !slices.Equal(left, []string{name}) {
		t.Errorf("beside a whole cache lie %q", left)
	}
	second, err := newCacheWriter(name, manifest{TokenBytes: 2})
	if err != nil {
		t.Fatal(err)
	}
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
