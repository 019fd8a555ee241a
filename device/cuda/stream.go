package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/queue"
)

var (
	errClosed       = errors.New("the device is closed")
	errStreamClosed = errors.New("the stream is closed")
)

// what a command does. From recording on it is done after a failure too.
type what uint8

const (
	operation what = iota
	copyUp
	copyDown
	copyAcross
	zeros
	recording
	waiting
	notifying
)

// command is something to enqueue on the CUDA stream.
type command struct {
	name string
	what what
	slow bool // may wait on the host: for the worker. Of a copy: by way of staging memory

	call     op.Call[kernels.Launcher] // operation
	dst, src device.Mem                // of copies and zeros: the device's sides
	host     []byte                    // the host's side of a copy
	mark     *mark                     // recording and waiting
	err      error                     // recording: why there is no mark
	f        func(error)               // notifying
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

// on is the stream under s, which must be one of this package.
func on(s device.Stream) *stream { return s.(*stream) }

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
	if c.what < recording && s.broken {
		return
	}
	if err := s.run(&c); err != nil {
		s.broken = true
		s.fail(c.name, err)
	}
}

// run enqueues c on the CUDA stream.
func (s *stream) run(c *command) error {
	cuda, ctx := s.dev.cuda, s.dev.context
	switch c.what {
	case operation:
		return s.launcher.do(c.call)
	case recording:
		return s.record(c.mark, c.err)
	case waiting:
		return s.wait(c.mark)
	case notifying:
		s.notify(c.f)
		return nil
	}
	switch {
	case c.dst.Bytes == 0 && c.src.Bytes == 0 || c.dst.Addr == c.src.Addr:
		return nil
	case c.what == zeros:
		return cuda.MemsetAsync(ctx, cudart.DevicePtr(c.dst.Addr), 0, c.dst.Bytes, s.cuda)
	case c.what == copyAcross:
		return cuda.MemcpyAsync(ctx, c.dst.Addr, c.src.Addr, c.dst.Bytes, cudart.DeviceToDevice, s.cuda)
	case c.what == copyUp && c.slow:
		return s.staging.up(c.dst, c.host)
	case c.what == copyUp:
		return cuda.MemcpyAsync(ctx, c.dst.Addr, address(c.host), c.dst.Bytes, cudart.HostToDevice, s.cuda)
	case c.slow:
		return s.staging.down(c.host, c.src)
	}
	return cuda.MemcpyAsync(ctx, address(c.host), c.src.Addr, c.src.Bytes, cudart.DeviceToHost, s.cuda)
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
func (s *stream) do(c command, bad error) {
	if bad != nil {
		s.fail(c.name, bad)
	}
	if s.Err() == nil {
		s.put(c)
	}
}

// staged says whether a copy from or to host memory goes through staging memory.
func (s *stream) staged(host []byte) bool { return len(host) > 0 && !s.dev.pinned(host) }

// CopyH2D enqueues dst = src.
func (s *stream) CopyH2D(dst device.Mem, src []byte) {
	s.do(command{name: "CopyH2D", what: copyUp, slow: s.staged(src), dst: dst, host: src}, equal(int64(len(src)), dst.Bytes))
}

// CopyD2H enqueues dst = src.
func (s *stream) CopyD2H(dst []byte, src device.Mem) {
	s.do(command{name: "CopyD2H", what: copyDown, slow: s.staged(dst), src: src, host: dst}, equal(src.Bytes, int64(len(dst))))
}

// CopyD2D enqueues dst = src.
func (s *stream) CopyD2D(dst, src device.Mem) {
	s.do(command{name: "CopyD2D", what: copyAcross, dst: dst, src: src}, equal(src.Bytes, dst.Bytes))
}

// equal is the error of a copy between sizes that differ.
func equal(from, to int64) error {
	if from != to {
		return fmt.Errorf("%d bytes to %d bytes", from, to)
	}
	return nil
}

// Zero enqueues dst = 0.
func (s *stream) Zero(dst device.Mem) { s.do(command{name: "Zero", what: zeros, dst: dst}, nil) }

// Record enqueues e. Where that fails the event counts as complete.
func (s *stream) Record(e device.Event) {
	m, err := e.(*event).record(!s.later.Empty())
	if !s.put(command{name: "Record", what: recording, mark: m, err: err}) && m != nil {
		m.settle(false)
	}
}

// record enqueues m, or fails with err, for which there is none.
func (s *stream) record(m *mark, err error) error {
	if err != nil {
		s.finish()
		return err
	}
	return m.submit(s)
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
	if !s.put(command{name: "Wait", what: waiting, slow: m.pending(), mark: m}) {
		m.release()
	}
}

// wait enqueues a wait for m, and lets go of it.
func (s *stream) wait(m *mark) error {
	defer m.release()
	if <-m.made; !m.recorded {
		return nil
	}
	err := s.dev.cuda.StreamWaitEvent(s.dev.context, s.cuda, m.cuda)
	if err != nil { // what is enqueued later must come after it all the same
		_ = s.dev.cuda.EventSynchronize(s.dev.context, m.cuda) // err is the first error
	}
	return err
}

// Notify calls f when everything enqueued before it is complete.
func (s *stream) Notify(f func(err error)) {
	if !s.put(command{name: "Notify", what: notifying, f: f}) {
		go f(s.Err())
	}
}

// notify has f called after what is on the stream now.
func (s *stream) notify(f func(err error)) {
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
