package cpu

import (
	"sync"
	"time"

	"mt/device"
)

// mark is one recording of an event: the point in a stream that must be reached before the event counts as complete.
type mark struct {
	done chan struct{}
	at   time.Time // set before done is closed
}

func newMark() *mark { return &mark{done: make(chan struct{})} }

func (m *mark) complete() {
	m.at = time.Now()
	close(m.done)
}

// event implements device.Event. It may be recorded again and again; only the last recording counts.
type event struct {
	mu   sync.Mutex
	last *mark // nil until recorded
}

func (e *event) set(m *mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = m
}

func (e *event) get() *mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// Elapsed returns the time from start to e. It returns 0 if one of the two was never recorded, and panics if one is not
// complete.
func (e *event) Elapsed(start device.Event) time.Duration {
	from, to := start.(*event).get(), e.get()
	if from == nil || to == nil {
		return 0
	}
	for _, m := range []*mark{from, to} {
		select {
		case <-m.done:
		default:
			panic("cpu: Elapsed of an event that is not complete")
		}
	}
	return to.at.Sub(from.at)
}

func (e *event) Close() {}
