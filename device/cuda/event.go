package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mt/cudart"
	"mt/device"
)

// mark is one recording of a device.Event; it owns a CUDA event. As long as nobody waits for an
// earlier recording, the next recording of the same device.Event reuses its mark. A Wait refers to
// the last recording at the time of its call. If the worker enqueues the Wait later, the Wait keeps
// the mark of that recording.
type mark struct {
	dev  *dev
	cuda cudart.Event
	refs atomic.Int32  // references: by the event, by waits not yet enqueued and by a stream's fence; at 0 cuda can be reused
	made chan struct{} // closed when the first recording has been enqueued or has failed

	recorded bool // the record was enqueued; set before made is closed

	// on is the stream of the last enqueued recording. at is how many launches that stream had
	// enqueued before it.
	on atomic.Pointer[stream]
	at atomic.Uint64
}

// submit records m's CUDA event on the stream s. If CUDA refuses, submit waits until all work on s
// is complete, and m counts as complete.
func (m *mark) submit(s *stream) error {
	err := m.dev.cuda.EventRecord(m.dev.context, m.cuda, s.cuda)
	if err != nil {
		s.finish()
	} else {
		s.recorded(m)
	}
	m.settle(err == nil)
	return err
}

// settle stores whether m could be recorded, and wakes goroutines that wait for m.made. Only the
// first call has an effect.
func (m *mark) settle(recorded bool) {
	if !m.pending() {
		return
	}
	m.recorded = recorded
	close(m.made)
}

// pending reports whether the first recording of m has yet to be enqueued.
func (m *mark) pending() bool {
	select {
	case <-m.made:
		return false
	default:
		return true
	}
}

// retain adds a reference to m, which keeps its CUDA event from reuse. It returns false if the last reference is
// already released.
func (m *mark) retain() bool {
	for {
		n := m.refs.Load()
		if n == 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (m *mark) release() {
	if m.refs.Add(-1) == 0 {
		m.dev.giveEvent(m.cuda)
	}
}

// event implements device.Event. It may be recorded again and again; only the last recording counts.
type event struct {
	dev *dev

	mu   sync.Mutex
	last *mark
	used bool // has been recorded
}

// NewEvent returns an event that counts as complete until it is recorded.
func (d *dev) NewEvent() (device.Event, error) {
	m, err := d.newMark()
	if err != nil {
		return nil, fmt.Errorf("cuda: new event: %w", err)
	}
	return &event{dev: d, last: m}, nil
}

func (d *dev) newMark() (*mark, error) {
	e, err := d.takeEvent()
	if err != nil {
		return nil, err
	}
	m := &mark{dev: d, cuda: e, made: make(chan struct{})}
	m.refs.Store(1)
	return m, nil
}

// record returns the mark for a new recording of e. later says that the stream's worker will
// enqueue the recording, not the caller. The last recording's mark is reused if nothing else refers
// to it.
func (e *event) record(later bool) (*mark, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh := !e.used
	e.used = true
	if m := e.last; m != nil && m.refs.Load() == 1 && (fresh || !later && !m.pending() && m.recorded) {
		return m, nil
	}
	m, err := e.dev.newMark()
	if e.last != nil {
		e.last.release()
	}
	e.last = m // nil if newMark failed: the event then counts as complete
	return m, err
}

// hold returns the mark of the last recording and adds a reference to it, which the caller must release. nil: the event
// was never recorded.
func (e *event) hold() *mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil || !e.used {
		return nil
	}
	e.last.refs.Add(1)
	return e.last
}

// Elapsed returns the time between two events by the GPU's clock. It returns 0 if an event was never recorded or the
// device has failed; Close then reports the failure. It panics if an event is not complete.
func (e *event) Elapsed(start device.Event) time.Duration {
	from, to := start.(*event).hold(), e.hold()
	for _, m := range []*mark{from, to} {
		if m != nil {
			defer m.release()
		}
	}
	if from == nil || to == nil {
		return 0
	}
	if from.pending() || to.pending() {
		panic("cuda: Elapsed of an event that is not complete")
	}
	if !from.recorded || !to.recorded {
		return 0
	}
	ms, err := e.dev.cuda.EventElapsed(e.dev.context, from.cuda, to.cuda)
	if errors.Is(err, cudart.ErrNotReady) {
		panic("cuda: Elapsed of an event that is not complete")
	}
	if err != nil {
		e.dev.regret(err)
		return 0
	}
	return time.Duration(float64(ms) * float64(time.Millisecond))
}

// Close makes e's CUDA event available for other events. Streams that already wait for e keep
// waiting for its recording.
func (e *event) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil {
		e.last.release()
		e.last, e.used = nil, false
	}
}

// takeEvent returns a CUDA event for one owner: an event given back earlier, or a new one. An event
// given back may be recorded anew even if the device has not reached its old recording yet. A wait
// already enqueued for it (cudaStreamWaitEvent) refers to the old recording all the same.
func (d *dev) takeEvent() (cudart.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, errClosed
	}
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	e, err := d.cuda.EventCreate(d.context, cudart.EventBlockingSync)
	if err == nil {
		d.allEvents = append(d.allEvents, e)
	}
	return e, err
}

func (d *dev) giveEvent(e cudart.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}
