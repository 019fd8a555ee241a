package emu

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// One goroutine, the scheduler, runs all operations of a driver, one at a time. Host threads only
// enqueue operations and wait for them.

// enqueue appends o to a stream. d.mu is held.
func (d *Driver) enqueue(s *stream, o *op) {
	if s.hostVer != d.hostVer {
		s.base = s.base.join(d.host)
		s.hostVer = d.hostVer
	}
	s.n++
	d.seq++
	o.stream, o.n, o.seq, o.base = s, s.n, d.seq, s.base
	for i := range o.spans {
		if o.spans[i].write {
			o.spans[i].region.writers++
		}
	}
	s.last = o
	s.queue = append(s.queue, o)
	if !d.started {
		d.started = true
		go d.schedule()
	}
	if d.opt.Mode == Eager && d.running == nil {
		d.work.Signal()
	}
}

// learn is called when a host thread has seen o complete. It records in the host's clock that o,
// and everything ordered before o, is complete.
func (d *Driver) learn(o *op) {
	host := d.host.join(o.base).with(o.stream.id, o.n)
	if !slices.Equal(host, d.host) {
		d.host = host
		d.hostVer++
	}
}

// await blocks the calling thread until o is complete. d.mu is held before and after.
func (d *Driver) await(o *op) {
	if o.done {
		return
	}
	d.want(o)
	d.waiting++
	o.waiters++
	d.work.Signal()
	for !o.done {
		d.changed.Wait()
	}
	o.waiters--
	d.waiting--
}

// drain blocks the calling thread until all work enqueued so far is complete and nothing runs. d.mu is held before and
// after.
func (d *Driver) drain() {
	var last []*op
	for _, s := range d.streams {
		if s.last != nil && !s.last.done {
			last = append(last, s.last)
		}
	}
	for _, o := range last {
		d.await(o)
	}
	for o := d.running; d.running != nil && d.running == o; {
		o.waiters++
		d.changed.Wait()
		o.waiters--
	}
}

// want marks o, and everything that must run before o, because a thread waits for o. In mode Lazy
// only marked operations run; other modes ignore the mark.
func (d *Driver) want(o *op) {
	if d.opt.Mode != Lazy || o.done || o.needed {
		return
	}
	for _, p := range o.stream.queue {
		if p.n > o.n {
			break
		}
		if p.needed {
			continue
		}
		p.needed = true
		if p.wait != nil && !p.wait.complete {
			d.want(p.wait.op)
		}
	}
}

// cancel is called when the context has become unusable. It marks all operations as complete
// without running them. d.mu is held.
func (d *Driver) cancel() {
	for _, s := range d.streams {
		for _, o := range s.queue {
			if o != d.running {
				d.finish(o)
			}
		}
		s.queue = nil
	}
	d.changed.Broadcast()
}

// finish marks o as complete and removes it from the pending writers of its memory.
func (d *Driver) finish(o *op) {
	o.done = true
	for i := range o.spans {
		if r := o.spans[i].region; o.spans[i].write {
			r.writers--
			r.writes++
		}
	}
	o.run, o.spans, o.watches = nil, nil, nil
	o.stream.gpu.extra += o.extra
	if o.record != nil {
		o.record.complete, o.record.at = true, time.Now()
		if d.timed {
			o.record.at = time.Unix(0, int64(o.stream.gpu.extra))
		}
	}
	o.wait = nil
}

// schedule is the scheduler's loop: it runs operations, and waits for more, until the driver is closed.
func (d *Driver) schedule() {
	defer close(d.ended)
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		o := d.pick()
		if o == nil {
			if d.closed {
				return
			}
			d.work.Wait()
			continue
		}
		d.execute(o)
	}
}

// pick returns the operation to run next, the first one in the queue of its stream. It returns nil
// if none may run, or if none should run yet in this mode.
func (d *Driver) pick() *op {
	if d.opt.Mode == Random && d.waiting == 0 && d.credit == 0 && !d.closed {
		return nil
	}
	var best *op
	seen := 0
	for _, s := range d.streams {
		if len(s.queue) == 0 {
			continue
		}
		o := s.queue[0]
		if o.wait != nil && !o.wait.complete || d.hangs(o) {
			continue
		}
		switch d.opt.Mode {
		case Eager:
			if best == nil || o.seq < best.seq {
				best = o
			}
		case Random:
			seen++
			if d.rng.IntN(seen) == 0 {
				best = o
			}
		case Lazy:
			if o.needed && (best == nil || o.seq > best.seq) {
				best = o
			}
		}
	}
	if best != nil && d.credit > 0 {
		d.credit--
	}
	return best
}

// hangs reports whether Options.Hang or HangAt selects o, so that it must not end before EndHang.
func (d *Driver) hangs(o *op) bool {
	return !d.hangEnded && (o.hung || d.opt.Hang != "" && o.run != nil && strings.Contains(o.what, d.opt.Hang))
}

// EndHang ends the hang of work that Options.Hang or HangAt selects, and the work completes. With a
// code other than 0 the work traps instead, and the contexts are lost with this code.
func (d *Driver) EndHang(code int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endHang(int32(code))
}

func (d *Driver) endHang(code int32) {
	d.hangEnded = true
	if code != 0 && d.sticky == 0 {
		d.sticky = code
		d.cancel()
	}
	d.work.Broadcast()
}

// execute runs o: it checks and records o's accesses, does the work and marks o as complete. d.mu is held before
// and after, but released while the work runs.
func (d *Driver) execute(o *op) {
	d.untouched(o)
	for _, s := range o.spans {
		d.touch(o, s)
	}
	if o.run != nil {
		d.running = o
		d.mu.Unlock()
		spans, err := protect(o.run)
		d.mu.Lock()
		d.running = nil
		for _, s := range spans {
			d.touch(o, s)
		}
		if err != nil && d.sticky == 0 {
			d.stopped(o, err)
		}
	}
	s := o.stream
	if len(s.queue) > 0 && s.queue[0] == o {
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	d.finish(o)
	if o.waiters > 0 {
		d.changed.Broadcast()
	}
	d.retire(s)
}

// retire removes the stream s from the driver if the program has destroyed it and no work is
// pending.
func (d *Driver) retire(s *stream) {
	if s.destroyed && len(s.queue) == 0 {
		if i := slices.Index(d.streams, s); i >= 0 {
			d.streams = slices.Delete(d.streams, i, i+1)
		}
	}
}

// protect runs f and returns a panic of f as an error.
func protect(f func() ([]span, error)) (spans []span, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}
