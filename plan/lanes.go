package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mt/layers/schedule"
	"mt/model"
)

// This file assigns layers to lanes and computes one lane's view of a run.

// Lanes returns the number of lanes.
func (r *Run) Lanes() int {
	if r.Lane == nil {
		return 1
	}
	return 1 + slices.Max(r.Placement())
}

// On returns one lane's view of r, in which sizes count only the lane's layers.
func (r *Run) On(lane int) *Run {
	if r.Lane == nil {
		return r
	}
	view := *r
	view.view = 1 + lane
	return &view
}

// has reports whether layer l, or a part of it, belongs to the lane that r is a view of (see On); true if r is the whole
// run.
func (r *Run) has(l int) bool { return r.tilesOf(l) > 0 }

// tilesOf returns how many tiles of layer l belong to the lane that r is a view of; all of them if r is the whole run.
func (r *Run) tilesOf(l int) (n int) {
	if r.view > 0 && l == r.Head() && r.Spec.HeadLanes != nil {
		for _, lane := range r.Spec.HeadLanes {
			if lane == r.view-1 {
				n++
			}
		}
		return n
	}
	if r.view > 0 && r.Lane[l] != r.view-1 {
		return 0
	}
	return r.Kind(l).Parts(r.Spec, r.Layouts[l])
}

// hasExperts reports whether any layer of the lane that r is a view of has experts.
func (r *Run) hasExperts() bool {
	for l := range r.Layouts {
		if r.has(l) && r.Layouts[l].Kind == model.MoE {
			return true
		}
	}
	return false
}

// views returns one view of r for each lane; if r is itself the view of a lane, only r.
func (r *Run) views() (out []*Run) {
	if r.view > 0 {
		return []*Run{r}
	}
	for lane := range r.Lanes() {
		out = append(out, r.On(lane))
	}
	return out
}

// PassageBytes returns the host memory through which hidden states pass from lane to lane, with
// room for every micro-batch; 0 for one lane, and if hidden states are on the host anyway.
func (r *Run) PassageBytes() int64 {
	if r.Lane == nil || r.Spec.OnHost {
		return 0
	}
	return r.ActivationBytes(r.Limits.Tokens)
}

// Pace has the two rates of a device by which placeLayers assigns layers to lanes, and stepSeconds estimates a step.
type Pace struct {
	FLOPs float64 // products, FLOPs a second
	Link  float64 // host to device, bytes a second
}

// commonPace has the rates of a typical data centre GPU. Several devices that are alike have it: which layers go to which
// lane depends only on the ratio between layers' times. So does one device whose rates nobody knows.
var commonPace = Pace{FLOPs: 400e12, Link: 40e9}

// pace returns the rates of the device that runs a lane.
func (r *Run) pace(lane int) Pace {
	if len(r.paces) == 0 {
		return commonPace
	}
	return r.paces[lane]
}

// weights returns the weight of each layer: its time in a step on a device with rates at, in seconds. This is the
// maximum of the computation and the copies of the layer's tiles.
func (r *Run) weights(at Pace) []float64 {
	c, tokens := r.Spec.Config, float64(r.Limits.Tokens)
	pairs := tokens / float64(r.RowTokens) * float64(c.AttendedPairs(r.RowTokens)) / float64(max(1, c.AttentionBlocks()))
	out := make([]float64, len(r.Layouts))
	for l, layout := range r.Layouts {
		elems, bytes := float64(layout.AllElems()), float64(layout.TileBytes)
		switch layout.Kind {
		case model.Embedding: // the rows are gathered
			elems, bytes = 0, float64(r.RowBytes(r.Limits.UniqueIDs))
		case model.Positions: // positions are added
			elems = 0
		case model.PerLayer: // rows of the table are gathered
			elems -= float64(layout.Tensor(model.RolePerLayerTable).Elems())
		case model.MoE:
			idle := float64(c.NumExperts - c.NumExpertsPerTok) // experts that a token does not use
			elems -= idle * float64(layout.Part(1).AllElems())
		case model.Head:
			elems *= float64(c.Streams())
		}
		flops := 2 * elems * tokens
		switch layout.Kind {
		case model.Block, model.Attention:
			if flops += c.PairFLOPs() * pairs; c.Beside {
				flops += float64(c.RecurrenceFLOPs()) * tokens
			}
		case model.Recurrent, model.Mixer:
			flops += float64(c.RecurrenceFLOPs()) * tokens
		}
		flops *= r.passes(l)
		out[l] = max(flops/at.FLOPs, 2*bytes/at.Link)
	}
	return out
}

// knownPaces returns the rates of all lanes; nil: those of some are unknown.
func (q Request) knownPaces() []Pace {
	if len(q.Paces) < q.Devices {
		return nil
	}
	return q.Paces
}

// placeLayers assigns every layer to a lane, and the parts of the head if they may be on several. A resumed run keeps its
// recorded assignment (Placement) if that is for the same number of devices.
func (r *Run) placeLayers(q Request) error {
	r.paces = q.knownPaces()
	if q.Devices <= 1 {
		return nil
	}
	n, given := len(r.Layouts), len(q.Lane)
	if whole := given == n; (whole || given == n+r.Spec.Shards() && r.mayShareHead(q)) && 1+slices.Max(q.Lane) == q.Devices {
		if r.Lane = q.Lane[:n:n]; !whole {
			r.Spec.HeadLanes = q.Lane[n:]
		}
		return nil
	}
	r.shareOut(q)
	for lane := range q.Devices {
		if !slices.Contains(r.Placement(), lane) {
			return &BadDepth{"devices", fmt.Sprintf("devices: device %d is so much slower than the others that no layer is left for it: give the run the other devices only", lane)}
		}
	}
	return nil
}

// Placement returns the lane of every layer and then, if parts of the head are on several lanes, that of every part; nil:
// there is one lane.
func (r *Run) Placement() []int { return slices.Concat(r.Lane, r.Spec.HeadLanes) }

// shareOut assigns the layers to the lanes of q, and the parts of the head, if they may be on several lanes.
func (r *Run) shareOut(q Request) {
	head, parts := r.Head(), 1
	if r.mayShareHead(q) {
		parts = r.Spec.Shards()
	}
	times := make([][]float64, q.Devices)
	for lane := range times {
		times[lane] = r.weights(r.pace(lane))
		last := times[lane][head] / float64(parts)
		times[lane] = append(times[lane][:head], slices.Repeat([]float64{last}, parts)...)
	}
	lanes := assign(times)
	of, order := lanes[head:], slices.Clone(lanes[head:])
	slices.SortFunc(of, func(a, b int) int { return slices.Index(order, a) - slices.Index(order, b) })
	r.Lane, r.Spec.HeadLanes = lanes[:head+1:head+1], nil
	if parts > 1 && slices.Min(of) < slices.Max(of) {
		r.Spec.HeadLanes = of
	}
}

// mayShareHead reports whether parts of the head may be on several lanes. All lanes then copy into one slab, and the
// hidden state carries sums from lane to lane on the devices.
func (r *Run) mayShareHead(q Request) bool {
	return q.Devices > 1 && (r.EvalOnly || !r.SlabsAreCredits()) && !r.Spec.OnHost && q.Config.Streams() == 1
}

// partsForLanes returns the number of the head's parts, from the present number to one for each lane, with which the
// lanes finish a step first. A larger number must save at least partGain of the time.
func (r *Run) partsForLanes(q Request) int {
	best, n := r.Spec.Shards(), r.Spec.Shards()
	if !r.mayShareHead(q) || r.EvalOnly {
		return best
	}
	trial, least := *r, 0.0
	trial.paces, trial.Limits.MicroBatches = q.knownPaces(), min(trialMicroBatches, r.Limits.MicroBatches)
	for ; n <= min(q.Devices, q.Config.VocabSize); n++ {
		trial.Spec.HeadShards = n
		trial.shareOut(q)
		if _, end := trial.play(); best == n || end < least*(1-partGain) {
			best, least = n, end
		}
	}
	return best
}

// partGain is the share of a step that one more part of the head must save: more parts divide the vocabulary more finely,
// and matrix products with fewer rows are slower.
const partGain = 0.02

// trialMicroBatches bounds the micro-batches of such a simulation, whose time grows with their square.
const trialMicroBatches = 64

// assign assigns items (layers or parts of the head) to lanes in order. times has the time of each item by lane and
// item. An item goes to the lane whose total time is then smallest; among equals, to the lane that has waited longest for
// an item. On the lane of the previous item, the item's time counts twice: it cannot start there before the previous
// item's last micro-batch.
func assign(times [][]float64) []int {
	n := len(times)
	lanes, load, last := make([]int, len(times[0])), make([]float64, n), make([]int, n)
	for l := range lanes {
		best, least := -1, 0.0
		for lane := range n {
			with := load[lane] + times[lane][l]
			if l > 0 && lanes[l-1] == lane {
				with += times[lane][l]
			}
			if best < 0 || with < least || with == least && last[lane] < last[best] {
				best, least = lane, with
			}
		}
		lanes[l], last[best] = best, l+1
		load[best] += times[best][l]
	}
	return lanes
}

// checkLanes returns an error if the request asks for more devices than it can use, because of the
// order zigzag, too few layers or another key.
func (q Request) checkLanes() error {
	if q.Devices <= 1 {
		return nil
	}
	switch layers := len(q.Config.Layouts(false)); {
	case q.Order == schedule.Zigzag:
		return &BadDepth{"devices", fmt.Sprintf("devices: micro_batch_order: zigzag turns the micro-batches around from layer to layer, which %d devices cannot: "+
			"set devices: 1, or micro_batch_order: lanes, which a run has from its first step on", q.Devices)}
	case q.Devices > layers:
		return &BadDepth{"devices", fmt.Sprintf("devices: %d are more than the model has layers: at most %d have something to do", q.Devices, layers)}
	}
	return nil
}

// LaneWords describes the assignment of layers to devices; "" for one device.
func (r *Run) LaneWords() string {
	if r.Lane == nil {
		return ""
	}
	out := fmt.Sprintf("%d devices", r.Lanes())
	for lane := range r.Lanes() {
		var layers, on []string
		for l, of := range r.Lane {
			if of == lane && (l < r.Head() || r.Spec.HeadLanes == nil) {
				layers = append(layers, strconv.Itoa(l))
			}
		}
		if layers != nil {
			on = append(on, "layers "+strings.Join(layers, " "))
		}
		if n := r.On(lane).tilesOf(r.Head()); r.Spec.HeadLanes != nil && n > 0 {
			on = append(on, fmt.Sprintf("%d of %d parts of the head", n, r.Spec.Shards()))
		}
		out += fmt.Sprintf("; on device %d %s", lane, strings.Join(on, " and "))
	}
	return out
}
