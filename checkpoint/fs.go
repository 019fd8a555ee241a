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

// FS is the file operations of a save. Tests replace it by a failing disk. Paths are the operating system's.
type FS interface {
	// MkdirAll makes a directory and its parents. Existing directories are no error.
	MkdirAll(path string) error
	// Mkdir makes a directory. It fails with fs.ErrExist if the directory exists.
	Mkdir(path string) error
	// Create makes a file, or truncates an existing one.
	Create(path string) (File, error)
	// Append opens an existing file for writing at its end.
	Append(path string) (Log, error)
	Rename(from, to string) error
	// Link gives the file at from a second name.
	Link(from, to string) error
	// SyncFile syncs the content of the file at path, which another writer may have written.
	SyncFile(path string) error
	// Exchange swaps two directories atomically, or fails with errors.ErrUnsupported.
	Exchange(a, b string) error
	// RemoveAll removes a file or a directory with its content. A missing path is no error.
	RemoveAll(path string) error
	// SyncDir syncs the entries of a directory.
	SyncDir(path string) error
	// Free returns the number of bytes that can still be written at path.
	Free(path string) (int64, error)
}

// File is a file being written.
type File interface {
	io.WriterAt
	// Allocate reserves space for the first size bytes, if the file system can.
	Allocate(size int64) error
	// Flush announces that bytes [off, off+n) will not be written again. They may be written to disk and leave the
	// page cache.
	Flush(off, n int64)
	// Sync syncs the file.
	Sync() error
	Close() error
}

// Log is a file that is only appended to.
type Log interface {
	io.Writer
	// Sync syncs all that was written.
	Sync() error
	Close() error
}

// OS returns the operating system's file system, the default of a save.
func OS() FS { return osFS{} }

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

// osFile is an open file. off and n are the range of the last Flush.
type osFile struct {
	*os.File
	off, n int64
}

// disk performs the file operations of one save, below the directory root. It adds the operation
// and the path to errors.
type disk struct {
	fs   FS
	root string
	left int64 // bytes still to be written
	// wrote is called with the bytes of every written piece of a tensor. An error ends the save. May be nil.
	wrote func(bytes int64) error
}

// do adds the operation op and the file name, relative to the root, to err. If the disk is full, it adds how much
// space is missing.
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

// opError adds operation and path to err, in the same form for every FS.
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

// Advice in errors about missing space: lessOfRun for the saves of a run, lessOfCopy for CopyModel.
// A copy's directory and type come from a command line, so its advice names no keys of a config.
const (
	lessOfRun  = "choose another output_dir, or keep fewer checkpoints (save_total_limit)"
	lessOfCopy = "or choose another place or a smaller type"
)

// checkFree returns an error if dir has less free space than need, in bytes. The error advises to
// free space, or to do what the text ways says.
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
