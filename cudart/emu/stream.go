package emu

import (
	"fmt"
	"time"
)

// stream is a queue of operations that run in order.
type stream struct {
	gpu       *gpu
	id        int // index of its component in clocks
	name      string
	queue     []*op // incomplete operations; queue[0] may be running
	last      *op   // newest operation, complete or not
	destroyed bool

	n       uint64 // number of operations enqueued so far
	base    clock  // operations known to be complete when the next operation starts
	hostVer uint64 // version of the host clock that base includes
}

// op is one operation of a stream.
type op struct {
	gpu    *gpu // device whose memory it may access
	stream *stream
	seq    uint64 // number among the driver's operations
	n      uint64 // number among the stream's operations
	base   clock
	what   string

	spans   []span                 // accesses known before it runs
	run     func() ([]span, error) // does the work and returns further accesses; nil: a record or a wait
	watches []watch                // host memory that the host must not change
	record  *record                // record that completes with the operation
	wait    *record                // record that must complete before it starts
	extra   time.Duration          // its time on the clock that events report; see Options.ProductTimes

	done    bool
	hung    bool // Options.HangAt has selected it
	needed  bool // Lazy: a thread waits for it
	waiters int
}

// record is one recording of an event. It is complete when the operation op is.
type record struct {
	op       *op
	complete bool
	at       time.Time // when it completed
}

// event is a CUDA event. Waits for it refer to its last record.
type event struct {
	gpu    *gpu
	name   string
	timing bool
	last   *record // nil: never recorded, counts as complete
}

// newStream creates a stream on the device of the current call. d.mu is held.
func (d *Driver) newStream(name string) *stream {
	s := &stream{gpu: d.here(), id: d.ids, name: name}
	d.ids++
	d.streams = append(d.streams, s)
	return s
}

// streamCreate is cudaStreamCreateWithFlags. In CUDA, blocking streams synchronize implicitly with
// the default stream; the emulator does not emulate this.
func (d *Driver) streamCreate(p *uint64, flags uint32) int32 {
	if p == nil || flags > 1 {
		return errInvalidValue
	}
	s := d.newStream("")
	*p = d.keep(kindStream, s)
	s.name = handleName(*p) + d.of(s.gpu)
	return 0
}

// streamOf returns the stream of a handle. Handles 0, 1 and 2 mean the default stream of the current call's device.
func (d *Driver) streamOf(h uint64, call string) (*stream, bool) {
	if h > 2 {
		return find[*stream](d, kindStream, h, call)
	}
	g := d.here()
	if g.null == nil {
		g.null = d.newStream("the default stream" + d.of(g))
	}
	return g.null, true
}

// streamDestroy is cudaStreamDestroy. Enqueued work still runs.
func (d *Driver) streamDestroy(h uint64) int32 {
	s, ok := find[*stream](d, kindStream, h, "cudaStreamDestroy")
	if !ok {
		return errInvalidHandle
	}
	s.destroyed = true
	delete(d.objects, h)
	d.retire(s)
	return 0
}

// streamSynchronize is cudaStreamSynchronize.
func (d *Driver) streamSynchronize(h uint64) int32 {
	s, ok := d.streamOf(h, "cudaStreamSynchronize")
	if !ok {
		return errInvalidHandle
	}
	if o := s.last; o != nil {
		d.await(o)
		d.learn(o)
	}
	return d.sticky
}

// eventCreate is cudaEventCreateWithFlags.
func (d *Driver) eventCreate(p *uint64, flags uint32) int32 {
	if p == nil || flags > 7 {
		return errInvalidValue
	}
	e := &event{gpu: d.here(), timing: flags&2 == 0}
	*p = d.keep(kindEvent, e)
	e.name = handleName(*p) + d.of(e.gpu)
	return 0
}

// eventDestroy is cudaEventDestroy. Pending records still complete.
func (d *Driver) eventDestroy(h uint64) int32 {
	if _, ok := find[*event](d, kindEvent, h, "cudaEventDestroy"); !ok {
		return errInvalidHandle
	}
	delete(d.objects, h)
	return 0
}

// eventRecord is cudaEventRecord.
func (d *Driver) eventRecord(eh, sh uint64) int32 {
	e, ok := find[*event](d, kindEvent, eh, "cudaEventRecord")
	s, ok2 := d.streamOf(sh, "cudaEventRecord")
	if !ok || !ok2 || !d.same("cudaEventRecord", e.name, e.gpu, s.name, s.gpu) {
		return errInvalidHandle
	}
	o := &op{what: "record of " + e.name, record: &record{}}
	o.record.op = o
	d.enqueue(s, o)
	e.last = o.record
	return 0
}

// streamWaitEvent is cudaStreamWaitEvent. It waits for the last enqueued record of the event. Stream and event may
// belong to different devices; CUDA orders work between devices in this way.
func (d *Driver) streamWaitEvent(sh, eh uint64, flags uint32) int32 {
	e, ok := find[*event](d, kindEvent, eh, "cudaStreamWaitEvent")
	s, ok2 := d.streamOf(sh, "cudaStreamWaitEvent")
	switch {
	case !ok || !ok2:
		return errInvalidHandle
	case flags > 1:
		return errInvalidValue
	case e.last == nil:
		return 0
	}
	p := e.last.op
	if !e.last.complete {
		d.enqueue(s, &op{what: "wait for " + e.name, wait: e.last})
	}
	s.base = s.base.join(p.base).with(p.stream.id, p.n)
	return 0
}

// eventQuery is cudaEventQuery. It is stricter than CUDA: a result of "complete" does not allow the host to use the
// memory. Only a wait tells the host that work is complete.
func (d *Driver) eventQuery(h uint64) int32 {
	e, ok := find[*event](d, kindEvent, h, "cudaEventQuery")
	switch {
	case !ok:
		return errInvalidHandle
	case d.sticky != 0:
		return d.sticky
	case e.last != nil && !e.last.complete:
		return errNotReady
	}
	return 0
}

// eventSynchronize is cudaEventSynchronize.
func (d *Driver) eventSynchronize(h uint64) int32 {
	e, ok := find[*event](d, kindEvent, h, "cudaEventSynchronize")
	if !ok {
		return errInvalidHandle
	}
	if r := e.last; r != nil {
		d.await(r.op)
		d.learn(r.op)
	}
	return d.sticky
}

// eventElapsed is cudaEventElapsedTime.
func (d *Driver) eventElapsed(ms *float32, start, end uint64) int32 {
	a, ok := find[*event](d, kindEvent, start, "cudaEventElapsedTime")
	b, ok2 := find[*event](d, kindEvent, end, "cudaEventElapsedTime")
	switch {
	case ms == nil:
		return errInvalidValue
	case !ok || !ok2 || !d.same("cudaEventElapsedTime", a.name, a.gpu, b.name, b.gpu):
		return errInvalidHandle
	case !a.timing || !b.timing:
		d.fault(Argument, "cudaEventElapsedTime of %s and %s, created without timing", a.name, b.name)
		return errInvalidHandle
	case a.last == nil || b.last == nil:
		return errInvalidHandle
	case !a.last.complete || !b.last.complete:
		return errNotReady
	}
	*ms = float32(float64(b.last.at.Sub(a.last.at)) / float64(time.Millisecond))
	return 0
}

// memcpyAsync is cudaMemcpyAsync. Copies of pageable host memory are staged. A pageable source is read before the call
// returns. For a pageable destination the call waits until the copy is complete.
func (d *Driver) memcpyAsync(dst, src, n uint64, copyKind int32, sh uint64) int32 {
	s, ok := d.streamOf(sh, "cudaMemcpyAsync")
	if !ok {
		return errInvalidHandle
	}
	if copyKind == 4 { // derive the direction from the addresses
		copyKind = 0
		if isDevice(src) {
			copyKind = 2
		}
		if isDevice(dst) {
			copyKind++
		}
	}
	if copyKind < 0 || copyKind > 3 {
		return errInvalidValue
	}
	if n == 0 {
		return 0
	}
	toDevice, fromDevice := copyKind == 1 || copyKind == 3, copyKind >= 2
	o := &op{gpu: s.gpu, what: fmt.Sprintf("copy %s of %d bytes", [...]string{"host to host", "to device", "to host", "on device"}[copyKind], n)}
	to, host, code := d.side(o, dst, n, toDevice, true)
	if code != 0 {
		return code
	}
	from, host2, code := d.side(o, src, n, fromDevice, false)
	if code != 0 {
		return code
	}
	if host2 { // a pageable source is read at once
		from = append([]byte(nil), from...)
	}
	if host || host2 {
		d.pageables++
	}
	o.run = func() ([]span, error) { copy(to, from); return nil, nil }
	d.enqueue(s, o)
	if host {
		d.await(o)
		d.learn(o)
		return d.sticky
	}
	return 0
}

// side returns the n bytes at addr, one side of a copy, and records them as an access of o. They
// must be device memory if onDevice is true, and are written if write is true. The result pageable
// reports host memory that is not pinned. The code is 0 unless the address is invalid.
func (d *Driver) side(o *op, addr, n uint64, onDevice, write bool) (bytes []byte, pageable bool, code int32) {
	if onDevice {
		r, code := d.reach(o.what, o.gpu, addr, n)
		if code != 0 {
			return nil, false, code
		}
		o.spans = r.spans(o.spans, 0, int64(n), write)
		return r.data, false, 0
	}
	h, code := d.hostRange(o.what, o.gpu, addr, n)
	if code != 0 {
		return nil, false, code
	}
	if h.pinned != nil {
		o.watch(&h)
		o.spans = append(o.spans, span{&h.pinned.region, h.from, h.from + int64(n), write})
	}
	return h.bytes, h.pinned == nil, 0
}

// memsetAsync is cudaMemsetAsync.
func (d *Driver) memsetAsync(dst uint64, value int32, n uint64, sh uint64) int32 {
	s, ok := d.streamOf(sh, "cudaMemsetAsync")
	if !ok {
		return errInvalidHandle
	}
	if n == 0 {
		return 0
	}
	o := &op{gpu: s.gpu, what: fmt.Sprintf("set of %d bytes", n)}
	to, _, code := d.side(o, dst, n, true, true)
	if code != 0 {
		return code
	}
	o.run = func() ([]span, error) {
		for i := range to {
			to[i] = byte(value)
		}
		return nil, nil
	}
	d.enqueue(s, o)
	return 0
}
