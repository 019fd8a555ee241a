package plan

import (
	"fmt"
	"slices"

	"mt/layers/schedule"
	"mt/model"
)

// This file shares out the layers to lanes, and says what one lane has of a run.

// Lanes is how many lanes there are.
func (r *Run) Lanes() int {
	if r.Lane == nil {
		return 1
	}
	return 1 + slices.Max(r.Lane)
}

// On is what a lane has of the run: its sizes are those of the lane's layers alone.
func (r *Run) On(lane int) *Run {
	if r.Lane == nil {
		return r
	}
	view := *r
	view.view = 1 + lane
	return &view
}

// has says whether r is of the lane that layer l is on.
func (r *Run) has(l int) bool { return r.view == 0 || r.Lane[l] == r.view-1 }

// hasExperts says whether one of the layers that r has is one with experts.
func (r *Run) hasExperts() bool {
	for l := range r.Layouts {
		if r.has(l) && r.Layouts[l].Kind == model.MoE {
			return true
		}
	}
	return false
}

// views are the lanes, each as On gives it.
func (r *Run) views() (out []*Run) {
	if r.view > 0 {
		return []*Run{r}
	}
	for lane := range r.Lanes() {
		out = append(out, r.On(lane))
	}
	return out
}

// PassageBytes is the host memory for hidden states on their way from one lane to another: a
// place for every micro-batch. 0 where there is one lane.
func (r *Run) PassageBytes() int64 {
	if r.Lane == nil {
		return 0
	}
	return r.ActivationBytes(r.Limits.Tokens)
}

// Pace is what layers on a device are weighed by.
type Pace struct {
	FLOPs float64 // of products, a second
	Link  float64 // bytes a second from the host to the device
}

// commonPace is that of a data centre's GPU. It need not be that of the machine where devices are
// alike, because layers of one kind weigh alike at any pace.
var commonPace = Pace{FLOPs: 400e12, Link: 40e9}

// pace is that of a lane.
func (r *Run) pace(lane int) Pace {
	if len(r.paces) == 0 {
		return commonPace
	}
	return r.paces[lane]
}

// weights are what the layers take, in seconds of a step at a pace: computing, or bringing
// their tiles, whichever is longer.
func (r *Run) weights(at Pace) []float64 {
	c, tokens := r.Spec.Config, float64(r.Limits.Tokens)
	pairs := tokens / float64(r.RowTokens) * float64(c.AttendedPairs(r.RowTokens)) / float64(max(1, c.NumLayers-c.RecurrentBlocks()))
	out := make([]float64, len(r.Layouts))
	for l, layout := range r.Layouts {
		elems, bytes := float64(layout.AllElems()), float64(layout.TileBytes)
		switch layout.Kind {
		case model.Embedding: // its rows are gathered
			elems, bytes = 0, float64(r.ActivationBytes(r.Limits.UniqueIDs))
		case model.Positions: // they are added
			elems = 0
		case model.MoE:
			idle := float64(c.NumExperts - c.NumExpertsPerTok) // experts of a token that it does not go through
			elems -= idle * float64(layout.Part(1).AllElems())
		}
		flops := 2 * elems * tokens
		switch layout.Kind {
		case model.Block, model.Attention:
			flops += c.PairFLOPs() * pairs
		case model.Recurrent, model.Mixer:
			flops += float64(c.GatedDeltaNet.FLOPs()) * tokens
		}
		flops *= r.passes(l)
		out[l] = max(flops/at.FLOPs, 2*bytes/at.Link)
	}
	return out
}

// placeLayers puts every layer on a lane: as in the table that the run was begun with, if there
// is one for so many devices.
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

// shareOut puts every layer on one of several lanes, by what it takes on each: on the lane that is
// done with it first, of equals on the one that has been passed over longest. A layer that follows
// another on its lane cannot begin before that one's last micro-batch, so the lane of the layer
// before counts as if it had the layer twice.
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

// checkLanes refuses numbers of devices with which no run can be made.
func (q Request) checkLanes() error {
	switch layers := len(q.Config.Layouts(false)); {
	case q.Devices <= 1:
		return nil
	case q.Order == schedule.Zigzag:
		return &BadDepth{"devices", fmt.Sprintf("devices: micro_batch_order: zigzag turns the micro-batches around from layer to layer, which %d devices cannot: "+
			"set devices: 1, or micro_batch_order: lanes, which a run has from its first step on", q.Devices)}
	case q.Devices > layers:
		return &BadDepth{"devices", fmt.Sprintf("devices: %d are more than the model has layers: at most %d have something to do", q.Devices, layers)}
	}
	return nil
}

// LaneWords says which layers are on which device; empty where there is one.
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
