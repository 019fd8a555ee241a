package schedule

import "slices"

// This file plans, ahead of time, which objects are in which of a few slots
// while a known sequence of uses runs: Belady's rule (evict what is needed
// last, IBM Systems Journal 5(2), 1966), with the evictions moved back to the
// moment the object was last used, so that a slot is free as early as it can
// be. Nothing in it depends on timing.

// use is one access of the sequence.
type use struct {
	at     int  // which launch or visit
	object int  // dense id
	create bool // the first write: needs a slot, not a fetch
	modify bool // the copy on the host, if any, is stale afterwards
	// arrives: it is passed on by another lane, and taken from there into its slot.
	arrives bool
}

// Take is an object that gets a slot before launch At. Takes are served in order.
type Take struct {
	At, Object int
	Fetch      bool // bring the object back from the host
	Spills     int  // how often the object must have been spilled before it comes back
	Arrives    bool // it comes from another lane, which must have passed it on
}

// Release says that an object gives up its slot after a launch.
type Release struct {
	Object int
	Spill  bool // copy it to the host first
	Pass   bool // another lane takes it: copy it to that one's slot, or to the host for it
}

// residency is the outcome: takes in the order they must be served, releases by
// launch, and what is still held at the end.
type residency struct {
	takes    []Take
	releases map[int][]Release
	held     []int
}

// resident is the state, during the simulation, of an object that is in a slot.
type resident struct {
	last  int  // launch of its latest use
	dirty bool // the host has no current copy
}

// planResidency simulates the uses with so many slots. onHost says whether objects have a
// copy on the host from the start, which never gets stale (weights do); held are in slots
// already. Uses at or after launches lie in the future: they are not run, but an object with
// such a use may stay in its slot. With ahead set it also brings in, while a launch runs,
// what the next one reads, where there is room. It reports false where slots are too few for
// a single launch.
func planResidency(uses []use, launches, slots int, onHost bool, held []int, ahead bool) (residency, bool) {
	p := &residencyPlan{slots: slots, onHost: onHost, in: map[int]*resident{}, next: map[int][]int{}, spills: map[int]int{},
		out: residency{releases: map[int][]Release{}}}
	byLaunch := make([][]use, launches)
	for _, u := range uses {
		if u.at < launches {
			byLaunch[u.at] = append(byLaunch[u.at], u)
		}
		p.next[u.object] = append(p.next[u.object], u.at)
	}
	for _, o := range held {
		p.in[o] = &resident{last: -1}
	}
	for at := 0; at < launches; at++ {
		pinned := map[int]bool{}
		for _, u := range byLaunch[at] {
			pinned[u.object] = true
		}
		for _, u := range byLaunch[at] {
			if !p.acquire(at, u, pinned) {
				return residency{}, false
			}
		}
		if ahead && at+1 < launches {
			for _, u := range byLaunch[at+1] {
				pinned[u.object] = true
			}
			for _, u := range byLaunch[at+1] {
				if !u.create {
					p.acquire(at+1, u, pinned) // if there is no room, it comes when this launch is over
				}
			}
		}
		p.finish(at, byLaunch[at])
	}
	for o := range p.in {
		p.out.held = append(p.out.held, o)
	}
	slices.Sort(p.out.held)
	return p.out, true
}

// residencyPlan is the state of the simulation.
type residencyPlan struct {
	slots  int
	onHost bool
	in     map[int]*resident // by object, those that are in slots
	next   map[int][]int     // by object: the launches that still use it, rising
	spills map[int]int       // by object: how often it was spilled so far
	out    residency
}

// acquire makes the object of u resident for launch at.
func (p *residencyPlan) acquire(at int, u use, pinned map[int]bool) bool {
	if p.in[u.object] != nil {
		return true
	}
	if len(p.in) >= p.slots && !p.evict(pinned) {
		return false
	}
	p.in[u.object] = &resident{last: at - 1, dirty: (u.create || u.arrives) && !p.onHost}
	p.out.takes = append(p.out.takes, Take{At: at, Object: u.object, Fetch: !u.create, Spills: p.spills[u.object], Arrives: u.arrives})
	return true
}

// evict releases the object whose next use is farthest away, of equals the one with the
// smallest id. It leaves pinned ones alone, and reports false where there are no others.
func (p *residencyPlan) evict(pinned map[int]bool) bool {
	victim, far := -1, -1
	for o := range p.in {
		if pinned[o] {
			continue
		}
		n := int(^uint(0) >> 1)
		if uses := p.next[o]; len(uses) > 0 {
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

// release takes object o out of its slot after the launch that used it last, and spills it
// if it is used again and the host has no current copy.
func (p *residencyPlan) release(o int) {
	r := p.in[o]
	spill := r.dirty && len(p.next[o]) > 0
	p.out.releases[r.last] = append(p.out.releases[r.last], Release{Object: o, Spill: spill})
	if spill {
		p.spills[o]++
	}
	delete(p.in, o)
}

// finish marks the uses of launch at as done and releases what is not needed
// any more.
func (p *residencyPlan) finish(at int, uses []use) {
	for _, u := range uses {
		r := p.in[u.object]
		r.last = at
		r.dirty = r.dirty || u.modify && !p.onHost
		p.next[u.object] = p.next[u.object][1:]
	}
	for _, u := range uses {
		if p.in[u.object] != nil && len(p.next[u.object]) == 0 {
			p.release(u.object)
		}
	}
}
