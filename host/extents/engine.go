package extents

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file chooses what moves chunks between memory and files: a ring, or a pool of goroutines that call
// pread and pwrite. docs/decisions/2026-11-disk-engine.md says why there are two.

// How many chunks are read or written at once: enough for an NVMe disk to reach its rate. In the pool each of them takes a
// thread. A ring takes none for them, and twice as many make up for its detours.
const (
	poolDepth = 8
	ringDepth = 16
)

// mover reads and writes without a thread for each transfer that is under way: a ring.
type mover interface {
	// move reads into b, or writes b, at a place of the file with a descriptor. It returns how much of b was moved, which may be less
	// than all without an error. Any number of calls may be under way.
	move(write bool, fd uintptr, b []byte, at int64) (int, error)
	// Close gives back what the mover has. No call may be under way.
	Close() error
}

// engine is the variable of the environment by which the pool can be chosen, for tests that make its calls fail.
const engine = "MT_IO"

// start chooses what moves chunks, and starts the goroutines that check and move them.
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

// tryRing has a ring move the chunks of all files, if it can read what they begin with. Else it returns why it does not.
// What the page cache has, a ring would copy on the goroutine that asks for it, one after the other.
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

// byRing is f, moved by the ring if there is one. f may be nil: an extent that is not there.
func (e *Files) byRing(f file) file {
	if e.ring == nil || f == nil {
		return f
	}
	return ringFile{f.(osFile), e.ring}
}

// try reads the header of each file by a ring: a system that lets a program make a ring may still forbid its use.
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

// Engine says what moves chunks, for people.
func (e *Files) Engine() string {
	if e.ring != nil {
		return "io_uring"
	}
	return fmt.Sprintf("pread and pwrite (no io_uring: %v)", e.noRing)
}

// ringFile is a file that a ring reads and writes. What the ring leaves is read and written by calls, whose errors
// and ends are then those of a file without a ring.
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

// later says whether an error is of this moment: a signal, no room in the kernel for one more transfer, or the end of the thread
// that had asked for it.
func later(err error) bool {
	return errors.Is(err, syscall.ECANCELED) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY)
}
