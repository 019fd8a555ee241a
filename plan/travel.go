package plan

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"mt/base/human"
	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
)

// This file lets what blocks keep for their backward travel to the host and back, where that takes less time than
// computing it again. The tensors go through slots on the device, so any number of blocks needs the same memory there.

// travelSlots is the number of slots on each device: for the launch at work, the next one, and one copy each way.
const travelSlots = 4

// travelWorth is the least share of a step that travelling must save, because it takes host memory and the link.
const travelWorth = 0.02

// travels reports whether what layer l keeps travels to the host and back through slots on the device.
func (r *Run) travels(l int) bool {
	b := r.Layouts[l].Block
	return b < len(r.Spec.KeptOnHost) && r.Spec.KeptOnHost[b] && r.keeps(l) && r.has(l)
}

// Keeps reports whether layer l keeps anything of micro-batch mb of a round, if it keeps something at all.
func (r *Run) Keeps(l, mb int) bool { return !r.travels(l) || r.Spec.KeptOf.Has(mb) }

// keptBytes returns the bytes that layer l keeps of one micro-batch.
func (r *Run) keptBytes(l int) int64 {
	block := r.Layouts[l].Block
	return r.Kind(l).SavedBytes(r.Spec, block, r.Spec.Keep.Of(block), r.Limits.MicroBatchTokens) + savedTensors*device.Align
}

// KeptSlotBytes returns the size of a slot for what a layer keeps of one micro-batch; 0: no layer of the view r needs one.
func (r *Run) KeptSlotBytes() (n int64) {
	for l := range r.Layouts {
		if r.travels(l) {
			n = max(n, r.keptBytes(l))
		}
	}
	return n
}

// travelBytes returns the host memory of what travels on the lanes of the view r. A step copies it to the host and back.
func (r *Run) travelBytes() (n int64) {
	for l := range r.Layouts {
		if r.travels(l) {
			n += r.SavedBytes(l)
		}
	}
	return n
}

// chooseTravel lets what blocks keep travel if that makes a step shorter. It tries every level up to KeepAll, because inputs of
// products save too little for their bytes. It tries as many activation slots as r has and, if the request leaves their
// number open, one for each activation. Nothing travels where host and device share one memory, or where the host lacks
// memory for states, or with several devices: stepSeconds does not know when these wait for each other.
func (r *Run) chooseTravel(q Request, options []saveOption) {
	best, bestTime := *r, r.stepSeconds(options)*(1-travelWorth)
	if r.OneMemory || r.StateOnDisk != nil || r.Lane != nil || r.travelGain(q, options) < travelWorth*bestTime {
		return
	}
	for _, slots := range slices.Compact([]int{r.Depths.ActivationSlots, r.slotChoices(q)[0]}) {
		for level := layers.KeepAttention; level <= layers.KeepAll; level++ {
			v := *r
			v.Depths.ActivationSlots = slots
			if !v.send(q, options, level) {
				continue
			}
			if t := v.stepSeconds(options); t < bestTime && v.lacks(q, v.Table()) == nil {
				best, bestTime = v, t
			}
		}
	}
	if *r = best; r.KeptSlots > 0 && q.Depths.ActivationSlots == 0 {
		r.raise(q, &r.Depths.ActivationSlots, r.allActivations())
		r.fillHost(q, options) // with fewer spills
	}
}

// travelGain returns a bound on the seconds that travelling saves in a step: what the host has memory for, at the most
// seconds that any byte saves, and at most all recomputing.
func (r *Run) travelGain(q Request, options []saveOption) float64 {
	again, perByte := 0.0, 0.0
	for _, o := range options {
		kept := o.saves[r.Spec.Keep.Of(o.block)]
		again += o.saves[layers.KeepInputs] - kept
		for level, bytes := range o.bytes {
			if o.saves[level] > kept {
				perByte = max(perByte, o.saves[level]/float64(max(bytes, 1)))
			}
		}
	}
	if q.HostMemory == 0 {
		return again
	}
	room := q.HostMemory - r.Table().OnHost()
	for _, v := range r.views() {
		room += v.SpillBytes()
	}
	return min(again, perByte*float64(r.StepRounds())*float64(max(0, room)))
}

// send lets blocks keep as much on the device as fits beside the slots. What the other blocks keep at the given level
// travels, of as many micro-batches as the host has memory for and as make a step shorter. It returns false if nothing
// can travel; the caller checks whether the run fits.
func (r *Run) send(q Request, options []saveOption, level layers.Keep) bool {
	blocks, all := r.Spec.Config.Blocks(), r.roundMicroBatches()
	divide := func(n int) {
		r.KeptSlots, r.Spec.KeptOf, r.Spec.KeptOnHost, r.Spec.Keep = travelSlots, schedule.Share{N: n, Of: all}, make([]bool, blocks), layers.KeepIn(blocks, layers.KeepNothing)
		for _, o := range options {
			r.Spec.KeptOnHost[o.block], r.Spec.Keep[o.block] = true, level
		}
		room := r.room(q, r.Table())
		r.Spec.Keep = layers.KeepIn(blocks, layers.KeepNothing)
		r.upgrade(options, room, r.highest(q))
		for _, o := range options {
			if r.Spec.KeptOnHost[o.block] = r.Spec.Keep[o.block] < level && o.bytes[level] > 0; r.Spec.KeptOnHost[o.block] {
				r.Spec.Keep[o.block] = level
			}
		}
	}
	divide(1)
	if r.fillHost(q, options); r.Spec.KeptOf.N == all {
		divide(all) // no launch computes everything again, so the workspace is smaller
	}
	return slices.Contains(r.Spec.KeptOnHost, true)
}

// fillHost sets of how many micro-batches tensors travel: as the host has memory for, and as make a step shorter.
func (r *Run) fillHost(q Request, options []saveOption) {
	r.Spec.KeptOf.N = 1
	most, each := r.Spec.KeptOf.Of, r.travelBytes()
	if each > 0 && q.HostMemory > 0 {
		most = int(max(1, min(int64(most), (q.HostMemory-r.Table().OnHost())/each+1)))
	}
	of := func(n int) float64 {
		r.Spec.KeptOf.N = n
		return r.stepSeconds(options)
	}
	r.Spec.KeptOf.N = 1 + sort.Search(most-1, func(i int) bool { return of(i+2) >= of(i+1) }) // the time is convex in n
}

// TravelWords describes what travels; "" if nothing does. All of it has the same level.
func (r *Run) TravelWords() string {
	var runs [][2]int // first and last block
	var level layers.Keep
	for l, layout := range r.Layouts {
		b, n := layout.Block, len(runs)
		switch {
		case !r.travels(l):
			continue
		case n > 0 && runs[n-1][1] == b-1:
			runs[n-1][1] = b
		default:
			runs = append(runs, [2]int{b, b})
		}
		level = r.Spec.Keep.Of(b)
	}
	var blocks []string
	for _, of := range runs {
		blocks = append(blocks, strings.TrimSuffix(fmt.Sprintf("%d–%d", of[0], of[1]), fmt.Sprintf("–%d", of[0])))
	}
	if runs == nil {
		return ""
	}
	return fmt.Sprintf("%s of %d of %d micro-batches%s in blocks %s, through %d slots of %s on the device",
		level, r.Spec.KeptOf.N, r.Spec.KeptOf.Of, also(r.StepRounds() > 1, " of a round"), series(blocks), r.KeptSlots*r.Lanes(), human.Bytes(r.KeptSlotBytes()))
}

// TravelSpares returns the FLOPs of a step that the backward need not compute again because the results travel.
func (r *Run) TravelSpares() float64 {
	if r.travelBytes() == 0 {
		return 0
	}
	still := *r
	still.Spec.KeptOf.N = 0
	_, all := still.flops()
	_, rest := r.flops()
	return all - rest
}
