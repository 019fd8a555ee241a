package actors

import (
	"fmt"
	"maps"

	"mt/layers/schedule"
)

// This file has how an activation gets from one lane to another: a hidden state, or its
// gradient. There are two ways. A lane that takes it allots it an activation slot when the program
// comes to that, and, if it is not there by then, offers the slot (SlotOffered) to the Offloader of
// the lane that makes it. When that lane gives it up, the Offloader copies it into the slot that it
// was offered, from device to device, or else to the host, into the place that its micro-batch has
// there. Either way it tells the Prefetcher of the other lane (ActivationPassed), which takes what
// is on the host into the slot.
//
// So nothing that is passed on waits for the lane that takes it. Either lane holds it back by its
// activation slots alone, which are allotted in the order of the program whether what they are for
// has come or not. The places on the host need no credit: of a micro-batch one hidden state at a
// time is under way, and what made the next one has read the one before.

// transit names an activation on its way between two lanes: by its program, and by the object that
// it is on the lane that takes it.
type transit struct{ prog, object int }

// passToHost copies an activation from a slot to the place of its micro-batch on the host.
type passToHost struct{ Slot, Passage, Tokens int }

// passDirect copies an activation from a slot into a slot of another lane.
type passDirect struct{ Slot, Lane, Into, Tokens int }

// fetchPassed copies an activation that another lane has passed on to the host into a slot. Step is that
// of the pass.
type fetchPassed struct{ Slot, Passage, Tokens, Step int }

func (e fetchPassed) start(r *lane, _ work) error {
	defer r.copying(r.in, e).end()
	r.bringIn(e.Slot, r.passagePlace(e.Passage, e.Tokens))
	return r.enqueued("take an activation into slot %d", e.Slot)
}

func (e passToHost) start(r *lane, w work) error {
	s := r.copying(r.out, e)
	r.toHost(e.Slot, r.passagePlace(e.Passage, e.Tokens))
	s.Notify(r.landed(w, fmt.Sprintf("pass on an activation from slot %d", e.Slot), nothing))
	return nil
}

// passOn is the work of passing on an activation.
func (c *offloaderCore) passOn(m ActivationLeft) work {
	objects := c.programs[m.Prog].Objects
	o := objects[m.Object]
	to, key := objects[o.To].Lane, transit{m.Prog, o.To}
	slot, offered := c.offers[key]
	delete(c.offers, key)
	w := work{done: []send{
		{laneID(to).prefetcher(), ActivationPassed{Prog: m.Prog, Object: o.To, Direct: offered}},
		{c.lane.prefetcher(), ActivationSlotFreed{m.Slot}}}}
	if offered {
		w.do = passDirect{Slot: m.Slot, Lane: to, Into: slot, Tokens: o.Tokens}
	} else {
		w.do = passToHost{Slot: m.Slot, Passage: o.Passage, Tokens: o.Tokens}
	}
	return w
}

// forgetOffers drops the offers for a program, and those before it, that came too late.
func (c *offloaderCore) forgetOffers(prog int) {
	maps.DeleteFunc(c.offers, func(k transit, _ int) bool { return k.prog <= prog })
}

// arrives takes an activation from another lane into its slot, if it is there. Else it is granted when it has come, and the other
// lane is offered the slot, if its device reaches this one.
func (x *activationServer) arrives(p *Pass, t schedule.Take, granted send, slot int) []effect {
	o, key := p.Objects[t.Object], transit{p.Seq, t.Object}
	in := fetchPassed{Slot: slot, Passage: o.Passage, Tokens: o.Tokens, Step: p.Step}
	if x.passed[key] {
		delete(x.passed, key)
		return []effect{work{do: in}, granted}
	}
	x.allotted[key] = in
	if from := p.Objects[o.From].Lane; x.c.reachedBy[from] {
		return []effect{send{laneID(from).offloader(), SlotOffered{Prog: p.Seq, Object: t.Object, Slot: slot}}}
	}
	return nil
}

// arrived grants Compute the slot of an activation that has been passed on, if it has one already.
func (x *activationServer) arrived(m ActivationPassed) []effect {
	key := transit{m.Prog, m.Object}
	in, ok := x.allotted[key]
	if !ok {
		x.passed[key] = true
		return nil
	}
	delete(x.allotted, key)
	granted := send{x.c.lane.compute(), ActivationFetched{Prog: m.Prog, Object: m.Object, Slot: in.Slot, Filled: !m.Direct}}
	if m.Direct {
		return []effect{granted}
	}
	return []effect{work{do: in}, granted}
}

// passagePlace is the place on the host of a micro-batch that begins at token at.
func (r *run) passagePlace(at, tokens int) []byte {
	from := r.plan.ActivationBytes(at)
	return r.passage[from : from+r.plan.ActivationBytes(tokens)]
}

// reachOthers finds out which lanes' slots the lane's device can copy into, unless the run is to
// pass all through the host, and makes a stream for that. It has a stream of its own because such a
// copy waits for the slot's last reader, as neither gradients nor spills should.
func (r *lane) reachOthers() error {
	r.reaches = make([]bool, len(r.lanes))
	if r.o.ThroughHost {
		return nil
	}
	for i, other := range r.lanes {
		if other == r {
			continue
		}
		ok, err := r.dev.Reach(other.dev)
		if err != nil {
			return fmt.Errorf("prepare the pipeline: %w", err)
		}
		if r.reaches[i] = ok; ok && r.peer == nil {
			if err := r.openStream("peer", &r.peer); err != nil {
				return fmt.Errorf("prepare the pipeline: %w", err)
			}
		}
	}
	return nil
}

// reachedBy says which lanes' devices can copy into the lane's slots.
func (r *lane) reachedBy() []bool {
	out := make([]bool, len(r.lanes))
	for i, other := range r.lanes {
		out[i] = other.reaches[r.index]
	}
	return out
}

// start makes the copy wait for the last reader of the other lane's slot, which may still be at
// work there. Nobody has to wait for the copy on a device: it is over when the other lane is told.
func (e passDirect) start(r *lane, w work) error {
	other, s, slot, bytes := r.lanes[e.Lane], r.copying(r.peer, e), r.acts[e.Slot], r.plan.ActivationBytes(e.Tokens)
	into := other.acts[e.Into]
	s.Wait(slot.ready)
	s.Wait(into.idle)
	s.CopyPeer(other.dev, into.mem.Slice(0, bytes), slot.mem.Slice(0, bytes))
	s.Wait(slot.idle) // its last reader may still be at work
	s.Record(slot.idle)
	s.Notify(r.landed(w, fmt.Sprintf("pass on an activation from slot %d to device %d", e.Slot, e.Lane), nothing))
	return nil
}
