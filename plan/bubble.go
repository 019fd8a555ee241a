package plan

import (
	"fmt"
	"math"

	"mt/layers/schedule"
)

// Idle returns the average fraction of a step in which lanes wait for data from other lanes; 0 for one lane. It
// simulates the programs of a step. Only computation takes time in this simulation, in proportion to each layer's
// weight (Run.weights).
func (r *Run) Idle() float64 {
	if r.Lane == nil || r.EvalOnly {
		return 0
	}
	busy, end := r.play()
	return 1 - busy/(end*float64(r.Lanes()))
}

// play returns the simulated seconds in which lanes compute, summed over the lanes, and those of a step.
func (r *Run) play() (busy, end float64) {
	n := r.Limits.MicroBatches
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = 1
	}
	s := r.Schedule()
	s.ActivationSlots = (len(s.Layers) + 2) * (n + 1) // nothing spills
	programs, err := schedule.Programs(s, tokens)
	if err != nil {
		panic(fmt.Sprintf("plan: the schedule of a run that is resolved: %v", err))
	}
	p := play{programs: programs, costs: r.visitCosts(s, n), passed: map[int]float64{}, next: make([]int, len(programs)), now: make([]float64, len(programs))}
	return p.run()
}

// visitKey identifies the visits of a lane to one layer in one phase and stage. Their launches take equally
// long in the simulation.
type visitKey struct {
	lane, layer int
	phase       schedule.Phase
	stage       schedule.Stage
}

// visitCosts returns the simulated time of one launch for each visitKey; n is the number of micro-batches. The forward
// has one of a layer's passes, the backward the others. Each is divided equally among the layer's launches; in a layer
// with experts, among the launches of its experts.
func (r *Run) visitCosts(s schedule.Spec, n int) map[visitKey]float64 {
	costs := map[visitKey]float64{}
	for lane := range r.Lanes() {
		weights := r.weights(r.pace(lane))
		for l, layer := range s.Layers {
			share := 1 / r.passes(l)
			if len(layer.Backward) == 0 {
				share = 1
			} else if len(layer.Forward) == 0 {
				share = 0
			}
			spread(costs, visitKey{lane: lane, layer: l, phase: schedule.Forward}, layer.Forward, share*weights[l], n)
			spread(costs, visitKey{lane: lane, layer: l, phase: schedule.Backward}, layer.Backward, (1-share)*weights[l], n)
		}
	}
	return costs
}

// spread divides the given seconds among the launches of some visits and writes the times of one to costs. key has the
// visits' lane, layer and phase.
func spread(costs map[visitKey]float64, key visitKey, visits []schedule.Visit, seconds float64, n int) {
	experts := 0
	for _, v := range visits {
		if v.Stage == schedule.Expert {
			experts++
		}
	}
	for _, v := range visits {
		switch key.stage = v.Stage; {
		case v.Stage == schedule.Expert:
			costs[key] = seconds / float64(experts)
		case experts == 0:
			costs[key] = seconds / float64(len(visits)*n)
		}
	}
}

// play is the state of a simulation that runs the programs of all lanes. Each lane has a clock of
// its own.
type play struct {
	programs []*schedule.Program
	costs    map[visitKey]float64
	passed   map[int]float64 // arrival time of each object from another lane
	next     []int           // next launch, by lane
	now      []float64       // clock, by lane
}

func (p *play) run() (busy, end float64) {
	for left := true; left; {
		left = false
		for lane := range p.programs {
			for p.next[lane] < len(p.programs[lane].Launches) {
				took, ok := p.launch(lane)
				if left = true; !ok {
					break
				}
				busy += took
			}
		}
	}
	for _, t := range p.now {
		end = math.Max(end, t)
	}
	return busy, end
}

// launch simulates the next launch of a lane and returns how long it takes. If another lane has not
// computed an input yet, ok is false, and the caller continues with other lanes.
func (p *play) launch(lane int) (took float64, ok bool) {
	program := p.programs[lane]
	l := program.Launches[p.next[lane]]
	start := p.now[lane]
	for _, o := range []int{l.In, l.Grad} {
		if o < 0 || program.Objects[o].From < 0 {
			continue
		}
		at, known := p.passed[o]
		if !known {
			return 0, false
		}
		start = math.Max(start, at)
	}
	v := program.Visits[l.Visit]
	took = p.costs[visitKey{lane, v.Layer, v.Phase, v.Stage}]
	p.now[lane] = start + took
	for _, release := range l.Releases {
		if release.Pass {
			p.passed[program.Objects[release.Object].To] = p.now[lane]
		}
	}
	p.next[lane]++
	return took, true
}
