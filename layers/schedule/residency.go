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

// resident is the planned state of an object that is in a slot.
type resident struct {
	last  int  // launch of its latest use; −1: before the first launch
	dirty bool // the host has no current copy
}

// planResidency simulates the uses of objects with a number of slots, and plans when each object
// gets a slot and leaves it. It returns false if a single launch uses more objects than there are
// slots.
//
//   - launches: the number of launches to simulate. Later uses only say which objects are worth keeping in slots.
//   - onHost: objects have a copy on the host from the start. The copy never becomes stale, as with weights.
//   - held: objects that are in slots at the start.
//   - ahead: while a launch runs, objects that the next launch reads are brought in if there is room.
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
					p.acquire(at+1, u, pinned) // without room, it comes after this launch
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

// residencyPlan is the state of planResidency while it goes through the launches.
type residencyPlan struct {
	slots  int
	onHost bool
	in     map[int]*resident // by object: those in slots
	next   map[int][]int     // by object: the launches that still use it, ascending
	spills map[int]int       // by object: number of spills so far
	out    residency
}

// acquire puts the object of use u into a slot for launch number at, unless the object is in one.
// If no slot is free, it evicts another object, but none in pinned. It returns false if it could
// not get a slot.
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

// evict releases the object whose next use is farthest away; among equals the one with the smallest id. It never
// releases pinned objects, which the current launch uses. It returns false if all objects in slots are pinned.
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

// release takes object o out of its slot, right after the last launch that has used it so far. The object is spilled
// (copied to the host) if it is used again and the host has no current copy.
func (p *residencyPlan) release(o int) {
	r := p.in[o]
	spill := r.dirty && len(p.next[o]) > 0
	p.out.releases[r.last] = append(p.out.releases[r.last], Release{Object: o, Spill: spill})
	if spill {
		p.spills[o]++
	}
	delete(p.in, o)
}

// finish records the uses of launch number at, and releases the objects that no later launch uses.
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
