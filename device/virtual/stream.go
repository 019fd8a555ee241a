package virtual

import (
	"mt/device"
)

// stream implements device.Stream. It holds the enqueued items and starts each when the previous
// one is complete.
type stream struct {
	d      *Device
	items  []*item // from first on
	first  int     // index of the first item that is not complete
	free   []*item // complete items, for reuse
	busy   bool    // a work runs, or the first item waits for its time
	ended  float64 // end of the last operation, in the clock's seconds
	slow   float64 // seconds that operations have yet to lose because the stream was idle
	resume func()  // calls resumed
	done   func()  // calls completed
	tape   *tape   // what is enqueued goes there too; nil: nowhere
}

// newStream returns an empty stream of d.
func newStream(d *Device) *stream {
	s := &stream{d: d}
	s.resume, s.done = s.resumed, s.completed
	return s
}

// item is one enqueued command: a work, a wait, a record or a notification.
type item struct {
	after  float64 // the time at which it was enqueued, in the clock's seconds
	work   Work
	op     bool // the work belongs to operations, not to a copy
	engine *engine
	bytes  int64 // of copies by the engine
	wait   *mark
	record *mark
	notify func(error)
	notice func() // calls notify, and then frees the item
}

// newItem returns an empty item, which the caller fills and enqueues with put.
func (s *stream) newItem() *item {
	if last := len(s.free) - 1; last >= 0 {
		x := s.free[last]
		s.free = s.free[:last]
		*x = item{notice: x.notice}
		return x
	}
	x := &item{}
	x.notice = func() {
		f := x.notify
		s.free = append(s.free, x)
		f(nil)
	}
	return x
}

// put enqueues x. The call itself takes the host some time, which passes on the clock.
func (s *stream) put(x *item) {
	s.d.clock.Spend(s.d.enqueue)
	x.after = s.d.clock.Now().Seconds()
	if s.first > len(s.items)/2 {
		n := copy(s.items, s.items[s.first:])
		clear(s.items[n:])
		s.items, s.first = s.items[:n], 0
	}
	s.items = append(s.items, x)
	s.advance()
}

// drop removes the first item, which is complete. A notification is freed when it is given.
func (s *stream) drop() {
	x := s.items[s.first]
	s.first++
	if x.notify != nil {
		return
	}
	s.d.unref(x.wait)
	s.d.unref(x.record)
	s.free = append(s.free, x)
}

// open returns the last enqueued item, if it has not begun; else nil.
func (s *stream) open() *item {
	if n := len(s.items) - s.first; n > 1 || n == 1 && !s.busy {
		return s.items[len(s.items)-1]
	}
	return nil
}

// work enqueues w; op says that it is an operation, not a copy. If the last enqueued item is a work
// of the same kind that has not begun, both become one work. So launches of many operations cause
// few events, and the simulation is fast.
func (s *stream) work(w Work, op bool) {
	if t := s.tape; t != nil {
		t.works, t.other = append(t.works, w), t.other || !op
	}
	w.Device = s.d.index
	if w.PeerShare == [NumResources]float64{} {
		w.Peer = w.Device
	}
	if x := s.open(); x != nil && x.work.Seconds > 0 && x.work.Peer == w.Peer && x.op == op && x.engine == nil {
		s.d.clock.Spend(s.d.enqueue)
		x.work = x.work.Then(w)
		return
	}
	x := s.newItem()
	x.work, x.op = w, op
	s.put(x)
}

// joined limits how many bytes of consecutive copies are simulated as one copy. Activations are copied in pieces of
// about this size, so a joined copy is hardly longer than a real piece.
const joined = 32 << 20

// copy enqueues the copy w of bytes bytes on the engine e. Small consecutive copies are joined into one, as works are.
// Without an engine the copy is an ordinary work.
func (s *stream) copy(w Work, e *engine, bytes int64) {
	if e == nil {
		s.work(w, false)
		return
	}
	if s.tape != nil {
		s.tape.other = true
	}
	w.Device, w.Peer = s.d.index, s.d.index
	if x := s.open(); x != nil && x.engine == e && x.bytes+bytes <= joined {
		s.d.clock.Spend(s.d.enqueue)
		x.work = x.work.Then(w)
		x.bytes += bytes
		return
	}
	x := s.newItem()
	x.work, x.engine, x.bytes = w, e, bytes
	s.put(x)
}

// advance starts the enqueued items in order, until one takes time or must wait.
func (s *stream) advance() {
	for !s.busy && s.first < len(s.items) {
		x := s.items[s.first]
		if late := x.after - s.d.clock.Time(); late > 1e-9 {
			s.busy = true
			s.d.clock.At(x.after, s.resume)
			return
		}
		switch {
		case x.wait != nil:
			if !x.wait.done {
				s.busy = true
				x.wait.waiting = append(x.wait.waiting, s)
				return
			}
		case x.record != nil:
			s.reach(x.record)
		case x.notify != nil:
			s.d.clock.After(0, x.notice)
		default:
			s.busy = true
			if x.op {
				x.work = s.restarted(x.work)
			}
			x.engine.start(s)
			return
		}
		s.drop()
	}
}

// begin starts the work of the first item.
func (s *stream) begin() { s.d.clock.Start(s.items[s.first].work, s.done) }

// resumed is called when the stream need no longer wait, for a time or for a mark. It continues with
// the first item.
func (s *stream) resumed() {
	s.busy = false
	s.advance()
}

// restarted returns w, operations that begin now, slowed down if the device was idle. After idle
// time, operations take up to twice as long. This lasts until it has cost rates.Device.Restart in
// total, or the idle time if that is shorter. Meanwhile operations use proportionally less of
// shared resources.
func (s *stream) restarted(w Work) Work {
	if still := s.d.clock.Time() - s.ended; still > 1e-9 {
		s.slow = min(s.d.machine.Device.Restart/1e6, still)
	}
	if w.Seconds <= 0 {
		return w
	}
	lost := min(s.slow, w.Seconds)
	s.slow -= lost
	part := w.Seconds / (w.Seconds + lost)
	w.Seconds += lost
	for _, resource := range []Resource{Cores, HostMemory} {
		w.Share[resource] *= part
	}
	return w
}

// completed is called when the work of the first item is complete. The stream continues with the
// next item.
func (s *stream) completed() {
	x := s.items[s.first]
	x.engine.end()
	if x.op {
		s.ended = s.d.clock.Time()
	}
	s.drop()
	s.resumed()
}

// reach is called when the stream reaches m, a recording of an event. It completes m and resumes
// the waiting streams.
func (s *stream) reach(m *mark) {
	m.done, m.at = true, s.d.clock.Now()
	for _, w := range m.waiting {
		s.d.clock.After(0, w.resume)
	}
	m.waiting = m.waiting[:0]
}

// CopyH2D implements device.Stream.
func (s *stream) CopyH2D(dst device.Mem, src []byte) {
	s.copyLink(s.d.up, LinkUp, s.d.machine.Link.Up, int64(len(src)))
}

// CopyD2H implements device.Stream.
func (s *stream) CopyD2H(dst []byte, src device.Mem) {
	s.copyLink(s.d.down, LinkDown, s.d.machine.Link.Down, int64(len(dst)))
}

// copyLink enqueues a copy of bytes bytes over the link at rate GB/s, on the engine e. direction is LinkUp or LinkDown.
// The copy also uses the host's memory bandwidth.
func (s *stream) copyLink(e *engine, direction Resource, rate float64, bytes int64) {
	if bytes == 0 {
		return
	}
	m := s.d.machine
	moving := float64(bytes) / (rate * 1e9)
	w := Work{Seconds: m.Link.Latency/1e6 + moving}
	part := moving / w.Seconds // part of the time in which bytes move
	touched := 1.0             // how often each byte passes through host memory
	if s.d.inHost() {
		touched = 2
	}
	crossing(&w.Share, direction, 1, min(1, rate/m.Link.Both)*part, m.Link.PerSwitch > 1)
	w.Share[HostMemory] = min(1, touched*rate/m.Host.Bandwidth) * part
	w.Share[Cores] = min(1, m.Link.Cores/float64(m.Host.Cores))
	s.copy(w, e, bytes)
}

// crossing sets in share how much of the link a copy uses. Argument one is the share of the copy's
// direction, both the share of the limit for both directions together. If shared, several devices
// are behind a PCIe switch, and the copy uses the same shares of the switch's link.
func crossing(share *[NumResources]float64, direction Resource, one, both float64, shared bool) {
	share[direction], share[LinkBoth] = one, both
	if shared {
		share[direction+SwitchUp-LinkUp], share[SwitchBoth] = one, both
	}
}

// CopyPeer implements device.Stream. The copy goes over wires between the devices, or over both devices' links, which
// meet at a switch or at the host. The slower device's rate applies.
func (s *stream) CopyPeer(to device.Device, dst, src device.Mem) {
	m, other := s.d.machine, device.Inner(to).(*Device)
	theirs := other.machine.Link
	rate := min(m.Link.Peer, theirs.Peer)
	moving := float64(dst.Bytes) / (rate * 1e9)
	w := Work{Seconds: m.Link.Latency/1e6 + moving, Peer: other.index}
	part := moving / w.Seconds
	switch {
	case m.Link.Wires && theirs.Wires:
		w.Share[WiresOut], w.PeerShare[WiresIn] = 1, 1
	default:
		per := max(1, m.Link.PerSwitch)
		apart := per > 1 && s.d.index/per != other.index/per
		crossing(&w.Share, LinkDown, min(1, rate/m.Link.Down), min(1, rate/m.Link.Both)*part, apart)
		crossing(&w.PeerShare, LinkUp, min(1, rate/theirs.Up), min(1, rate/theirs.Both)*part, apart)
	}
	if m.Device.Kind == "cpu" { // a copy within host memory
		w.Share[HostMemory] = min(1, 2*rate/m.Host.Bandwidth) * part
		w.Share[Cores] = min(1, m.Link.Cores/float64(m.Host.Cores))
	}
	s.work(w, false)
}

// CopyD2D implements device.Stream.
func (s *stream) CopyD2D(dst, src device.Mem) {
	s.work(s.d.work(s.d.costs.Moved("CopyD2D", 2*dst.Bytes)), true)
}

// Zero implements device.Stream.
func (s *stream) Zero(dst device.Mem) { s.work(s.d.work(s.d.costs.Moved("Zero", dst.Bytes)), true) }

// Record implements device.Stream.
func (s *stream) Record(e device.Event) {
	if s.tape != nil {
		s.tape.other = true
	}
	x, to := s.newItem(), e.(*event)
	s.d.unref(to.last)
	x.record = s.d.newMark()
	to.last = x.record
	s.put(x)
}

// Wait implements device.Stream.
func (s *stream) Wait(e device.Event) {
	if s.tape != nil {
		s.tape.other = true
	}
	x := s.newItem()
	x.wait = e.(*event).last
	x.wait.users++
	s.put(x)
}

// Notify implements device.Stream.
func (s *stream) Notify(f func(error)) {
	if s.tape != nil {
		s.tape.other = true
	}
	x := s.newItem()
	x.notify = f
	s.put(x)
}

// Sync implements device.Stream. Nobody can wait on this clock; streams are idle when a run's end calls Sync.
func (s *stream) Sync() error { return nil }

// Err implements device.Stream. Nothing fails.
func (s *stream) Err() error { return nil }

// Close implements device.Stream.
func (s *stream) Close() error { return nil }
