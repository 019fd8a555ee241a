package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Scalar is a named number, such as train/loss.
type Scalar struct {
	Name  string
	Value float64
}

// Point holds the numbers of a step.
type Point struct {
	Time   time.Time
	Step   int
	Values []Scalar
}

// EndStatus is the outcome of a run.
type EndStatus string

// The outcomes of a run: done, failed, or stopped by the user.
const (
	EndFinished EndStatus = "FINISHED"
	EndFailed   EndStatus = "FAILED"
	EndKilled   EndStatus = "KILLED"
)

// Sink receives the numbers of one run.
type Sink interface {
	// Send delivers all points or none. A Refusal is permanent; after any other error the same points are sent again.
	Send(ctx context.Context, points []Point) error
	// Close ends the run. It is the last call.
	Close(ctx context.Context, s EndStatus) error
}

// Refusal is a sink's permanent error: it will never accept these points.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// Bounds of a Queue.
const (
	mostPoints   = 1 << 14          // waiting points; beyond this the oldest are dropped
	pointsAtOnce = 500              // points per send
	sendPace     = time.Second      // between sends, so that many steps share one send
	firstPause   = time.Second      // after a first failure
	lastPause    = time.Minute      // after many failures; the pause doubles up to this
	sendGrace    = 10 * time.Second // for the last points at the end of the run
)

// Queue sends points on its own goroutine.
type Queue struct {
	name   string
	sink   Sink
	warn   func(string)
	after  func(time.Duration) <-chan time.Time
	ctx    context.Context // cancelled when the sink's time is up
	cancel context.CancelFunc
	wake   chan struct{}
	closed chan struct{} // Close was called
	done   chan struct{} // the goroutine has ended
	status EndStatus

	mu     sync.Mutex
	points []Point
	first  int // number of points[0], counted from the start of the run
	lost   int

	warned bool // used only by the goroutine
}

// StartQueue starts a goroutine that sends to sink. It calls warn, with name in the text, at most twice and from
// another goroutine: at the first failure, and in Close if points were lost.
func StartQueue(name string, sink Sink, warn func(string)) *Queue {
	return startQueue(name, sink, warn, time.After)
}

func startQueue(name string, sink Sink, warn func(string), after func(time.Duration) <-chan time.Time) *Queue {
	q := &Queue{name: name, sink: sink, warn: warn, after: after, wake: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Add queues p. It never blocks.
func (q *Queue) Add(p Point) {
	q.mu.Lock()
	q.points = append(q.points, p)
	if over := len(q.points) - mostPoints; over > 0 {
		q.points = q.points[over:]
		q.first += over
		q.lost += over
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Close sends the remaining points in bounded time and ends the run. Add must not be called after Close.
func (q *Queue) Close(s EndStatus) {
	q.status = s
	close(q.closed)
	timer := time.AfterFunc(sendGrace, q.cancel)
	<-q.done
	timer.Stop()
	q.cancel()
}

// run sends until the queue is closed and empty.
func (q *Queue) run() {
	defer close(q.done)
	pause := firstPause
	for {
		points, end, closing := q.next()
		if len(points) == 0 {
			break
		}
		err := q.sink.Send(q.ctx, points)
		var refused *Refusal
		switch {
		case err == nil:
			q.drop(end, false)
			pause = firstPause
			q.rest(sendPace)
			continue
		case errors.As(err, &refused):
			q.complain(err, "what it refuses is left out")
			q.drop(end, true)
			continue
		}
		q.complain(err, "what it has not taken is kept and sent again")
		if closing {
			q.drop(end, true)
			break
		}
		q.rest(pause)
		pause = min(2*pause, lastPause)
	}
	if err := q.sink.Close(q.ctx, q.status); err != nil {
		q.complain(err, "it does not know that the run has ended")
	}
	q.mu.Lock()
	lost := q.lost + len(q.points)
	q.mu.Unlock()
	if lost > 0 {
		q.warn(fmt.Sprintf("%s lacks the numbers of %d lines of metrics.jsonl", q.name, lost))
	}
}

// next waits until points can be sent. It returns them, the number after the last of them, and whether Close was
// called. If Close was called and nothing is left, it returns no points.
func (q *Queue) next() (points []Point, end int, closing bool) {
	for {
		select {
		case <-q.closed:
			closing = true
		default:
		}
		q.mu.Lock()
		points = q.points[:min(pointsAtOnce, len(q.points))]
		end = q.first + len(points)
		q.mu.Unlock()
		if len(points) > 0 || closing {
			return points, end, closing
		}
		select {
		case <-q.wake:
		case <-q.closed:
		}
	}
}

// drop removes the points with numbers below end from the queue. Some of them may be gone already, because a full
// queue drops its oldest. lost says that the points were not sent, so that Close can warn about them.
func (q *Queue) drop(end int, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := max(0, end-q.first)
	q.points = q.points[n:]
	q.first += n
	if lost {
		q.lost += n
	}
}

// rest waits for the duration d, but no longer than until Close is called.
func (q *Queue) rest(d time.Duration) {
	select {
	case <-q.after(d):
	case <-q.closed:
	}
}

// complain warns the user about err if it is the queue's first failure. so ends the text: it tells how the queue goes
// on.
func (q *Queue) complain(err error, so string) {
	if q.warned {
		return
	}
	q.warned = true
	q.warn(fmt.Sprintf("%s: %v; training goes on, and %s", q.name, err, so))
}
