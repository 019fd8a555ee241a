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
// pread and pwrite. docs/decisions/2026-11-disk-engine.md gives the reasons for having both.

// Number of chunks in flight, enough for an NVMe disk to reach its rate. The pool needs a thread for each transfer. The
// ring needs none, and its higher latency needs twice as many transfers.
const (
	poolDepth = 8
	ringDepth = 16
)

// mover reads and writes without a thread for each transfer in flight. The io_uring implements it.
type mover interface {
	// move reads into b, or writes b, at offset at of the file descriptor fd. It returns the number of bytes moved,
	// which may be less than len(b) without an error. Concurrent calls are allowed.
	move(write bool, fd uintptr, b []byte, at int64) (int, error)
	// Close releases the mover's resources. No call may be under way.
	Close() error
}

// engine is the environment variable that selects the pool instead of io_uring, for tests that make pread and pwrite
// fail.
const engine = "MT_IO"

// start selects the engine and starts the goroutines that check and move chunks.
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

// tryRing uses a ring for all files if the ring can read their headers. Otherwise it returns the reason. Files in the
// page cache use the pool, because a ring would copy cached data one transfer after the other on the submitting
// goroutine.
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

// byRing returns f, read and written by the ring if there is one. f may be nil, for an empty extent.
func (e *Files) byRing(f file) file {
	if e.ring == nil || f == nil {
		return f
	}
	return ringFile{f.(osFile), e.ring}
}

// try reads the header of each file with a ring, because a system may allow creating a ring and still forbid its use.
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

// Engine names the engine for users.
func (e *Files) Engine() string {
	if e.ring != nil {
		return "io_uring"
	}
	return fmt.Sprintf("pread and pwrite (no io_uring: %v)", e.noRing)
}

// ringFile is a file that a ring reads and writes. System calls finish what the ring leaves undone, so errors and end of
// file are the same as without a ring.
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

// later reports whether an error of a transfer by the ring is temporary: a signal, no room in the kernel for another
// transfer, or the end of the submitting thread.
func later(err error) bool {
	return errors.Is(err, syscall.ECANCELED) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY)
}
