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

// mark is one record of an event, or several one after the other while nobody
// needs to tell them apart: a wait that is enqueued later than it is called has
// to find the record that it was called after.
type mark struct {
	dev  *dev
	cuda cudart.Event
	refs atomic.Int32  // the event, and waits to come; at 0 cuda is used again
	made chan struct{} // closed when the first record is enqueued, or will not be

	recorded bool // set before made is closed: cuda has been recorded
}

// submit records m on a stream. Where that fails, m is complete when it returns.
func (m *mark) submit(s *stream) error {
	err := m.dev.cuda.EventRecord(m.dev.context, m.cuda, s.cuda)
	if err != nil {
		s.finish()
	}
	m.settle(err == nil)
	return err
}

// settle says whether m has been recorded; only the first time counts.
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

func (m *mark) release() {
	if m.refs.Add(-1) == 0 {
		m.dev.giveEvent(m.cuda)
	}
}

// event implements device.Event: it is its last record.
type event struct {
	dev *dev

	mu   sync.Mutex
	last *mark
	used bool // has been recorded
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

// record is the mark of the record that begins now. later says that it will be
// enqueued by another goroutine. The mark before is used again where nobody
// refers to it.
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
	e.last = m // nil: the record fails, the event counts as complete
	return m, err
}

// hold is the last mark, kept until its release; nil where there is none.
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

// Close gives the CUDA event back. What waits for it goes on waiting.
func (e *event) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil {
		e.last.release()
		e.last, e.used = nil, false
	}
}

// takeEvent is a CUDA event for one user at a time: waits and records refer to
// what it was when they were enqueued, so it may go round while in use on the
// device.
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
