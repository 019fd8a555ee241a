package plan

import (
	"math"

	"mt/device"
	"mt/layers"
	"mt/model"
)

// This file chooses what the forward keeps on the device for the backward, block by block, and sizes
// it. No result depends on the choice, so a run that goes on makes it anew.

// savedTensors bounds how many tensors a block keeps for a micro-batch.
const savedTensors = 16

// SavedBytes is what layer l keeps for its backward of all micro-batches together. Aligning
// a tensor may cost up to device.Align bytes, for each tensor of each micro-batch.
func (r *Run) SavedBytes(l int) int64 { return r.savedAt(l, r.Spec.Keep.Of(r.Layouts[l].Block)) }

// savedAt is SavedBytes at a level.
func (r *Run) savedAt(l int, level layers.Keep) int64 {
	n := r.Kind(l).SavedBytes(r.Spec, level, r.Limits.Tokens)
	if n == 0 || r.EvalOnly || !r.has(l) || l < model.LowestTrained(r.Layouts) {
		return 0
	}
	return n + int64(r.Limits.MicroBatches)*savedTensors*device.Align
}

// savedBytes is what all layers keep.
func (r *Run) savedBytes() (n int64) {
	for l := range r.Layouts {
		if bytes := r.SavedBytes(l); bytes > 0 {
			n += held(bytes)
		}
	}
	return n
}

// KeptByLayer says of every layer what it keeps for its backward. The embedding, experts and the
// head keep nothing but their input.
func (r *Run) KeptByLayer() []string {
	out := make([]string, len(r.Layouts))
	for l := range out {
		level := layers.KeepNothing
		if r.keeps(l) {
			level = r.Spec.Keep.Of(r.Layouts[l].Block)
		}
		out[l] = level.String()
	}
	return out
}

// keptHere is what the blocks keep whose layers r has, in words.
func (r *Run) keptHere() string {
	var here layers.Keeps
	for l, layout := range r.Layouts {
		if r.has(l) && r.keeps(l) {
			here = append(here, r.Spec.Keep.Of(layout.Block))
		}
	}
	return here.String()
}

// keeps says whether layer l is of a kind that can keep something, and has a backward.
func (r *Run) keeps(l int) bool {
	return l >= model.LowestTrained(r.Layouts) && r.Layouts[l].Kind.BeginsBlock()
}

// spillWorth is the part of a step by which spilling has to make it shorter: it takes host memory, and
// the link.
const spillWorth = 0.01

// spillTries is with how many numbers of activation slots a step is predicted, between none spilled and
// most.
const spillTries = 8

// chooseSaved chooses the level of every block and, where that is left to it, the least number of
// activation slots. Inputs of layers that have no slot wait on the host and come back, beside the
// computing, and what they leave free keeps more. So a step is predicted with as many slots as there
// are activations and with fewer, and the shortest is taken; of equals the one that spills least.
func (r *Run) chooseSaved(q Request) {
	if r.EvalOnly {
		return
	}
	best, bestTime := *r, math.Inf(1)
	for _, slots := range r.slotChoices(q) {
		r.Depths.ActivationSlots = slots
		if !r.fillSaved(q) {
			continue
		}
		t := r.stepSeconds()
		if r.spilled() > 0 {
			t /= 1 - spillWorth
		}
		if t < bestTime {
			best, bestTime = *r, t
		}
	}
	*r = best
}

// slotChoices are the numbers of activation slots to choose from, the largest first: from as many as
// there are activations to those of a layer at work, the inputs and gradients of all micro-batches,
// and a few that come and go. Where host and device share one memory, what spills takes as much; where states are on
// disks, the host lacks memory for it.
func (r *Run) slotChoices(q Request) []int {
	if q.Depths.ActivationSlots > 0 {
		return []int{r.Depths.ActivationSlots}
	}
	all := r.allActivations()
	choices := []int{all}
	if r.OneMemory || r.StateOnDisk != nil {
		return choices
	}
	least := 2*r.Limits.MicroBatches + minActSlots
	for k := range spillTries {
		if n := all - (k+1)*(all-least)/spillTries; n < choices[len(choices)-1] {
			choices = append(choices, n)
		}
	}
	return choices
}

// fillSaved has the blocks keep as much as fits, by what it saves. The least level of all blocks sets
// the size of the workspace, so each is tried as the least. It reports false where not even keeping
// nothing fits.
func (r *Run) fillSaved(q Request) bool {
	options := r.saveOptions()
	best, most := layers.Keeps(nil), -1.0
	for level := layers.KeepNothing; level <= layers.KeepAll; level++ {
		r.Spec.Keep = layers.KeepIn(r.Spec.Config.NumLayers, level)
		if r.fits(q) != nil {
			break
		}
		r.upgrade(options, r.room(q))
		saves := 0.0
		for _, o := range options {
			saves += o.saves[r.Spec.Keep.Of(o.block)]
		}
		if saves > most {
			best, most = r.Spec.Keep, saves
		}
	}
	r.Spec.Keep = best
	return most >= 0
}

// saveOption is what a block can keep: by level, the bytes that it takes and the seconds of a step
// that it saves.
type saveOption struct {
	block, lane int
	bytes       [layers.KeepAll + 1]int64
	saves       [layers.KeepAll + 1]float64
}

// attentionSlower is how much longer a FLOP of attention's takes than one of a product: on the GPUs of
// package rates 1.5 to 8 times, the longer the newer the GPU and the shorter the rows.
const attentionSlower = 3

// saveOptions lists what every block can keep.
func (r *Run) saveOptions() (out []saveOption) {
	tokens := int64(r.Limits.Tokens)
	for l, layout := range r.Layouts {
		if !r.keeps(l) {
			continue
		}
		o := saveOption{block: layout.Block}
		if r.Lane != nil {
			o.lane = r.Lane[l]
		}
		pairs := tokens * r.Spec.Config.BlockPairs(o.block, r.RowTokens) / int64(r.RowTokens)
		seconds := func(level layers.Keep) float64 {
			products, attention := r.Spec.BlockRecomputes(o.block, level, tokens, pairs)
			return (float64(products) + attentionSlower*float64(attention)) / r.pace(o.lane).FLOPs
		}
		again := seconds(layers.KeepNothing)
		for level := range o.bytes {
			if n := r.savedAt(l, layers.Keep(level)); n > 0 {
				o.bytes[level] = held(n)
			}
			o.saves[level] = again - seconds(layers.Keep(level))
		}
		out = append(out, o)
	}
	return out
}

// upgrade raises levels while there is room, always by the step of one block that saves most for a byte
// and fits; of equals the first block's.
func (r *Run) upgrade(options []saveOption, room room) {
	for {
		var best *saveOption
		most := -1.0
		for i := range options {
			o := &options[i]
			level := r.Spec.Keep[o.block]
			if level == layers.KeepAll {
				continue
			}
			bytes, saves := o.bytes[level+1]-o.bytes[level], o.saves[level+1]-o.saves[level]
			if worth := saves / float64(max(bytes, 1)); worth > most && room.has(o.lane, bytes) {
				most, best = worth, o
			}
		}
		if best == nil {
			return
		}
		level := r.Spec.Keep[best.block]
		room.take(best.lane, best.bytes[level+1]-best.bytes[level])
		r.Spec.Keep[best.block]++
	}
}

// room is how many bytes are free, by lane and, where devices share the host's memory, in all.
type room struct {
	lanes []int64
	all   int64
}

func (m room) has(lane int, bytes int64) bool { return bytes <= m.lanes[lane] && bytes <= m.all }

func (m *room) take(lane int, bytes int64) {
	m.lanes[lane] -= bytes
	m.all -= bytes
}

// room is what r leaves free of the budgets of q.
func (r *Run) room(q Request) room {
	t, free := r.Table(), room{all: math.MaxInt64}
	if r.OneMemory && q.HostMemory > 0 {
		free.all = q.HostMemory - t.OnHost()
	}
	for lane := range r.Lanes() {
		taken, budget := t.Device, q.DeviceMemory
		if r.Lane != nil {
			taken = t.devices[lane]
		}
		if lane < len(q.LaneMemory) {
			budget = q.LaneMemory[lane]
		}
		left := int64(math.MaxInt64)
		if budget > 0 {
			left = budget - taken
		}
		free.lanes = append(free.lanes, left)
	}
	return free
}

// spilled is how many of a step's activations have no slot.
func (r *Run) spilled() int { return max(0, r.allActivations()-r.Depths.ActivationSlots) }

// spillMargin is how many times what spills counts on the link: the rates are of no particular machine,
// and copies that come late hold up the computing.
const spillMargin = 2

// stepSeconds is about what a step takes on the lane that is busiest: forward and backward, each as long
// as its computing or its copies in one direction.
func (r *Run) stepSeconds() (most float64) {
	options := r.saveOptions()
	for lane, v := range r.views() {
		pace := r.pace(lane)
		var computes, again, tiles, grads float64
		for l, seconds := range r.weights(pace) {
			if v.has(l) {
				computes += seconds
				tiles += float64(r.Layouts[l].TileBytes)
				grads += float64(r.GradElems(l) * r.GradBytes())
			}
		}
		for _, o := range options {
			if o.lane == lane {
				level := r.Spec.Keep.Of(o.block)
				again += o.saves[layers.KeepAll] - o.saves[level]
			}
		}
		tokens := float64(v.spilled()) * float64(r.Limits.Tokens) / float64(r.Limits.MicroBatches)
		spills := spillMargin * tokens * float64(r.ActivationBytes(1))
		most = max(most, max(computes/3, (tiles+spills)/pace.Link)+max(computes*2/3+again, (tiles+spills)/pace.Link, grads/pace.Link))
	}
	return most
}
