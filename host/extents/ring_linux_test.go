package extents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"mt/internal/testkit"
)

// kernel simulates the kernel's side of an io_uring. It completes transfers in a random order from
// a seed, and makes one call or transfer fail.
type kernel struct {
	r       *ring
	changed sync.Cond
	order   *rand.Rand
	taken   uint32       // submissions
	pending []submission // taken, not completed
	numbers []int        // of pending, from 1
	hold    int          // number of submissions that must be pending before the first is completed
	latest  bool         // the latest is completed first
	done    []int        // the numbers of those that are completed, in their order

	ahead  bool // there were more submissions than were told of
	waits  int  // calls that waited
	spoil  spoil
	at     int // which submission, or wait, is spoiled
	met    bool
	closed int
}

// spoil says how the simulated kernel makes a call or transfer fail.
type spoil struct {
	submit syscall.Errno // of enter, when it is to take a submission
	wait   syscall.Errno // of enter, when it is to wait
	result syscall.Errno // of the transfer
	half   bool          // half of its bytes are transferred
	none   bool          // none of its bytes are transferred
}

// played returns an io_uring whose kernel is simulated by k.
func played(depth int, k *kernel) *ring {
	k.r = &ring{submissions: make([]submission, depth), completions: make([]completion, 2*depth), sqTail: new(uint32), cqHead: new(uint32), cqTail: new(uint32),
		enter: k.enter, unmap: func() error { k.closed++; return nil }}
	// All positions in the queues begin near the largest uint32, so that they soon wrap around to
	// 0.
	for _, end := range []*uint32{k.r.sqTail, k.r.cqHead, k.r.cqTail, &k.taken} {
		*end = ^uint32(0) - 2
	}
	k.changed.L = new(sync.Mutex)
	k.r.number(depth)
	return k.r
}

func (k *kernel) enter(submit, wait uint32) (int, error) {
	k.changed.L.Lock()
	defer k.changed.L.Unlock()
	if submit > 0 {
		n := int(k.taken - (^uint32(0) - 2) + 1)
		k.ahead = k.ahead || *k.r.sqTail != k.taken+1
		if n == k.at && k.spoil.submit != 0 {
			if k.spoil.submit != syscall.EINTR || !k.met {
				k.met = true
				return 0, k.spoil.submit
			}
		}
		k.pending, k.numbers = append(k.pending, k.r.submissions[k.taken%uint32(len(k.r.submissions))]), append(k.numbers, n)
		k.taken++
		k.changed.Broadcast()
		return 1, nil
	}
	if k.waits++; k.waits == k.at && k.spoil.wait != 0 {
		k.met = true
		return 0, k.spoil.wait
	}
	for len(k.pending) == 0 || len(k.done) == 0 && len(k.pending) < k.hold {
		k.changed.Wait()
	}
	i := len(k.pending) - 1
	if !k.latest {
		i = k.order.IntN(len(k.pending))
	}
	s, n := k.pending[i], k.numbers[i]
	k.pending, k.numbers = append(k.pending[:i], k.pending[i+1:]...), append(k.numbers[:i], k.numbers[i+1:]...)
	k.done = append(k.done, n)
	tail := *k.r.cqTail
	k.r.completions[tail%uint32(len(k.r.completions))] = completion{user: s.user, res: k.transfer(n, s)}
	*k.r.cqTail = tail + 1
	return 0, nil
}

// transfer makes the simulated read or write s, number `number` in order, and returns its result:
// the bytes moved or a negative errno.
func (k *kernel) transfer(number int, s submission) int32 {
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&s.addr)), s.bytes)
	if number == k.at && k.spoil.submit == 0 && k.spoil.wait == 0 && k.spoil != (spoil{}) {
		k.met = true
		switch {
		case k.spoil.result != 0:
			return -int32(k.spoil.result)
		case k.spoil.none:
			return 0
		}
		b = b[:len(b)/2/BlockBytes*BlockBytes]
	}
	do := unix.Pread
	if s.op == opWrite {
		do = unix.Pwrite
	}
	n, err := do(int(s.fd), b, int64(s.at))
	if err != nil {
		return -int32(err.(syscall.Errno))
	}
	return int32(n)
}

func init() {
	engineTable["ring"] = func(t *testing.T, o *Options) {
		r, err := newRing(ringDepth)
		if err != nil {
			t.Skip(err)
		}
		testkit.NoError(t, r.Close())
	}
	engineTable["ring in a drawn order"] = func(t *testing.T, o *Options) {
		o.ring = func(depth int) (mover, error) {
			return played(depth, &kernel{order: rand.New(rand.NewPCG(9, 9))}), nil
		}
	}
}

// TestRingFaults makes each call of a simulated io_uring fail in turn. Either the transfer succeeds
// by other means, or the error names the extent, the offset and the file.
func TestRingFaults(t *testing.T) {
	testkit.NotShort(t)
	for name, tc := range map[string]struct {
		spoil spoil
		says  string // of the error; "": none is expected
	}{
		"a transfer fails":                {spoil{result: syscall.EIO}, "input/output error"},
		"the disk is full":                {spoil{result: syscall.ENOSPC}, "no space left on device"},
		"a transfer is interrupted":       {spoil{result: syscall.EINTR}, ""},
		"a transfer has to be made again": {spoil{result: syscall.EAGAIN}, ""},
		"who asked for it is gone":        {spoil{result: syscall.ECANCELED}, ""},
		"half is moved":                   {spoil{half: true}, ""},
		"nothing is moved":                {spoil{none: true}, ""},
		"submitting is interrupted":       {spoil{submit: syscall.EINTR}, ""},
		"no room for a submission":        {spoil{submit: syscall.EAGAIN}, ""},
		"no room for a completion":        {spoil{submit: syscall.EBUSY}, ""},
		"submitting is forbidden":         {spoil{submit: syscall.EPERM}, "operation not permitted"},
		"waiting is interrupted":          {spoil{wait: syscall.EINTR}, ""},
		"waiting fails":                   {spoil{wait: syscall.EBADF}, "io_uring_enter: bad file descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "half is moved" && name != "a transfer fails" {
				testkit.NotShort(t)
			}
			const first = 3 // the two before are those by which the ring is tried
			every := testkit.Every(t, 3)
			for at := first + len(name)%every; ; at += every {
				k := &kernel{spoil: tc.spoil, at: at, order: rand.New(rand.NewPCG(5, uint64(at)))}
				o := three(t, 2)
				o.ring = func(depth int) (mover, error) { return played(depth, k), nil }
				err := writeAndRead(t, o)
				switch {
				case !k.met:
					if err != nil || at < first+8 {
						t.Fatalf("%d calls: %v", at-1, err)
					}
					return
				case tc.says == "" && (err != nil || k.r.broken.Load() != nil):
					t.Errorf("call %d: %v; the ring is broken: %v", at, err, k.r.broken.Load() != nil)
				case tc.says != "" && (err == nil || !tells(err.Error(), tc.says, o)):
					t.Errorf("call %d: the error is %v", at, err)
				}
				if k.ahead {
					t.Errorf("call %d: a submission that was refused stays in the queue", at)
				}
				if k.closed != 1 {
					t.Errorf("call %d: the ring is closed %d times", at, k.closed)
				}
				for _, dir := range o.Dirs {
					if left, _ := os.ReadDir(dir); len(left) > 0 {
						t.Errorf("call %d: %v is left", at, left)
					}
				}
			}
		})
	}
}

// writeAndRead writes all extents of o, reads them back and compares. It returns the first error of
// a write or read.
func writeAndRead(t *testing.T, o Options) (err error) {
	e, err := Open(o)
	testkit.NoError(t, err)
	if e.ring == nil {
		t.Skip("moved by ", e.Engine())
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, i := range []int{0, 2} {
		mem, back := memory(t, o.Bytes[i], rand.New(rand.NewPCG(3, uint64(i)))), memory(t, o.Bytes[i], nil)
		if err := errors.Join(e.Write(i, mem)); err != nil {
			return err
		}
		if err := e.Read(i, back); err != nil {
			return err
		}
		if string(mem) != string(back) {
			t.Errorf("extent %d comes back otherwise", i)
		}
	}
	return nil
}

// tells reports whether an error's text has the form that the errors of pread and pwrite have, with
// the given end.
func tells(text, end string, o Options) bool {
	for _, dir := range o.Dirs {
		for _, way := range []string{"read", "write"} {
			for _, name := range o.Names {
				if strings.HasPrefix(text, way+" ") && strings.Contains(text, " of "+name+" at byte ") && strings.Contains(text, dir+"/"+o.Name+": "+end) {
					return true
				}
			}
		}
	}
	return false
}

// TestBrokenRing: if waiting for an io_uring fails, all later transfers return that error without a
// call to the kernel.
func TestBrokenRing(t *testing.T) {
	k := &kernel{spoil: spoil{wait: syscall.EBADF}, at: 3, order: rand.New(rand.NewPCG(5, 5))}
	o := three(t, 2)
	o.ring = func(depth int) (mover, error) { return played(depth, k), nil }
	e := testkit.Must(Open(o))(t)
	defer e.Close()
	if e.ring == nil {
		t.Skip("moved by ", e.Engine())
	}
	mem := memory(t, o.Bytes[0], nil)
	for try := range 2 * ringDepth {
		taken := k.taken
		if err := e.Write(0, mem); err == nil || !strings.Contains(err.Error(), "io_uring_enter: bad file descriptor") {
			t.Errorf("write %d: %v", try, err)
		}
		if try > 0 && k.taken != taken {
			t.Errorf("write %d is asked of it", try)
		}
	}
}

// TestRingInAnyOrder: if transfers complete in another order than they were submitted, each caller
// still gets its own result.
func TestRingInAnyOrder(t *testing.T) {
	o := three(t, 2)
	o.Chunk = BlockBytes
	o.Bytes[2] = 9 * BlockBytes
	k := &kernel{order: rand.New(rand.NewPCG(6, 6))}
	o.ring = func(depth int) (mover, error) { return played(depth, k), nil }
	e, err := Open(o)
	testkit.NoError(t, err)
	defer e.Close()
	if e.ring == nil {
		t.Skip("moved by ", e.Engine())
	}
	mem, back := memory(t, o.Bytes[2], rand.New(rand.NewPCG(7, 7))), memory(t, o.Bytes[2], nil)
	for _, latest := range []bool{true, false} {
		for _, read := range []bool{false, true} {
			k.hold, k.latest, k.done = len(e.places[2]), latest, nil
			if read {
				clear(back)
				err = e.Read(2, back)
			} else {
				err = e.Write(2, mem)
			}
			testkit.NoError(t, err)
			if len(k.done) != k.hold || latest && k.done[0] < k.done[k.hold-1] {
				t.Errorf("completed in the order %v", k.done)
			}
			if read && string(mem) != string(back) {
				t.Errorf("latest first: %v: comes back otherwise", latest)
			}
		}
	}
}

// TestWithoutRing: if the system has no io_uring, forbids its use, or files are in the page cache,
// pread and pwrite move the chunks. Engine says why.
func TestWithoutRing(t *testing.T) {
	forbidden := &kernel{spoil: spoil{submit: syscall.EPERM}, at: 1}
	short := &kernel{spoil: spoil{half: true}, at: 2, order: rand.New(rand.NewPCG(8, 8))}
	for name, tc := range map[string]struct {
		set  func(o *Options)
		says string
	}{
		"none":           {func(o *Options) { o.ring = func(int) (mover, error) { return nil, syscall.ENOSYS } }, "function not implemented"},
		"not to be used": {func(o *Options) { o.ring = func(n int) (mover, error) { return played(n, forbidden), nil } }, "operation not permitted"},
		"of no use":      {func(o *Options) { o.ring = func(n int) (mover, error) { return played(n, short), nil } }, "unexpected EOF"},
		"buffered": {func(o *Options) {
			o.open = func(path string, fresh bool) (file, error) {
				f, err := openFile(path, fresh)
				return &undirect{file: f, when: "set"}, err
			}
		}, "goes through the page cache"},
		"by name": {func(*Options) { t.Setenv(engine, "pool") }, "MT_IO=pool"},
	} {
		o := three(t, 2)
		tc.set(&o)
		e := testkit.Must(Open(o))(t)
		if got := e.Engine(); e.ring != nil || !strings.HasPrefix(got, "pread and pwrite (no io_uring: ") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: moved by %s", name, got)
		}
		e.cached = e.paths
		if why := e.tryRing(); why == nil || !strings.Contains(why.Error(), "page cache") {
			t.Errorf("%s: a ring for files in the page cache: %v", name, why)
		}
		mem := memory(t, o.Bytes[2], rand.New(rand.NewPCG(4, 4)))
		if err := errors.Join(e.Write(2, mem), e.Read(2, mem), e.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Setenv(engine, "")
	}
	if forbidden.closed != 1 || short.closed != 1 {
		t.Errorf("rings that are not used are closed %d and %d times", forbidden.closed, short.closed)
	}
	t.Setenv(engine, "ring")
	o := three(t, 1)
	if _, err := Open(o); err == nil || err.Error() != "MT_IO=ring: want pool, or leave it unset" {
		t.Errorf("an engine that is none: %v", err)
	}
	if left, _ := os.ReadDir(o.Dirs[0]); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestRingLeavesNothing: after Close, no file descriptor and no memory mapping of the io_uring is
// left.
func TestRingLeavesNothing(t *testing.T) {
	held := func() string {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		maps, err := os.ReadFile("/proc/self/maps")
		testkit.NoError(t, err)
		return fmt.Sprint(len(fds), " descriptors, ", strings.Count(string(maps), "io_uring"), " mappings of rings")
	}
	if r, err := newRing(ringDepth); err != nil {
		t.Skip(err)
	} else if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	before := held()
	for range 3 {
		testkit.NoError(t, writeAndRead(t, three(t, 2)))
	}
	if after := held(); after != before {
		t.Errorf("%s before, %s after", before, after)
	}
}
