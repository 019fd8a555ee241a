package extents

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of include/uapi/linux/io_uring.h. io_uring(7) documents them.
const (
	opRead  = 22 // IORING_OP_READ
	opWrite = 23 // IORING_OP_WRITE

	enterGetEvents = 1 << 0 // IORING_ENTER_GETEVENTS

	// A ring needs these features of the kernel: one mapping has both queues, no completion is lost, and the operations
	// above are supported (Linux 5.6).
	features = 1<<0 | 1<<1 | 1<<3 // IORING_FEAT_SINGLE_MMAP, _NODROP, _RW_CUR_POS

	mapQueues      = 0          // IORING_OFF_SQ_RING
	mapSubmissions = 0x10000000 // IORING_OFF_SQES
)

// ringParams is struct io_uring_params, in which the kernel describes a new io_uring. Offsets count from the start of
// the mapping that has both queues.
type ringParams struct {
	submissions, completions, flags, threadCPU, threadIdle, features, threads uint32
	_                                                                         [3]uint32
	sq                                                                        struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, entry, flags, _ uint32
		_                                                    uint64
	}
}

// submission is struct io_uring_sqe, a transfer for the kernel to do.
type submission struct {
	op    uint8
	_     [3]uint8
	fd    int32
	at    uint64
	addr  uint64
	bytes uint32
	_     uint32
	user  uint64 // copied to the completion
	_     [3]uint64
}

// completion is struct io_uring_cqe, the result of a transfer.
type completion struct {
	user uint64
	res  int32 // bytes moved, or a negative errno
	_    uint32
}

// ring is an io_uring: a queue of transfers for the kernel, and a queue of completed transfers. Each goroutine submits
// its own transfer and waits for its result. One of the waiting goroutines waits in the kernel, and delivers the
// results of all.
//
// Invariant: each transfer in flight has a number of its own. At most as many are in flight as the queues can hold.
type ring struct {
	// enter calls io_uring_enter(2): it passes this number of submissions to the kernel (submit), and then waits until
	// there are at least as many completions as wait says.
	enter func(submit, wait uint32) (int, error)
	unmap func() error

	submitting  sync.Mutex   // held while a submission is written
	submissions []submission // the length is a power of two, as for completions
	sqTail      *uint32      // end of the submissions; written by the program, read by the kernel in enter

	reaping     chan struct{} // full while a goroutine reads completions, so it serves as a lock
	completions []completion
	cqHead      *uint32 // start of the unread completions; written by the program
	cqTail      *uint32 // end of the completions; written by the kernel

	free   chan uint64           // numbers of no transfer in flight
	done   []chan int32          // results by transfer number
	broken atomic.Pointer[error] // the error that ended the waiting in the kernel, if one did; transfers in flight then never complete
}

// newRing creates an io_uring for at most depth transfers in flight. depth must be a power of two. It returns an error
// if the kernel lacks io_uring or forbids it.
func newRing(depth int) (mover, error) {
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{enter: func(submit, wait uint32) (int, error) {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, fd, uintptr(submit), uintptr(wait), enterGetEvents, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}}
	if p.features&features != features {
		return nil, errors.Join(errors.New("the kernel's io_uring is older than Linux 5.6"), unix.Close(int(fd)))
	}
	if err := r.mapQueues(int(fd), &p); err != nil {
		return nil, fmt.Errorf("io_uring: map its queues: %w", errors.Join(err, unix.Close(int(fd))))
	}
	r.number(depth)
	return r, nil
}

// mapQueues maps the memory of the queues, which program and kernel share.
func (r *ring) mapQueues(fd int, p *ringParams) error {
	shared := func(at int64, bytes uint32) ([]byte, error) {
		return unix.Mmap(fd, at, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	queues, err := shared(mapQueues, max(p.sq.array+4*p.submissions, p.cq.entry+uint32(unsafe.Sizeof(completion{}))*p.completions))
	if err != nil {
		return err
	}
	entries, err := shared(mapSubmissions, uint32(unsafe.Sizeof(submission{}))*p.submissions)
	if err != nil {
		return errors.Join(err, unix.Munmap(queues))
	}
	r.unmap = func() error { return errors.Join(unix.Munmap(entries), unix.Munmap(queues), unix.Close(fd)) }

	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&queues[at])) }
	r.sqTail, r.cqHead, r.cqTail = word(p.sq.tail), word(p.cq.head), word(p.cq.tail)
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&entries[0])), p.submissions)
	r.completions = unsafe.Slice((*completion)(unsafe.Pointer(&queues[p.cq.entry])), p.completions)
	order := unsafe.Slice(word(p.sq.array), p.submissions)
	for i := range order {
		order[i] = uint32(i) // queue entry i is submission i
	}
	return nil
}

// number makes the numbers that identify transfers in flight, 0 … depth−1, and for each number the
// channel on which the transfer's result arrives.
func (r *ring) number(depth int) {
	r.reaping, r.free = make(chan struct{}, 1), make(chan uint64, depth)
	for i := range depth {
		r.free <- uint64(i)
		r.done = append(r.done, make(chan int32, 1))
	}
}

// move implements mover.
func (r *ring) move(write bool, fd uintptr, b []byte, at int64) (int, error) {
	if err := r.broken.Load(); err != nil {
		return 0, *err
	}
	number := <-r.free
	var pin runtime.Pinner // keeps b in place for the kernel if it is in the Go heap
	pin.Pin(unsafe.SliceData(b))
	defer pin.Unpin()
	s := submission{op: opRead, fd: int32(fd), at: uint64(at), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), bytes: uint32(len(b)), user: number}
	if write {
		s.op = opWrite
	}
	if err := r.submit(s); err != nil {
		r.free <- number
		return 0, err
	}
	res, err := r.wait(number)
	if err != nil {
		return 0, err // the kernel may still use b and the number, so the number is not free again
	}
	r.free <- number
	if res < 0 {
		return 0, unix.Errno(-res)
	}
	raceMoved(write, b[:res])
	return int(res), nil
}

// submit passes one transfer to the kernel. If the kernel does not take it, submit returns the reason.
func (r *ring) submit(s submission) error {
	r.submitting.Lock()
	defer r.submitting.Unlock()
	tail := *r.sqTail
	r.submissions[tail%uint32(len(r.submissions))] = s
	atomic.StoreUint32(r.sqTail, tail+1)
	n, err := r.enter(1, 0)
	if n == 1 {
		return nil
	}
	atomic.StoreUint32(r.sqTail, tail) // only the kernel reads it, and only in enter
	if err == nil {
		err = unix.EAGAIN
	}
	return err
}

// wait returns the result of the transfer with this number. One of the waiting goroutines reads the completions for all
// of them.
func (r *ring) wait(number uint64) (int32, error) {
	for {
		select {
		case res := <-r.done[number]:
			return res, nil
		case r.reaping <- struct{}{}:
			err := r.reap(number)
			<-r.reaping
			if err != nil {
				err = fmt.Errorf("io_uring_enter: %w", err)
				r.broken.Store(&err)
				return 0, err
			}
		}
	}
}

// reap reads completions and delivers each to the goroutine that waits for it, until the result of the transfer with
// this number has arrived.
func (r *ring) reap(number uint64) error {
	for {
		for head := *r.cqHead; head != atomic.LoadUint32(r.cqTail); head++ {
			c := r.completions[head%uint32(len(r.completions))]
			atomic.StoreUint32(r.cqHead, head+1)
			r.done[c.user] <- c.res
		}
		if len(r.done[number]) > 0 {
			return nil
		}
		if _, err := r.enter(0, 1); err != nil && !later(err) {
			return err
		}
	}
}

// Close implements mover.
func (r *ring) Close() error { return r.unmap() }
