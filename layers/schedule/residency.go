package schedule

import "slices"

// This file plans which objects (tiles or activations) occupy a few slots during a known sequence of uses. It follows
// Belady's rule: evict the object that is needed last (IBM Systems Journal 5(2), 1966). Each eviction is moved back to
// the object's last use, so a slot is free as early as possible. The plan never depends on timing.

// use is one access to an object (a tile or an activation) in the sequence that the plan follows.
type use struct {
	at     int  // index of the launch or visit
	object int  // dense id
	create bool // the first write, which needs a slot but no fetch
	modify bool // a copy on the host is stale afterwards
	// arrives: the object comes from another lane, and is copied into its slot when it arrives.
	arrives bool
}

// Take assigns a slot to an object before launch (for weights: visit) At. Takes are served in order.
type Take struct {
	At, Object int
	Fetch      bool // copy the object from the host
	Spills     int  // the number of spills that must precede the fetch
	Arrives    bool // another lane must have passed it on
}

// Release says that an object leaves its slot after a launch.
type Release struct {
	Object int
	Spill  bool // copy it to the host first
	Pass   bool // copy it to another lane's slot, or to the host for that lane
}

// residency is the resulting plan: takes in order, releases by the launch that they follow, and the objects still in
// slots at the end.
type residency struct {
	takes    []Take
	releases map[int][]Release
	held     []int
}

// resident is the planned state of an object.
type resident struct {
	in     bool  // it is in a slot
	last   int   // launch of its latest use; −1: before the first launch
	dirty  bool  // the host has no current copy
	pinned int   // the last launch, plus 1, for which the object must keep its slot
	spills int   // number of spills so far
	next   []int // the launches that still use it, ascending
}

// planResidency simulates the uses of objects with a number of slots, and plans when each object
// gets a slot and leaves it. The uses are in the order of launches. It returns false if a single
// launch uses more objects than there are slots.
//
//   - launches: the number of launches to simulate. Later uses only say which objects are worth keeping in slots.
//   - onHost: objects have a copy on the host from the start. The copy never becomes stale, as with weights.
//   - held: objects that are in slots at the start.
//   - ahead: while a launch runs, objects that the next launch reads are brought in if there is room.
func planResidency(uses []use, launches, slots int, onHost bool, held []int, ahead bool) (residency, bool) {
	p := newResidencyPlan(uses, held)
	p.slots, p.onHost = slots, onHost
	for at, from := 0, 0; at < launches; at++ {
		now := usesOf(uses[from:], at)
		p.pin(at, now)
		for _, u := range now {
			if !p.acquire(at, at, u) {
				return residency{}, false
			}
		}
		if from += len(now); ahead && at+1 < launches {
			next := usesOf(uses[from:], at+1)
			p.pin(at, next)
			for _, u := range next {
				if !u.create {
					p.acquire(at, at+1, u) // without room, it comes after this launch
				}
			}
		}
		p.finish(at, now)
	}
	slices.Sort(p.inSlots)
	p.out.held = p.inSlots
	return p.out, true
}

// usesOf returns the uses of launch at, with which uses begins unless the launch has none.
func usesOf(uses []use, at int) []use {
	n := 0
	for n < len(uses) && uses[n].at == at {
		n++
	}
	return uses[:n]
}

// residencyPlan is the state of planResidency while it goes through the launches.
type residencyPlan struct {
	slots   int
	onHost  bool
	objects []resident
	inSlots []int // the objects in slots, in no order
	out     residency
}

// newResidencyPlan returns the state before the first launch, with the objects of held in slots.
func newResidencyPlan(uses []use, held []int) *residencyPlan {
	p := &residencyPlan{inSlots: slices.Clone(held), out: residency{releases: map[int][]Release{}}}
	n := 0
	for _, o := range held {
		n = max(n, o+1)
	}
	for _, u := range uses {
		n = max(n, u.object+1)
	}
	count, all := make([]int, n), make([]int, len(uses))
	for _, u := range uses {
		count[u.object]++
	}
	p.objects = make([]resident, n)
	for o, from := range count {
		p.objects[o].next, all = all[:0:from], all[from:]
	}
	for _, u := range uses {
		p.objects[u.object].next = append(p.objects[u.object].next, u.at)
	}
	for _, o := range held {
		p.objects[o].in, p.objects[o].last = true, -1
	}
	return p
}

// pin keeps the objects of uses in their slots while launch at is planned.
func (p *residencyPlan) pin(at int, uses []use) {
	for _, u := range uses {
		p.objects[u.object].pinned = at + 1
	}
}

// acquire puts the object of use u into a slot for launch number `at`, unless the object is in one.
// If no slot is free, it evicts another object, but none that is pinned for launch now. It returns
// false if it could not get a slot.
func (p *residencyPlan) acquire(now, at int, u use) bool {
	o := &p.objects[u.object]
	if o.in {
		return true
	}
	if len(p.inSlots) >= p.slots && !p.evict(now) {
		return false
	}
	p.inSlots = append(p.inSlots, u.object)
	o.in, o.last, o.dirty = true, at-1, (u.create || u.arrives) && !p.onHost
	p.out.takes = append(p.out.takes, Take{At: at, Object: u.object, Fetch: !u.create, Spills: o.spills, Arrives: u.arrives})
	return true
}

// evict releases the object whose next use is farthest away; among equals the one with the smallest id. It never
// releases objects that are pinned for launch now. It returns false if all objects in slots are pinned.
func (p *residencyPlan) evict(now int) bool {
	victim, far := -1, -1
	for _, o := range p.inSlots {
		if p.objects[o].pinned == now+1 {
			continue
		}
		n := int(^uint(0) >> 1)
		if uses := p.objects[o].next; len(uses) > 0 {
			n = uses[0]
		}
		if n > far || n == far && o < victim {
			victim, far = o, n
		}
	}
	if victim < 0 {
		return false
	}
	p.release(victim)
	return true
}

// release takes object o out of its slot, right after the last launch that has used it so far. The object is spilled
// (copied to the host) if it is used again and the host has no current copy.
func (p *residencyPlan) release(o int) {
	r := &p.objects[o]
	spill := r.dirty && len(r.next) > 0
	p.out.releases[r.last] = append(p.out.releases[r.last], Release{Object: o, Spill: spill})
	if spill {
		r.spills++
	}
	r.in = false
	i := slices.Index(p.inSlots, o)
	p.inSlots = slices.Delete(p.inSlots, i, i+1)
}

// finish records the uses of launch number `at`, and releases the objects that no later launch uses.
func (p *residencyPlan) finish(at int, uses []use) {
	for _, u := range uses {
		r := &p.objects[u.object]
		r.last = at
		r.dirty = r.dirty || u.modify && !p.onHost
		r.next = r.next[1:]
	}
	for _, u := range uses {
		if r := &p.objects[u.object]; r.in && len(r.next) == 0 {
			p.release(u.object)
		}
	}
}
