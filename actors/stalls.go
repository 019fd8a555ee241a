package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"mt/device"
)

// stalls measures what the compute stream does with its time. Events are recorded on it
// after everything that it waits for and after everything that it works on.
type stalls struct {
	dev       device.Device
	mu        sync.Mutex
	free      []device.Event        // to be used again
	all       []device.Event        // that were made
	timelines map[int]*passTimeline // by pass
	last      device.Event          // where the next timeline begins; nil: at its first mark
	// ends are the events at which timelines ended and none begins, because skip was called
	// after them. They may be freed when the next timeline has been read.
	ends  []device.Event
	watch laneWatch // is shown what is summed up
}

// passTimeline has the marks of one pass, in the order of the stream. Marks that the device
// has passed are summed up while the program still runs, so that their events can be used
// again: layers with experts make marks by the ten thousand. A nil one records
// nothing.
type passTimeline struct {
	of     *stalls
	stream device.Stream
	begin  device.Event // where it begins
	marks  []mark       // the last one that was summed up, and all after it
	made   int          // how many marks there were in all
	stall  [NumCauses]time.Duration
	ends   []device.Event // of stalls, to be freed with this timeline
	err    error          // of the first event that could not be made

	// For the trace: the launch that marks are of, the step, and its begin and end as shown.
	work  *piece
	step  int
	shown [2]time.Duration
}

// mark is an event and what the stream did since the mark before.
type mark struct {
	event device.Event
	cause Cause // it waited for this; NoStall: nobody knows what for
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

// timeline returns that of a program. The first call makes it; it begins where the timed
// work before it on the stream ended.
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

// waited marks that the stream has stood still since the mark before, for cause.
func (t *passTimeline) waited(cause Cause) { t.mark(mark{cause: cause}) }

// worked marks that the stream has worked since the mark before.
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

// marksMade is how many marks were made so far: what passed is to be told when the device has
// passed them.
func (t *passTimeline) marksMade() int {
	if t == nil {
		return 0
	}
	return t.made
}

// passed tells that the device has passed the first marks of a program, so many of them.
func (c *stalls) passed(prog, marks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.timelines[prog]; t != nil {
		t.sum(marks)
	}
}

// sum adds up the time between the first marks, so many of them, and frees their events
// but for the first, where the timeline begins, and the last.
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

// failed is the error of the first mark that could not be made.
func (t *passTimeline) failed() error {
	if t == nil {
		return nil
	}
	return t.err
}

// skip makes the next timeline begin here: what the stream did since the last mark belongs
// to no timeline.
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

// read returns how long a program took, from the end of what ran before it to its own end,
// and how much of that was waiting, by cause. The program must be complete, and programs
// are read in order; the events of what was read are used again.
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

// close closes all events. Marks that the device passes later are not summed up.
func (c *stalls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.timelines)
	for _, e := range c.all {
		e.Close()
	}
}

// countedStream counts the bytes that cross a link, and shows its watch what is enqueued.
type countedStream struct {
	device.Stream
	bytes atomic.Int64
	watch streamWatch
}

// streamWatch follows what is enqueued on a stream.
type streamWatch interface {
	// copies tells that the stream is about to be given a copy.
	copies()
	// stops ends the work at hand: what is recorded next has been done.
	stops()
	// wait, notify enqueue these, and end ends the work at hand on a stream that nobody is notified of.
	wait(e device.Event)
	notify(f func(error))
	end()
}

// unwatched is the watch of a stream that nobody follows.
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

// end ends the work that the watch follows on a stream that nobody is notified of.
func (s *countedStream) end() { s.watch.end() }
