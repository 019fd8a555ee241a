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

// mark stands for one recording of an event. A CUDA event is recorded again under
// the same mark while nobody needs to tell the records apart. A wait that is called
// now and enqueued later does: it must find the record that was the last when it
// was called, and so holds its mark.
type mark struct {
	dev  *dev
	cuda cudart.Event
	refs atomic.Int32  // the event, waits that are not enqueued yet, and a stream's fence; at 0 cuda can be used again
	made chan struct{} // closed when the first record has been enqueued, or has failed

	recorded bool // the record was enqueued; set before made is closed

	// The last record that was enqueued is after the first at launches of stream on.
	on atomic.Pointer[stream]
	at atomic.Uint64
}

// submit records m on a stream. Where that fails, m is complete when it returns.
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

// settle notes whether m was recorded. Only the first call counts.
func (m *mark) settle(recorded bool) {
	if !m.pending() {
		return
	}
	m.recorded = recorded
	close(m.made)
}

// pending says whether the first record is still to be enqueued.
func (m *mark) pending() bool {
	select {
	case <-m.made:
		return false
	default:
		return true
	}
}

// retain takes a reference, unless none is left.
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

// event implements device.Event. It stands for its last record.
type event struct {
	dev *dev

	mu   sync.Mutex
	last *mark
	used bool // it has been recorded
}

// NewEvent makes an event that counts as complete until it is recorded.
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

// record returns the mark for the record that is made now. later says that another
// goroutine will enqueue it. The last mark is used again where nobody else refers
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
	e.last = m // nil where newMark failed: the event then counts as complete
	return m, err
}

// hold returns the last mark, which stays valid until it is released. It is nil
// where there is none.
func (e *event) hold() *mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil || !e.used {
		return nil
	}
	e.last.refs.Add(1)
	return e.last
}

// Elapsed is the time between two events by the GPU's clock. It is 0 where one
// of them was never recorded or the device has failed, which Close then tells.
// It panics when one is not complete.
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

// Close gives the CUDA event back. Streams that wait for it go on waiting.
func (e *event) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil {
		e.last.release()
		e.last, e.used = nil, false
	}
}

// takeEvent returns a CUDA event for one user at a time. CUDA's waits and records
// refer to the state of an event when they were enqueued, so an event may be given
// to the next user while the device still uses it.
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
