package report

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// sink is a Sink that first fails with the errors in fail and then accepts all points.
type sink struct {
	mu      sync.Mutex
	fail    []error
	got     []int // steps
	status  EndStatus
	calls   int
	hang    bool // until the context ends
	close   error
	arrived chan struct{}
}

func (s *sink) Send(ctx context.Context, points []Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.arrived != nil && s.calls == 1 {
		close(s.arrived)
	}
	if s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if len(s.fail) > 0 {
		err := s.fail[0]
		s.fail = s.fail[1:]
		return err
	}
	for _, p := range points {
		s.got = append(s.got, p.Step)
	}
	return nil
}

func (s *sink) Close(_ context.Context, status EndStatus) error { s.status = status; return s.close }

// atOnce is a clock for a Queue on which every pause ends immediately.
func atOnce(time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	c <- time.Time{}
	return c
}

// never is a clock for a Queue on which no pause ends.
func never(time.Duration) <-chan time.Time { return nil }

// TestQueue: points that a sink failed to accept are sent again, in order and only once. Points
// that it refuses are dropped. The user gets one warning.
func TestQueue(t *testing.T) {
	down := errors.New("connection refused")
	for name, tc := range map[string]struct {
		fail []error
		lost bool
		want []string // warnings begin so
	}{
		"a good sink":           {},
		"one that was away":     {fail: []error{down, down, down}, want: []string{"mlflow: connection refused; training goes on, and what it has not taken is kept"}},
		"one that refuses some": {fail: []error{&Refusal{errors.New("bad name")}}, lost: true, want: []string{"mlflow: bad name; training goes on, and what it refuses is left out", "mlflow lacks the numbers of "}},
	} {
		var mu sync.Mutex
		var warnings []string
		s := &sink{fail: tc.fail}
		q := startQueue("mlflow", s, func(text string) { mu.Lock(); warnings = append(warnings, text); mu.Unlock() }, atOnce)
		const n = 2000
		for i := range n {
			q.Add(Point{Step: i})
		}
		for q.left() > 0 { // a sink that is away when the run ends is not waited for
			runtime.Gosched()
		}
		q.Close(EndFinished)
		if len(s.got) != n && !tc.lost || len(s.got) == n && tc.lost || s.status != EndFinished {
			t.Errorf("%s: %d points, status %q", name, len(s.got), s.status)
		}
		for i := 1; i < len(s.got); i++ {
			if s.got[i] != s.got[i-1]+1 {
				t.Fatalf("%s: step %d follows %d", name, s.got[i], s.got[i-1])
			}
		}
		if len(warnings) != len(tc.want) {
			t.Fatalf("%s: warnings %q", name, warnings)
		}
		for i, w := range tc.want {
			if !strings.HasPrefix(warnings[i], w) {
				t.Errorf("%s: %q, want %q", name, warnings[i], w)
			}
		}
	}
}

// TestLaterPoints: points that are added after all earlier ones were sent are sent too, before
// Close returns.
func TestLaterPoints(t *testing.T) {
	s := &sink{}
	q := startQueue("mlflow", s, func(string) {}, atOnce)
	for i := range 1000 {
		q.Add(Point{Step: i})
		for q.left() > 0 {
			runtime.Gosched()
		}
	}
	q.Close(EndFinished)
	if len(s.got) != 1000 || q.ctx.Err() == nil {
		t.Errorf("%d points; the context after the end: %v", len(s.got), q.ctx.Err())
	}
}

// TestSinkThatDoesNotEnd: if a sink fails to close its run, the user gets a warning.
func TestSinkThatDoesNotEnd(t *testing.T) {
	var warnings []string
	q := startQueue("mlflow", &sink{close: errors.New("gone")}, func(text string) { warnings = append(warnings, text) }, atOnce)
	q.Close(EndFinished)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "mlflow: gone; training goes on, and it does not know that the run has ended") {
		t.Errorf("warnings %q", warnings)
	}
}

// left returns the number of points that wait to be sent.
func (q *Queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.points)
}

// TestAbsentSink: a sink that accepts nothing blocks neither Add nor Close. The number of waiting
// points is bounded, the newest are kept, and Close warns how many were lost.
func TestAbsentSink(t *testing.T) {
	s := &sink{hang: true, arrived: make(chan struct{})}
	var mu sync.Mutex
	var warnings []string
	q := startQueue("mlflow", s, func(text string) { mu.Lock(); warnings = append(warnings, text); mu.Unlock() }, never)
	for i := range mostPoints + 1000 {
		q.Add(Point{Step: i})
	}
	<-s.arrived
	if n := q.left(); n != mostPoints {
		t.Errorf("%d points wait", n)
	}
	if first := q.points[0].Step; first != 1000 {
		t.Errorf("the oldest that waits is %d", first)
	}
	q.cancel() // what Close does after some time
	q.Close(EndKilled)
	if s.status != EndKilled || len(warnings) != 2 || !strings.Contains(warnings[1], "lacks the numbers of 17384 lines") {
		t.Errorf("status %q, warnings %q", s.status, warnings)
	}
}

// TestDroppedMeanwhile: a full queue may drop points while they are being sent. They are not
// removed a second time after the send.
func TestDroppedMeanwhile(t *testing.T) {
	q := &Queue{wake: make(chan struct{}, 1), closed: make(chan struct{})}
	for i := range mostPoints {
		q.Add(Point{Step: i})
	}
	points, end, _ := q.next()
	for i := range 200 {
		q.Add(Point{Step: mostPoints + i})
	}
	q.drop(end, false)
	if got := q.points[0].Step; got != len(points) || q.lost != 200 {
		t.Errorf("step %d is next, %d are lost", got, q.lost)
	}
}
