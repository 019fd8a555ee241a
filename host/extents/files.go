package extents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mt/base/human"
)

// headerBytes is the size of the header at the start of each file.
const headerBytes = BlockBytes

// header is the JSON at the start of a file that says which run owns the file.
type header struct {
	Format string `json:"format"`
	Run    string `json:"run"`
}

const format = "mt state, version 1"

// file is an open file in which extents are stored.
type file interface {
	io.ReaderAt
	io.WriterAt
	// Lock locks the file for this process. It fails with errLocked if another process holds the lock.
	Lock() error
	// Size returns the size of the file in bytes.
	Size() (int64, error)
	// Allocate reserves disk space for this number of bytes and makes the file exactly as long.
	Allocate(bytes int64) error
	// Free returns the free space of the file's disk in bytes.
	Free() (int64, error)
	// Direct makes reads and writes bypass the page cache.
	Direct() error
	// Buffered makes reads and writes use the page cache again.
	Buffered() error
	// Remove removes the file's name, if the name still exists.
	Remove() error
	Close() error
}

var errLocked = errors.New("locked")

// Locking is tried for two seconds before mt assumes that another run uses the file. If a process with an io_uring was
// killed, the kernel closes the files of the process, and so releases its locks, a moment after the process has ended.
const (
	lockTries = 41
	lockPause = 50 * time.Millisecond
)

// lockPatiently locks f. While another process holds the lock, it tries again, lockTries times in all.
func (e *Files) lockPatiently(f file) error {
	for try := 1; ; try++ {
		if err := f.Lock(); !errors.Is(err, errLocked) || try == lockTries {
			return err
		}
		e.o.pause(lockPause)
	}
}

// claim opens the file at path for this run, and checks that its disk has room for this many bytes. If another process
// or another run owns the file, it returns an error.
func (e *Files) claim(path string, bytes int64) (_ file, err error) {
	f, err := e.o.open(path, false)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, bare(err))
	}
	mine := false
	defer func() {
		if err != nil {
			if mine {
				_ = f.Remove() // err is reported, not an error of Remove
			}
			_ = f.Close()
		}
	}()
	if err := e.lockPatiently(f); errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%s: another run keeps its state there now; wait for its end, or give this one a directory of its own", path)
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, bare(err))
	}
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", path, bare(err))
	}
	if size > 0 {
		if err := e.own(f, path); err != nil {
			return nil, err
		}
		if err := removeApart(path); err != nil {
			return nil, err
		}
	}
	mine = true
	if free, err := f.Free(); err == nil && bytes-size > free {
		return nil, fmt.Errorf("%s: %s to be kept there for %s of room: %s too little; free some, give another directory, or raise host_memory",
			filepath.Dir(path), human.Bytes(bytes), human.Bytes(free+size), human.Bytes(bytes-size-free))
	}
	block, err := e.header()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Munmap(block) }()
	if _, err := f.WriteAt(block, 0); err != nil { // write the header first: a killed process must leave no file without an owner
		return nil, fmt.Errorf("write %s: %w", path, bare(err))
	}
	return f, nil
}

// room reserves bytes of disk space for f, the file at path, and writes the file's header. It also returns a note for
// the user; "" if there is none.
func (e *Files) room(f file, path string, bytes int64) (note string, err error) {
	if err := f.Allocate(bytes); err != nil {
		return "", fmt.Errorf("take %s for %s: %w", human.Bytes(bytes), path, bare(err))
	}
	block, err := e.header()
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Munmap(block) }()
	if f.Direct() == nil {
		if _, err := f.WriteAt(block, 0); err == nil {
			return "", nil
		} else if !errors.Is(err, syscall.EINVAL) {
			return "", fmt.Errorf("write %s: %w", path, bare(err))
		}
		if err := f.Buffered(); err != nil { // the file system has O_DIRECT, but not for blocks of this size
			return "", fmt.Errorf("open %s: %w", path, bare(err))
		}
	}
	return path + " cannot be written past the page cache (O_DIRECT): what the cache takes of memory beside host_memory the system takes back when it is wanted", nil
}

// Sweep removes the run's files that an earlier process has left. A file that a process still has open stays. It leaves
// the files of other runs alone.
func (o Options) Sweep() error {
	e := &Files{o: o}
	for _, dir := range o.Dirs {
		path := filepath.Join(dir, o.Name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		} else if err != nil {
			return fmt.Errorf("look for %s: %w", path, bare(err))
		}
		f, err := openFile(path, false)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, bare(err))
		}
		if f.Lock() == nil && e.own(f, path) == nil {
			if err = removeApart(path); err == nil {
				err = f.Remove()
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("remove %s: %w", path, bare(err))
		}
	}
	return nil
}

// header returns the first block of a file: the JSON that names the run. The block's memory is aligned to BlockBytes.
func (e *Files) header() ([]byte, error) {
	text, err := json.Marshal(header{format, e.o.Run})
	if err != nil || len(text) > headerBytes {
		return nil, fmt.Errorf("the name of the run is too long to be written into a file of %d bytes: %s", headerBytes, e.o.Run)
	}
	block, err := unix.Mmap(-1, 0, headerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for a block: %w", err)
	}
	for i := copy(block, text); i < len(block); i++ {
		block[i] = '\n'
	}
	return block, nil
}

// own returns an error unless the header of f names this run. path is for the error.
func (e *Files) own(f file, path string) error {
	block := make([]byte, headerBytes)
	n, err := f.ReadAt(block, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, bare(err))
	}
	var h header
	switch err := json.Unmarshal(block[:n], &h); {
	case err != nil || h.Format != format:
		return foreign(path)
	case h.Run != e.o.Run:
		return fmt.Errorf("%s was left by the run in %s, which goes on from its checkpoints and not from it; remove it, or give this run a directory of its own", path, h.Run)
	}
	return nil
}

// bare returns the cause of err without a file's path, because the caller's message names the path
// already.
func bare(err error) error {
	var on *fs.PathError
	if errors.As(err, &on) {
		return on.Err
	}
	return err
}

// osFile implements file for the operating system.
type osFile struct{ *os.File }

func openFile(path string, fresh bool) (file, error) {
	flags := os.O_RDWR | os.O_CREATE
	if fresh {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (f osFile) Lock() error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return errLocked
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS):
		return nil // the file system has no locks, so mt goes on without one
	}
	return err
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Allocate(bytes int64) error {
	if err := f.Truncate(bytes); err != nil {
		return err
	}
	return reserve(f.File, bytes)
}

func (f osFile) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func (f osFile) Direct() error { return direct(f.File, true) }

func (f osFile) Buffered() error { return direct(f.File, false) }

func (f osFile) Remove() error {
	if err := os.Remove(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
