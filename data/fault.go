package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	"mt/internal/files"
)

// Read calls f, which may call the methods of d. It returns an error where the token cache
// was cut off or could not be read meanwhile; what f has read is then of no use. The cache
// is mapped into memory, so that touching what is gone would otherwise end the process with
// SIGBUS. Sampler.Batch and BigramLoss call Read themselves.
func (d *Dataset) Read(f func()) error { return d.c.reading(f) }

// reading does the work of Dataset.Read.
func (c *cache) reading(f func()) (err error) {
	if err := c.unchanged(); err != nil {
		return err
	}
	faulting := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(faulting)
		cause := recover()
		if cause == nil {
			return
		}
		if _, fault := cause.(interface {
			runtime.Error
			Addr() uintptr
		}); !fault {
			panic(cause)
		}
		if err = c.unchanged(); err == nil {
			err = c.lost("its disk does not give what it holds")
		}
	}()
	f()
	return nil
}

// unchanged is an error where the file does not have the length that it had when it was opened.
func (c *cache) unchanged() error {
	info, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("token cache: %w", err)
	}
	if was := int64(len(c.mapped)); info.Size() != was {
		return c.lost(fmt.Sprintf("it has %d bytes of %d", info.Size(), was))
	}
	return nil
}

func (c *cache) lost(why string) error {
	return fmt.Errorf("token cache %s was changed while it was in use: %s; run the same again, and it is made anew", c.file.Name(), why)
}

// openRegular opens a regular file for reading, and refuses anything else: a pipe or a
// device could keep its reader waiting for ever.
func openRegular(name string) (*os.File, os.FileInfo, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, nil, notRegular(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readSmall reads a file of at most most bytes; the content is nil where there is no such
// file.
func readSmall(name string, most int64) ([]byte, error) {
	text, err := files.Read(name, most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// notRegular adds, to the error of a path that is not a regular file, why data must be in
// one.
func notRegular(err error) error {
	var is *files.NotAFile
	if errors.As(err, &is) {
		return fmt.Errorf("%s is %s, and data is read more than once and by place; write it to a file and give that", is.Path, is.What)
	}
	return err
}
