package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"mt/device"
)

// stalls measures how long the compute stream works and how long it waits, by cause. It records an event on the stream
// after every wait and after every launch or other work.
type stalls struct {
	dev       device.Device
	mu        sync.Mutex
	free      []device.Event        // for reuse
	all       []device.Event        // every event made
	timelines map[int]*passTimeline // by pass
	last      device.Event          // the start of the next timeline; nil: its first mark
	// ends are events at which one timeline ends and no other begins, because skip was called. They become free for new
	// marks after the next timeline is read.
	ends  []device.Event
	watch laneWatch // notified of every summed mark
}

// passTimeline has the marks of one pass on the compute stream, in stream order. A mark is an event
// after a wait or a launch. When the device has passed marks, the times between them are summed and
// their events are used for new marks. Without this reuse, layers with experts would need tens of
// thousands of events. A nil passTimeline records nothing.
type passTimeline struct {
	of     *stalls
	stream device.Stream
	begin  device.Event // its start
	marks  []mark       // the last summed mark and all later ones
	made   int          // number of marks made
	stall  [NumCauses]time.Duration
	ends   []device.Event // of stalls, freed with this timeline
	err    error          // the first error of making an event

	// work, step and shown are for the trace. The next marks belong to launch work, step is the
	// training step, and shown has the start and end of the pass in the trace.
	work  *piece
	step  int
	shown [2]time.Duration
}

// mark is an event on the compute stream. Since the previous mark the stream has waited (for cause) or worked (busy).
type mark struct {
	event device.Event
	cause Cause // the cause of its wait; NoStall: unknown
	busy  bool  // it worked
	work  *piece
}

func newStalls(dev device.Device) *stalls {
	return &stalls{dev: dev, watch: noWatch{}, timelines: map[int]*passTimeline{}}
}

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

// timeline returns the timeline of program number prog on stream s, and makes it on the first call.
// The timeline begins where the previous timeline on the stream ends.
func (c *stalls) timeline(s device.Stream, prog int) *passTimeline {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.timelines[prog]
	if t == nil {
		t = &passTimeline{of: c, stream: s, ends: c.ends}
		c.ends = nil
		if c.last != nil {
			t.add(mark{event: c.last})
		}
		c.timelines[prog] = t
	}
	return t
}

// waited sets a mark: the stream has waited, for this cause, since the previous mark.
func (t *passTimeline) waited(cause Cause) { t.mark(mark{cause: cause}) }

// worked sets a mark: the stream has worked since the previous mark.
func (t *passTimeline) worked() { t.mark(mark{busy: true}) }

func (t *passTimeline) mark(m mark) {
	if t == nil || t.err != nil {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if m.event, t.err = t.of.event(); t.err != nil {
		return
	}
	m.work = t.work
	t.stream.Record(m.event)
	t.add(m)
	t.of.last = m.event
}

func (t *passTimeline) add(m mark) {
	if t.begin == nil {
		t.begin = m.event
	}
	t.marks = append(t.marks, m)
	t.made++
}

// marksMade returns the number of marks made so far; 0 for nil. The caller passes this number to
// stalls.passed when the device has passed these marks.
func (t *passTimeline) marksMade() int {
	if t == nil {
		return 0
	}
	return t.made
}

// passed tells c that the device has passed the first marks of program prog; marks is their number.
func (c *stalls) passed(prog, marks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.timelines[prog]; t != nil {
		t.sum(marks)
	}
}

// sum adds up the times between the first marks of the timeline; marks is their number. Their events become free for
// new marks. Two events stay: the event at which the timeline begins, and the event of the last summed mark.
func (t *passTimeline) sum(marks int) {
	last := len(t.marks) - 1 - (t.made - marks)
	for i := 1; i <= last; i++ {
		m, before := t.marks[i], t.marks[i-1].event
		if !m.busy {
			t.stall[m.cause] += max(0, m.event.Elapsed(before))
		}
		t.of.watch.marked(t, before, m)
		if before != t.begin {
			t.of.free = append(t.of.free, before)
		}
	}
	if last > 0 {
		t.marks = t.marks[last:]
	}
}

// failed returns the first error in making a mark, such as a failed event; nil if there is none or
// t is nil.
func (t *passTimeline) failed() error {
	if t == nil {
		return nil
	}
	return t.err
}

// skip makes the next timeline start at the current end of the stream. The time from the last mark to this point
// belongs to no timeline. An evaluation, for example, is skipped in this way.
func (c *stalls) skip(s device.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.event()
	if err != nil {
		return err
	}
	if c.last != nil {
		c.ends = append(c.ends, c.last)
	}
	s.Record(e)
	c.last = e
	return nil
}

// read returns two times of a program: total, from the end of the previous program to its own end, and stall, the waits
// in it by cause. The program must be complete, and programs must be read in order. read frees the program's events for
// new marks.
func (c *stalls) read(prog int) (total time.Duration, stall [NumCauses]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.timelines[prog]
	delete(c.timelines, prog)
	if t == nil || t.made == 0 {
		return 0, stall
	}
	t.sum(t.made)
	c.watch.stepDone(t)
	end := t.marks[0].event // the next timeline may begin there
	if t.begin != end {
		c.free = append(c.free, t.begin)
	}
	c.free = append(c.free, t.ends...)
	return end.Elapsed(t.begin), t.stall
}

// close closes all events. Marks that come later are ignored.
func (c *stalls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.timelines)
	for _, e := range c.all {
		e.Close()
	}
}

// countedStream is a stream that counts the bytes that its copies move. It tells its watch (the timeline, if there is
// one) of each operation.
type countedStream struct {
	device.Stream
	bytes atomic.Int64
	watch streamWatch
}

// streamWatch observes the operations of a stream for the timeline.
type streamWatch interface {
	// copies is called before a copy is enqueued.
	copies()
	// stops is called where the current piece of work ends on the stream: an event that is recorded
	// next no longer belongs to it.
	stops()
	// wait enqueues a wait for e, and notify a notification, which also ends the current piece of
	// work. end ends it on a stream without notifications.
	wait(e device.Event)
	notify(f func(error))
	end()
}

// unwatched is the streamWatch of a run without a timeline. It enqueues waits and notifications and
// records nothing.
type unwatched struct{ device.Stream }

func (unwatched) copies()                {}
func (unwatched) stops()                 {}
func (u unwatched) wait(e device.Event)  { u.Wait(e) }
func (u unwatched) notify(f func(error)) { u.Notify(f) }
func (unwatched) end()                   {}

func (s *countedStream) CopyH2D(dst device.Mem, src []byte) {
	s.bytes.Add(int64(len(src)))
	s.watch.copies()
	s.Stream.CopyH2D(dst, src)
}

func (s *countedStream) CopyD2H(dst []byte, src device.Mem) {
	s.bytes.Add(int64(len(dst)))
	s.watch.copies()
	s.Stream.CopyD2H(dst, src)
}

func (s *countedStream) CopyPeer(to device.Device, dst, src device.Mem) {
	s.bytes.Add(src.Bytes)
	s.watch.copies()
	s.Stream.CopyPeer(to, dst, src)
}

func (s *countedStream) Record(e device.Event) {
	s.watch.stops()
	s.Stream.Record(e)
}

func (s *countedStream) Wait(e device.Event) { s.watch.wait(e) }

func (s *countedStream) Notify(f func(error)) { s.watch.notify(f) }

// end tells the timeline that the current piece of work ends here. It is for streams without a
// notification after their copies.
func (s *countedStream) end() { s.watch.end() }
