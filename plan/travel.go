package plan

import (
	"mt/layers"
	"mt/layers/schedule"
)

// This file lets what blocks keep for their backward travel to the host and back, where that takes less time than
// computing it again. The tensors go through slots on the device, so any number of blocks needs the same memory there.

// travelSlots is the number of slots on each device: for the launch at work, the next one, and one copy each way.
const travelSlots = 4

// travelShares are the shares of the micro-batches whose tensors are tried to travel. With too many the link is the
// limit.
var travelShares = []float64{1, 0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625}

// travelMargin multiplies the time that travelling tensors take on the link. It is less than spillMargin, because they
// are spread evenly over a step.
const travelMargin = 1.25

// mayTravel reports whether there is a host memory apart from the device's, with room for what blocks keep.
func (r *Run) mayTravel() bool {
	return !r.OneMemory && r.StateOnDisk == nil && !r.EvalOnly
}

// travelling returns variants of r in which what some blocks keep of some micro-batches travels, and that fit. r has
// nothing chosen yet but the number of activation slots.
func (r *Run) travelling(q Request, options []saveOption) (out []Run) {
	if !r.mayTravel() {
		return nil
	}
	for level := layers.KeepAttention; level <= layers.KeepAll; level++ {
		for _, share := range travelShares {
			v := *r
			n := int(share*float64(r.Limits.MicroBatches) + 0.5)
			if n > 0 && v.send(q, options, level, schedule.Share{N: n, Of: r.Limits.MicroBatches}) {
				out = append(out, v)
			}
		}
	}
	return out
}

// send lets blocks keep as much on the device as fits beside the slots. What the others keep of the micro-batches in
// share, at this level, travels. It returns false if the run then does not fit.
func (r *Run) send(q Request, options []saveOption, level layers.Keep, share schedule.Share) bool {
	blocks := r.Spec.Config.Blocks()
	r.KeptSlots, r.Spec.KeptOf, r.Spec.KeptOnHost, r.Spec.Keep = travelSlots, share, make([]bool, blocks), layers.KeepIn(blocks, layers.KeepNothing)
	for _, o := range options {
		r.Spec.KeptOnHost[o.block], r.Spec.Keep[o.block] = true, level
	}
	room := r.room(q, r.Table())
	r.Spec.Keep = layers.KeepIn(blocks, layers.KeepNothing)
	r.upgrade(options, room)
	for _, o := range options {
		if r.Spec.KeptOnHost[o.block] = r.Spec.Keep[o.block] < level; r.Spec.KeptOnHost[o.block] {
			r.Spec.Keep[o.block] = level
		}
	}
	return r.KeptSlotBytes() > 0 && r.lacks(q, r.Table()) == nil
}

// travelBytes returns the bytes of a step that travel each way on the lane that r is a view of.
func (r *Run) travelBytes() (n float64) {
	for l := range r.Layouts {
		if r.travels(l) {
			n += float64(r.SavedBytes(l))
		}
	}
	return n
}
