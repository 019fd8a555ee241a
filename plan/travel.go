package plan

import (
	"slices"

	"mt/layers"
	"mt/layers/schedule"
)

// This file lets what blocks keep for their backward travel to the host and back, where that takes less time than
// computing it again. The tensors go through slots on the device, so any number of blocks needs the same memory there.

// travelSlots is the number of slots on each device: for the launch at work, the next one, and one copy each way.
const travelSlots = 4

// travelShares are the shares of the micro-batches whose tensors are tried to travel. With too many the link is the
// limit.
var travelShares = []float64{1, 0.5, 0.25, 0.125}

// travelWorth is the least share of a step that travelling must save, because it takes host memory and the link.
const travelWorth = 0.02

// mayTravel reports whether there is a host memory apart from the device's, with room for what blocks keep.
func (r *Run) mayTravel() bool {
	return !r.OneMemory && r.StateOnDisk == nil && !r.EvalOnly
}

// chooseTravel lets what blocks keep travel if that makes a step shorter, with as many activation slots as r has or, if
// the request leaves their number open, with one for each activation.
func (r *Run) chooseTravel(q Request, options []saveOption) {
	if !r.mayTravel() {
		return
	}
	best, bestTime, all := *r, r.stepSeconds(options)*(1-travelWorth), r.Limits.MicroBatches
	for _, slots := range slices.Compact([]int{r.Depths.ActivationSlots, r.slotChoices(q)[0]}) {
		for level := layers.KeepAttention; level <= layers.KeepAll; level++ {
			for _, share := range travelShares {
				v, n := *r, int(share*float64(all)+0.5)
				v.Depths.ActivationSlots = slots
				if n == 0 || !v.send(q, options, level, schedule.Share{N: n, Of: all}) {
					continue
				}
				if t := v.stepSeconds(options); t < bestTime {
					best, bestTime = v, t
				}
			}
		}
	}
	*r = best
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
