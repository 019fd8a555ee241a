package schedule

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"
)

// fewestFetches returns the smallest number of fetches with which launches find the objects that
// they use in slots. It tries every eviction. A set of objects is a bit set, so there are at most
// 32 objects.
func fewestFetches(uses []use, launches, slots int, held []int) int {
	byLaunch := make([]uint32, launches)
	created := make([]uint32, launches)
	for _, u := range uses {
		byLaunch[u.at] |= 1 << u.object
		if u.create {
			created[u.at] |= 1 << u.object
		}
	}
	var start uint32
	for _, o := range held {
		start |= 1 << o
	}
	best := map[uint32]int{start: 0}
	for l := range launches {
		next := map[uint32]int{}
		for in, cost := range best {
			have := in | byLaunch[l]
			fetched := count(byLaunch[l] &^ in &^ created[l])
			// Try every set of objects that may stay in slots, always with the launch's own
			// objects.
			for may := have &^ byLaunch[l]; ; may = (may - 1) & (have &^ byLaunch[l]) {
				stay := may | byLaunch[l]
				if count(stay) <= slots {
					if c, ok := next[stay]; !ok || cost+fetched < c {
						next[stay] = cost + fetched
					}
				}
				if may == 0 {
					break
				}
			}
		}
		best = next
	}
	least := 1 << 30
	for _, c := range best {
		least = min(least, c)
	}
	return least
}

func count(set uint32) int {
	n := 0
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}

func fetches(r residency) int {
	n := 0
	for _, t := range r.takes {
		if t.Fetch {
			n++
		}
	}
	return n
}

// TestResidencyIsOptimal: on random short sequences of one to three objects a launch, planResidency
// needs as few fetches as an exhaustive search finds.
func TestResidencyIsOptimal(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for trial := range 3000 {
		objects, launches, slots := 2+r.Intn(5), 1+r.Intn(9), 1+r.Intn(4)
		var uses []use
		for l := range launches {
			for _, o := range r.Perm(objects)[:1+r.Intn(min(3, slots, objects))] {
				uses = append(uses, use{at: l, object: o})
			}
		}
		held := r.Perm(objects)[:r.Intn(min(slots, objects)+1)]
		got, ok := planResidency(uses, launches, slots, true, held, false)
		if !ok {
			t.Fatalf("trial %d: %d slots are too few for %v", trial, slots, uses)
		}
		if want := fewestFetches(uses, launches, slots, held); fetches(got) != want {
			t.Fatalf("trial %d: %d fetches, %d suffice: slots %d, held %v, uses %+v", trial, fetches(got), want, slots, held, uses)
		}
	}
}

// replay simulates a plan and checks it: there are enough slots, each launch's objects are in
// slots, and each fetched object was spilled after its last change.
func replay(uses []use, launches, slots int, onHost bool, held []int, res residency) error {
	in, current, spills := map[int]bool{}, map[int]bool{}, map[int]int{}
	for _, o := range held {
		in[o] = true
	}
	free := func(at int) {
		for _, r := range res.releases[at] {
			if r.Spill {
				current[r.Object] = true
				spills[r.Object]++
			}
			delete(in, r.Object)
		}
	}
	free(-1)
	next := 0
	for l := range launches {
		for ; next < len(res.takes) && res.takes[next].At <= l; next++ {
			k := res.takes[next]
			if in[k.Object] {
				return fmt.Errorf("launch %d: object %d takes a second slot", l, k.Object)
			}
			if k.Fetch && !onHost && (!current[k.Object] || spills[k.Object] != k.Spills) {
				return fmt.Errorf("launch %d: object %d is fetched after %d of %d spills, current %t", l, k.Object, spills[k.Object], k.Spills, current[k.Object])
			}
			in[k.Object] = true
		}
		if len(in) > slots {
			return fmt.Errorf("launch %d: %d objects in %d slots", l, len(in), slots)
		}
		for _, u := range uses {
			if u.at != l {
				continue
			}
			if !in[u.object] {
				return fmt.Errorf("launch %d uses object %d, which is not there", l, u.object)
			}
			if u.create || u.modify {
				current[u.object] = false
			}
		}
		free(l)
	}
	left := []int{}
	for o := range in {
		left = append(left, o)
	}
	slices.Sort(left)
	if !slices.Equal(left, res.held) {
		return fmt.Errorf("held at the end: %v, the plan says %v", left, res.held)
	}
	return nil
}

// TestResidencyCanBeReplayed plans random sequences, in which objects are created and changed, with
// and without looking ahead. Two plans of one sequence are equal, and a simulation of the plan
// succeeds.
func TestResidencyCanBeReplayed(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	spilled := 0
	for trial := range 3000 {
		objects, launches, slots := 3+r.Intn(8), 1+r.Intn(20), 3+r.Intn(4)
		made := map[int]bool{}
		var uses []use
		for l := range launches {
			for _, o := range r.Perm(objects)[:1+r.Intn(3)] {
				uses = append(uses, use{at: l, object: o, create: !made[o], modify: made[o] && r.Intn(3) == 0})
				made[o] = true
			}
		}
		ahead := trial%2 == 0
		got, ok := planResidency(slices.Clone(uses), launches, slots, false, nil, ahead)
		again, _ := planResidency(slices.Clone(uses), launches, slots, false, nil, ahead)
		if !ok || !reflect.DeepEqual(got, again) {
			t.Fatalf("trial %d: ok %t; two plans of the same sequence: %+v, %+v", trial, ok, got, again)
		}
		if err := replay(uses, launches, slots, false, nil, got); err != nil {
			t.Fatalf("trial %d: %v\nslots %d uses %+v\nplan %+v", trial, err, slots, uses, got)
		}
		spilled += fetches(got)
	}
	if spilled < 1000 {
		t.Errorf("only %d fetches: the sequences hardly fill the slots", spilled)
	}
}

// TestResidencyWithTooFewSlots: planning fails if a single launch uses more objects than there are
// slots.
func TestResidencyWithTooFewSlots(t *testing.T) {
	uses := []use{{at: 0, object: 0}, {at: 0, object: 1}, {at: 0, object: 2}}
	for slots := 1; slots <= 3; slots++ {
		if _, ok := planResidency(slices.Clone(uses), 1, slots, true, nil, false); ok != (slots == 3) {
			t.Errorf("%d slots for 3 objects: ok %t", slots, ok)
		}
	}
}

// TestUnchangedObjectsSpillOnce: an object that leaves its slot is not copied to the host if the
// host has a current copy.
func TestUnchangedObjectsSpillOnce(t *testing.T) {
	uses := []use{{at: 0, object: 0, create: true}, {at: 1, object: 1, create: true}, {at: 2, object: 0}, {at: 3, object: 1}, {at: 4, object: 0, modify: true},
		{at: 5, object: 1}, {at: 6, object: 0}}
	res, ok := planResidency(uses, 7, 1, false, nil, false)
	if !ok {
		t.Fatal("one slot is enough")
	}
	got := map[int][]bool{} // by object: for each of its releases, whether it spills
	for at := range 7 {
		for _, r := range res.releases[at] {
			got[r.Object] = append(got[r.Object], r.Spill)
		}
	}
	if want := map[int][]bool{0: {true, false, true, false}, 1: {true, false, false}}; !reflect.DeepEqual(got, want) {
		t.Errorf("spills %v, want %v", got, want)
	}
}

// TestLookAhead: the next launch's object takes the slot of an object that the current launch does not use, so its copy
// overlaps with the current launch.
func TestLookAhead(t *testing.T) {
	uses := []use{{at: 0, object: 0}, {at: 1, object: 1}, {at: 2, object: 5}, {at: 3, object: 0}}
	for _, ahead := range []bool{false, true} {
		res, ok := planResidency(slices.Clone(uses), 4, 2, true, []int{0, 5}, ahead)
		want := map[bool]int{false: 0, true: -1}[ahead] // the launch after which object 1 has a slot
		if !ok || len(res.releases[want]) == 0 {
			t.Errorf("ahead %t: releases %v, want one after launch %d", ahead, res.releases, want)
		}
	}
}
