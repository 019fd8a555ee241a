package actors

import (
	"fmt"

	"mt/schedule"
)

// This file has how an activation gets from one lane to another: a hidden state, or its
// gradient. The Offloader of the lane that made it copies it to the host, into the place that
// its micro-batch has there, and tells the Prefetcher of the other lane (ActivationPassed),
// which takes it into an activation slot of its own when the program says so. Either lane
// holds it back by its activation slots alone. The places on the host need no credit: of a
// micro-batch one hidden state at a time is under way, and what made the next one has read the
// one before.

// passOn copies an activation from a slot to the place of its micro-batch on the host.
type passOn struct{ Slot, Passage, Tokens int }

// takeIn copies an activation that another lane has passed on into a slot. Step is that of
// the pass.
type takeIn struct{ Slot, Passage, Tokens, Step int }

// passed keeps what other lanes have passed on, by pass: that may be told before the pass is.
type passed map[int]map[int]bool

func (p passed) add(m ActivationPassed) {
	if p[m.Prog] == nil {
		p[m.Prog] = map[int]bool{}
	}
	p[m.Prog][m.Object] = true
}

// leave is the work of passing on an activation.
func (c *offloaderCore) leave(m ActivationLeft) work {
	objects := c.programs[m.Prog].Objects
	o := objects[m.Object]
	return work{do: passOn{Slot: m.Slot, Passage: o.Passage, Tokens: o.Tokens}, done: []send{
		{laneID(objects[o.To].Lane).prefetcher(), ActivationPassed{Prog: m.Prog, Object: o.To}},
		{c.lane.prefetcher(), ActivationSlotFreed{m.Slot}}}}
}

// take is the work of filling an activation slot, if there is one.
func (s *prefetchState) take(t schedule.Take, slot int) []effect {
	o := s.p.Objects[t.Object]
	switch {
	case t.Arrives:
		return []effect{work{do: takeIn{Slot: slot, Passage: o.Passage, Tokens: o.Tokens, Step: s.p.Step}}}
	case t.Fetch:
		return []effect{work{do: fetchActivation{Slot: slot, Host: o.Host, Tokens: o.Tokens, Step: s.p.Step}}}
	}
	return nil
}

// place is the place on the host of a micro-batch that begins at token at.
func (r *shared) place(at, tokens int) []byte {
	from := r.plan.ActivationBytes(at)
	return r.passage[from : from+r.plan.ActivationBytes(tokens)]
}

// openPassage makes copies to and from the places fast.
func (r *lane) openPassage() error {
	if len(r.passage) == 0 {
		return nil
	}
	if err := r.dev.Register(r.passage); err != nil {
		return err
	}
	r.onClose(func() { r.dev.Unregister(r.passage) })
	return nil
}

func (r *lane) passOn(w work, e passOn) {
	s, slot, place := r.d2h, r.acts[e.Slot], r.place(e.Passage, e.Tokens)
	s.Wait(slot.ready)
	s.CopyD2H(place, slot.mem.Slice(0, int64(len(place))))
	s.Wait(slot.idle) // its last reader may still be at work
	s.Record(slot.idle)
	s.Notify(r.landed(w, fmt.Sprintf("pass on an activation from slot %d", e.Slot), nothing))
}

func (r *lane) takeIn(e takeIn) {
	slot, place := r.acts[e.Slot], r.place(e.Passage, e.Tokens)
	r.h2d.Wait(slot.idle)
	r.h2d.CopyH2D(slot.mem.Slice(0, int64(len(place))), place)
	r.h2d.Record(slot.ready)
}
