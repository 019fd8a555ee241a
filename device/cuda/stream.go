package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mt/cudart"
	"mt/device"
	"mt/internal/queue"
)

var (
	errClosed       = errors.New("the device is closed")
	errStreamClosed = errors.New("the stream is closed")
)

// command is something to enqueue on the CUDA stream.
type command struct {
	name   string
	run    func() error
	always bool // also after a failure: records, waits, notifications
	slow   bool // may wait on the host: for the worker
}

// notice is a notification on its way.
type notice struct {
	after cudart.Event // what it waits for; 0 where the record failed
	f     func(error)
}

// stream implements device.Stream. What is called is enqueued on the CUDA stream
// at once, unless something before it is with the worker: then it goes the same
// way.
type stream struct {
	dev     *dev
	name    string
	cuda    cudart.Stream
	notices *queue.Queue[notice]
	later   *queue.Queue[command] // for the worker
	worker  sync.Once             // starts it
	ended   sync.WaitGroup
	closing sync.Once
	closed  atomic.Bool

	mu  sync.Mutex
	err error

	// Of whoever enqueues: the caller or the worker, never both.
	broken   bool // a call has failed: what follows is dropped
	staging  staging
	launcher launcher
}

// NewStream makes a stream and starts the goroutine of its notifications.
func (d *dev) NewStream(name string) (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cuda: stream %s: %w", name, errClosed)
	}
	c, err := d.cuda.StreamCreate(d.context)
	if err != nil {
		return nil, fmt.Errorf("cuda: stream %s: %w", name, err)
	}
	d.streams++
	s := &stream{dev: d, name: name, cuda: c, notices: queue.New[notice](), later: queue.New[command]()}
	s.staging.stream, s.launcher.stream = s, s
	s.ended.Go(func() { s.notices.Drain(s.tell) })
	return s, nil
}

// tell waits for what a notification comes after, and delivers it. A fault of
// the device that shows here is the stream's.
func (s *stream) tell(n notice) {
	if n.after == 0 {
		s.finish()
	} else {
		if err := s.dev.cuda.EventSynchronize(s.dev.context, n.after); err != nil {
			s.fail("Notify", err)
			s.dev.regret(err) // the last Sync may have been before
		}
		s.dev.giveEvent(n.after)
	}
	n.f(s.Err())
}

// put enqueues c, now or after what the worker has. It reports whether the
// stream was open; if not the call fails.
func (s *stream) put(c command) bool {
	switch {
	case s.closed.Load():
		s.fail(c.name, errStreamClosed)
		return false
	case c.slow:
		s.worker.Do(func() {
			s.ended.Go(func() { s.later.Drain(s.execute) })
		})
		fallthrough
	case !s.later.Empty():
		s.later.Put(c)
	default:
		s.execute(c)
	}
	return true
}

// execute enqueues c on the CUDA stream. A panic is an error of the call.
func (s *stream) execute(c command) {
	defer func() {
		if cause := recover(); cause != nil {
			s.broken = true
			s.fail(c.name, fmt.Errorf("panic: %v", cause))
		}
	}()
	if !c.always && s.broken {
		return
	}
	if err := c.run(); err != nil {
		s.broken = true
		s.fail(c.name, err)
	}
}

// fail keeps the stream's first error.
func (s *stream) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("cuda: stream %s: %s: %w", s.name, name, err)
	if errors.Is(err, cudart.ErrContextLost) {
		s.err = fmt.Errorf("%w; the device tells late: an earlier operation may be at fault (CUDA_LAUNCH_BLOCKING=1 in the environment shows which)", s.err)
	}
}

// do enqueues work, or fails the stream with bad, what is wrong with the call.
func (s *stream) do(name string, bad error, c command) {
	if bad != nil {
		s.fail(name, bad)
	}
	if s.Err() == nil {
		c.name = name
		s.put(c)
	}
}

// CopyH2D enqueues dst = src.
func (s *stream) CopyH2D(dst device.Mem, src []byte) {
	n := int64(len(src))
	staged := n > 0 && !s.dev.pinned(src)
	s.do("CopyH2D", equal(n, dst.Bytes), command{slow: staged, run: func() error {
		switch {
		case n == 0:
			return nil
		case staged:
			return s.staging.up(dst, src)
		}
		return s.dev.cuda.MemcpyAsync(s.dev.context, dst.Addr, address(src), n, cudart.HostToDevice, s.cuda)
	}})
}

// CopyD2H enqueues dst = src.
func (s *stream) CopyD2H(dst []byte, src device.Mem) {
	n := int64(len(dst))
	staged := n > 0 && !s.dev.pinned(dst)
	s.do("CopyD2H", equal(src.Bytes, n), command{slow: staged, run: func() error {
		switch {
		case n == 0:
			return nil
		case staged:
			return s.staging.down(dst, src)
		}
		return s.dev.cuda.MemcpyAsync(s.dev.context, address(dst), src.Addr, n, cudart.DeviceToHost, s.cuda)
	}})
}

// CopyD2D enqueues dst = src.
func (s *stream) CopyD2D(dst, src device.Mem) {
	s.do("CopyD2D", equal(src.Bytes, dst.Bytes), command{run: func() error {
		if dst.Bytes == 0 || dst.Addr == src.Addr {
			return nil
		}
		return s.dev.cuda.MemcpyAsync(s.dev.context, dst.Addr, src.Addr, dst.Bytes, cudart.DeviceToDevice, s.cuda)
	}})
}

// equal is the error of a copy between sizes that differ.
func equal(from, to int64) error {
	if from != to {
		return fmt.Errorf("%d bytes to %d bytes", from, to)
	}
	return nil
}

// Zero enqueues dst = 0.
func (s *stream) Zero(dst device.Mem) {
	s.do("Zero", nil, command{run: func() error {
		if dst.Bytes == 0 {
			return nil
		}
		return s.dev.cuda.MemsetAsync(s.dev.context, cudart.DevicePtr(dst.Addr), 0, dst.Bytes, s.cuda)
	}})
}

// Record enqueues e. Where that fails the event counts as complete.
func (s *stream) Record(e device.Event) {
	m, err := e.(*event).record(!s.later.Empty())
	open := s.put(command{name: "Record", always: true, run: func() error {
		if err != nil {
			s.finish()
			return err
		}
		return m.submit(s)
	}})
	if !open && m != nil {
		m.settle(false)
	}
}

// finish waits for all that is on the stream, which has failed: what comes after
// a record that failed is still to come after that.
func (s *stream) finish() {
	_ = s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda) // the error to tell of is known
}

// Wait makes what is enqueued later wait for e's last record. Where that record
// is still with the worker of its stream, the worker of this one waits for it.
func (s *stream) Wait(e device.Event) {
	m := e.(*event).hold()
	if m == nil {
		return
	}
	open := s.put(command{name: "Wait", always: true, slow: m.pending(), run: func() error {
		defer m.release()
		if <-m.made; !m.recorded {
			return nil
		}
		err := s.dev.cuda.StreamWaitEvent(s.dev.context, s.cuda, m.cuda)
		if err != nil { // what is enqueued later must come after it all the same
			_ = s.dev.cuda.EventSynchronize(s.dev.context, m.cuda) // err is the first error
		}
		return err
	}})
	if !open {
		m.release()
	}
}

// Notify calls f when everything enqueued before it is complete.
func (s *stream) Notify(f func(err error)) {
	open := s.put(command{name: "Notify", always: true, run: func() error {
		after, err := s.dev.takeEvent()
		if err == nil {
			if err = s.dev.cuda.EventRecord(s.dev.context, after, s.cuda); err != nil {
				s.dev.giveEvent(after)
			}
		}
		if err != nil {
			s.fail("Notify", err)
			after = 0
		}
		s.notices.Put(notice{after, f})
		return nil
	}})
	if !open {
		go f(s.Err())
	}
}

// Sync waits for everything enqueued and returns Err.
func (s *stream) Sync() error {
	if s.closed.Load() {
		s.fail("Sync", errStreamClosed)
		return s.Err()
	}
	s.later.Wait()
	if err := s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda); err != nil {
		s.fail("Sync", err)
	}
	return s.Err()
}

// Err is the first error of the stream so far.
func (s *stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close also waits for the notifications to be delivered. It returns Err. On a
// device that has failed nothing is waited for.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.later.Wait()
		if err := s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda); err != nil {
			s.fail("Close", err)
			s.dev.regret(err) // callers that close what has drained do not look
		}
		s.later.Close()
		s.notices.Close()
		s.ended.Wait()
		s.staging.free()
		s.launcher.free()
		s.dev.release(func() error { return s.dev.cuda.StreamDestroy(s.dev.context, s.cuda) })
		s.dev.mu.Lock()
		defer s.dev.mu.Unlock()
		s.dev.streams--
	})
	return s.Err()
}
