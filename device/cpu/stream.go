package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"mt/base/parallel"
	"mt/device"
	"mt/device/cpu/gemm"
	"mt/device/op"
)

// command is an entry of a stream's queue: an operation, a copy, a record, a wait or a
// notification. After a command has failed, the stream drops operations, Zeros and copies. Waits,
// completions of events and notifications still happen, because others depend on them.
type command struct {
	name     string
	call     op.Call[*stream] // the call of an operation
	zero     bool             // dst = 0
	dst, src device.Mem       // of a copy, unless zero
	host     []byte           // the Go memory of a copy, kept alive
	peer     bool             // a copy into another device's memory
	at       time.Time        // when a copy over a rate-limited link was enqueued

	wait   *mark
	mark   *mark
	notify func(error)
}

// notice is a call of Notify whose turn has come, and the stream's error by then. Another goroutine
// delivers it.
type notice struct {
	f   func(error)
	err error
}

// stream implements device.Stream.
type stream struct {
	dev     *dev
	name    string
	queue   *parallel.Queue[command]
	notices *parallel.Queue[notice]
	ended   sync.WaitGroup
	closing sync.Once

	mu  sync.Mutex
	err error

	// The following fields need no lock: only the stream's goroutine uses them.
	pool    *parallel.Pool
	scratch *scratchList
	broken  bool  // a command has failed, so later work is dropped
	count   int64 // commands begun
	gemm    gemm.Workspace
	partial []float32 // partial sums of reductions
	link    link
	next    []int32 // for SortByExpert: the place of each expert's next pair
	jobs    jobList
}

// startStream starts a stream that shares the device's workers. In race builds each stream has its
// own workers, because the race detector would take a shared worker for synchronization of two
// streams.
func startStream(d *dev, name string) *stream {
	s := &stream{dev: d, name: name, queue: parallel.NewQueue[command](), notices: parallel.NewQueue[notice](), pool: d.pool, scratch: &d.scratch}
	if raceEnabled {
		s.pool, s.scratch = parallel.New(d.opts.Threads), &scratchList{poison: d.scratch.poison}
	}
	s.ended.Go(func() {
		defer s.notices.Close()
		s.queue.Drain(s.execute)
	})
	s.ended.Go(func() {
		s.notices.Drain(func(n notice) { n.f(n.err) })
	})
	return s
}

// execute runs a command on the stream's goroutine.
func (s *stream) execute(c command) {
	if s.dev.opts.Delay != nil {
		time.Sleep(s.dev.opts.Delay(s.name, s.count))
	}
	s.count++
	switch {
	case c.wait != nil:
		<-c.wait.done
		s.link.waited(c.wait)
	case c.mark != nil:
		c.mark.complete()
	case c.notify != nil:
		s.notices.Put(notice{c.notify, s.Err()})
	case !s.broken:
		if err := s.attempt(c); err != nil {
			s.broken = true
			s.fail(c.name, err)
		}
	}
}

// attempt runs an operation, Zero or copy and turns a panic into an error.
func (s *stream) attempt(c command) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	switch {
	case !c.call.None():
		return c.call.Run(s)
	case c.zero:
		s.clear(c.dst)
	case c.dst.Bytes > 0 && c.dst.Addr != c.src.Addr:
		s.transfer(c)
	}
	runtime.KeepAlive(c.host)
	return nil
}

// transfer runs a copy. If LinkLimit is set, a copy to or from host memory or another device takes at least as long as
// that rate demands.
func (s *stream) transfer(c command) {
	began := time.Now()
	copy(memory(c.dst), memory(c.src))
	if limit := s.dev.opts.LinkLimit; limit > 0 && (c.host != nil || c.peer) {
		time.Sleep(time.Until(s.link.copied(c.dst.Bytes, c.at, time.Since(began), limit)))
	}
}

// fail makes err, which the command name returned, the stream's error, unless the stream has failed
// before.
func (s *stream) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("cpu: stream %s: %s: %w", s.name, name, err)
	}
}

// do enqueues c, unless the stream has failed. bad is the error of the caller's arguments; nil:
// they are valid. Otherwise the stream fails with bad.
func (s *stream) do(c command, bad error) {
	if bad != nil {
		s.fail(c.name, bad)
	}
	if s.Err() == nil {
		s.put(c)
	}
}

// put enqueues c. On a closed stream the command fails. If the command would complete an event, the event completes at
// once, because others wait for it.
func (s *stream) put(c command) {
	if s.queue.Put(c) {
		return
	}
	s.fail(c.name, fmt.Errorf("the stream is closed"))
	switch {
	case c.mark != nil:
		c.mark.complete()
	case c.notify != nil:
		go c.notify(s.Err())
	}
}

func (s *stream) CopyH2D(dst device.Mem, src []byte) {
	s.copy("CopyH2D", dst, device.Mem{Addr: address(src), Bytes: int64(len(src))}, src)
}

func (s *stream) CopyD2H(dst []byte, src device.Mem) {
	s.copy("CopyD2H", device.Mem{Addr: address(dst), Bytes: int64(len(dst))}, src, dst)
}

func (s *stream) CopyD2D(dst, src device.Mem) { s.copy("CopyD2D", dst, src, nil) }

// CopyPeer is a plain copy: all devices use the memory of the same host.
func (s *stream) CopyPeer(to device.Device, dst, src device.Mem) {
	bad := equal(dst, src)
	if ok, _ := s.dev.Reach(to); !ok {
		bad = fmt.Errorf("%s is no other device of this kind", to.Name())
	}
	s.copies(command{name: "CopyPeer", dst: dst, src: src, peer: true}, bad)
}

// copy enqueues the copy dst = src. host is the Go memory that dst or src is, which the command
// keeps alive; nil: both are device memory.
func (s *stream) copy(name string, dst, src device.Mem, host []byte) {
	s.copies(command{name: name, dst: dst, src: src, host: host}, equal(dst, src))
}

// copies enqueues the copy c and notes when. bad is the error of the caller's arguments; nil: they
// are valid. Otherwise the stream fails with bad.
func (s *stream) copies(c command, bad error) {
	if s.dev.opts.LinkLimit > 0 {
		c.at = time.Now()
	}
	s.do(c, bad)
}

// equal returns an error if dst and src differ in size.
func equal(dst, src device.Mem) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("%d bytes to %d bytes", src.Bytes, dst.Bytes)
	}
	return nil
}

func (s *stream) Zero(dst device.Mem) { s.do(command{name: "Zero", zero: true, dst: dst}, nil) }

// clear zeroes dst on all cores.
func (s *stream) clear(dst device.Mem) {
	const piece = 1 << 20
	if dst.Bytes == 0 {
		return
	}
	raceWrite(dst.Addr, int(dst.Bytes))
	b := memory(dst)
	s.pool.Run((len(b)+piece-1)/piece, func(i int) {
		clear(b[i*piece : min(len(b), (i+1)*piece)])
	})
}

func (s *stream) Record(e device.Event) {
	m := newMark()
	e.(*event).set(m)
	s.put(command{name: "Record", mark: m})
}

func (s *stream) Wait(e device.Event) {
	if m := e.(*event).get(); m != nil {
		s.put(command{name: "Wait", wait: m})
	}
}

func (s *stream) Notify(f func(err error)) { s.put(command{name: "Notify", notify: f}) }

func (s *stream) Sync() error {
	m := newMark()
	s.put(command{name: "Sync", mark: m})
	<-m.done
	return s.Err()
}

func (s *stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close waits for everything enqueued and for the delivery of all notifications. It returns Err.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.queue.Close()
		s.ended.Wait()
		if raceEnabled {
			s.pool.Close()
		}
		s.dev.streamClosed()
	})
	return s.Err()
}
