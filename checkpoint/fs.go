package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"mt/base/human"
)

// FS is the file operations of a save, so that tests can give it a failing disk.
// Paths are the operating system's.
type FS interface {
	// MkdirAll makes a directory and those above it; one that exists is all right.
	MkdirAll(path string) error
	// Mkdir makes a directory and fails with fs.ErrExist where there is one.
	Mkdir(path string) error
	// Create makes a file, emptying one that exists.
	Create(path string) (File, error)
	// Append opens a file, which exists, to write behind what it holds.
	Append(path string) (Log, error)
	Rename(from, to string) error
	// Link gives the file at from a second name.
	Link(from, to string) error
	// SyncFile puts the content of the file at path, which somebody else has written, on disk.
	SyncFile(path string) error
	// Exchange swaps two directories in one step, or fails with
	// errors.ErrUnsupported.
	Exchange(a, b string) error
	// RemoveAll removes a file or a directory with all that is in it; one that
	// does not exist is all right.
	RemoveAll(path string) error
	// SyncDir puts the entries of a directory on disk.
	SyncDir(path string) error
	// Free is the number of bytes that can still be written at path.
	Free(path string) (int64, error)
}

// File is a file being written.
type File interface {
	io.WriterAt
	// Allocate reserves the space of the first size bytes, where the file
	// system can.
	Allocate(size int64) error
	// Flush says that bytes off … off+n will not be written again: they may go
	// to disk now and leave the page cache.
	Flush(off, n int64)
	// Sync puts the file on disk.
	Sync() error
	Close() error
}

// Log is a file that grows at its end.
type Log interface {
	io.Writer
	// Sync puts on disk what was written.
	Sync() error
	Close() error
}

// OS is the operating system's file system: what a save uses unless it is given
// another.
func OS() FS { return osFS{} }

// osFS is the operating system's file system.
type osFS struct{}

func (osFS) MkdirAll(path string) error   { return os.MkdirAll(path, 0o755) }
func (osFS) Mkdir(path string) error      { return os.Mkdir(path, 0o755) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Link(from, to string) error   { return os.Link(from, to) }
func (osFS) RemoveAll(path string) error  { return os.RemoveAll(path) }

func (osFS) Create(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (osFS) Append(path string) (Log, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
}

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) SyncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncData(f), f.Close())
}

// osFile is an open file and the range last given to Flush.
type osFile struct {
	*os.File
	off, n int64
}

// disk does the file operations of one save below root and words their errors.
type disk struct {
	fs   FS
	root string
	left int64 // bytes not written yet
	// wrote is told the bytes of every piece of a tensor; an error ends the save.
	// May be nil.
	wrote func(bytes int64) error
}

// do words the error of operation op on the file name, relative to the root. Where the
// disk is full it says how much space is missing.
func (d *disk) do(op, name string, err error) error {
	if err == nil {
		return nil
	}
	err = opError(op, filepath.Join(d.root, filepath.FromSlash(name)), err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, ferr := d.fs.Free(filepath.Dir(d.root))
		if ferr == nil {
			err = fmt.Errorf("%w (%s to write, %s free: %s more is needed)", err, human.Bytes(d.left), human.Bytes(free), human.Bytes(max(0, d.left-free)))
		}
	}
	return err
}

// opError words the error of a file operation in the same way for every FS.
func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var onPath *fs.PathError
	var onLink *os.LinkError
	switch {
	case errors.As(err, &onPath):
		err = onPath.Err
	case errors.As(err, &onLink):
		err = onLink.Err
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}

func (d *disk) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// What an error about missing room advises, besides freeing some: for a run, and for a
// copy, whose place and type come from a command line.
const (
	lessOfRun  = "choose another output_dir, or keep fewer checkpoints (save_total_limit)"
	lessOfCopy = "or choose another place or a smaller type"
)

// checkFree refuses a save of need bytes into dir where there is no room for it; ways
// are the ways out besides freeing some.
func checkFree(f FS, dir string, need int64, ways string) error {
	free, err := f.Free(dir)
	if err != nil {
		return opError("free space of", dir, err)
	}
	if need > free {
		return fmt.Errorf("%s has %s free and the save takes %s: %s more is needed; free some, %s",
			dir, human.Bytes(free), human.Bytes(need), human.Bytes(need-free), ways)
	}
	return nil
}
