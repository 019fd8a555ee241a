package plan

import "mt/host/optim"

// This file is about gradients that wait for the norm on disks: where memory is too small even with all states there.
//
// Such a gradient lands in a slab that layers take turns in, is measured there and written to its disk. When the norm is
// known, it is read into its layer's state slot, behind the state. So it is written and read once a step, as a
// state is, and saves as much for a byte that is moved; weights, which are read more often, follow last.

// gradOnDisk says whether the gradient of layer l waits for the norm on a disk.
func (r *Run) gradOnDisk(l int) bool { return r.GradOnDisk != nil && r.GradOnDisk[l] }

// GradExtentBytes is what the gradient of layer l takes on a disk, in a state slot, and of a slab that layers take turns in; 0: it
// waits in memory.
func (r *Run) GradExtentBytes(l int) int64 {
	if !r.gradOnDisk(l) {
		return 0
	}
	return optim.Pages(r.GradElems(l) * r.GradBytes())
}

// GradDiskBytes is the size of all gradients that wait on disks.
func (r *Run) GradDiskBytes() (sum int64) {
	for l := range r.GradOnDisk {
		sum += r.GradExtentBytes(l)
	}
	return sum
}

// OwnSlabs is how many slabs belong to one layer each, slab l to layer l; those that layers take turns in come behind them.
func (r *Run) OwnSlabs() int {
	if r.SlabsAreCredits() {
		return 0
	}
	return len(r.Layouts)
}

// PoolsSlabs says whether some layers take turns in slabs, which are a credit then.
func (r *Run) PoolsSlabs() bool { return r.SlabsAreCredits() || r.GradOnDisk != nil }

// SlabLane is the lane whose gradients land in slab i.
func (r *Run) SlabLane(i int) int {
	switch own := r.OwnSlabs(); {
	case i >= own:
		return (i - own) / r.Depths.GradSlabs
	case r.Lane != nil:
		return r.Lane[i]
	}
	return 0
}

// ownSlabBytes is the size of the slab of layer l; 0: its gradient waits on a disk.
func (r *Run) ownSlabBytes(l int) int64 {
	if r.gradOnDisk(l) {
		return 0
	}
	return r.GradElems(l) * r.GradBytes()
}

// poolSlabBytes is the size of a slab that layers take turns in: as the largest of these needs.
func (r *Run) poolSlabBytes() (most int64) {
	if r.SlabsAreCredits() {
		return r.SlabElems() * r.GradBytes()
	}
	for l := range r.GradOnDisk {
		most = max(most, r.GradExtentBytes(l))
	}
	return most
}

// mayWaitOnDisks says whether gradients can wait for the norm on disks. Those of several ranks are exchanged first, and
// wait as shares of them.
func (r *Run) mayWaitOnDisks() bool { return !r.SlabsAreCredits() && !r.gradsStay }

// putGradsOnDisk puts the gradients of these layers on disks, and says how much of the host's memory that saves, but for what
// state slots grow by.
func (r *Run) putGradsOnDisk(layers []int) (saved int64) {
	for _, l := range layers {
		saved += r.ownSlabBytes(l)
	}
	r.GradOnDisk = make([]bool, len(r.Layouts))
	for _, l := range layers {
		r.GradOnDisk[l] = true
	}
	saved -= int64(r.Depths.GradSlabs*r.Lanes()) * r.poolSlabBytes()
	if r.GradsInPlace() { // the others are summed in their slabs, and these in buffers, which are in the same memory
		for _, v := range r.views() {
			if n := v.BufferBytes(); n > 0 {
				saved -= int64(r.Depths.GradBuffers) * held(n)
			}
		}
	}
	return saved
}

// waitOnDisks decides which gradients wait on disks, where states alone do not do: with all states away that allStates sends, as
// few as make spare positive. They are spread evenly over the decoder blocks, of which the last come first: their
// gradients land first and are wanted last.
func (r *Run) waitOnDisks(spare int64, slots int) (d onDisks) {
	spare = r.allStates(spare-r.packMemory(false), slots)
	blocks := r.blocks()
	for n := 1; n <= len(blocks); n++ {
		r.GradOnDisk = nil
		var chosen []int
		for k := range n {
			chosen = append(chosen, blocks[len(blocks)-1-k*len(blocks)/n])
		}
		left := spare + r.putGradsOnDisk(chosen)
		if d = r.onDisks(left - int64(slots)*r.StateSlotBytes()); d.left >= 0 {
			break
		}
	}
	return d
}
