package cuda

import "sync"

// queue is an unbounded queue with one reader, which counts what it has read as
// there until it is done with it.
type queue[T any] struct {
	mu      sync.Mutex
	changed sync.Cond
	items   []T
	head    int  // items before it have been read
	reading bool // the reader is at work on one more
	closed  bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.changed.L = &q.mu
	return q
}

// put appends x. It reports false, and does nothing, after close.
func (q *queue[T]) put(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.items = append(q.items, x)
	q.changed.Broadcast()
	return true
}

// empty says whether the reader has done all there was.
func (q *queue[T]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.idle()
}

func (q *queue[T]) idle() bool { return q.head == len(q.items) && !q.reading }

// wait returns when the queue is empty.
func (q *queue[T]) wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.idle() {
		q.changed.Wait()
	}
}

// close lets the reader end when it has read everything.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// drain calls f with every item in order until the queue is closed and empty.
func (q *queue[T]) drain(f func(T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for q.head == len(q.items) && !q.closed {
			q.changed.Wait()
		}
		if q.head == len(q.items) {
			return
		}
		x := q.items[q.head]
		var none T
		q.items[q.head] = none
		if q.head++; q.head == len(q.items) {
			q.items, q.head = q.items[:0], 0
		}
		q.reading = true
		q.mu.Unlock()
		f(x)
		q.mu.Lock()
		q.reading = false
		q.changed.Broadcast()
	}
}
