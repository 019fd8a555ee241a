package cpu

import "sync"

// queue is an unbounded queue with one reader. Two buffers take turns, so that
// nothing is allocated once they have grown.
type queue[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	items  []T
	closed bool

	spare []T // the reader's: the buffer it has emptied
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.filled.L = &q.mu
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
	if len(q.items) == 1 {
		q.filled.Signal()
	}
	return true
}

// close lets the reader end when it has read everything.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Signal()
}

// drain calls f with every item in order until the queue is closed and empty.
func (q *queue[T]) drain(f func(*T)) {
	for {
		batch := q.take()
		if len(batch) == 0 {
			return
		}
		for i := range batch {
			f(&batch[i])
		}
		clear(batch)
		q.spare = batch[:0]
	}
}

// take waits for items and returns all there are; none when it is closed.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.filled.Wait()
	}
	batch := q.items
	q.items, q.spare = q.spare, nil
	return batch
}
