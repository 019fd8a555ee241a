package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"mt/device"
)

// stalls says what the compute stream did with its time, by events recorded
// between everything it waits for and works on.
type stalls struct {
	dev       device.Device
	mu        sync.Mutex
	free      []device.Event
	all       []device.Event
	timelines map[int]*timeline // by pass
	last      device.Event      // the end of what was enqueued last; nil: nothing was
	// owed are events that ended a timeline and begin none, because the time after them
	// is nobody's; the next timeline that is read frees them.
	owed []device.Event
}

// timeline is one pass: marks in the order of the stream. What the device has
// passed is summed up while the program still runs, so that events live no longer
// than the work between them: layers with experts make marks by the ten thousand.
// A nil timeline records nothing.
type timeline struct {
	of     *stalls
	stream device.Stream
	begin  device.Event // where it begins
	marks  []mark       // the last that was summed up, and those to come
	made   int          // marks so far
	stall  [NumCauses]time.Duration
	owed   []device.Event
	err    error // of the first event that could not be made
}

// mark is an event and what the stream did since the mark before.
type mark struct {
	event device.Event
	cause Cause // waited for it; NoStall: nothing that is known
	busy  bool  // worked
}

func newStalls(dev device.Device) *stalls { return &stalls{dev: dev, timelines: map[int]*timeline{}} }

func (c *stalls) event() (device.Event, error) {
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

// timeline is that of a program; the first call begins it where what the stream
// did before ends.
func (c *stalls) timeline(s device.Stream, prog int) *timeline {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.timelines[prog]
	if t == nil {
		t = &timeline{of: c, stream: s, owed: c.owed}
		c.owed = nil
		if c.last != nil {
			t.add(mark{event: c.last})
		}
		c.timelines[prog] = t
	}
	return t
}

// waited says that the stream stood still since the mark before, for cause.
func (t *timeline) waited(cause Cause) { t.mark(mark{cause: cause}) }

// worked says that the stream was busy since the mark before.
func (t *timeline) worked() { t.mark(mark{busy: true}) }

func (t *timeline) mark(m mark) {
	if t == nil || t.err != nil {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if m.event, t.err = t.of.event(); t.err != nil {
		return
	}
	t.stream.Record(m.event)
	t.add(m)
	t.of.last = m.event
}

func (t *timeline) add(m mark) {
	if t.begin == nil {
		t.begin = m.event
	}
	t.marks = append(t.marks, m)
	t.made++
}

// soFar is how many marks there are, for passed.
func (t *timeline) soFar() int {
	if t == nil {
		return 0
	}
	return t.made
}

// passed says that the device has come by the first so many marks of a program.
func (c *stalls) passed(prog, marks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.timelines[prog]; t != nil {
		t.sum(marks)
	}
}

// sum adds up what lies between the first so many marks and frees their events,
// but for the first and the last of them.
func (t *timeline) sum(marks int) {
	last := len(t.marks) - 1 - (t.made - marks)
	for i := 1; i <= last; i++ {
		m, before := t.marks[i], t.marks[i-1].event
		if !m.busy {
			t.stall[m.cause] += max(0, m.event.Elapsed(before))
		}
		if before != t.begin {
			t.of.free = append(t.of.free, before)
		}
	}
	if last > 0 {
		t.marks = t.marks[last:]
	}
}

// failed is the error of the marks so far.
func (t *timeline) failed() error {
	if t == nil {
		return nil
	}
	return t.err
}

// skip makes the next timeline begin here: what the stream did since its last
// mark is nobody's.
func (c *stalls) skip(s device.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.event()
	if err != nil {
		return err
	}
	if c.last != nil {
		c.owed = append(c.owed, c.last)
	}
	s.Record(e)
	c.last = e
	return nil
}

// read is how long a program took, from the end of what ran before it to its
// own, and what of it was waiting, by cause. The program must be complete, and
// programs are read in order; their events are free afterwards.
func (c *stalls) read(prog int) (total time.Duration, stall [NumCauses]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.timelines[prog]
	delete(c.timelines, prog)
	if t == nil || t.made == 0 {
		return 0, stall
	}
	t.sum(t.made)
	end := t.marks[0].event // where the next begins
	if t.begin != end {
		c.free = append(c.free, t.begin)
	}
	c.free = append(c.free, t.owed...)
	return end.Elapsed(t.begin), t.stall
}

// close frees all events. What is told of later is nobody's.
func (c *stalls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.timelines)
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
