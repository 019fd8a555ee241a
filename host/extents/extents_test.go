package extents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mt/internal/testkit"
)

// memory returns memory with random bytes, aligned to BlockBytes.
func memory(t testing.TB, bytes int64, r *rand.Rand) []byte {
	t.Helper()
	b := testkit.Must(unix.Mmap(-1, 0, int(max(bytes, 1)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	b = b[:bytes]
	for i := 0; r != nil && i < len(b); i += 97 {
		b[i] = byte(r.Uint32())
	}
	return b
}

// engineTable has a function for each way to move chunks (pool of threads, io_uring). It changes
// options so that they use this way, or skips the test if the system lacks it.
var engineTable = map[string]func(t *testing.T, o *Options){
	"pool": func(_ *testing.T, o *Options) {
		o.ring = func(int) (mover, error) { return nil, errors.ErrUnsupported }
	},
}

// byEngine runs a test once with each engine (way to move chunks).
func byEngine(t *testing.T, test func(t *testing.T, ask func(*Options))) {
	for name, ask := range engineTable {
		t.Run(name, func(t *testing.T) { test(t, func(o *Options) { ask(t, o) }) })
	}
}

// three returns options for three extents in dirs directories; one extent is longer than a chunk.
func three(t *testing.T, dirs int) Options {
	o := Options{Name: "mt-state.bin", Run: "/runs/a", pause: func(time.Duration) {}, Names: []string{"layer 0", "layer 1", "layer 2"}, Bytes: []int64{2 * BlockBytes, 0, 2*chunkBytes + BlockBytes}}
	for range dirs {
		o.Dirs = append(o.Dirs, t.TempDir())
	}
	return o
}

// TestExtentsComeBack: extents are read as they were written, with any number of directories, and
// Close removes the files.
func TestExtentsComeBack(t *testing.T) { byEngine(t, comeBack) }

func comeBack(t *testing.T, ask func(*Options)) {
	for dirs := 1; dirs <= 3; dirs++ {
		o := three(t, dirs)
		ask(&o)
		e := testkit.Must(Open(o))(t)
		for i, path := range e.paths {
			if info, err := os.Stat(path); err != nil || info.Size() < headerBytes+BlockBytes {
				t.Errorf("%d directories: number %d has no part of the extents: %v", dirs, i, err)
			}
		}
		r := rand.New(rand.NewPCG(1, uint64(dirs)))
		for round := range 2 {
			want := make([][]byte, len(o.Bytes))
			var all sync.WaitGroup
			for i, n := range o.Bytes {
				want[i] = memory(t, n, r)
				all.Go(func() {
					if err := e.Write(i, want[i]); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for i, n := range o.Bytes {
				got := memory(t, n, nil)
				testkit.NoError(t, e.Read(i, got))
				if !bytes.Equal(got, want[i]) {
					t.Fatalf("%d directories, round %d: extent %d comes back otherwise", dirs, round, i)
				}
			}
		}
		if read, written := e.Moved(); read != 2*o.bytes() || written != 2*o.bytes() {
			t.Errorf("%d bytes were read and %d written, want %d of each", read, written, 2*o.bytes())
		}
		testkit.NoError(t, e.Close())
		for _, dir := range o.Dirs {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		}
	}
}

// TestPartsComeBack: ReadPart reads a range of whole chunks of an extent, and panics for any other
// range.
func TestPartsComeBack(t *testing.T) { byEngine(t, partsComeBack) }

func partsComeBack(t *testing.T, ask func(*Options)) {
	o := three(t, 2)
	ask(&o)
	o.Chunk = 4 * BlockBytes
	o.Bytes[2] = 3*o.Chunk + BlockBytes
	e := testkit.Must(Open(o))(t)
	defer e.Close()
	want := memory(t, o.Bytes[2], rand.New(rand.NewPCG(3, 3)))
	testkit.NoError(t, e.Write(2, want))
	ends := []int64{0, o.Chunk, 2 * o.Chunk, 3 * o.Chunk, o.Bytes[2]}
	for i, from := range ends {
		for _, to := range ends[i+1:] {
			got := memory(t, to-from, nil)
			if err := e.ReadPart(2, from, got); err != nil || !bytes.Equal(got, want[from:to]) {
				t.Errorf("bytes %d to %d come back otherwise: %v", from, to, err)
			}
		}
	}
	for _, part := range [][2]int64{{BlockBytes, o.Chunk}, {0, BlockBytes}, {o.Chunk, o.Bytes[2] + BlockBytes}} {
		func() {
			defer func() {
				if said, ok := recover().(string); !ok || !strings.HasPrefix(said, "extents: bytes ") {
					t.Errorf("bytes %d to %d are read: %q", part[0], part[1], said)
				}
			}()
			_ = e.ReadPart(2, part[0], memory(t, part[1]-part[0], nil))
		}()
	}
}

// TestDamageIsSeen: if a byte changes on the disk, reading its chunk returns an error that names
// the extent, the file and the offset.
func TestDamageIsSeen(t *testing.T) { byEngine(t, damage) }

func damage(t *testing.T, ask func(*Options)) {
	o := three(t, 2)
	ask(&o)
	e := testkit.Must(Open(o))(t)
	defer e.Close()
	mem := memory(t, o.Bytes[2], rand.New(rand.NewPCG(2, 2)))
	if err := e.Read(2, mem); err == nil || !strings.Contains(err.Error(), "never written") {
		t.Errorf("an extent without content: %v", err)
	}
	testkit.NoError(t, e.Write(2, mem))
	for k, c := range e.places[2] {
		one := []byte{0}
		f := testkit.Must(os.OpenFile(e.paths[c.file], os.O_RDWR, 0))(t)
		flip := func() {
			testkit.Must(f.ReadAt(one, c.at+c.bytes-1))(t)
			one[0] ^= 1
			testkit.Must(f.WriteAt(one, c.at+c.bytes-1))(t)
		}
		flip()
		var bad *Damaged
		if err := e.Read(2, mem); !errors.As(err, &bad) || bad.At != c.at || bad.Path != e.paths[c.file] || bad.Name != "layer 2" {
			t.Errorf("chunk %d is damaged: %v", k, err)
		}
		flip()
		if err := e.Read(2, mem); err != nil {
			t.Errorf("chunk %d is as it was: %v", k, err)
		}
		_ = f.Close()
	}
}

// numbers fills memory with random fp32 numbers, which compress like moments.
func numbers(b []byte, r *rand.Rand) {
	for i := 0; i+4 <= len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(r.NormFloat64())))
	}
}

// TestCompressed: with Compress, extents are read as they were written, from fewer bytes on disk at
// the same offsets. Data that does not compress is stored unchanged. Damage is detected.
func TestCompressed(t *testing.T) {
	byEngine(t, func(t *testing.T, ask func(*Options)) {
		o := three(t, 2)
		ask(&o)
		o.Compress, o.Chunk = true, 1<<20
		o.Bytes = []int64{3<<20 + 5*BlockBytes, 1 << 20, BlockBytes}
		e := testkit.Must(Open(o))(t)
		defer e.Close()
		var bytesRead, bytesWritten int64
		r := rand.New(rand.NewPCG(5, 5))
		for round := range 3 {
			for i, n := range o.Bytes {
				mem, back := memory(t, n, nil), memory(t, n, nil)
				shrinks := (i+round)%2 == 0 && n > BlockBytes
				if shrinks {
					numbers(mem, r)
				} else {
					for k := range mem {
						mem[k] = byte(r.Uint32())
					}
				}
				was, _ := e.Spared()
				if err := errors.Join(e.Write(i, mem), e.Read(i, back)); err != nil || !bytes.Equal(mem, back) {
					t.Fatalf("round %d: extent %d comes back otherwise: %v", round, i, err)
				}
				spared, _ := e.Spared()
				if spared -= was; shrinks && (spared < n/10 || spared > n/5) || !shrinks && spared != 0 {
					t.Errorf("round %d: %d of %d bytes are spared", round, spared, n)
				}
				bytesRead, bytesWritten = bytesRead+n, bytesWritten+n
			}
		}
		read, written := e.Moved()
		if notRead, notWritten := e.Spared(); read+notRead != bytesRead || written+notWritten != bytesWritten {
			t.Errorf("%d and %d bytes were read and written, %d and %d spared: want %d and %d together", read, written, notRead, notWritten, bytesRead, bytesWritten)
		}
		c := &e.places[0][1]
		if c.packed%BlockBytes != 0 || c.packed >= c.bytes {
			t.Fatalf("a chunk of %d bytes is in %d", c.bytes, c.packed)
		}
		f := testkit.Must(os.OpenFile(e.paths[c.file], os.O_RDWR, 0))(t)
		defer f.Close()
		for at, seen := range map[int64]bool{0: true, c.packed - 1: true, c.packed: false} { // behind what is stored is what was there before
			one := []byte{0}
			flip := func() {
				testkit.Must(f.ReadAt(one, c.at+at))(t)
				one[0] ^= 1
				testkit.Must(f.WriteAt(one, c.at+at))(t)
			}
			flip()
			var bad *Damaged
			if err := e.Read(0, memory(t, o.Bytes[0], nil)); errors.As(err, &bad) != seen || seen && (bad.At != c.at || bad.Path != e.paths[c.file]) {
				t.Errorf("byte %d of the chunk is damaged: %v", at, err)
			}
			flip()
		}
		// The chunk's checksum is set to that of zeros, which are then written to the disk. So the
		// checksum is right, and only the decoder can find that these bytes are no compressed
		// chunk.
		c.sum = crc32.Checksum(make([]byte, c.packed), castagnoli)
		testkit.Must(f.WriteAt(make([]byte, c.packed), c.at))(t)
		if err := e.Read(0, memory(t, o.Bytes[0], nil)); err == nil || !strings.Contains(err.Error(), "of layer 0 at byte ") || !strings.Contains(err.Error(), e.paths[c.file]+": byteplane: ") {
			t.Errorf("what was never packed: %v", err)
		}
	})
}

// TestWhoseFiles: two processes cannot use one file, and a file that a killed run has left is
// reused only by the same run.
func TestWhoseFiles(t *testing.T) {
	o := three(t, 1)
	first := testkit.Must(Open(o))(t)
	path := filepath.Join(o.Dirs[0], o.Name)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), path+": another run keeps its state there now") {
		t.Errorf("a second run: %v", err)
	}
	left := testkit.Must(os.ReadFile(path))(t)
	testkit.NoError(t, first.Close())
	put := func(content []byte) {
		testkit.NoError(t, os.WriteFile(path, content, 0o644))
	}
	put(left)
	other := o
	other.Run = "/runs/b"
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "was left by the run in /runs/a") {
		t.Errorf("the files of another run: %v", err)
	}
	put([]byte("my own notes"))
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "mt has not written") {
		t.Errorf("a file of somebody's: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "my own notes" {
		t.Error("a file of somebody's was changed")
	}
	for content, stays := range map[string]bool{"my own notes": true, string(left): false} {
		put([]byte(content))
		testkit.NoError(t, o.Sweep())
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%d bytes after a sweep: %v", len(content), err)
		}
	}
	for _, content := range [][]byte{left, left[:headerBytes], nil} {
		put(content)
		again, err := Open(o)
		if err != nil {
			t.Fatalf("%d bytes that the run itself has left: %v", len(content), err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// failing is a file whose call number fail, counted over all files, fails.
type failing struct {
	file
	n    *counter
	name string
}

type counter struct {
	sync.Mutex
	calls, fail int
	failed      string
	err         error
}

func (c *counter) call(what string) error {
	c.Lock()
	defer c.Unlock()
	if c.calls++; c.calls == c.fail {
		c.failed = what
		return c.err
	}
	return nil
}

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if err := f.n.call("read"); err != nil {
		return 0, err
	}
	return f.file.ReadAt(b, at)
}

func (f failing) WriteAt(b []byte, at int64) (int, error) {
	if err := f.n.call("write"); err != nil {
		return 0, err
	}
	return f.file.WriteAt(b, at)
}

func (f failing) Allocate(n int64) error {
	if err := f.n.call("take"); err != nil {
		return err
	}
	return f.file.Allocate(n)
}

func (f failing) Free() (int64, error) {
	if err := f.n.call("free"); err != nil {
		return 0, nil
	}
	return f.file.Free()
}

// TestEveryCallFailsOnce makes each file operation fail in turn. The error names the file, and no
// file is left behind.
func TestEveryCallFailsOnce(t *testing.T) {
	t.Run("as it is", func(t *testing.T) { everyCallFails(t, false) })
	t.Run("compressed", func(t *testing.T) { everyCallFails(t, true) })
}

func everyCallFails(t *testing.T, compress bool) {
	r := rand.New(rand.NewPCG(3, 3))
	for fail := 1; ; fail++ {
		o, n := three(t, 2), &counter{fail: fail, err: syscall.EIO}
		o.Compress = compress
		o.open = func(path string, fresh bool) (file, error) {
			f, err := openFile(path, fresh)
			return failing{f, n, path}, err
		}
		err := func() (err error) {
			e, err := Open(o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, e.Close()) }()
			for _, i := range []int{0, 2} {
				mem := memory(t, o.Bytes[i], r)
				if err := e.Write(i, mem); err != nil {
					return err
				}
				if err := e.Read(i, mem); err != nil {
					return err
				}
			}
			return nil
		}()
		if n.failed == "" {
			testkit.NoError(t, err)
			if fail < 10 {
				t.Fatalf("only %d calls", fail)
			}
			return
		}
		for _, dir := range o.Dirs {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("call %d, %s failed, and %v is left", fail, n.failed, left)
			}
		}
		want := syscall.EIO.Error()
		if n.failed == "free" {
			want = "too little"
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), o.Dirs[0]) && !strings.Contains(err.Error(), o.Dirs[1]) {
			t.Errorf("call %d, %s: %v", fail, n.failed, err)
		}
	}
}

// TestWithoutDirect: a file system that lacks O_DIRECT, or rejects such a write, is used without the flag and with a
// note for the user.
func TestWithoutDirect(t *testing.T) {
	for _, when := range []string{"set", "write"} {
		o := three(t, 1)
		var f *undirect
		o.open = func(path string, fresh bool) (file, error) {
			real, err := openFile(path, fresh)
			f = &undirect{file: real, when: when}
			return f, err
		}
		e := testkit.Must(Open(o))(t)
		if notes := fmt.Sprint(e.Notes()); !strings.Contains(notes, "O_DIRECT") {
			t.Errorf("%s: the notes are %s", when, notes)
		}
		mem := memory(t, o.Bytes[0], rand.New(rand.NewPCG(4, 4)))
		if err := errors.Join(e.Write(0, mem), e.Read(0, mem), e.Close()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// undirect is a file on a file system that rejects O_DIRECT, either when it is set or at the first
// write (when).
type undirect struct {
	file
	when string
	on   bool
}

func (f *undirect) Direct() error {
	if f.when == "set" {
		return syscall.EINVAL
	}
	f.on = true
	return nil
}

func (f *undirect) Buffered() error {
	f.on = false
	return nil
}

func (f *undirect) WriteAt(b []byte, at int64) (int, error) {
	if f.on {
		return 0, &os.PathError{Op: "write", Path: "x", Err: syscall.EINVAL}
	}
	return f.file.WriteAt(b, at)
}
