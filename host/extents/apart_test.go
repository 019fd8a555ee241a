package extents

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/internal/testkit"
)

// apart returns Options for three extents in files of their own.
func apart(t *testing.T) Options {
	o := three(t, 1)
	for i, n := range o.Bytes {
		var head []byte
		if n > 0 {
			head = bytes.Repeat([]byte{'a' + byte(i)}, (1+i)*BlockBytes)
		}
		o.Heads = append(o.Heads, head)
	}
	o.Apart = func(string) (string, error) { return "", nil }
	return o
}

// is fails the test unless the file at path has this content.
func is(t *testing.T, path string, content ...[]byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, slices.Concat(content...)) {
		t.Errorf("%s has %d bytes, not what is wanted; %v", path, len(got), err)
	}
}

// TestPinnedFilesStay: an extent's file has the head and the written content. A pinned file is never written again; the
// extent moves to another file.
func TestPinnedFilesStay(t *testing.T) {
	o := apart(t)
	asked := ""
	o.Apart = func(path string) (string, error) { asked = path; return "", nil }
	e := testkit.Must(Open(o))(t)
	if ok, why := e.IsApart(); !ok || why != "" || asked != filepath.Join(o.Dirs[0], o.Name) {
		t.Errorf("apart %t, %q, asked of %q", ok, why, asked)
	}
	own := filepath.Join(o.Dirs[0], "mt-state-00002.bin")
	is(t, own, o.Heads[2], make([]byte, o.Bytes[2]))
	r := rand.New(rand.NewPCG(5, 5))
	var kept [][]byte
	var links []string
	for round := range 3 {
		first, second := memory(t, o.Bytes[2], r), memory(t, o.Bytes[2], r)
		inode := func() uint64 {
			info := testkit.Must(os.Stat(own))(t)
			return info.Sys().(*syscall.Stat_t).Ino
		}
		testkit.NoError(t, e.Write(2, first))
		before := inode()
		if err := e.Write(2, second); err != nil || inode() != before {
			t.Errorf("a file that nobody has pinned is made anew, %v", err)
		}
		if path := e.Pin(2); path != own {
			t.Errorf("the file is %s, not %s", path, own)
		}
		link := filepath.Join(t.TempDir(), "link")
		testkit.NoError(t, os.Link(own, link))
		links, kept = append(links, link), append(kept, second)
		got := memory(t, o.Bytes[2], nil)
		if err := e.Read(2, got); err != nil || !bytes.Equal(got, second) {
			t.Errorf("round %d: what is pinned is read otherwise: %v", round, err)
		}
	}
	testkit.NoError(t, e.Write(0, memory(t, o.Bytes[0], r)))
	testkit.NoError(t, e.Close())
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for i, link := range links {
		is(t, link, o.Heads[2], kept[i])
	}
}

// TestLeftApart: a killed run leaves files of its extents. The run's next start (with or without a
// file for each extent) and Sweep remove them. Files that a checkpoint has linked, and files of
// others, stay.
func TestLeftApart(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, o Options){
		"apart": func(t *testing.T, o Options) {
			e := testkit.Must(Open(o))(t)
			if err := errors.Join(e.Write(0, memory(t, o.Bytes[0], rand.New(rand.NewPCG(6, 6)))), e.Close()); err != nil {
				t.Error(err)
			}
		},
		"together": func(t *testing.T, o Options) {
			o.Heads = nil
			e := testkit.Must(Open(o))(t)
			if left, _ := os.ReadDir(o.Dirs[0]); len(left) != 4 {
				t.Errorf("%v are there", left)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		},
		"a sweep": func(t *testing.T, o Options) {
			if err := o.Sweep(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := apart(t)
			e := testkit.Must(Open(o))(t)
			first := memory(t, o.Bytes[0], rand.New(rand.NewPCG(7, 7)))
			testkit.NoError(t, e.Write(0, first))
			link := filepath.Join(t.TempDir(), "link")
			testkit.NoError(t, os.Link(e.Pin(0), link))
			others := []string{"mt-state-1.bin", "mt-state-1-00000.bin", "mt-state-notes.bin"}
			for _, other := range others {
				testkit.NoError(t, os.WriteFile(filepath.Join(o.Dirs[0], other), []byte(other), 0o644))
			}
			for _, f := range e.files { // as when the process is killed
				if f != nil {
					_ = f.Close()
				}
			}
			next(t, o)
			is(t, link, o.Heads[0], first)
			for _, other := range others {
				is(t, filepath.Join(o.Dirs[0], other), []byte(other))
			}
			if left, _ := os.ReadDir(o.Dirs[0]); len(left) != len(others) {
				t.Errorf("%v are left", left)
			}
		})
	}
	o := apart(t)
	foreign := filepath.Join(o.Dirs[0], "mt-state-00002.bin")
	testkit.NoError(t, os.WriteFile(foreign, []byte("my own notes"), 0o644))
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), foreign+" is a file that mt has not written; move it away") {
		t.Errorf("a file of somebody's: %v", err)
	}
	is(t, foreign, []byte("my own notes"))
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) != 1 {
		t.Errorf("%v are left", left)
	}
}

// TestNotApart: if Options.Apart says that files cannot be linked, all extents share one file, and
// IsApart returns the reason. If Apart fails, Open returns its error.
func TestNotApart(t *testing.T) {
	o := apart(t)
	o.Apart = func(string) (string, error) { return "so it is", nil }
	e := testkit.Must(Open(o))(t)
	if ok, why := e.IsApart(); ok || why != "so it is" {
		t.Errorf("apart %t, %q", ok, why)
	}
	mem, got := memory(t, o.Bytes[2], rand.New(rand.NewPCG(8, 8))), memory(t, o.Bytes[2], nil)
	if err := errors.Join(e.Write(2, mem), e.Read(2, got)); err != nil || !bytes.Equal(got, mem) {
		t.Errorf("what is written comes back otherwise: %v", err)
	}
	if info, err := os.Stat(e.paths[0]); err != nil || info.Size() != headerBytes+o.bytes() {
		t.Errorf("%d bytes are in the file, %v", info.Size(), err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	o.Apart = func(string) (string, error) { return "", syscall.EIO }
	if _, err := Open(o); !errors.Is(err, syscall.EIO) {
		t.Errorf("an error of the disk: %v", err)
	}
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestEveryCallApartFailsOnce makes each file operation fail in turn. The error names the file,
// pinned files keep their complete content, and no other files are left. The error for a full disk
// says what to do.
func TestEveryCallApartFailsOnce(t *testing.T) {
	testkit.NotShort(t)
	for _, with := range []error{syscall.EIO, syscall.ENOSPC} {
		for fail := 1; ; fail++ {
			o, n := apart(t), &counter{fail: fail, err: with}
			o.open = func(path string, fresh bool) (file, error) {
				f, err := openFile(path, fresh)
				if err != nil {
					return nil, err
				}
				return failing{f, n, path}, nil
			}
			r := rand.New(rand.NewPCG(9, 9))
			mem := memory(t, o.Bytes[2], r)
			link := filepath.Join(t.TempDir(), "link")
			err := func() (err error) {
				e, err := Open(o)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, e.Close()) }()
				if err := e.Write(2, mem); err != nil {
					return err
				}
				if err := os.Link(e.Pin(2), link); err != nil {
					return err
				}
				other, back := memory(t, o.Bytes[2], r), memory(t, o.Bytes[2], nil)
				if err := e.Write(2, other); err != nil {
					_ = e.Write(2, other) // who settles a store after an error does so
					return err
				}
				return e.Read(2, back)
			}()
			if _, serr := os.Stat(link); serr == nil {
				is(t, link, o.Heads[2], mem)
			}
			if left, _ := os.ReadDir(o.Dirs[0]); len(left) > 0 {
				t.Errorf("call %d, %s failed, and %v is left", fail, n.failed, left)
			}
			if n.failed == "" {
				if err != nil || fail < 12 {
					t.Fatalf("%d calls, %v", fail, err)
				}
				break
			}
			if n.failed == "free" {
				continue
			}
			if !errors.Is(err, with) || !strings.Contains(err.Error(), o.Dirs[0]) {
				t.Errorf("call %d, %s: %v", fail, n.failed, err)
			}
			if _, serr := os.Stat(link); with == syscall.ENOSPC && n.failed == "take" && serr == nil &&
				(!strings.Contains(err.Error(), "mt-state-00002.bin: no space left on device; free some room there, or let fewer checkpoints stay (save_total_limit)")) {
				t.Errorf("a full disk: %v", err)
			}
		}
	}
}

// unremovable is a file whose removal fails.
type unremovable struct{ file }

func (unremovable) Remove() error { return syscall.EIO }

// TestAnExtentThatStays: if Close cannot remove the file of an extent, it returns an error, and a
// later Sweep can remove the file.
func TestAnExtentThatStays(t *testing.T) {
	o := apart(t)
	o.open = func(path string, fresh bool) (file, error) {
		f, err := openFile(path, fresh)
		if err == nil && strings.HasSuffix(path, "-00002.bin") {
			f = unremovable{f}
		}
		return f, err
	}
	e := testkit.Must(Open(o))(t)
	if err := e.Close(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "mt-state-00002.bin") {
		t.Errorf("it ends with %v", err)
	}
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) != 2 {
		t.Errorf("%v are left", left)
	}
	if err := o.Sweep(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) > 0 {
		t.Errorf("%v is left by a sweep", left)
	}
}
