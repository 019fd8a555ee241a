package parallel

import "sync"

// Queue is an unbounded queue with one reader. Two buffers take turns, so that
// nothing is allocated once they have grown. Its methods may be called from
// several goroutines at once, except that one goroutine at most is in Drain. The
// zero value is not usable: make one with NewQueue.
type Queue[T any] struct {
	mu      sync.Mutex
	changed sync.Cond // tells that there are items again, that the reader has done all, or of Close
	items   []T
	reading bool // the reader is at work on what it took last
	closed  bool

	spare []T // the reader's: the buffer it has emptied
}

// NewQueue makes an empty queue.
func NewQueue[T any]() *Queue[T] {
	q := &Queue[T]{}
	q.changed.L = &q.mu
	return q
}

// Put appends x. It reports false, and does nothing, after Close.
func (q *Queue[T]) Put(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.items = append(q.items, x)
	if len(q.items) == 1 {
		q.changed.Broadcast()
	}
	return true
}

// Empty says whether the reader has done all there was.
func (q *Queue[T]) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.idle()
}

func (q *Queue[T]) idle() bool { return len(q.items) == 0 && !q.reading }

// Wait returns when the queue is empty, as Empty says.
func (q *Queue[T]) Wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.idle() {
		q.changed.Wait()
	}
}

// Close lets the reader end when it has read everything.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// Drain calls f with every item in order until the queue is closed and empty.
// The queue lets go of an item before f has it.
func (q *Queue[T]) Drain(f func(T)) {
	var none T
	for {
		batch := q.take()
		if len(batch) == 0 {
			return
		}
		for i, x := range batch {
			batch[i] = none
			f(x)
		}
		q.spare = batch[:0]
	}
}

// take is called when the reader has done what it took before. It waits for
// items and returns all there are; none when the queue is closed.
func (q *Queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reading = false; q.idle() {
		q.changed.Broadcast()
	}
	for len(q.items) == 0 && !q.closed {
		q.changed.Wait()
	}
	batch := q.items
	q.items, q.spare = q.spare, nil
	q.reading = len(batch) > 0
	return batch
}
