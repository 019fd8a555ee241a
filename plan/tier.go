package plan

import (
	"math"
	"slices"

	"mt/host/optim"
)

// This file chooses the layers whose state (lower halves and planes) is on disk.

// autoStateSlots lets one layer be updated while the next two are read from disk and the previous
// one is written. The smaller leastAutoSlots is for hosts with little memory: one layer is updated
// while another is read or written.
const (
	autoStateSlots = 4
	leastAutoSlots = 2
)

// ExtentBytes returns the size of layer l's state (lower halves and planes) as a file on disk; with
// several ranks, of this rank's share.
func (r *Run) ExtentBytes(l int) int64 {
	return optim.ExtentBytes(r.Layouts[l], r.placed(l), r.Share(l))
}

// extents returns ExtentBytes of all layers, by layer, and caches them.
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

// onDisk reports whether the state of layer l is on disk.
func (r *Run) onDisk(l int) bool { return r.StateOnDisk != nil && r.StateOnDisk[l] }

// StateSlotBytes returns the size of a state slot. It fits the state of any layer on disk, with weights and gradient if
// these are on disk.
func (r *Run) StateSlotBytes() (most int64) {
	for l, onDisk := range r.StateOnDisk {
		if onDisk {
			most = max(most, r.StagedBytes(l)+r.GradExtentBytes(l))
		}
	}
	return most
}

// DiskBytes returns the size of all state on disk, and of all tiles on disk.
func (r *Run) DiskBytes() (states, tiles int64) {
	for l, onDisk := range r.StateOnDisk {
		if onDisk {
			states += r.ExtentBytes(l)
			tiles += r.ParamBytes(l)
		}
	}
	return states, tiles
}

// stateWords names the kinds of data that the state on disk consists of, such as "lower halves and
// moments".
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

// onDisks is a choice of the data to keep on disk, with the number of state slots. left is the host memory that this
// choice leaves free; negative: memory is missing.
type onDisks struct {
	states, grads, tiles []bool
	slots                int
	left                 int64
}

// onDisks returns r's present choice; `left` is the host memory that it leaves free.
func (r *Run) onDisks(left int64) onDisks {
	return onDisks{states: r.StateOnDisk, grads: r.GradOnDisk, tiles: r.WeightsOnDisk, slots: r.Depths.StateSlots, left: left}
}

// put makes d the run's choice of data on disk.
func (r *Run) put(d onDisks) {
	r.StateOnDisk, r.GradOnDisk, r.WeightsOnDisk, r.Depths.StateSlots = d.states, d.grads, d.tiles, d.slots
}

// tier chooses the data to move to disk, if the request allows disks for it: first states, then gradients that wait for
// the norm, then tiles. It moves the least that lets the rest of the run fit in host memory. If the run fits with none
// of the choices, it takes the one that needs the least memory.
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

// waysToDisks lists functions that move data to disk, in the order in which tier tries them. Their
// argument spare is the host memory that is free with everything in memory (negative: missing), and
// slots the number of state slots.
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
	if q.ParamDir { // gradients stay in memory: for a small model, a pool of slabs takes more memory than it saves
		ways = append(ways, r.leave)
	}
	return ways
}

// choose selects the layers whose states go to disk: as few bytes as make spare non-negative. It prefers small states,
// because every state slot has the size of the largest. The selected layers are spread evenly over the model, so that
// disk traffic is even during the updates.
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

// allStates moves to disk all states that are no larger than the largest state of a decoder block, and sets the number
// of state slots. It returns spare plus the memory that these states took. The memory of the slots is not subtracted.
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

// count returns how many elements of all are true.
func count(all []bool) (n int) {
	for _, x := range all {
		if x {
			n++
		}
	}
	return n
}
