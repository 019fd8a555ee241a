package extents

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file selects the engine that moves chunks between memory and files: io_uring, or a pool of goroutines that call
// pread and pwrite. docs/decisions/2026-11-disk-engine.md says why there are both.

// The numbers of chunks in flight at once are enough for an NVMe disk to reach its rate. The pool
// of threads needs a thread for each transfer. An io_uring needs no threads, but twice as many
// transfers because of its higher latency.
const (
	poolDepth = 8
	ringDepth = 16
)

// mover reads and writes files without a thread for each transfer in flight. The io_uring
// implements it.
type mover interface {
	// move reads from the file descriptor fd at offset at into b, or writes b there. It returns the number of bytes
	// moved. They may be fewer than len(b) without an error. Concurrent calls are allowed.
	move(write bool, fd uintptr, b []byte, at int64) (int, error)
	// Close releases the mover's resources. No call may be under way.
	Close() error
}

// engine is the environment variable that selects the pool instead of an io_uring. Tests use it to make pread and
// pwrite fail.
const engine = "MT_IO"

// start selects the engine and starts the goroutines (workers) that move chunks and check their sums.
func (e *Files) start() error {
	depth := poolDepth
	switch by := os.Getenv(engine); by {
	case "":
		e.noRing = e.tryRing()
	case "pool":
		e.noRing = errors.New(engine + "=pool")
	default:
		return fmt.Errorf("%s=%s: want pool, or leave it unset", engine, by)
	}
	if e.ring != nil {
		depth = ringDepth
	}
	workers := make([]worker, depth)
	if err := e.takeScratch(workers); err != nil {
		return err
	}
	for i := range workers {
		e.ended.Go(func() {
			for job := range e.jobs {
				job(&workers[i])
			}
		})
	}
	return nil
}

// tryRing makes an io_uring move the chunks of all files, if it can read the headers of the files. Otherwise it returns
// the reason and the pool stays. With files in the page cache the pool stays too: an io_uring would copy cached data on
// the submitting goroutine, one transfer after the other.
func (e *Files) tryRing() error {
	if e.cached != nil {
		return fmt.Errorf("%s goes through the page cache", e.cached[0])
	}
	for i, f := range e.files {
		if _, ok := f.(osFile); f != nil && !ok {
			return fmt.Errorf("%s is not a file of the system", e.paths[i])
		}
	}
	ring, err := e.o.ring(ringDepth)
	if err != nil {
		return err
	}
	if err := e.try(ring); err != nil {
		return errors.Join(err, ring.Close())
	}
	e.ring = ring
	for i, f := range e.files {
		e.files[i] = e.byRing(f)
	}
	return nil
}

// byRing returns a file that reads and writes f with the io_uring, or f itself if there is no io_uring. f may be nil,
// for an empty extent.
func (e *Files) byRing(f file) file {
	if e.ring == nil || f == nil {
		return f
	}
	return ringFile{f.(osFile), e.ring}
}

// try reads the header of each file with ring. A system may allow a program to create an io_uring and still forbid its
// use.
func (e *Files) try(ring mover) error {
	block, err := e.header()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(block) }()
	for i, f := range e.files {
		if f == nil {
			continue
		}
		n, err := ring.move(false, f.(osFile).Fd(), block, 0)
		if err == nil && n < len(block) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("it does not read %s: %w", e.paths[i], err)
		}
	}
	return nil
}

// Engine returns the name of the engine in use, for people.
func (e *Files) Engine() string {
	if e.ring != nil {
		return "io_uring"
	}
	return fmt.Sprintf("pread and pwrite (no io_uring: %v)", e.noRing)
}

// ringFile is a file that an io_uring reads and writes. If a transfer by the io_uring ends early, pread or pwrite moves
// the rest. So errors and ends of files are the same as without an io_uring.
type ringFile struct {
	osFile
	ring mover
}

func (f ringFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.ring.move(false, f.Fd(), b, at)
	if n == len(b) || err != nil && !later(err) {
		return n, err
	}
	m, err := f.osFile.ReadAt(b[n:], at+int64(n))
	return n + m, err
}

func (f ringFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.ring.move(true, f.Fd(), b, at)
	if n == len(b) || err != nil && !later(err) {
		return n, err
	}
	m, err := f.osFile.WriteAt(b[n:], at+int64(n))
	return n + m, err
}

// later reports whether the error of a transfer by an io_uring is temporary, so that pread or
// pwrite can do the transfer. Such errors are a signal, no room in the kernel for another transfer,
// or the end of the submitting thread.
func later(err error) bool {
	return errors.Is(err, syscall.ECANCELED) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY)
}
