package plan

import (
	"fmt"
	"math"

	"mt/device"
	"mt/layers"
	"mt/model"
)

// This file chooses and sizes the tensors that each block's forward keeps on the device for its backward. How much a
// block keeps is its level (layers.Keep). The results do not depend on the levels, so a resumed run chooses anew.

// savedTensors is an upper bound for the number of tensors that a block keeps for one micro-batch.
const savedTensors = 16

// SavedBytes returns the bytes that layer l keeps for its backward, for all micro-batches of a round. Alignment may cost
// device.Align bytes for each tensor of each micro-batch.
func (r *Run) SavedBytes(l int) int64 {
	n := r.savedAt(l, r.Spec.Keep.Of(r.Layouts[l].Block))
	if n > 0 && r.travels(l) {
		n = min(n, int64(r.Spec.KeptOf.N)*r.keptBytes(l))
	}
	return n
}

// savedAt returns the bytes that layer l would keep for its backward at the given level, for all
// micro-batches of a round.
func (r *Run) savedAt(l int, level layers.Keep) int64 {
	n := r.Kind(l).SavedBytes(r.Spec, r.Layouts[l].Block, level, r.roundTokens())
	if n == 0 || r.EvalOnly || !r.has(l) || l < model.LowestTrained(r.Layouts) {
		return 0
	}
	return n + int64(r.roundMicroBatches())*savedTensors*device.Align
}

// savedBytes returns the bytes that all layers of the view r keep on the device for their backward.
func (r *Run) savedBytes() (n int64) {
	for l := range r.Layouts {
		if bytes := r.SavedBytes(l); bytes > 0 && !r.SavedOnHost(l) {
			n += held(bytes)
		}
	}
	return n + int64(r.KeptSlots)*held(r.KeptSlotBytes())
}

// SavedOnHost reports whether what layer l keeps for its backward is in host memory: an experts' sum beside hidden
// states that are there too, or tensors that travel through slots on the device (Spec.KeptOnHost).
func (r *Run) SavedOnHost(l int) bool { return r.Spec.OnHost || r.travels(l) }

// KeptByLayer describes each layer's level, and whether its tensors travel to the host. The embedding, experts and the head keep only their input.
func (r *Run) KeptByLayer() []string {
	out := make([]string, len(r.Layouts))
	for l := range out {
		level := layers.KeepNothing
		if r.keeps(l) {
			level = r.Spec.Keep.Of(r.Layouts[l].Block)
		}
		out[l] = level.String() + also(r.travels(l), " on the host")
	}
	return out
}

// keptHere describes, for the memory table, what the blocks of the view r (of one lane, or of all)
// keep on the device.
func (r *Run) keptHere() string {
	var here layers.Keeps
	for l, layout := range r.Layouts {
		if r.has(l) && r.keeps(l) {
			level := r.Spec.Keep.Of(layout.Block)
			if r.travels(l) {
				level = layers.KeepNothing
			}
			here = append(here, level)
		}
	}
	return here.String() + also(r.KeptSlotBytes() > 0, fmt.Sprintf(", %d slots for the others", r.KeptSlots))
}

// keeps reports whether layer l has a backward and is of a kind that can keep tensors.
func (r *Run) keeps(l int) bool {
	return l >= model.LowestTrained(r.Layouts) && r.Layouts[l].Kind.BeginsBlock()
}

// spillWorth is the minimum fraction of a step that spilling must save, because spilling uses host memory and the link.
const spillWorth = 0.01

// spillTries is how many numbers of activation slots chooseSaved tries, besides a slot for every
// activation. Each costs one prediction of a step's time.
const spillTries = 8

// chooseKept chooses what blocks keep for the backward, on the device and on the host.
func (r *Run) chooseKept(q Request) {
	options := r.saveOptions()
	r.chooseSaved(q, options)
	r.chooseTravel(q, options)
}

// chooseSaved chooses the level of every block, and the number of activation slots if the request leaves it open. With
// fewer slots, more inputs of layers spill to the host, and the freed memory lets blocks keep more tensors. So
// chooseSaved predicts the time of a step for several numbers of slots, and takes the shortest. A step with spills must
// be shorter than one without by the fraction spillWorth.
func (r *Run) chooseSaved(q Request, options []saveOption) {
	best, bestTime := *r, math.Inf(1)
	for _, slots := range r.slotChoices(q) {
		r.Depths.ActivationSlots = slots
		if !r.fillSaved(q, options) {
			continue
		}
		t := r.stepSeconds(options)
		if r.spilled() > 0 {
			t /= 1 - spillWorth
		}
		if t < bestTime {
			best, bestTime = *r, t
		}
	}
	*r = best
}

// slotChoices returns the numbers of activation slots to try, largest first. The largest has a slot for every
// activation. The smallest has the inputs and gradients of all micro-batches of one layer, and a few slots for copies.
// Only the largest is tried if host and device share one memory (spilling saves nothing), or if state is on disk (the
// host lacks memory for spills).
func (r *Run) slotChoices(q Request) []int {
	if q.Depths.ActivationSlots > 0 {
		return []int{r.Depths.ActivationSlots}
	}
	all := r.allActivations()
	choices := []int{all}
	if r.OneMemory || r.StateOnDisk != nil {
		return choices
	}
	least := 2*r.roundMicroBatches() + minActSlots
	for k := range spillTries {
		if n := all - (k+1)*(all-least)/spillTries; n < choices[len(choices)-1] {
			choices = append(choices, n)
		}
	}
	return choices
}

// fillSaved lets blocks keep as much of options as fits, in order of the time saved. Blocks at the lowest level need the largest
// workspace, so fillSaved tries each level as the lowest. It returns false if the run does not fit even when blocks
// keep nothing.
func (r *Run) fillSaved(q Request, options []saveOption) bool {
	best, most, top := layers.Keeps(nil), -1.0, r.highest(q)
	for level := layers.KeepNothing; level <= top; level++ {
		r.Spec.Keep = layers.KeepIn(r.Spec.Config.Blocks(), level)
		t := r.Table()
		if r.lacks(q, t) != nil {
			break
		}
		r.upgrade(options, r.room(q, t), top)
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

// highest returns the highest level to choose. Inputs of products save less time than slots for as many bytes of
// activations that spill.
func (r *Run) highest(q Request) layers.Keep {
	if r.spilled() > 0 && q.Depths.ActivationSlots == 0 {
		return layers.KeepAll
	}
	return layers.KeepInputs
}

// saveOption describes, for one block and each level, the bytes that the block keeps and the seconds that it saves in a
// step.
type saveOption struct {
	block, lane int
	bytes       [layers.KeepInputs + 1]int64
	saves       [layers.KeepInputs + 1]float64
}

// attentionSlower is how many times longer a FLOP takes in attention than in a matrix product. On
// the GPUs of package rates the factor is 1.5 to 8; it is larger for newer GPUs and shorter rows.
const attentionSlower = 3

// passSlower is how many FLOPs of products take as long as a byte that an elementwise pass moves: 400 TFLOP/s to 2 TB/s.
const passSlower = 200

// saveOptions returns a saveOption for every block that has a backward.
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
			passes := -tokens * r.Spec.PassBytesSpared(o.block, level)
			return (float64(products) + attentionSlower*float64(attention) + passSlower*float64(passes)) / r.pace(o.lane).FLOPs
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

// upgrade raises the levels of blocks, up to top, as long as the free memory, room, suffices. Each time it raises a
// block to the level that saves the most seconds per byte of all blocks and levels that still fit; among equals, the
// first block to the lowest level.
func (r *Run) upgrade(options []saveOption, room room, top layers.Keep) {
	for {
		var best *saveOption
		var to layers.Keep
		most := 0.0
		for i := range options {
			o := &options[i]
			level := r.Spec.Keep[o.block]
			for next := level + 1; next <= top; next++ {
				bytes, saves := o.bytes[next]-o.bytes[level], o.saves[next]-o.saves[level]
				if worth := saves / float64(max(bytes, 1)); worth > most && room.has(o.lane, bytes) {
					most, best, to = worth, o, next
				}
			}
		}
		if best == nil {
			return
		}
		room.take(best.lane, best.bytes[to]-best.bytes[r.Spec.Keep[best.block]])
		r.Spec.Keep[best.block] = to
	}
}

// room has the free memory in bytes: of each lane's device, and (all) of the host, if devices share the host's memory.
type room struct {
	lanes []int64
	all   int64
}

func (m room) has(lane int, bytes int64) bool { return bytes <= m.lanes[lane] && bytes <= m.all }

func (m *room) take(lane int, bytes int64) {
	m.lanes[lane] -= bytes
	m.all -= bytes
}

// room returns the memory that plan r, with the table t, leaves free of the budgets in q.
func (r *Run) room(q Request, t Table) room {
	free := room{all: math.MaxInt64}
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

// spilled returns how many activations of a step have no slot and go to the host.
func (r *Run) spilled() int { return max(0, r.allActivations()-r.Depths.ActivationSlots) }

// spillMargin multiplies the time that spills take on the link. The reasons: the rates belong to no particular machine,
// and a copy that comes late delays the computation.
const spillMargin = 2

// updatePace is the rate of updates in the memory of a typical host, in bytes a second.
const updatePace = 150e9

// travelMargin is the same for what blocks keep, and for weights and gradients of rounds. An H100 computes 1.45 times as
// much in the time of a copy as commonPace. knownMargin replaces it where the device's rates are known: copies in both
// directions at once are slower.
const (
	travelMargin = 1.5
	knownMargin  = 1.05
)

// margin returns what multiplies the time on the link of what blocks keep, and of weights and gradients of rounds.
func (r *Run) margin() float64 {
	if len(r.paces) > 0 {
		return knownMargin
	}
	return travelMargin
}

// stepSeconds estimates the time of a step on the busiest lane. Forward and backward each take the maximum of
// computation and copies in one direction. Updates run beside the forward of the first round. The tensors that a block
// keeps travel while this block computes; where their copies take longer, the rest is added.
func (r *Run) stepSeconds(options []saveOption) (most float64) {
	rounds, gradients := float64(r.StepRounds()), r.Gradients()
	for lane, v := range r.views() {
		pace, inBlock := r.pace(lane), make([]float64, r.Spec.Config.Blocks())
		var computes, again, tiles, grads, updates float64
		for l, seconds := range r.weights(pace) {
			share := float64(v.tilesOf(l)) / float64(r.tilesOf(l))
			computes += share * seconds
			tiles += share * float64(r.Layouts[l].TileBytes)
			grads += share * float64(r.GradElems(l)*r.GradBytes())
			updates += share * r.UpdateBytes(l, gradients[l]) / updatePace
			if kind := r.Layouts[l].Kind; kind.BeginsBlock() || kind == model.MoE {
				inBlock[r.Layouts[l].Block] += seconds
			}
		}
		spills := rounds * spillMargin * float64(v.spilled()) * float64(r.Limits.Tokens) / float64(r.Limits.MicroBatches) * float64(r.ActivationBytes(1))
		each, late := spills/float64(max(1, len(options))), [2]float64{} // in forward and backward
		for _, o := range options {
			if o.lane != lane {
				continue
			}
			level, share := r.Spec.Keep.Of(o.block), r.Spec.KeptShare(o.block)
			rest := o.saves[layers.KeepAll] - share*o.saves[level] // negative above KeepAll
			if again += rest; r.KeptSlots > 0 && r.Spec.KeptOnHost[o.block] {
				bytes := rounds * r.margin() * share * float64(o.bytes[level])
				spills += bytes
				late[0] += max(0, (each+bytes)/pace.Link-inBlock[o.block]/3)
				late[1] += max(0, (each+bytes)/pace.Link-inBlock[o.block]*2/3-rest)
			}
		}
		forward, backward := computes/3+late[0], computes*2/3+again+late[1]
		more := r.margin() * (rounds - 1)
		tiles, down, up := tiles*(1+more), grads*(1+more), grads*more
		forward = max(forward, (tiles+spills)/pace.Link)
		most = max(most, forward+max(0, updates-forward/rounds)+max(backward, (tiles+spills+up)/pace.Link, down/pace.Link))
	}
	return most
}
