package actors

import (
	"fmt"
	"maps"

	"mt/layers/schedule"
)

// This file moves an activation (a hidden state or its gradient) from one lane to another. The receiving lane allots an
// activation slot when its program reaches the activation. If the activation has not arrived by then, the lane offers
// the slot to the sending lane's Offloader (SlotOffered). With an offer, the Offloader copies from device to device
// into the slot. Without an offer it copies to the micro-batch's place on the host. In both cases it sends
// ActivationPassed to the receiving Prefetcher, which copies an activation on the host into the slot.
//
// A sender in device memory never waits for the receiver. Each lane is bounded only by its own activation slots, which are allotted in
// program order, whether the content has arrived or not. The places on the host need no credit. Only one hidden state
// of a micro-batch is in transit at a time: the launch that makes the next hidden state has read the previous one.
//
// If slots are in host memory (Spec.OnHost), nothing is copied: the two slots exchange their memory. The activation
// stays in its slot until a slot is offered. This cannot deadlock: a step has a slot for every activation, and an
// evaluation has more slots than micro-batches, each of which is in transit once at most.

// transit identifies an activation in transit between lanes: its program and its object number on the receiving lane.
type transit struct{ prog, object int }

// passToHost is the task of copying an activation from a slot to the host, from where another lane
// fetches it. The host memory holds the batch's tokens one after the other; the activation begins
// after Passage tokens.
type passToHost struct{ Slot, Passage, Tokens int }

// passDirect is the task of moving an activation from a slot into slot Into of another lane.
type passDirect struct{ Slot, Lane, Into, Tokens int }

// fetchPassed is the task of copying into a slot an activation that another lane has passed to the
// host. The host memory holds the batch's tokens one after the other; the activation begins after
// Passage tokens. Step is the pass's training step.
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

// passOn returns the work that passes an activation on to another lane: directly if that lane has offered a slot,
// otherwise through the host. An activation in host memory waits for an offer.
func (c *offloaderCore) passOn(m ActivationLeft) []effect {
	objects := c.programs[m.Prog].Objects
	o := objects[m.Object]
	to, key := objects[o.To].Lane, transit{m.Prog, o.To}
	slot, offered := c.offers[key]
	if c.onHost && !offered {
		c.leaving[key] = m
		return nil
	}
	delete(c.offers, key)
	w := work{done: []send{
		{laneID(to).prefetcher(), ActivationPassed{Prog: m.Prog, Object: o.To, Direct: offered}},
		{c.lane.prefetcher(), ActivationSlotFreed{m.Slot}}}}
	if offered {
		w.do = passDirect{Slot: m.Slot, Lane: to, Into: slot, Tokens: o.Tokens}
	} else {
		w.do = passToHost{Slot: m.Slot, Passage: o.Passage, Tokens: o.Tokens}
	}
	return []effect{w}
}

// offered notes another lane's offer of a slot. If the activation already waits for it, offered returns the work that
// passes the activation on.
func (c *offloaderCore) offered(m SlotOffered) []effect {
	key := transit{m.Prog, m.Object}
	c.offers[key] = m.Slot
	left, waits := c.leaving[key]
	if !waits {
		return nil
	}
	delete(c.leaving, key)
	return c.passOn(left)
}

// forgetOffers deletes offers of slots that were never used, for programs up to number prog. No
// message of these programs can follow.
func (c *offloaderCore) forgetOffers(prog int) {
	maps.DeleteFunc(c.offers, func(k transit, _ int) bool { return k.prog <= prog })
}

// arrives handles a slot that was just allotted to an activation from another lane (take t). If the
// activation is on the host already, arrives returns the work that copies it into the slot.
// Otherwise it offers the slot to the other lane, if that lane's device reaches this one. The
// message granted, which gives the slot to Compute, follows when the activation has arrived.
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

// arrived handles the arrival of an activation from another lane. If the activation has a slot, Compute is granted that
// slot, after a copy from the host if needed. If the activation has no slot yet, arrived notes that it waits on the
// host.
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

// passagePlace returns the host memory through which a micro-batch's activation passes between lanes. at is the number
// of the batch's tokens before the micro-batch, and tokens the number of its own.
func (r *run) passagePlace(at, tokens int) []byte {
	from := r.plan.ActivationBytes(at)
	return r.passage[from : from+r.plan.ActivationBytes(tokens)]
}

// reachOthers determines which lanes' slots the lane's device can copy into, and opens a stream for
// such copies. With Options.ThroughHost it copies into none. Slots in host memory are within reach of all lanes. The
// stream is separate because such a copy waits for the last reader of the other lane's slot, and gradients and spills
// must not wait for that reader.
func (r *lane) reachOthers() error {
	r.reaches = make([]bool, len(r.lanes))
	onHost := r.plan.Spec.OnHost
	if r.o.ThroughHost && !onHost {
		return nil
	}
	for i, other := range r.lanes {
		if other == r {
			continue
		}
		if r.reaches[i] = onHost; !onHost {
			var err error
			if r.reaches[i], err = r.dev.Reach(other.dev); err != nil {
				return fmt.Errorf("prepare the pipeline: %w", err)
			}
		}
		if r.reaches[i] && r.peer == nil {
			if err := r.openStream("peer", &r.peer); err != nil {
				return fmt.Errorf("prepare the pipeline: %w", err)
			}
		}
	}
	return nil
}

// reachedBy returns, by lane, whether that lane's device can copy into this lane's slots.
func (r *lane) reachedBy() []bool {
	out := make([]bool, len(r.lanes))
	for i, other := range r.lanes {
		out[i] = other.reaches[r.index]
	}
	return out
}

// start enqueues the copy into a slot of another lane, after the last launch that reads that slot. Slots in host memory
// exchange their memory at that point. The other lane is told only when it is complete, so no stream there has to wait
// for it.
func (e passDirect) start(r *lane, w work) error {
	other, s, found := r.lanes[e.Lane], r.copying(r.peer, e), nothing
	slot, into := &r.acts[e.Slot], &other.acts[e.Into]
	s.Wait(slot.ready)
	s.Wait(into.idle)
	if bytes := r.plan.ActivationBytes(e.Tokens); !r.plan.Spec.OnHost {
		s.CopyPeer(other.dev, into.mem.Slice(0, bytes), slot.mem.Slice(0, bytes))
	} else {
		found = func() any {
			slot.host, into.host = into.host, slot.host
			return nil
		}
	}
	s.Wait(slot.idle) // the last reader may still be running
	s.Record(slot.idle)
	s.Notify(r.landed(w, fmt.Sprintf("pass on an activation from slot %d to device %d", e.Slot, e.Lane), found))
	return nil
}
