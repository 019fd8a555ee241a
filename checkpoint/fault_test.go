package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// faultyFS is a file system whose operation number failAt fails with err. If dead is set, all later
// operations fail too, as for a killed process. It never waits for the disk.
type faultyFS struct {
	osFS
	failAt  int
	err     error
	dead    bool
	ops     int
	failed  string // the operation that failed
	free    int64  // result of Free; 0: the real free space
	twoStep bool   // Exchange is not supported, so replacing takes two renames
}

var errDisk = errors.New("the disk is on fire")

// next counts an operation. It returns the error if this operation is to fail.
func (f *faultyFS) next(op, path string) error {
	f.ops++
	if f.ops == f.failAt || f.dead && f.ops > f.failAt {
		if f.failed == "" {
			f.failed = op + " " + filepath.Base(path)
		}
		return &os.PathError{Op: op, Path: path, Err: f.err}
	}
	return nil
}

func (f *faultyFS) MkdirAll(p string) error {
	return errors.Join(f.next("make directory", p), f.osFS.MkdirAll(p))
}

func (f *faultyFS) Mkdir(p string) error {
	if err := f.next("make directory", p); err != nil {
		return err
	}
	return f.osFS.Mkdir(p)
}

func (f *faultyFS) Create(p string) (File, error) {
	if err := f.next("create", p); err != nil {
		return nil, err
	}
	file, err := f.osFS.Create(p)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, path: p}, nil
}

func (f *faultyFS) Rename(from, to string) error {
	if err := f.next("rename", strings.TrimSuffix(from, "-old")); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: f.err}
	}
	return f.osFS.Rename(from, to)
}

func (f *faultyFS) Exchange(a, b string) error {
	if f.twoStep {
		return errors.ErrUnsupported
	}
	if err := f.next("rename", a); err != nil {
		return err
	}
	return f.osFS.Exchange(a, b)
}

func (f *faultyFS) Link(from, to string) error {
	if err := f.next("link", to); err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: f.err}
	}
	return f.osFS.Link(from, to)
}

func (f *faultyFS) SyncFile(p string) error { return f.next("sync", p) }

func (f *faultyFS) RemoveAll(p string) error {
	if err := f.next("remove", p); err != nil {
		return err
	}
	return f.osFS.RemoveAll(p)
}

func (f *faultyFS) SyncDir(p string) error { return f.next("sync directory", p) }

func (f *faultyFS) Free(p string) (int64, error) {
	if f.free != 0 {
		return f.free, nil
	}
	if err := f.next("free space of", p); err != nil {
		return 0, err
	}
	return f.osFS.Free(p)
}

type faultyFile struct {
	File
	fs   *faultyFS
	path string
}

// WriteAt writes only half of the bytes if the operation is to fail, as a full disk does.
func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.next("write", f.path); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Allocate(n int64) error { return f.fs.next("allocate", f.path) }
func (f *faultyFile) Flush(off, n int64)     {}
func (f *faultyFile) Sync() error            { return f.fs.next("sync", f.path) }

func (f *faultyFile) Close() error {
	return errors.Join(f.File.Close(), f.fs.next("close", f.path))
}

// saves returns the ways to save that the fault tests go through, by name. Each function writes
// into output on the given disk.
func saves(t *testing.T) map[string]func(output string, disk *faultyFS) error {
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 8)
	with := func(d *faultyFS, zstd bool) WriterOptions {
		o := options(c, layers, BF16)
		o.MaxShardBytes, o.Zstd, o.FS = 2500, zstd, d
		return o
	}
	return map[string]func(string, *faultyFS) error{
		"checkpoint": func(out string, d *faultyFS) error { return save(out, layers, with(d, false), testState) },
		"compressed": func(out string, d *faultyFS) error { return save(out, layers, with(d, true), testState) },
		"linked": func(out string, d *faultyFS) error {
			o := with(d, false)
			o.Linked = []bool{true, false, true}
			return save(out, inExtents(t, layers, o, fastDir(t)), o, testState)
		},
		"replacing": func(out string, d *faultyFS) error {
			if err := save(out, layers, with(&faultyFS{}, false), testState); err != nil {
				return err
			}
			return save(out, layers, with(d, false), testState)
		},
		"replacing in two steps": func(out string, d *faultyFS) error {
			if err := save(out, layers, with(&faultyFS{}, false), testState); err != nil {
				return err
			}
			d.twoStep = true
			return save(out, layers, with(d, false), testState)
		},
		"model": func(out string, d *faultyFS) error { return WriteModel(out, layers, with(d, false), nil) },
	}
}

// TestFailingDisk: if any file operation of a save fails, the save returns an error that names the
// operation. It leaves no unfinished files, and a checkpoint that it was to replace stays valid.
func TestFailingDisk(t *testing.T) {
	testkit.NotShort(t)
	for name, save := range saves(t) {
		t.Run(name, func(t *testing.T) {
			for i := 1; ; i++ {
				if i > 1000 {
					t.Fatal("no end")
				}
				out := fastDir(t)
				disk := &faultyFS{failAt: i, err: errDisk}
				err := save(out, disk)
				left := names(t, out)
				if disk.failed == "" {
					if err != nil || i < 20 {
						t.Fatalf("nothing failed in %d operations: %v", i, err)
					}
					return
				}
				if err == nil {
					// The save may succeed only if the failed operation was the removal of an older
					// checkpoint. It leaves that directory, and Prune removes it later.
					if !strings.HasPrefix(disk.failed, "remove ") {
						t.Fatalf("operation %d, %s, failed and the save did not", i, disk.failed)
					}
					continue
				}
				at := strings.LastIndex(disk.failed, " ")
				op, file := disk.failed[:at], disk.failed[at+1:]
				if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), op) || !strings.Contains(err.Error(), file) {
					t.Errorf("operation %d, %s: the error is %v", i, disk.failed, err)
				}
				if strings.HasPrefix(name, "replacing") {
					if len(left) != 1 || Verify(filepath.Join(out, left[0])) != nil {
						t.Errorf("operation %d, %s: the older checkpoint is lost: %v", i, disk.failed, left)
					}
					continue
				}
				for _, l := range left {
					if name != "model" || strings.Contains(l, ".tmp-") && !strings.HasPrefix(disk.failed, "remove ") {
						t.Errorf("operation %d, %s: %v is left", i, disk.failed, left)
					}
				}
			}
		})
	}
}

// TestKilled: if the process dies at any file operation of a save, the checkpoint before is still
// the newest, or the new one is complete.
func TestKilled(t *testing.T) {
	c := small(t)
	layers := newLayers(c, true)
	old := testState
	old.Step = 10
	for name, save := range saves(t) {
		t.Run(name, func(t *testing.T) {
			if name != "replacing" {
				testkit.NotShort(t)
				testkit.DrawnInRace(t, 3)
			}
			seen := map[int]int{}
			for i := 1; i < 1000; i++ {
				out := fastDir(t)
				testkit.NoError(t, saveStep(out, layers, c, old))
				disk := &faultyFS{failAt: i, err: errDisk, dead: true}
				_ = save(out, disk)
				dir, state, skipped, err := Latest(out, nil)
				if err != nil || dir == "" || state.Step != 10 && state.Step != 20 {
					t.Fatalf("operation %d, %s: %q, %+v, %v, %v", i, disk.failed, dir, state, skipped, err)
				}
				seen[state.Step]++
				testkit.NoError(t, Prune(osFS{}, out, 2, math.MaxInt, 0, 0))
				for _, n := range names(t, out) {
					if strings.Contains(n, ".tmp-") {
						t.Errorf("operation %d, %s: %s is left after Prune", i, disk.failed, n)
					}
				}
				if disk.failed == "" {
					if name == "replacing" && seen[10] > 0 || !strings.HasPrefix(name, "replacing") && seen[10] < 20 {
						t.Errorf("resumed from %v", seen)
					}
					return
				}
			}
			t.Fatal("no end")
		})
	}
}

func saveStep(out string, layers []Layer, c *model.Config, s TrainerState) error {
	o := options(c, layers, BF16)
	o.Step, o.FS = s.Step, &faultyFS{}
	return save(out, layers, o, s)
}

func TestDiskFull(t *testing.T) {
	c := config(t, nil)
	layers := newLayers(c, true)
	out := fastDir(t)
	o := options(c, layers, BF16)

	o.FS = &faultyFS{free: 1000}
	_, err := NewWriter(out, o)
	if err == nil || !strings.Contains(err.Error(), out+" has 1000 B free and the save takes 231 KiB: 230 KiB more is needed; free some, choose another output_dir, or keep fewer checkpoints (save_total_limit)") {
		t.Errorf("before the save: %v", err)
	}
	o.FS = &faultyFS{free: o.CheckpointBytes() - 1}
	if _, err := NewWriter(out, o); err == nil || !strings.Contains(err.Error(), out+" has 231 KiB free and the save takes 231 KiB: 1 B more is needed") {
		t.Errorf("with room for all but a byte: %v", err)
	}
	// The next save fails since the disk fills up during it.
	full := &faultyFS{failAt: 20, err: syscall.ENOSPC}
	o.FS = full
	err = save(out, layers, o, testState)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on device (") || !strings.Contains(err.Error(), "more is needed)") {
		t.Errorf("during the save, %s: %v", full.failed, err)
	}
	if got := names(t, out); len(got) != 0 {
		t.Errorf("output holds %v", got)
	}
}

// TestDamaged: a checkpoint with a truncated, changed or missing file is skipped. The reason names the file.
func TestDamaged(t *testing.T) {
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 2)
	state := testState
	type damage struct {
		what string
		do   func(path string, data []byte) error
	}
	damages := []damage{
		{"gone", func(p string, _ []byte) error { return os.Remove(p) }},
		{"empty", func(p string, d []byte) error { return os.WriteFile(p, nil, 0o644) }},
		{"cut by a byte", func(p string, d []byte) error { return os.WriteFile(p, d[:len(d)-1], 0o644) }},
		{"cut in half", func(p string, d []byte) error { return os.WriteFile(p, d[:len(d)/2], 0o644) }},
		{"longer", func(p string, d []byte) error { return os.WriteFile(p, append(slices.Clone(d), 0), 0o644) }},
		{"first byte changed", func(p string, d []byte) error { return os.WriteFile(p, flip(d, 0), 0o644) }},
		{"last byte changed", func(p string, d []byte) error { return os.WriteFile(p, flip(d, len(d)-2), 0o644) }},
	}
	for _, how := range []string{"written", "compressed", "linked"} {
		pristine := fastDir(t)
		o := options(c, layers, BF16)
		o.FS, o.Zstd, o.MaxShardBytes = &faultyFS{}, how == "compressed", 2500
		if how == "linked" {
			o.Linked = []bool{true, true, true}
		}
		testkit.NoError(t, save(pristine, inExtents(t, layers, o, fastDir(t)), o, state))
		records := testkit.Must(readManifest(filepath.Join(pristine, "checkpoint-20"), openFile))(t)
		files := []string{manifestName}
		for name := range records {
			files = append(files, name)
		}
		slices.Sort(files)
		for _, name := range files {
			for _, d := range damages {
				out := fastDir(t)
				dir := filepath.Join(out, "checkpoint-20")
				testkit.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(pristine, "checkpoint-20"))))
				path := filepath.Join(dir, filepath.FromSlash(name))
				testkit.NoError(t, d.do(path, read(t, path)))
				got, _, skipped, err := Latest(out, nil)
				if err != nil || got != "" || len(skipped) != 1 || skipped[0].Dir != dir || !strings.Contains(skipped[0].Why, name) {
					t.Errorf("%s %s: %q, %v, %v", name, d.what, got, skipped, err)
				}
				// Load detects damage of the files it reads itself.
				if strings.Contains(name, "safetensors") && !strings.Contains(name, "index") {
					if _, err := Load(dir, newLayers(c, true), nil); err == nil {
						t.Errorf("%s %s: loaded", name, d.what)
					}
				}
			}
		}
	}
}

func flip(data []byte, i int) []byte {
	out := slices.Clone(data)
	out[i] ^= 1
	return out
}

func TestLatest(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	out := fastDir(t)
	dir, _, skipped, err := Latest(filepath.Join(out, "nothing"), nil)
	if dir != "" || skipped != nil || err != nil {
		t.Errorf("no directory: %q, %v, %v", dir, skipped, err)
	}
	for _, step := range []int{9, 10, 100} {
		s := testState
		s.Step = step
		testkit.NoError(t, saveStep(out, layers, c, s))
	}
	for _, n := range []string{"checkpoint-100/model.safetensors", "checkpoint-200/x", "checkpoint-300.tmp-7/x", "checkpoint-x/y", "my-checkpoint-900/z"} {
		write(t, filepath.Join(out, n), []byte("garbage"))
	}
	write(t, filepath.Join(out, "checkpoint-500"), nil)
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || filepath.Base(dir) != "checkpoint-10" || state.Step != 10 {
		t.Fatalf("%q, %+v, %v", dir, state, err)
	}
	want := []string{"checkpoint-300.tmp-7: the save was not finished", "checkpoint-200: no manifest.json", "checkpoint-100: model.safetensors: 7 bytes long"}
	if len(skipped) != len(want) {
		t.Fatalf("skipped %v", skipped)
	}
	for i, s := range skipped {
		got := fmt.Sprintf("%s: %s", filepath.Base(s.Dir), strings.TrimPrefix(s.Why, s.Dir+": "))
		if !strings.HasPrefix(got, want[i]) {
			t.Errorf("skipped %q, want %q", got, want[i])
		}
	}
}

// TestManifestThatLies: Latest and Load compare a manifest with the files. If the two differ, the
// checkpoint is damaged, even if the manifest's own checksum is right.
func TestManifestThatLies(t *testing.T) {
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 2)
	state := func(m *manifest) *fileRecord { // of the first layer's optimizer file
		for i := range m.Files {
			if strings.HasPrefix(m.Files[i].Name, "optimizer/") {
				return &m.Files[i]
			}
		}
		t.Fatal("the manifest lists no optimizer file")
		return nil
	}
	for name, c := range map[string]struct {
		edit func(m *manifest)
		says string
	}{
		"the truth":                     {func(m *manifest) {}, ""},
		"a later version":               {func(m *manifest) { m.Version++ }, "this program reads"},
		"no version":                    {func(m *manifest) { m.Version = 0 }, "this program reads"},
		"another format":                {func(m *manifest) { m.Format += "s" }, "format"},
		"a file not covered":            {func(m *manifest) { state(m).Regions[0].Bytes-- }, "makes no sense"},
		"a file covered beyond its end": {func(m *manifest) { state(m).Regions[0].Bytes++ }, "makes no sense"},
		"a file without regions":        {func(m *manifest) { state(m).Regions = nil }, "makes no sense"},
		"a longer file": {func(m *manifest) {
			r := state(m)
			r.Bytes--
			r.Regions[len(r.Regions)-1].Bytes--
		}, "bytes long, not"},
		"a shorter file": {func(m *manifest) {
			r := state(m)
			r.Bytes++
			r.Regions[len(r.Regions)-1].Bytes++
		}, "bytes long, not"},
		"another checksum of the first region": {func(m *manifest) { state(m).Regions[0].CRC32C ^= 1 }, "damaged: checksum"},
		"another checksum of the last region": {func(m *manifest) {
			r := state(m).Regions
			r[len(r)-1].CRC32C ^= 1 << 31
		}, "damaged: checksum"},
	} {
		for _, zstd := range []bool{false, true} {
			out := fastDir(t)
			o := options(small(t), layers, BF16)
			o.FS, o.Zstd = &faultyFS{}, zstd
			testkit.NoError(t, save(out, layers, o, testState))
			dir := filepath.Join(out, "checkpoint-20")
			var m manifest
			file := filepath.Join(dir, manifestName)
			testkit.NoError(t, json.Unmarshal(read(t, file), &m))
			c.edit(&m)
			text, err := m.sealed()
			if err == nil {
				err = os.WriteFile(file, text, 0o644)
			}
			testkit.NoError(t, err)
			got, _, skipped, err := Latest(out, nil)
			if c.says == "" {
				if err != nil || got != dir {
					t.Errorf("%s, zstd %t: %q, %v", name, zstd, got, err)
				}
				continue
			}
			if err != nil || got != "" || len(skipped) != 1 || !strings.Contains(skipped[0].Why, c.says) {
				t.Errorf("%s, zstd %t: Latest gives %q, %v, %v; want %q", name, zstd, got, skipped, err, c.says)
			}
			// Load compares a file's header with the expected tensors, and not with the manifest's
			// checksum of the first region, which holds the header. So it accepts a wrong checksum
			// of that region.
			if _, err := Load(dir, newLayers(small(t), true), nil); (err == nil || !strings.Contains(err.Error(), c.says)) && !(strings.Contains(name, "first region") && !zstd) {
				t.Errorf("%s, zstd %t: Load says %v; want %q", name, zstd, err, c.says)
			}
		}
	}
}

// TestDamagedHeader: if a file's header was changed, but not its list of tensors, the file counts
// as damaged. The error names the header.
func TestDamagedHeader(t *testing.T) {
	out, _ := twoSaves(t)
	name := filepath.Join(out, "checkpoint-20", singleName)
	text := read(t, name)
	other := bytes.Replace(text, []byte(`{"format":"pt"}`), []byte(`{"format":"tf"}`), 1)
	if bytes.Equal(other, text) {
		t.Fatalf("the header is %q", text[8:80])
	}
	write(t, name, other)
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 10 || len(skipped) != 1 || !strings.Contains(skipped[0].Why, singleName+": its header: damaged: checksum") {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
}

// TestStateFileLacksATensor: an optimizer file that lacks a layer's moments is an error. The
// moments are not taken to be zero.
func TestStateFileLacksATensor(t *testing.T) {
	l := newLayers(small(t), true)[1]
	all := optimizerFile(1, l.Layout, planes.Of(l.Layout), BF16, false).entries
	for lacking := range all {
		var kept []*entry
		for i, e := range all {
			if i != lacking {
				kept = append(kept, e)
			}
		}
		text := headerBytes(kept)
		for _, e := range kept {
			text = append(text, make([]byte, e.bytes)...)
		}
		lacks, err := readStateTensors(bytes.NewReader(text), int64(len(text)), fileRecord{}, 1, l, wanted{lo: true, planes: true})
		if err != nil || len(lacks) != 1 || lacks[all[lacking].name] == nil {
			t.Errorf("without %s: it lacks %v, %v", all[lacking].name, lacks, err)
		}
	}
}

// TestExchangeByRenames: on a file system without an atomic exchange, three renames swap two
// directories. If one of them fails, both directories are back in place.
func TestExchangeByRenames(t *testing.T) {
	for failAt := range 4 { // 0: none
		dir := fastDir(t)
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for path, content := range map[string]string{a: "new", b: "old"} {
			testkit.NoError(t, os.Mkdir(path, 0o755))
			testkit.NoError(t, os.WriteFile(filepath.Join(path, "f"), []byte(content), 0o644))
		}
		err := exchange(&faultyFS{failAt: failAt, err: errDisk}, a, b)
		inA, inB := "new", "old"
		if failAt == 0 {
			inA, inB = "old", "new"
		}
		if (err == nil) != (failAt == 0) || failAt > 0 && !errors.Is(err, errDisk) {
			t.Errorf("rename %d fails: %v", failAt, err)
		}
		if got := names(t, dir); len(got) != 2 {
			t.Errorf("rename %d fails: %v are left", failAt, got)
		}
		if x, y := string(read(t, filepath.Join(a, "f"))), string(read(t, filepath.Join(b, "f"))); x != inA || y != inB {
			t.Errorf("rename %d fails: a is the %s one and b the %s one", failAt, x, y)
		}
	}
}
