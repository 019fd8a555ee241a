package emu

import (
	"fmt"
	"slices"
	"sort"
)

// This file decides by vector clocks whether two operations are ordered. The operations of each
// stream are numbered from 1. Component i of a clock is the number of stream i's newest operation
// that is known to be complete. Each operation has a clock. The host has one too, but no component:
// if one host thread has seen an operation complete, that counts as known to all host threads.

// clock is a vector clock. It is immutable; missing components are 0.
type clock []uint64

func (c clock) at(stream int) uint64 {
	if stream < len(c) {
		return c[stream]
	}
	return 0
}

// join returns the componentwise maximum of c and b. If the result equals c, it returns c itself.
func (c clock) join(b clock) clock {
	for i, n := range b {
		if n > c.at(i) {
			out := make(clock, max(len(c), len(b)))
			copy(out, c)
			for j := i; j < len(b); j++ {
				out[j] = max(out[j], b[j])
			}
			return out
		}
	}
	return c
}

// with returns a clock in which the component of the given stream is at least n, and the others are
// as in c. It returns c itself if nothing changes.
func (c clock) with(stream int, n uint64) clock {
	if c.at(stream) >= n {
		return c
	}
	out := make(clock, max(len(c), stream+1))
	copy(out, c)
	out[stream] = n
	return out
}

// region is one allocation of device memory or pinned host memory. The order of accesses to its
// bytes is checked.
type region struct {
	name     string
	segments []segment // ranges accessed so far, sorted and disjoint
	compact  int       // shrink does nothing below this number of segments

	writers int    // number of pending operations that will write
	writes  uint64 // number of completed operations that wrote
}

// segment is a byte range of a region whose bytes have the same history. The history is the last
// operation that wrote them, and the reads since then, at most one for each stream.
type segment struct {
	from, to int64
	write    *op
	reads    []*op // immutable
}

// span is a byte range that an operation accesses.
type span struct {
	region   *region
	from, to int64
	write    bool
}

// before reports whether streams, events and synchronization guarantee that p is complete when o
// starts. A nil p stands for no operation; it counts as complete.
func (p *op) before(o *op) bool {
	return p == nil || p.stream == o.stream || o.base.at(p.stream.id) >= p.n
}

// touch checks one access of o against earlier accesses to the same bytes, and records it. It is
// called in the order in which operations run. d.mu is held.
func (d *Driver) touch(o *op, s span) {
	if s.from >= s.to {
		return
	}
	r := s.region
	lo := r.cut(s.from)
	hi := r.cut(s.to)
	for i := lo; i < hi; i++ {
		seg := &r.segments[i]
		if !seg.write.before(o) {
			d.unordered(o, s, seg.write, true, seg)
		}
		if s.write {
			for _, p := range seg.reads {
				if !p.before(o) {
					d.unordered(o, s, p, false, seg)
				}
			}
		}
	}
	if s.write {
		r.segments = slices.Replace(r.segments, lo, hi, segment{from: s.from, to: s.to, write: o})
		return
	}
	at := s.from
	for i := lo; i < len(r.segments) && at < s.to; i++ {
		seg := &r.segments[i]
		if seg.from > at { // bytes that no operation has accessed before
			gap := segment{from: at, to: min(seg.from, s.to), reads: []*op{o}}
			at = gap.to
			r.segments = slices.Insert(r.segments, i, gap)
			continue
		}
		seg.reads = withRead(seg.reads, o)
		at = seg.to
	}
	if at < s.to {
		i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].from >= at })
		r.segments = slices.Insert(r.segments, i, segment{from: at, to: s.to, reads: []*op{o}})
	}
	r.shrink()
}

// cut splits the segment that contains offset at, so that a segment begins there. It returns the index of the first
// segment at or after at.
func (r *region) cut(at int64) int {
	i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].to > at })
	if i == len(r.segments) || r.segments[i].from >= at {
		return i
	}
	left := r.segments[i]
	left.to = at
	r.segments[i].from = at
	r.segments = slices.Insert(r.segments, i, left)
	return i + 1
}

// shrink merges neighbouring segments with the same history, so that the list stays short. It does
// nothing until there are r.compact segments.
func (r *region) shrink() {
	if len(r.segments) < max(r.compact, 64) {
		return
	}
	out := r.segments[:1]
	for _, s := range r.segments[1:] {
		last := &out[len(out)-1]
		if last.to == s.from && last.write == s.write && slices.Equal(last.reads, s.reads) {
			last.to = s.to
			continue
		}
		out = append(out, s)
	}
	clear(r.segments[len(out):])
	r.segments = out
	r.compact = 2 * len(out)
}

// withRead returns a copy of reads with o added. An earlier read of the same stream is left out,
// because o comes after it.
func withRead(reads []*op, o *op) []*op {
	out := make([]*op, 0, len(reads)+1)
	for _, p := range reads {
		if p.stream != o.stream {
			out = append(out, p)
		}
	}
	return append(out, o)
}

// unordered records a fault: o accesses bytes of s after p has accessed them, and nothing orders
// the two. If pWrites is true, p has written them. The access of p is recorded in the segment seg.
func (d *Driver) unordered(o *op, s span, p *op, pWrites bool, seg *segment) {
	d.fault(Order, "%s %s bytes %d to %d of %s that %s %s, and nothing orders them (of that stream's operations it comes after %d, not after %d)",
		o, verb(s.write), max(s.from, seg.from), min(s.to, seg.to), s.region.name, p, past(pWrites), o.base.at(p.stream.id), p.n)
}

func verb(write bool) string {
	if write {
		return "writes"
	}
	return "reads"
}

func past(write bool) string {
	if write {
		return "wrote"
	}
	return "read"
}

// unused is called before the memory of r is released; call is the name of the C function that does
// so. It records a fault for each operation on r that the host has not waited for. d.mu is held.
func (d *Driver) unused(call string, r *region) {
	var last *op
	for _, seg := range r.segments {
		for _, p := range append([]*op{seg.write}, seg.reads...) {
			if p != nil && p != last && d.host.at(p.stream.id) < p.n {
				d.fault(Order, "%s of %s while %s may be using it: the host has not synchronised with it", call, r.name, p)
				last = p
			}
		}
	}
	r.segments = nil
}

// String describes an operation for messages.
func (o *op) String() string {
	return fmt.Sprintf("[#%d %s on %s]", o.seq, o.what, o.stream.name)
}
