package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mt/base/parallel"
	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

var (
	errClosed       = errors.New("the device is closed")
	errStreamClosed = errors.New("the stream is closed")
)

// what is the kind of a command. After a failure the stream drops operations, copies and zeros. It
// still executes recordings, waits and notifications, for which others wait.
type what uint8

const (
	operation what = iota
	copyUp
	copyDown
	copyAcross
	copyPeer
	zeros
	recording
	waiting
	notifying
)

// command is one call of a stream's method, such as a copy, to be enqueued on the CUDA stream at
// once or by the worker.
type command struct {
	name string
	what what
	slow bool // may wait on the host, so the worker executes it; a slow copy goes through staging slabs

	call     op.Call[kernels.Launcher] // operation
	task     task                      // operation
	dst, src device.Mem                // of copies and zeros: the device memory
	host     []byte                    // the host memory of a copy
	peer     int                       // copyPeer: the device that owns dst
	mark     *mark                     // recording and waiting
	err      error                     // recording: the reason why mark is nil
	f        func(error)               // notifying
}

// notice is a notification (Notify) that waits for its turn. The stream's notification goroutine
// delivers notices in order.
type notice struct {
	after cudart.Event // the event that it waits for; 0: recording the event failed
	at    uint64       // the notification comes after the first at launches
	f     func(error)
}

// stream implements device.Stream. The caller's goroutine enqueues a call on the CUDA stream at
// once. If the worker still has earlier work of this stream, the worker enqueues the call too, to
// keep the order.
type stream struct {
	dev     *dev
	name    string
	cuda    cudart.Stream
	notices *parallel.Queue[notice]
	later   *parallel.Queue[command] // commands for the worker
	worker  sync.Once                // starts the worker
	ended   sync.WaitGroup
	closing sync.Once
	closed  atomic.Bool

	unended unended

	mu  sync.Mutex
	err error

	// Only the enqueuing goroutine uses these: the caller or the worker, never both at once.
	broken   bool // a call has failed, so later work is dropped
	staging  staging
	launcher launcher
}

// on returns s, which must be a stream of this package, as its own type.
func on(s device.Stream) *stream { return s.(*stream) }

// NewStream creates a stream and starts the goroutine that delivers its notifications.
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
	s := &stream{dev: d, name: name, cuda: c, notices: parallel.NewQueue[notice](), later: parallel.NewQueue[command]()}
	s.staging.stream, s.launcher.stream = s, s
	s.ended.Go(func() { s.notices.Drain(s.tell) })
	d.streams = append(d.streams, s)
	d.watchHangs()
	return s, nil
}

// tell delivers the notification n. First it waits for the work that was enqueued before n. If a
// fault of the device shows up in this wait, it becomes the stream's error.
func (s *stream) tell(n notice) {
	if n.after == 0 {
		s.finish()
	} else {
		if err := s.dev.cuda.EventSynchronize(s.dev.context, n.after); err != nil {
			s.fail("Notify", err)
			s.dev.regret(err) // if no Sync follows, only Close reports it
		}
		s.unended.reached(s.dev, n.at)
		s.dev.giveEvent(n.after)
	}
	n.f(s.Err())
}

// put executes c at once on the caller's goroutine. If c is slow, or the worker still has earlier
// commands, put gives c to the worker instead. It returns false if the stream is closed; then the
// stream fails.
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

// execute enqueues c on the CUDA stream. If that panics, the stream fails with an error that names
// the call.
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
		return s.launcher.do(c.call, c.task)
	case recording:
		return s.record(c.mark, c.err)
	case waiting:
		return s.wait(c.mark)
	case notifying:
		s.notify(c.f)
		return nil
	}
	bytes := max(c.dst.Bytes, c.src.Bytes)
	switch {
	case bytes == 0 || c.dst.Addr == c.src.Addr:
		return nil
	case c.slow && c.what == copyUp:
		return s.staging.up(c.dst, c.host)
	case c.slow && c.what == copyDown:
		return s.staging.down(c.host, c.src)
	}
	var err error
	call, rate := "cudaMemcpyAsync", float64(leastLink)
	switch c.what {
	case zeros:
		call, rate = "cudaMemsetAsync", leastBandwidth
		err = cuda.MemsetAsync(ctx, cudart.DevicePtr(c.dst.Addr), 0, bytes, s.cuda)
	case copyAcross:
		rate = leastBandwidth
		err = cuda.MemcpyAsync(ctx, c.dst.Addr, c.src.Addr, bytes, s.dev.direction(cudart.DeviceToDevice), s.cuda)
	case copyPeer:
		call = "cudaMemcpyPeerAsync"
		err = cuda.MemcpyPeerAsync(ctx, cudart.DevicePtr(c.dst.Addr), c.peer, cudart.DevicePtr(c.src.Addr), s.dev.opts.Ordinal, bytes, s.cuda)
	case copyUp:
		err = cuda.MemcpyAsync(ctx, c.dst.Addr, address(c.host), bytes, s.dev.direction(cudart.HostToDevice), s.cuda)
	default:
		err = cuda.MemcpyAsync(ctx, address(c.host), c.src.Addr, bytes, s.dev.direction(cudart.DeviceToHost), s.cuda)
	}
	if err != nil {
		return err
	}
	return s.copied(call, c.name, bytes, rate)
}

// fail makes err the stream's error, unless the stream has failed before. name is the call that
// failed.
func (s *stream) fail(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("cuda: stream %s: %s: %w", s.name, name, err)
	if errors.Is(err, cudart.ErrContextLost) {
		if hanging := s.dev.hanging(); hanging != "" {
			s.err = fmt.Errorf("%w; before that: %s", s.err, hanging)
			return
		}
		s.err = fmt.Errorf("%w; the device tells late: an earlier operation may be at fault (CUDA_LAUNCH_BLOCKING=1 in the environment shows which)", s.err)
	}
}

// do enqueues c. If the caller's arguments were wrong, bad is the error, and the stream fails with
// it.
func (s *stream) do(c command, bad error) {
	if bad != nil {
		s.fail(c.name, bad)
	}
	if s.Err() == nil {
		s.put(c)
	}
}

// copies enqueues a copy between the slice host and the device memory mem. It cuts host where
// pinned and unpinned memory meet, and enqueues a command for each part. Unpinned parts go through
// the staging slabs. If bad is not nil, the stream fails with it.
func (s *stream) copies(name string, what what, mem device.Mem, host []byte, bad error) {
	if bad != nil || len(host) == 0 {
		s.do(command{name: name, what: what}, bad)
		return
	}
	for off := int64(0); off < int64(len(host)); {
		n, pinned := s.dev.run(host[off:])
		n = min(n, s.dev.within(mem.Slice(off, n)))
		c := command{name: name, what: what, slow: !pinned, host: host[off : off+n]}
		if side := mem.Slice(off, n); what == copyUp {
			c.dst = side
		} else {
			c.src = side
		}
		s.do(c, nil)
		off += n
	}
}

// CopyH2D enqueues dst = src.
func (s *stream) CopyH2D(dst device.Mem, src []byte) {
	s.copies("CopyH2D", copyUp, dst, src, equal(int64(len(src)), dst.Bytes))
}

// CopyD2H enqueues dst = src.
func (s *stream) CopyD2H(dst []byte, src device.Mem) {
	s.copies("CopyD2H", copyDown, src, dst, equal(src.Bytes, int64(len(dst))))
}

// CopyD2D enqueues dst = src.
func (s *stream) CopyD2D(dst, src device.Mem) {
	bad := equal(src.Bytes, dst.Bytes)
	for bad == nil && dst.Bytes > 0 {
		n := min(s.dev.within(dst), s.dev.within(src))
		s.do(command{name: "CopyD2D", what: copyAcross, dst: dst.Slice(0, n), src: src.Slice(0, n)}, nil)
		dst, src = dst.Slice(n, dst.Bytes-n), src.Slice(n, src.Bytes-n)
	}
	if bad != nil {
		s.do(command{name: "CopyD2D"}, bad)
	}
}

// CopyPeer enqueues dst = src. dst is memory of another device for which Reach has returned true.
func (s *stream) CopyPeer(to device.Device, dst, src device.Mem) {
	other, bad := s.dev.reached(to)
	if bad != nil {
		s.do(command{name: "CopyPeer"}, bad)
		return
	}
	s.copyPeer(other, dst, src)
}

func (s *stream) copyPeer(to *dev, dst, src device.Mem) {
	s.do(command{name: "CopyPeer", what: copyPeer, dst: dst, src: src, peer: to.opts.Ordinal}, equal(src.Bytes, dst.Bytes))
}

// equal returns an error if the two sizes of a copy in bytes differ.
func equal(from, to int64) error {
	if from != to {
		return fmt.Errorf("%d bytes to %d bytes", from, to)
	}
	return nil
}

// Zero enqueues dst = 0.
func (s *stream) Zero(dst device.Mem) {
	for dst.Bytes > 0 {
		n := s.dev.within(dst)
		s.do(command{name: "Zero", what: zeros, dst: dst.Slice(0, n)}, nil)
		dst = dst.Slice(n, dst.Bytes-n)
	}
}

// Record enqueues a recording of e. If that fails, the event counts as complete, so that nobody
// waits forever.
func (s *stream) Record(e device.Event) {
	m, err := e.(*event).record(!s.later.Empty())
	if !s.put(command{name: "Record", what: recording, mark: m, err: err}) && m != nil {
		m.settle(false)
	}
}

// record enqueues the recording m. If m is nil, it returns err, the reason why there is no mark.
func (s *stream) record(m *mark, err error) error {
	if err != nil {
		s.finish()
		return err
	}
	return m.submit(s)
}

// finish waits for all work of a stream on which a recording has failed. Other streams have no
// event to wait for then. Because finish has waited, their next work still comes after this
// stream's work.
func (s *stream) finish() {
	_ = s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda) // the stream's error is already known
}

// Wait makes later work of s wait for e's last recording. If the worker of e's stream has yet to
// enqueue that recording, the worker of s waits for it on the host.
func (s *stream) Wait(e device.Event) {
	m := e.(*event).hold()
	if m == nil {
		return
	}
	if !s.put(command{name: "Wait", what: waiting, slow: m.pending(), mark: m}) {
		m.release()
	}
}

// wait enqueues a wait for the recording m. Before that it waits until m itself has been enqueued.
// It releases the reference to m.
func (s *stream) wait(m *mark) error {
	defer m.release()
	if <-m.made; !m.recorded {
		return nil
	}
	err := s.dev.cuda.StreamWaitEvent(s.dev.context, s.cuda, m.cuda)
	if err == nil {
		s.awaits(m)
	}
	if err != nil { // later work must still come after m
		_ = s.dev.cuda.EventSynchronize(s.dev.context, m.cuda) // err is the first error
	}
	return err
}

// Notify calls f, on another goroutine, when all work enqueued before it is complete.
func (s *stream) Notify(f func(err error)) {
	if !s.put(command{name: "Notify", what: notifying, f: f}) {
		go f(s.Err())
	}
}

// notify arranges that f is called once the work enqueued so far is complete. It records an event,
// and the notification goroutine waits for this event.
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
	at := s.unended.count()
	if err == nil {
		s.unended.fence(fence{at: at, event: after})
	}
	s.notices.Put(notice{after, at, f})
}

// Sync waits for everything enqueued and returns Err.
func (s *stream) Sync() error {
	if s.closed.Load() {
		s.fail("Sync", errStreamClosed)
		return s.Err()
	}
	s.later.Wait()
	at := s.unended.count()
	if err := s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda); err != nil {
		s.fail("Sync", err)
	} else {
		s.unended.reached(s.dev, at)
	}
	return s.Err()
}

// Err returns the stream's first error so far, or nil.
func (s *stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close waits for everything enqueued and for the delivery of all notifications. It returns Err. On a failed device
// it waits for nothing.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.later.Wait()
		if err := s.dev.cuda.StreamSynchronize(s.dev.context, s.cuda); err != nil {
			s.fail("Close", err)
			s.dev.regret(err) // callers that close a drained stream ignore the error
		}
		s.later.Close()
		s.notices.Close()
		s.ended.Wait()
		s.unended.looking.Lock()
		s.unended.gone = true
		s.unended.hold(false)
		s.unended.looking.Unlock()
		s.unended.reached(s.dev, s.unended.count())
		s.staging.free()
		s.launcher.free()
		s.dev.release(func() error { return s.dev.cuda.StreamDestroy(s.dev.context, s.cuda) })
		s.dev.mu.Lock()
		defer s.dev.mu.Unlock()
		s.dev.streams = slices.DeleteFunc(s.dev.streams, func(o *stream) bool { return o == s })
	})
	return s.Err()
}
