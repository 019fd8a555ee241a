package actors

import (
	"reflect"
	"testing"

	"mt/layers/schedule"
)

// passing returns a pass in which one activation goes from lane 0, where it is object 0 of the
// program, to lane 1, where it is object 1.
func passing(seq int) *Pass {
	return &Pass{Seq: seq, Program: &schedule.Program{Objects: []schedule.Object{{Tokens: 3, Lane: 0, From: -1, To: 1}, {Tokens: 3, Lane: 1, From: 0, To: -1}},
		ActTakes: []schedule.Take{{Object: 1, Fetch: true, Arrives: true}}}}
}

// TestSlotsThatWaitAreForgotten: the Offloader uses another lane's offer of a slot once. It deletes
// an unused offer when no message of its program can follow. The Prefetcher also forgets a slot
// when the activation for it has arrived.
func TestSlotsThatWaitAreForgotten(t *testing.T) {
	c := newOffloaderCore(offloaderSpec{own: 1})
	across := func(prog int) bool {
		_, ok := c.step(ActivationLeft{Prog: prog, Object: 0, Slot: 2})[0].(work).do.(passDirect)
		return ok
	}
	c.step(SlotOffered{Prog: 7, Object: 1, Slot: 5}) // before the pass is known
	c.step(PassPlanned{Pass: passing(7)})
	if !across(7) || across(7) {
		t.Error("an offer is used other than once")
	}
	c.step(SlotOffered{Prog: 7, Object: 1, Slot: 5})
	for seq := 8; seq < 7+programsKept; seq++ {
		c.step(PassPlanned{Pass: passing(seq)})
	}
	if len(c.offers) != 1 {
		t.Errorf("offers %v are kept, and messages of pass 7 may still come", c.offers)
	}
	c.step(PassPlanned{Pass: passing(7 + programsKept)})
	if len(c.offers) != 0 {
		t.Errorf("offers %v are kept for ever", c.offers)
	}
	p := newPrefetcherCore(prefetcherSpec{lane: 1, activations: 1, reachedBy: []bool{true, false}}, 0)
	p.step(PassPlanned{Pass: passing(7)})
	for i, want := range [][]effect{
		{send{laneID(1).compute(), ActivationFetched{Prog: 7, Object: 1, Slot: 0}}},
		nil, // no slot waits for it, so it is kept
	} {
		if got := p.step(ActivationPassed{Prog: 7, Object: 1, Direct: true}); !reflect.DeepEqual(got, want) {
			t.Errorf("told for the %d. time: %v, want %v", i+1, got, want)
		}
	}
}

// TestActivationsOnHostWaitForAnOffer: the Offloader passes an activation in host memory on when the other lane offers a
// slot, once, and not before.
func TestActivationsOnHostWaitForAnOffer(t *testing.T) {
	c := newOffloaderCore(offloaderSpec{own: 1, onHost: true})
	c.step(PassPlanned{Pass: passing(7)})
	if got := c.step(ActivationLeft{Prog: 7, Object: 0, Slot: 2}); got != nil {
		t.Errorf("without an offer: %v", got)
	}
	offer := SlotOffered{Prog: 7, Object: 1, Slot: 5}
	if got := c.step(offer); len(got) != 1 || got[0].(work).do != (passDirect{Slot: 2, Lane: 1, Into: 5, Tokens: 3}) {
		t.Errorf("with an offer: %v", got)
	}
	if got := c.step(offer); got != nil || len(c.leaving) != 0 {
		t.Errorf("with a second offer: %v; %v wait", got, c.leaving)
	}
}
