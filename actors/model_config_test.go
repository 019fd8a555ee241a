package actors

import (
	"math/rand"
	"slices"

	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// This file draws random configurations for the model test, which runs all actors' cores against a
// simulated device and checks every step.

type worldConfig struct {
	layers, micro, steps int
	experts              int // 0: no layer has any
	onDemand             bool
	balanced             bool // the loss balances the experts' load
	headShards           int
	lane                 []int // by layer: its lane; nil: there is one
	head                 []int // by part of the head: its lane; nil: that of the head
	kept                 int   // slots for what blocks keep; 0: it has memory of its own
	keptOf               schedule.Share
	perRound             int   // the most micro-batches of a round; 0: all are in one
	onHost               bool  // activation slots are in host memory, one for each activation
	reaches              int64 // bit 4a+b: the device of lane a reaches that of lane b
	depths               plan.Depths
	clip                 float64
	tied, sync           bool
	saveSteps, evalSteps int
	evalPasses           int
	batches              int // slots; 0: 1
	stopAfter            int // messages until StopRequested; −1: never
	abortAfter           int // messages until AbortRequested, counted from 1; 0: never
	pauseAfter           int // the step after which the run ends unfinished; 0: none
	enoughAt             int // the step whose evaluation ends the run; 0: none
	skip                 map[int]bool
	slow                 int // the event that is delayed while others can happen: 1 + a role, or 1 + numRoles for messages of works; 0: none
	slowLane             int // the lane of the delayed role
	seed                 int64
	ranks                int    // ranks that train together; 0: one
	maxNonFinite         int    // after so many skipped steps in a row the run fails; 0: it does not
	matrices             int    // matrices of every layer except the first and the last; 0: none
	stateOnDisk          []bool // by layer: its state is on a disk; nil: none is
	links                bool   // checkpoints link the states' files
	weightsOnDisk        []bool // by layer: its tile is on a disk too; nil: none is
	gradOnDisk           []bool // by layer: its gradient waits on a disk; nil: none
	spoilt               int    // the step in which the last rank has a non-finite gradient; 0: none
}

// creditSlabs reports whether layers share gradient slabs, so that each use of a slab needs a
// credit. Otherwise every layer has its own slab.
func (c worldConfig) creditSlabs() bool { return c.clip == 0 || c.ranks > 1 }

// ownSlabs returns the number of slabs that belong to one layer each.
func (c worldConfig) ownSlabs() int {
	if c.creditSlabs() {
		return 0
	}
	return c.layers
}

// blocks returns `those` with false for every layer that is not a decoder block or half of one.
func (c worldConfig) blocks(those []bool) []bool {
	out := make([]bool, c.layers)
	for l, kind := range c.kinds() {
		out[l] = those[l] && kind != model.Embedding && kind != model.Head
	}
	return out
}

// kinds returns the kinds of the layers. With experts, as many blocks as possible have experts and take two layers
// each.
func (c worldConfig) kinds() []model.LayerKind {
	kinds := denseKinds(c.layers)
	for i := c.layers - 2; c.experts > 0 && i > 1; i -= 2 {
		kinds[i-1], kinds[i] = model.Attention, model.MoE
	}
	return kinds
}

// activations returns the slots of a lane in which a step's activations all have one, as plan.Run.allActivations counts
// them for a model without experts.
func (c worldConfig) activations() (most int) {
	for lane := range 1 + slices.Max(c.lane) {
		own := 0
		for l := range c.layers {
			if c.lane[l] == lane && l > 0 {
				own++
			}
		}
		if c.lane[c.layers-1] != lane || c.headShards > 1 {
			own++
		}
		most = max(most, own)
	}
	return max(3, most*c.micro+2)
}

// balance returns the settings of the load-balancing loss of experts, for a simulated run with this
// number of lanes.
func (c worldConfig) balance(lanes int) (b balancing) {
	for _, k := range c.kinds() {
		if c.balanced && k == model.MoE {
			b.layers, b.lanes, b.distributed = b.layers+1, lanes, c.ranks > 1
		}
	}
	return b
}

func randomConfig(seed int64) worldConfig {
	r := rand.New(rand.NewSource(seed ^ 0x5eed))
	c := worldConfig{layers: 2 + r.Intn(5), micro: 1 + r.Intn(4), steps: 1 + r.Intn(3), seed: seed, tied: r.Intn(2) == 0,
		sync: r.Intn(4) == 0, saveSteps: r.Intn(3), evalSteps: r.Intn(3), evalPasses: r.Intn(3), stopAfter: -1, skip: map[int]bool{},
		depths: plan.Depths{WeightSlots: 1 + r.Intn(4), GradBuffers: 1 + r.Intn(3), GradSlabs: 1 + r.Intn(3), ActivationSlots: 3 + r.Intn(5), BatchesAhead: 1 + r.Intn(2)}}
	if r.Intn(2) == 0 {
		c.clip = 1
	} else if c.tied {
		c.depths.GradSlabs = max(2, c.depths.GradSlabs)
	}
	if r.Intn(4) == 0 {
		c.stopAfter = r.Intn(400)
	}
	if r.Intn(4) == 0 {
		c.skip[1+r.Intn(3)] = true
	}
	c.slow = r.Intn(2 * (2 + int(numRoles)))
	c.headShards = 1 + r.Intn(4) - r.Intn(2)
	c.batches = 1 + r.Intn(2)
	if r.Intn(3) == 0 {
		c.experts, c.onDemand = 1+r.Intn(4), r.Intn(2) == 0
		c.layers, c.balanced = max(c.layers, 4), r.Intn(2) == 0
		if r.Intn(2) == 0 { // slots that idle experts leave free are filled for the backward
			c.experts, c.depths.WeightSlots = 5+r.Intn(8), 3+r.Intn(8)
		}
	}
	if n := 1 + r.Intn(4); n > 1 {
		c.lane, c.slowLane = drawLanes(r, c.layers, min(n, c.layers)), r.Intn(n)
		c.reaches = []int64{0, 1<<16 - 1, r.Int63n(1 << 16)}[r.Intn(3)]
		if c.onHost = r.Intn(4) == 0 && c.experts == 0; c.onHost { // slots on the host are within reach of all lanes
			c.reaches, c.depths.ActivationSlots = 1<<16-1, c.activations()
		}
	}
	if r.Intn(5) == 0 {
		c.ranks = 2 + r.Intn(2)
		c.depths.ExchangeBuffers, c.depths.GathersAhead = 1+r.Intn(3), 1+r.Intn(3)
		if c.tied {
			c.depths.GradSlabs = max(2, c.depths.GradSlabs)
		}
	}
	if r.Intn(2) == 0 && c.ranks == 0 {
		c.matrices, c.depths.MatrixBuffers = 1+r.Intn(4), 1+r.Intn(3)
	}
	if r.Intn(3) == 0 {
		c.stateOnDisk, c.depths.StateSlots = make([]bool, c.layers), 1+r.Intn(4)
		for l := range c.stateOnDisk {
			c.stateOnDisk[l] = r.Intn(3) > 0
		}
		c.stateOnDisk[r.Intn(c.layers)] = true
		if c.ranks == 0 && r.Intn(2) == 0 {
			c.weightsOnDisk = c.blocks(c.stateOnDisk)
		}
		if c.clip > 0 && c.ranks == 0 && r.Intn(3) > 0 {
			if c.gradOnDisk = c.blocks(c.stateOnDisk); r.Intn(2) == 0 {
				c.gradOnDisk[r.Intn(c.layers)] = false
			}
		}
		c.links = c.ranks == 0 && r.Intn(2) == 0
	}
	switch r.Intn(6) {
	case 0:
		c.pauseAfter = 1 + r.Intn(3)
	case 1:
		c.enoughAt = 1 + r.Intn(3)
	}
	if c.ranks == 0 && r.Intn(4) == 0 {
		c.abortAfter = 1 + r.Intn(500)
	}
	if r.Intn(3) == 0 && !c.onHost {
		c.kept = 1 + r.Intn(3)
		c.keptOf = schedule.Share{N: 1 + r.Intn(c.micro), Of: c.micro}
	}
	if c.clip > 0 && c.ranks == 0 && c.experts == 0 && c.gradOnDisk == nil && !c.onHost {
		c.perRound = 1 + r.Intn(2)
	}
	if c.lane != nil && c.headShards > 1 && c.clip > 0 && c.ranks == 0 && !c.onHost && r.Intn(3) > 0 {
		c.head = drawParts(r, c.headShards, c.lane)
	}
	return c
}

// isAsked reports whether this configuration asks the run to stop or to abort a step. A short run
// may end before the request.
func (c worldConfig) isAsked() bool { return c.stopAfter >= 0 || c.abortAfter > 0 }

// matricesOf returns how many matrices of a layer Muon updates on the device: none of the embedding
// and the head.
func (c worldConfig) matricesOf(layer int) int {
	if layer == 0 || layer == c.layers-1 {
		return 0
	}
	return c.matrices
}

// last returns the final step of a run that nobody stops, and whether that step is saved regardless of saveSteps.
func (c worldConfig) last() (step int, saved bool) {
	evaluated := c.evalPasses > 0 && c.evalSteps > 0 && c.enoughAt > 0 && c.enoughAt%c.evalSteps == 0
	switch {
	case c.pauseAfter > 0 && c.pauseAfter < c.steps:
		return c.pauseAfter, false
	case evaluated && c.enoughAt < c.steps:
		return c.enoughAt, true
	}
	return c.steps, true
}
