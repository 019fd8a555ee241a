package plan

import (
	"math"
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

// stateOnDisk says whether the state of layer l is on a disk.
func (r *Run) onDisk(l int) bool { return r.StateOnDisk != nil && r.StateOnDisk[l] }

// StateSlotBytes is the size of a state slot: that of the largest layer that is on a disk, with its gradient where that is.
func (r *Run) StateSlotBytes() (most int64) {
	for l, onDisk := range r.StateOnDisk {
		if onDisk {
			most = max(most, r.StagedBytes(l)+r.GradExtentBytes(l))
		}
	}
	return most
}

// DiskBytes is the size of all states that are on disks, and of the tiles that are.
func (r *Run) DiskBytes() (states, tiles int64) {
	for l, onDisk := range r.StateOnDisk {
		if onDisk {
			states += r.ExtentBytes(l)
			tiles += r.ParamBytes(l)
		}
	}
	return states, tiles
}

// stateWords is what the states that are on disks are, for people.
func (r *Run) stateWords() string {
	var kinds []string
	for l, layout := range r.Layouts {
		if !r.onDisk(l) {
			continue
		}
		if layout.Split() && !slices.Contains(kinds, lowerHalves) {
			kinds = slices.Insert(kinds, 0, lowerHalves)
		}
		for _, p := range r.placed(l) {
			if !slices.Contains(kinds, p.Kind) {
				kinds = append(kinds, p.Kind)
			}
		}
	}
	return series(kinds)
}

const lowerHalves = "lower halves"

// onDisks is a decision on what is on disks, and what it leaves of the host's memory; less than 0: so much is lacking.
type onDisks struct {
	states, grads, tiles []bool
	slots                int
	left                 int64
}

// onDisks is the decision that r has now.
func (r *Run) onDisks(left int64) onDisks {
	return onDisks{states: r.StateOnDisk, grads: r.GradOnDisk, tiles: r.WeightsOnDisk, slots: r.Depths.StateSlots, left: left}
}

// put makes d the decision of r.
func (r *Run) put(d onDisks) {
	r.StateOnDisk, r.GradOnDisk, r.WeightsOnDisk, r.Depths.StateSlots = d.states, d.grads, d.tiles, d.slots
}

// tier decides what goes to disks, where there is a place for it: first states, then gradients that wait for the
// norm, then tiles; as little as lets the rest of the run fit into the host's memory. Where nothing fits, it is what takes
// least.
func (r *Run) tier(q Request) {
	r.StateOnDisk, r.GradOnDisk, r.WeightsOnDisk = nil, nil, nil
	if !q.StateDir || r.EvalOnly || q.HostMemory <= 0 {
		return
	}
	r.Depths.StateSlots = 0
	t := r.Table()
	spare := q.HostMemory - t.OnHost()
	if spare >= 0 {
		return
	}
	most, least := autoStateSlots, leastAutoSlots
	if n := q.Depths.StateSlots; n > 0 {
		most, least = n, n
	}
	best := onDisks{left: math.MinInt64}
	for _, way := range r.waysToDisks(q) {
		for n := most; n >= least; n-- {
			r.GradOnDisk, r.WeightsOnDisk = nil, nil
			d := way(spare, n)
			if d.left > best.left {
				best = d
			}
			if best.left >= 0 {
				r.put(best)
				return
			}
		}
	}
	r.put(best)
}

// waysToDisks are the ways of putting things on disks, the next for where those before do not do. Each decides for so many state slots,
// and for what is left of the host's memory with everything in it.
func (r *Run) waysToDisks(q Request) []func(spare int64, slots int) onDisks {
	ways := []func(int64, int) onDisks{r.choose}
	if len(r.blocks()) == 0 {
		return ways
	}
	if r.mayWaitOnDisks() {
		ways = append(ways, r.waitOnDisks)
		if q.ParamDir {
			ways = append(ways, r.leaveAll)
		}
	}
	if q.ParamDir { // gradients stay: of a small model, slabs to take turns in take more than they save
		ways = append(ways, r.leave)
	}
	return ways
}

// choose decides which states are away: as few bytes as make spare positive, but at first none that is larger than
// others that would do, since every slot has the size of the largest. They are spread evenly over the layers, so that
// reading and writing go on evenly during the updates.
func (r *Run) choose(spare int64, slots int) onDisks {
	sizes := r.extents()
	spare -= r.packMemory(false)
	best := onDisks{left: math.MinInt64}
	for _, limit := range slices.Compact(slices.Sorted(slices.Values(sizes))) {
		var able []int
		for l, size := range sizes {
			if size > 0 && size <= limit {
				able = append(able, l)
			}
		}
		for n := 1; n <= len(able); n++ {
			onDisk, saved, largest := make([]bool, len(sizes)), int64(0), int64(0)
			for k := range n {
				l := able[k*len(able)/n]
				onDisk[l] = true
				saved += sizes[l]
				largest = max(largest, sizes[l])
			}
			left := spare + saved - int64(slots)*largest
			if left > best.left {
				best = onDisks{states: onDisk, slots: slots, left: left}
			}
			if left >= 0 {
				return best
			}
		}
	}
	return best
}

// allStates has so many state slots, and all states away that are not larger than those of decoder blocks. It says what that leaves
// of spare without the slots.
func (r *Run) allStates(spare int64, slots int) int64 {
	var most int64
	for _, l := range r.blocks() {
		most = max(most, r.extents()[l])
	}
	r.StateOnDisk, r.Depths.StateSlots = make([]bool, len(r.Layouts)), slots
	for l, size := range r.extents() {
		if r.StateOnDisk[l] = size > 0 && size <= most; r.StateOnDisk[l] {
			spare += size
		}
	}
	return spare
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
