package parallel

import "sync"

// Queue is an unbounded queue with one reader. Two buffers alternate, so a grown queue does not allocate. Methods are
// safe for concurrent use, except that only one goroutine may be in Drain. NewQueue makes a Queue; the zero value is
// not usable.
type Queue[T any] struct {
	mu      sync.Mutex
	changed sync.Cond // signalled for new items, for a reader that has finished, and by Close
	items   []T
	reading bool // the reader is processing the items of its last take
	closed  bool

	spare []T // the reader's empty buffer
}

// NewQueue makes an empty queue.
func NewQueue[T any]() *Queue[T] {
	q := &Queue[T]{}
	q.changed.L = &q.mu
	return q
}

// Put appends x to the queue and returns true. After Close it does nothing and returns false.
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

// Empty reports whether the queue is empty and the reader has finished with every item that it took.
func (q *Queue[T]) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.idle()
}

func (q *Queue[T]) idle() bool { return len(q.items) == 0 && !q.reading }

// Wait blocks until the queue is empty and the reader has finished with every item.
func (q *Queue[T]) Wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.idle() {
		q.changed.Wait()
	}
}

// Close makes the queue refuse further items. Drain returns when it has passed on the remaining ones.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// Drain calls f with each item in order. It returns when the queue is closed and empty. The queue drops its reference
// to an item before it calls f, so the item can be collected.
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

// take tells the queue that the reader has processed its previous items. Then it waits for new items and returns all of
// them; it returns none if the queue is closed and empty.
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
