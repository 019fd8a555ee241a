package plan

import (
	"slices"

	"mt/host/optim"
)

// This file decides of which layers the state (lower halves and planes) is on disks.

// autoStateSlots lets one layer be updated while the next two are read and the one before is
// written. Where memory is short, one is updated while one is read or written.
const (
	autoStateSlots = 4
	leastAutoSlots = 2
)

// ExtentBytes is the size of the state of layer l.
func (r *Run) ExtentBytes(l int) int64 {
	return optim.ExtentBytes(r.Layouts[l], r.placed(l), r.Share(l))
}

// extents are the sizes of the states of all layers.
func (r *Run) extents() []int64 {
	if r.kept == nil {
		r.keep()
	}
	if r.kept.extents == nil {
		for l := range r.Layouts {
			r.kept.extents = append(r.kept.extents, r.ExtentBytes(l))
		}
	}
	return r.kept.extents
}

// away says whether the state of layer l is on a disk.
func (r *Run) away(l int) bool { return r.Away != nil && r.Away[l] }

// StateSlotBytes is the size of a state slot: that of the largest layer that is on a disk.
func (r *Run) StateSlotBytes() (most int64) {
	for l, away := range r.Away {
		if away {
			most = max(most, r.StagedBytes(l))
		}
	}
	return most
}

// DiskBytes is the size of all states that are on disks, and of the tiles that are.
func (r *Run) DiskBytes() (states, tiles int64) {
	for l, away := range r.Away {
		if away {
			states += r.ExtentBytes(l)
			tiles += r.ParamBytes(l)
		}
	}
	return states, tiles
}

// stateWords is what the states that are on disks are, for people.
func (r *Run) stateWords() string {
	for l, layout := range r.Layouts {
		if r.away(l) && layout.Split() {
			return "lower halves and moments"
		}
	}
	return "moments"
}

// tier decides which states go to disks, where there is a place for them: as few bytes as let the rest of
// the run fit into the host's memory, but at first none that is larger than others that would do, since
// every slot has the size of the largest. They are spread evenly over the layers, so that reading and
// writing go on evenly during the updates. Where nothing fits, it is what takes least. Tiles go there as well where
// states alone do not do.
func (r *Run) tier(q Request) {
	r.Away, r.ParamAway = nil, nil
	if !q.StateDir || r.EvalOnly || q.HostMemory <= 0 {
		return
	}
	r.Depths.StateSlots = 0
	t := r.Table()
	spare := q.HostMemory - t.Host
	if q.Unified {
		spare -= t.AllDevices
	}
	if spare >= 0 {
		return
	}
	most, least := autoStateSlots, leastAutoSlots
	if n := q.Depths.StateSlots; n > 0 {
		most, least = n, n
	}
	for n := most; n >= least; n-- {
		if r.choose(spare, n) {
			return
		}
	}
	for n := most; q.ParamDir && n >= least; n-- {
		if r.leave(spare, n) {
			return
		}
	}
}

// choose decides which states are away, with so many state slots, so that spare, what is left of the
// host's memory with all of them in it, gets positive. It says whether it does.
func (r *Run) choose(spare int64, slots int) bool {
	sizes := r.extents()
	spare -= r.packMemory(false)
	var best int64 // that is left, or lacks least
	r.Away = nil
	for _, limit := range slices.Compact(slices.Sorted(slices.Values(sizes))) {
		var able []int
		for l, size := range sizes {
			if size > 0 && size <= limit {
				able = append(able, l)
			}
		}
		for n := 1; n <= len(able); n++ {
			away, saved, largest := make([]bool, len(sizes)), int64(0), int64(0)
			for k := range n {
				l := able[k*len(able)/n]
				away[l] = true
				saved += sizes[l]
				largest = max(largest, sizes[l])
			}
			left := spare + saved - int64(slots)*largest
			if r.Away == nil || left > best {
				r.Away, r.Depths.StateSlots, best = away, slots, left
			}
			if left >= 0 {
				return true
			}
		}
	}
	return false
}

// count is how many are true.
func count(all []bool) (n int) {
	for _, x := range all {
		if x {
			n++
		}
	}
	return n
}
