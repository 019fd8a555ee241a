package actors

import (
	"mt/device"
	virtualdevice "mt/device/virtual"
	"mt/layers"
	"mt/layers/schedule"
)

// A prediction of a model with many experts launches tens of thousands of them in a step. The
// experts of a layer are alike, so their launches cost the same, and a repeater makes one of them.

// repeater launches experts of one lane on a virtual device.
type repeater struct {
	device *virtualdevice.Device
	like   []int // by tile: the first tile of the layer with equal tensors
}

// expertLaunch has everything on which the cost of an expert's launch depends.
type expertLaunch struct {
	like          int
	phase         schedule.Phase
	uses          schedule.Uses
	first, last   bool
	tokens, pairs int
}

// newRepeater returns nil unless dev is a virtual device.
func newRepeater(tiles []layers.Tile, dev device.Device) *repeater {
	d, ok := dev.(*virtualdevice.Device)
	if !ok {
		return nil
	}
	r := &repeater{device: d, like: ids(len(tiles))}
	for i := 1; i < len(tiles); i++ {
		if tiles[i].Like(tiles[i-1]) {
			r.like[i] = r.like[i-1]
		}
	}
	return r
}

// launch enqueues launch l of visit v on lane r. x may be nil.
func (x *repeater) launch(r *lane, e enqueue, l schedule.Launch, v schedule.Visit) {
	if x == nil || v.Stage != schedule.Expert {
		r.stage(e, l, v)
		return
	}
	key := expertLaunch{like: x.like[v.Tile], phase: v.Phase, uses: v.Uses, first: e.First, last: e.Last, tokens: int(e.p.Batch.Tokens), pairs: e.Pairs}
	x.device.Repeat(r.compute.Stream, key, func() { r.stage(e, l, v) })
}
