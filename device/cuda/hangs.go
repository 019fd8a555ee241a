package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mt/cudart"
	"mt/device/op"
)

// This file reports launches that do not end. A stream lists its launches until they are known to
// have ended. Once a second a goroutine checks each stream for progress. It reports a hang, but
// ends nothing. The driver's watchdog (watchdog.go) is something else: it ends kernels.
//
// A fence is a CUDA event by which the host sees how far a stream has come. The events that
// notifications and Record enqueue anyway serve as fences. If more work than fenceSeconds of
// expected time has followed the last fence, the stream records an extra event. So most launches
// cost no extra CUDA call.

const (
	// A launch is reported when it has taken hangFactor times its longest expected time, but never before hangLeast.
	hangFactor = 100
	hangLeast  = 10 * time.Second
	// lookEvery is the interval at which the goroutine checks the streams. Waiting time is counted in checks, not by
	// the clock. So a process that a debugger stops for an hour has not waited for an hour.
	lookEvery = time.Second
	// fenceSeconds is how many seconds of longest expected time may pass between two fences.
	fenceSeconds = 0.02
	// mostUnended and mostFences limit the launches and fences that a stream lists. CUDA's own
	// queues hold only about 1,000 launches.
	mostUnended = 2048
	mostFences  = 256
)

// Rates in bytes a second that all supported hardware reaches, for device memory and for the link
// to the host. The slowest supported cards have twice leastBandwidth. A PCI Express 3.0 link of a
// single lane reaches leastLink.
const (
	leastBandwidth = 50e9
	leastLink      = 1e9
)

// task is an operation or copy, and its longest expected time.
type task struct {
	op      string
	shape   op.Shape
	seconds float64
}

// launch is an entry in a stream's list of work: a call that enqueued a kernel, a cuBLASLt product
// or a copy. An entry with stream set is a wait for that other stream.
type launch struct {
	task
	call   string // name of the kernel or of the C function
	stream *stream
	at     uint64 // if stream is set: the wait ends when the first at launches of stream have ended
}

func (l *launch) String() string {
	s := l.op
	if shape := l.shape.String(); shape != "" {
		s += " (" + shape + ")"
	}
	return s + " by " + l.call
}

// fence is a CUDA event by which the host sees progress. Once the event is complete, the first at
// launches of the stream have ended.
type fence struct {
	at    uint64
	event cudart.Event
	mark  *mark // if Record enqueued the event: its mark, with a reference held by the fence
	own   bool  // the fence owns the event and gives it back
}

// unended lists a stream's launches that are not known to have ended. A goroutine that needs mu and
// the device's lock takes mu first.
type unended struct {
	mu       sync.Mutex
	n        uint64   // launches so far
	ended    uint64   // launches known to have ended
	launches []launch // the launches numbered from, from+1, …; at most mostUnended
	from     uint64
	fences   []fence // sorted by at
	since    float64 // longest expected seconds of the launches after the last fence

	looking sync.Mutex // held while the stream is checked, and while it is destroyed
	gone    bool       // the stream is destroyed
	seen    uint64     // value of ended at the last check
	looks   int        // consecutive checks without progress
	told    bool       // the hang was reported; see hold
	hanging string     // work that has not ended for hangLeast or longer; under mu
}

// add appends a launch. It returns true if so much work has followed the last fence that a new fence is due.
func (u *unended) add(l launch) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.launches) == 0 {
		u.from = u.n
	}
	if u.from+uint64(len(u.launches)) == u.n && len(u.launches) < mostUnended {
		u.launches = append(u.launches, l)
	}
	u.n++
	u.since += l.seconds
	return u.since >= fenceSeconds && len(u.fences) < mostFences
}

// count returns the number of launches so far.
func (u *unended) count() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// fence appends f, whose event was recorded after the first f.at launches. It returns false and
// appends nothing if an earlier fence already stands at or after that launch, or if there are
// mostFences fences.
func (u *unended) fence(f fence) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.ended
	if n := len(u.fences); n > 0 {
		last = u.fences[n-1].at
	}
	if f.at <= last || len(u.fences) >= mostFences {
		return false
	}
	u.fences = append(u.fences, f)
	if f.at == u.n {
		u.since = 0
	}
	return true
}

// reached is called when the first n launches of the stream are known to have ended. It removes
// them and their fences from the lists.
func (u *unended) reached(d *dev, n uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n <= u.ended {
		return
	}
	u.ended = n
	if done := int(min(max(n, u.from)-u.from, uint64(len(u.launches)))); done > 0 {
		u.launches = slices.Delete(u.launches, 0, done)
		u.from += uint64(done)
	}
	passed := 0
	for ; passed < len(u.fences) && u.fences[passed].at <= n; passed++ {
		switch f := u.fences[passed]; {
		case f.mark != nil:
			f.mark.release()
		case f.own:
			d.giveEvent(f.event)
		}
	}
	u.fences = slices.Delete(u.fences, 0, passed)
}

// has reports whether the first n launches are known to have ended.
func (u *unended) has(n uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended >= n
}

// launched adds w to the stream's list of launches, after call has enqueued it. If a fence is due,
// launched records one, and returns the error of recording.
func (s *stream) launched(call string, w task) error {
	if !s.unended.add(launch{task: w, call: call}) {
		return nil
	}
	return s.ownFence(s.unended.count())
}

// ownFence records an extra event on the stream, as a fence after its first at launches. It is
// called if no notification or Record has put an event there.
func (s *stream) ownFence(at uint64) error {
	d := s.dev
	e, err := d.takeEvent()
	if err != nil {
		return err
	}
	if err = d.cuda.EventRecord(d.context, e, s.cuda); err != nil || !s.unended.fence(fence{at: at, event: e, own: true}) {
		d.giveEvent(e)
	}
	return err
}

// recorded is called after m's CUDA event has been enqueued on s, and makes this event a fence of
// s.
func (s *stream) recorded(m *mark) {
	at := s.unended.count()
	m.on.Store(s)
	m.at.Store(at)
	if m.retain() && !s.unended.fence(fence{at: at, event: m.cuda, mark: m}) {
		m.release()
	}
}

// awaits is called after s has enqueued a wait for m. It adds the wait to the launches of s, so
// that no hang of s is reported while the stream on which m was recorded is behind. If that stream
// has already reached m, nothing is added.
func (s *stream) awaits(m *mark) {
	if on, at := m.on.Load(), m.at.Load(); on != nil && on != s && !on.unended.has(at) {
		s.unended.add(launch{stream: on, at: at})
	}
}

// copied adds a copy to the stream's list of launches. The C function is call, and reports name the
// copy by what. The link or memory reaches rate, in bytes a second, in any case.
func (s *stream) copied(call, what string, bytes int64, rate float64) error {
	return s.launched(call, task{what, op.BytesShape(bytes), float64(bytes) / rate})
}

// expected returns the task for the operation named o with the load l. Its longest expected time is
// the time on the slowest supported hardware.
func (d *dev) expected(o string, l op.Load) task {
	seconds := float64(l.Bytes) / leastBandwidth
	if l.FLOPs > 0 {
		seconds += l.FLOPs / d.pace[min(int(l.DType), len(d.pace)-1)]
	}
	return task{o, l.Shape, seconds}
}

// watchHangs starts the goroutine that checks the streams, unless it is already running. The caller holds d.mu.
func (d *dev) watchHangs() {
	if d.lookingEnds != nil {
		return
	}
	d.lookingEnds = make(chan struct{})
	end := d.lookingEnds
	d.looking.Go(func() {
		tick := time.NewTicker(d.lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.look()
			case <-end:
				return
			}
		}
	})
}

// endLooking ends the goroutine of watchHangs.
func (d *dev) endLooking() {
	if d.lookingEnds != nil {
		close(d.lookingEnds)
		d.looking.Wait()
		d.lookingEnds = nil
	}
}

// look checks all streams for progress, once every lookEvery.
func (d *dev) look() {
	d.mu.Lock()
	streams := slices.Clone(d.streams)
	d.mu.Unlock()
	for _, s := range streams {
		s.look()
	}
}

// look checks one stream. It counts consecutive checks without progress. It reports a hang once
// they exceed hangFactor times the expected time of the launches before the next fence, and
// hangLeast.
func (s *stream) look() {
	u := &s.unended
	u.looking.Lock()
	defer u.looking.Unlock()
	if u.gone || s.moved() {
		return
	}
	u.mu.Lock()
	if len(u.fences) == 0 { // fence after the last launch
		n := u.n
		u.mu.Unlock()
		_ = s.ownFence(n) // after an error no hang is reported
		return
	}
	until := u.fences[0].at
	head := slices.Clone(u.launches[:min(max(until, u.from)-u.from, uint64(len(u.launches)))])
	u.mu.Unlock()
	for _, l := range head {
		if l.stream != nil && !l.stream.unended.has(l.at) {
			u.looks = 0
			return
		}
	}
	u.looks++
	age := time.Duration(u.looks) * lookEvery
	if age < hangLeast {
		return
	}
	head = slices.DeleteFunc(head, func(l launch) bool { return l.stream != nil })
	seconds := 0.0
	for _, l := range head {
		seconds += l.seconds
	}
	text := s.describe(head, until-u.ended, age, seconds)
	u.mu.Lock()
	u.hanging = text
	u.mu.Unlock()
	if age.Seconds() >= hangFactor*seconds && !u.told {
		u.hold(true)
		s.dev.tellHang(text + "; mt waits on. If it never ends: end the run, and mt doctor --selftest")
	}
}

// moved reports whether the stream does not hang: launches have ended since the last check, no
// launch is left, or the context is lost.
func (s *stream) moved() bool {
	u, d := &s.unended, s.dev
	for {
		u.mu.Lock()
		idle, ended := u.ended == u.n, u.ended
		var first fence
		if len(u.fences) > 0 {
			first = u.fences[0]
		}
		if idle || ended != u.seen {
			u.hanging = ""
		}
		u.mu.Unlock()
		if idle || ended != u.seen {
			if u.told {
				d.tellHang(fmt.Sprintf("%s, stream %s: what had not ended after %v has ended", d.name, s.name, time.Duration(u.looks)*lookEvery))
			}
			u.seen, u.looks = ended, 0
			u.hold(false)
			return true
		}
		if first.at == 0 {
			return false
		}
		done, err := d.cuda.EventQuery(d.context, first.event)
		if errors.Is(err, cudart.ErrContextLost) {
			u.hold(false)
			return true // keep u.hanging, for the error that ends the run
		}
		if !done || err != nil {
			return false
		}
		u.reached(d, first.at)
	}
}

// held is the number of streams of this process that hang: the hang was reported, and the work
// still has not ended.
var held atomic.Int32

// Hangs reports whether some work of this process was reported as not ending and still has not ended.
func Hangs() bool { return held.Load() > 0 }

// hold stores whether a hang of this stream is reported and still lasts, and keeps the count held
// up to date. The caller holds u.looking.
func (u *unended) hold(told bool) {
	switch {
	case told && !u.told:
		held.Add(1)
	case !told && u.told:
		held.Add(-1)
	}
	u.told = told
}

// describe returns the text of a report about n launches that have not ended. The stream remembers
// the names of those in head. For the time age no launch has ended, and seconds is the longest
// expected time of the launches.
func (s *stream) describe(head []launch, n uint64, age time.Duration, seconds float64) string {
	const most = 4
	var names []string
	for _, l := range head[:min(len(head), most)] {
		names = append(names, l.String())
	}
	if len(head) > most {
		names = append(names, fmt.Sprintf("%d more", len(head)-most))
	}
	what := strings.Join(names, ", ")
	switch {
	case len(head) == 0:
		what = fmt.Sprintf("one of %d launches", n)
	case len(head) > 1:
		what = fmt.Sprintf("one of these %d: %s", len(head), what)
	}
	return fmt.Sprintf("%s, stream %s: %s has not ended after %v, and should take at most %v", s.dev.name, s.name, what,
		age, time.Duration(seconds*float64(time.Second)).Round(time.Microsecond))
}

// tellHang passes text to Options.Hang. If that is nil, the text becomes a note for the user.
func (d *dev) tellHang(text string) {
	if d.opts.Hang != nil {
		d.opts.Hang(text)
		return
	}
	d.note(text)
}

// hanging describes the work of all streams that had made no progress for hangLeast or longer at
// the last check. It returns "" if there is none. Errors of a lost context include the text.
func (d *dev) hanging() string {
	d.mu.Lock()
	streams := slices.Clone(d.streams)
	d.mu.Unlock()
	var all []string
	for _, s := range streams {
		s.unended.mu.Lock()
		if s.unended.hanging != "" {
			all = append(all, s.unended.hanging)
		}
		s.unended.mu.Unlock()
	}
	return strings.Join(all, "; ")
}
