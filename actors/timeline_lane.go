package actors

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"mt/base/timeline"
	"mt/device"
	"mt/layers/schedule"
)

// This file traces the streams of a lane. Times come from events. For launches of a training step,
// these are the events with which stalls.go measures stalls. So gaps of the compute stream in a
// trace are exactly its reported stalls.

// laneTracer traces what happens on one lane: it is the part of a tracer for the lane's streams.
type laneTracer struct {
	*tracer
	r         *lane
	compute   *streamTracer
	streams   []*streamTracer // all streams of the lane
	all, free []device.Event
	closed    bool

	// shift is added to the device's time to get the time shown in the trace. The bounds of shift,
	// low and high, follow from works finished since the last correction: a work ends after it was
	// enqueued and before its notification.
	shift, low, high time.Duration

	routed  *piece // the router's last launch whose routing is not yet offloaded
	routing *piece // the copy of its routing, until the first expert's launch
	loss    *piece // the launch that completes the losses of a pass
}

// streamTracer traces one stream. It records events before and after each work and reads their times in order.
type streamTracer struct {
	of         *laneTracer
	stream     device.Stream
	track      timeline.Track
	cur        *piece // the work being enqueued
	copied     bool   // a copy of cur is enqueued
	ended      bool   // the event at cur's end is recorded
	unreported []*piece

	// last is the event whose time was read last, and at is its time. Times are added up from event to event, because
	// CUDA returns the time between two events with only seven digits.
	last       device.Event
	own        bool // last belongs to the tracer
	at         time.Duration
	shownUntil time.Duration // end of the shown time before the clock was last set
}

// startTrace starts to trace a lane on which nothing runs yet.
func (r *lane) startTrace(t *tracer) error {
	l := &laneTracer{tracer: t, r: r}
	r.onClose(l.close)
	origin, err := l.synchronize()
	if err != nil {
		return err
	}
	for _, s := range r.streams() {
		name := s.name
		if r.index > 0 {
			name = fmt.Sprintf("%s %d", name, r.index)
		}
		followed := &streamTracer{of: l, stream: s.Stream, track: t.rec.Track(name, timeline.Stream), last: origin}
		s.watch = followed
		l.streams = append(l.streams, followed)
	}
	l.compute = r.compute.watch.(*streamTracer)
	r.watch, r.stalls.watch = l, l
	return nil
}

// places makes the tracks of actors and credits. The streams' tracks exist already, so viewers, which show tracks in
// this order, show streams first.
func (t *tracer) places(lanes []*lane) {
	actors := []address{feederID}
	for _, r := range lanes {
		actors = append(actors, r.index.prefetcher())
	}
	for _, a := range append(actors, optimizerID, checkpointerID) {
		t.rec.Track(a.String(), timeline.Actor)
	}
	if lanes[0].plan.StateOnDisk != nil {
		t.rec.Track(readsTrack, timeline.Actor)
		t.rec.Track(writesTrack, timeline.Actor)
	}
	places := func(kind string, n int, lane laneID) {
		for i := range n {
			t.place(credit{kind, i, lane})
		}
	}
	for _, r := range lanes {
		for i := range r.weights {
			t.place(r.weightCredit(i))
		}
		places(batchSlotCredit, len(r.batches), r.index)
		places(activationCredit, len(r.acts), r.index)
		places(gradBufferCredit, len(r.gradBufs), r.index)
	}
	for i, slab := range lanes[0].slabs {
		if len(slab) > 0 {
			t.place(credit{kind: slabCredit, index: i})
		}
	}
	for _, r := range lanes {
		places(matrixCredit, r.plan.Depths.MatrixBuffers, r.index)
	}
	places(stateCredit, lanes[0].plan.Depths.StateSlots, 0)
	places(batchCredit, lanes[0].plan.Depths.BatchesAhead, 0)
}

// weightCredit returns the credit as which the trace shows weight slot number slot. The slot for a
// whole head is a credit of another kind.
func (r *lane) weightCredit(slot int) credit {
	if n, _ := r.plan.Slots(schedule.Streamed); slot >= n {
		return credit{headCredit, slot - n, r.index}
	}
	return credit{weightCredit, slot, r.index}
}

// synchronize sets l.shift, the difference between the hub's clock and the device's. It records events, waits for each
// of them and compares the two clocks. The returned event is the origin from which device times are counted.
func (l *laneTracer) synchronize() (origin device.Event, err error) {
	l.low, l.high = math.MinInt64, math.MaxInt64
	for range 8 {
		e, err := l.event()
		if err != nil {
			return nil, err
		}
		if origin == nil {
			origin = e
		}
		before := l.now()
		l.r.compute.Stream.Record(e)
		if err := l.r.compute.Sync(); err != nil {
			return nil, err
		}
		after, at := l.now(), time.Duration(0)
		if e != origin {
			at = e.Elapsed(origin)
			l.free = append(l.free, e)
		}
		l.low, l.high = max(l.low, before-at), min(l.high, after-at)
	}
	l.shift = l.low + (l.high-l.low)/2
	l.low, l.high = math.MinInt64, math.MaxInt64
	return origin, nil
}

// boundShift narrows the bounds of shift by a finished piece of work, which ended after it was
// enqueued and before now.
func (l *laneTracer) boundShift(p *piece) {
	end := p.end - l.shift
	l.low, l.high = max(l.low, p.enqueued+l.skew-end), min(l.high, l.now()+l.skew-end)
}

// event returns an event to record: a used event that is no longer needed, or a new one. The caller
// holds l.mu.
func (l *laneTracer) event() (device.Event, error) {
	if n := len(l.free); n > 0 {
		e := l.free[n-1]
		l.free = l.free[:n-1]
		return e, nil
	}
	e, err := l.r.dev.NewEvent()
	if err == nil {
		l.all = append(l.all, e)
	}
	return e, err
}

// close reports the finished works that are not yet reported, and closes the events.
func (l *laneTracer) close() {
	for _, s := range l.streams {
		if s.stream.Err() != nil {
			continue
		}
		if last := s.newest(); last != nil {
			s.passed(last)
		}
	}
	l.mu.Lock()
	l.closed = true
	for _, e := range l.all {
		e.Close()
	}
	l.mu.Unlock()
	l.tracer.close()
}

// begins makes p the current work: the operations enqueued next belong to it.
func (s *streamTracer) begins(p *piece) {
	l := s.of
	var err error
	if p.from, err = l.event(); err == nil {
		p.to, err = l.event()
	}
	if err != nil {
		l.r.hub.fail(l.r.index.compute(), fmt.Errorf("trace: %w", err))
		return
	}
	s.cur, s.copied, s.ended = p, false, false
	s.unreported = append(s.unreported, p)
	s.stream.Record(p.from)
}

// copies records that the operation enqueued next is a copy.
func (s *streamTracer) copies() { s.copied = true }

// wait enqueues a wait for e. If copies of the current work are already enqueued, the work ends before the wait. The
// waiting time belongs to no work.
func (s *streamTracer) wait(e device.Event) {
	if s.copied {
		s.stops()
	}
	s.stream.Wait(e)
	if s.cur != nil && !s.copied {
		s.stream.Record(s.cur.from)
	}
}

// stops records an event where the current work ends, after the operations enqueued so far.
func (s *streamTracer) stops() {
	if s.cur != nil && !s.ended {
		s.ended = true
		s.stream.Record(s.cur.to)
	}
}

// ends closes the current work. It returns a function to call when the device has completed the work; nil if there is
// no current work.
func (s *streamTracer) ends() func(error) {
	if s.cur == nil {
		return nil
	}
	s.stops()
	p := s.cur
	s.cur = nil
	return func(err error) {
		if err == nil {
			s.passed(p)
		}
	}
}

// notify ends the current work and enqueues a notification: f is called when the device has completed the work.
func (s *streamTracer) notify(f func(error)) {
	passed := s.ends()
	if passed == nil {
		s.stream.Notify(f)
		return
	}
	s.stream.Notify(func(err error) {
		passed(err)
		f(err)
	})
}

func (s *streamTracer) end() {
	if passed := s.ends(); passed != nil {
		s.stream.Notify(passed)
	}
}

// newest returns the work enqueued last, if it is not yet reported; otherwise nil.
func (s *streamTracer) newest() *piece {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if n := len(s.unreported); n > 0 {
		return s.unreported[n-1]
	}
	return nil
}

// passed reports the works up to p, because the device has completed them.
func (s *streamTracer) passed(p *piece) {
	l := s.of
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(s.unreported) > 0 && !p.over {
		next := s.unreported[0]
		s.unreported = s.unreported[1:]
		next.start = s.shownTime(next.from)
		l.free = append(l.free, next.from)
		next.end = s.shownTime(next.to)
		s.own = true
		l.boundShift(next)
		l.ended(next)
	}
}

// shownTime returns the time at which the trace shows event e. It adds the time from the previous event (s.last) to e,
// and makes e the previous event.
func (s *streamTracer) shownTime(e device.Event) time.Duration {
	if e != s.last {
		s.at += max(0, e.Elapsed(s.last))
		if s.own {
			s.of.free = append(s.of.free, s.last)
		}
		s.last, s.own = e, false
	}
	return max(s.at+s.of.shift, s.shownUntil)
}

// marked reports the work or wait that ends at mark m of timeline t. before is the event of the previous mark, at which
// the work or wait begins. The event of m stays valid until the next mark is read.
func (l *laneTracer) marked(t *passTimeline, before device.Event, m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.compute
	start, end := s.shownTime(before), s.shownTime(m.event)
	if t.shown == [2]time.Duration{} {
		t.shown[0], t.step = start, m.work.step
	}
	t.shown[1] = end
	switch {
	case m.busy:
		m.work.start, m.work.end = start, end
		l.boundShift(m.work)
		l.ended(m.work)
	case m.cause != NoStall && end > start:
		l.rec.Span(timeline.Span{Track: s.track, Name: "wait for " + m.cause.words(), Step: m.work.step, Start: start, End: end, Cause: m.cause.String()})
	}
}

// stepDone is called when all marks (timed events) of a step are reported. It corrects the clocks
// for the next step.
func (l *laneTracer) stepDone(t *passTimeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setClocks()
	if l.r.index > 0 {
		return
	}
	var open []timeline.Span
	if l.rec.Keeps() {
		open = l.open()
	}
	l.rec.StepDone(t.step, t.shown[0], t.shown[1], open)
}

// setClocks corrects the offsets between clocks after a step, because clocks drift apart. The first lane's device is
// the reference: the hub's clock follows this device, and the clocks of other devices follow the hub. So no correction
// changes the gaps of the first lane.
func (l *laneTracer) setClocks() {
	wrong := min(max(l.shift, l.low), max(l.low, l.high)) - l.shift
	l.low, l.high = math.MinInt64, math.MaxInt64
	if l.r.index == 0 {
		l.least = l.time()
		l.skew -= wrong
		return
	}
	for _, s := range l.streams {
		s.shownUntil = max(s.shownUntil, s.at+l.shift)
	}
	l.shift += wrong
}

// words describes for people what the compute stream has waited for; "" for NoStall.
func (c Cause) words() string {
	return [...]string{"", "weights", "an update", "an activation", "a gradient buffer", "data", "a checkpoint", "the routing", "another device", "a disk"}[c]
}

// visitName returns the name of a visit's layer and part.
func (l *laneTracer) visitName(v schedule.Visit) string {
	switch v.Stage {
	case schedule.Route, schedule.Combine, schedule.Attention:
		return l.names[v.Layer] + ", " + v.Stage.String()
	case schedule.Expert:
		return l.names[v.Layer] + ", expert " + strconv.Itoa(v.Part)
	case schedule.HeadPart:
		return l.names[v.Layer] + ", part " + strconv.Itoa(v.Part+1)
	}
	return l.names[v.Layer]
}
