package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"mt/device"
)

// clock times the launches of a program by events on the compute stream: the
// gaps between them are what the stream waited.
type clock struct {
	dev   device.Device
	mu    sync.Mutex
	free  []device.Event
	all   []device.Event
	marks map[int][]mark // by program
}

// mark is one launch: events before and after it, and why it would have waited.
type mark struct {
	start, end device.Event
	cause      Cause
}

func newClock(dev device.Device) *clock { return &clock{dev: dev, marks: map[int][]mark{}} }

func (c *clock) event() (device.Event, error) {
	if n := len(c.free); n > 0 {
		e := c.free[n-1]
		c.free = c.free[:n-1]
		return e, nil
	}
	e, err := c.dev.NewEvent()
	if err == nil {
		c.all = append(c.all, e)
	}
	return e, err
}

// around records an event before and after run, which enqueues a launch.
func (c *clock) around(s device.Stream, prog int, cause Cause, run func()) error {
	c.mu.Lock()
	start, err := c.event()
	var end device.Event
	if err == nil {
		end, err = c.event()
	}
	if err == nil {
		c.marks[prog] = append(c.marks[prog], mark{start, end, cause})
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	s.Record(start)
	run()
	s.Record(end)
	return nil
}

// read is the time from the first launch of a program to the end of its last,
// and what of it was waiting, by cause. The program must be complete; its
// events are free afterwards.
func (c *clock) read(prog int) (total time.Duration, stall [NumCauses]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	marks := c.marks[prog]
	delete(c.marks, prog)
	for i, m := range marks {
		if i > 0 {
			if gap := m.start.Elapsed(marks[i-1].end); gap > 0 {
				stall[m.cause] += gap
			}
		}
	}
	if n := len(marks); n > 0 {
		total = marks[n-1].end.Elapsed(marks[0].start)
	}
	for _, m := range marks {
		c.free = append(c.free, m.start, m.end)
	}
	return total, stall
}

func (c *clock) close() {
	for _, e := range c.all {
		e.Close()
	}
}

// countedStream counts the bytes that cross the link.
type countedStream struct {
	device.Stream
	bytes atomic.Int64
}

func (s *countedStream) CopyH2D(dst device.Mem, src []byte) {
	s.bytes.Add(int64(len(src)))
	s.Stream.CopyH2D(dst, src)
}

func (s *countedStream) CopyD2H(dst []byte, src device.Mem) {
	s.bytes.Add(int64(len(dst)))
	s.Stream.CopyD2H(dst, src)
}
