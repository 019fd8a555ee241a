package plan

import "mt/host/optim"

// This file handles gradients that wait on disk until the norm of all gradients is known (clipping). They do so if
// memory is too small even with all state on disk.
//
// Such a gradient lands in a slab of the pool. The Optimizer computes its sum of squares there, and the Stager writes
// it to disk. When the norm is known, the gradient is read into its layer's state slot, after the state. So a gradient
// is written and read once a step, like state, and each moved byte saves as much memory. Weights are read more often
// and therefore move to disk last.

// gradOnDisk reports whether the gradient of layer l waits on disk until the gradient norm is
// known.
func (r *Run) gradOnDisk(l int) bool { return r.GradOnDisk != nil && r.GradOnDisk[l] }

// GradExtentBytes returns the size of layer l's gradient on disk, in a state slot and in a slab of the pool; 0: the
// gradient waits in memory.
func (r *Run) GradExtentBytes(l int) int64 {
	if !r.gradOnDisk(l) {
		return 0
	}
	return optim.Pages(r.GradElems(l) * r.GradBytes())
}

// GradDiskBytes returns the size of all gradients on disk.
func (r *Run) GradDiskBytes() (sum int64) {
	for l := range r.GradOnDisk {
		sum += r.GradExtentBytes(l)
	}
	return sum
}

// OwnSlabs returns the number of slabs that belong to one layer: slab l to layer l. The slabs of the pool follow.
func (r *Run) OwnSlabs() int {
	if r.SlabsAreCredits() {
		return 0
	}
	return len(r.Layouts)
}

// PoolsSlabs reports whether some slabs form a pool. A pooled slab belongs to no layer, so filling
// one takes a credit.
func (r *Run) PoolsSlabs() bool { return r.SlabsAreCredits() || r.GradOnDisk != nil }

// SlabLane returns the lane whose gradients land in slab i. Other lanes with parts of the head use the head's slab too.
func (r *Run) SlabLane(i int) int {
	switch own := r.OwnSlabs(); {
	case i >= own:
		return (i - own) / r.Depths.GradSlabs
	case r.Lane != nil:
		return r.Lane[i]
	}
	return 0
}

// ownSlabBytes returns the size in bytes of layer l's own slab; 0: the layer has none, because its gradient waits on
// disk.
func (r *Run) ownSlabBytes(l int) int64 {
	if r.gradOnDisk(l) {
		return 0
	}
	return r.GradElems(l) * r.GradBytes()
}

// poolSlabBytes returns the size of a slab in the pool, enough for the largest layer that uses the pool.
func (r *Run) poolSlabBytes() (most int64) {
	if r.SlabsAreCredits() {
		return r.SlabElems() * r.GradBytes()
	}
	for l := range r.GradOnDisk {
		most = max(most, r.GradExtentBytes(l))
	}
	return most
}

// mayWaitOnDisks reports whether gradients can wait for the norm on disk. They cannot without
// clipping, nor with several ranks, which exchange gradients first and each keep only the sums of
// their shares, nor in rounds, which add to the sums again.
func (r *Run) mayWaitOnDisks() bool {
	return !r.SlabsAreCredits() && !r.gradsStay && r.Rounds <= 1
}

// putGradsOnDisk moves the gradients of the given layers to disk. It returns the host memory in bytes that this saves.
// State slots grow at the same time, which the result does not count.
func (r *Run) putGradsOnDisk(layers []int) (saved int64) {
	for _, l := range layers {
		saved += r.ownSlabBytes(l)
	}
	r.GradOnDisk = make([]bool, len(r.Layouts))
	for _, l := range layers {
		r.GradOnDisk[l] = true
	}
	saved -= int64(r.Depths.GradSlabs*r.Lanes()) * r.poolSlabBytes()
	if r.GradsInPlace() { // the other gradients accumulate in their slabs, and these in buffers of the same memory
		for _, v := range r.views() {
			if n := v.BufferBytes(); n > 0 {
				saved -= int64(r.Depths.GradBuffers) * held(n)
			}
		}
	}
	return saved
}

// waitOnDisks chooses the gradients on disk if state on disk alone does not suffice. It moves to disk all states that
// allStates selects, and the fewest gradients that make spare non-negative. The layers are spread evenly over the
// decoder blocks, beginning with the last block: its gradient lands first and is needed last.
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
