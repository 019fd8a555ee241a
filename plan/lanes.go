package plan

import (
	"fmt"
	"slices"

	"mt/layers/schedule"
	"mt/model"
)

// This file assigns layers to lanes and computes one lane's view of a run.

// Lanes returns the number of lanes.
func (r *Run) Lanes() int {
	if r.Lane == nil {
		return 1
	}
	return 1 + slices.Max(r.Lane)
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

// has reports whether layer l belongs to the lane that r is a view of (see On); true if r is the
// whole run.
func (r *Run) has(l int) bool { return r.view == 0 || r.Lane[l] == r.view-1 }

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
// room for every micro-batch; 0 for one lane.
func (r *Run) PassageBytes() int64 {
	if r.Lane == nil {
		return 0
	}
	return r.ActivationBytes(r.Limits.Tokens)
}

// Pace has the two rates of a device by which placeLayers assigns layers to lanes.
type Pace struct {
	FLOPs float64 // products, FLOPs a second
	Link  float64 // host to device, bytes a second
}

// commonPace has the rates of a typical data centre GPU. If all devices are equal, it decides which
// layers go to which lane: only the ratio between layers' times matters then.
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

// placeLayers assigns every layer to a lane. A resumed run keeps its recorded assignment if that is
// for the same number of devices.
func (r *Run) placeLayers(q Request) error {
	if q.Devices <= 1 {
		return nil
	}
	r.paces = q.Paces
	if len(q.Lane) == len(r.Layouts) && 1+slices.Max(q.Lane) == q.Devices {
		r.Lane = q.Lane
		return nil
	}
	times := make([][]float64, q.Devices)
	for lane := range times {
		times[lane] = r.weights(r.pace(lane))
	}
	r.Lane = shareOut(times)
	for lane := range q.Devices {
		if !slices.Contains(r.Lane, lane) {
			return &BadDepth{"devices", fmt.Sprintf("devices: device %d is so much slower than the others that no layer is left for it: give the run the other devices only", lane)}
		}
	}
	return nil
}

// shareOut assigns layers, in order, to lanes. times has the time of each layer by lane and layer. A layer goes to the
// lane whose total time is then smallest; among equals, to the lane that has waited longest for a layer. On the lane of
// the previous layer, the layer's time counts twice: it cannot start there before the previous layer's last
// micro-batch.
func shareOut(times [][]float64) []int {
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
		out += fmt.Sprintf("; on device %d layers", lane)
		for l := 0; l < len(r.Lane); l++ {
			if r.Lane[l] == lane {
				out += fmt.Sprintf(" %d", l)
			}
		}
	}
	return out
}
