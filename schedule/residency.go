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
}

// Take is a slot to acquire, in order, before launch at.
type Take struct {
	At, Object int
	Fetch      bool // bring the object back from the host
	Spills     int  // how often it must have been spilled by then
}

// Release is what happens to an object after launch at.
type Release struct {
	Object int
	Spill  bool // copy it to the host first
}

// residency is the outcome: takes in the order they must be served, releases by
// launch, and what is still held at the end.
type residency struct {
	takes    []Take
	releases map[int][]Release
	held     []int
}

// object states during the simulation.
type resident struct {
	last  int  // launch of its latest use
	dirty bool // the host has no current copy
}

// planResidency simulates the uses with so many slots. onHost says which
// objects have a copy on the host from the start (weights do); held are
// resident already. Uses at or after launches are of the future: they are not
// run, but an object with such a use may stay held. ahead: also bring in what launch at+1 reads, where there is
// room, while at runs. It reports ok false when a launch alone needs more
// slots than there are.
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
					p.acquire(at+1, u, pinned) // where there is room; else it comes when at is over
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

type residencyPlan struct {
	slots  int
	onHost bool
	in     map[int]*resident
	next   map[int][]int // launches that still use an object, rising
	spills map[int]int   // of an object, so far
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
	p.in[u.object] = &resident{last: at - 1, dirty: u.create && !p.onHost}
	p.out.takes = append(p.out.takes, Take{At: at, Object: u.object, Fetch: !u.create, Spills: p.spills[u.object]})
	return true
}

// evict releases the resident object, not pinned, whose next use is farthest;
// of equals the one with the smallest id.
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
