package schedule

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// drawLanes puts every layer on one of n lanes, and at least one on each if there are enough layers.
func drawLanes(r *rand.Rand, layers, n int) []int {
	n = min(n, layers)
	out := make([]int, layers)
	for i := range out {
		out[i] = r.Intn(n)
	}
	for lane, layer := range r.Perm(layers)[:n] {
		out[layer] = lane
	}
	return out
}

// drawParts puts the parts of the head on lanes: each lane has the parts of one run, or none.
func drawParts(r *rand.Rand, layers []Layer, lanes int) {
	order, top := r.Perm(lanes), &layers[len(layers)-1]
	at := 0
	for part := range top.Tiles {
		if part > 0 && at+1 < lanes {
			at += r.Intn(2)
		}
		top.Lanes = append(top.Lanes, order[at])
	}
}

// TestProgramsOfLanes simulates the programs of several lanes side by side, in any order that
// passing activations allows. All programs end, every launch finds its inputs, and the launches of
// each lane have the order that they have on one lane with all layers.
func TestProgramsOfLanes(t *testing.T) {
	passedOn, apart := 0, 0
	for seed := range int64(600) {
		r := rand.New(rand.NewSource(seed))
		s := Spec{Order: Lanes, Layers: dense(2+r.Intn(5), 1+r.Intn(3)), WeightSlots: 1 + r.Intn(3), ActivationSlots: 3 + r.Intn(6), Eval: r.Intn(3) == 0}
		if s.PerRound = r.Intn(4); r.Intn(3) == 0 {
			s.Layers, s.PerRound = withExperts(1+r.Intn(2), 2), 0
		}
		s.Lane = drawLanes(r, len(s.Layers), 1+r.Intn(4))
		if r.Intn(2) == 0 {
			drawParts(r, s.Layers, 1+slices.Max(s.Lane))
			apart += len(slices.Compact(slices.Clone(s.Layers[len(s.Layers)-1].Lanes))) - 1
		}
		var tokens []int
		for range 1 + r.Intn(5) {
			tokens = append(tokens, 1+r.Intn(9))
		}
		programs, err := Programs(s, tokens)
		testkit.NoError(t, err)
		one := mustPlan(t, s, tokens...)
		for lane, p := range programs {
			if got, want := made(p, s, lane), made(one, s, lane); !slices.Equal(got, want) {
				t.Fatalf("seed %d: lane %d of %v makes %v, want %v", seed, lane, s.Lane, got, want)
			}
		}
		n, err := (&lanesAtWork{spec: s, programs: programs, r: r}).run()
		if err != nil {
			t.Fatalf("seed %d: lanes %v: %v", seed, s.Lane, err)
		}
		passedOn += n
	}
	if passedOn < 1000 || apart < 50 {
		t.Errorf("only %d activations were passed on, and %d times the next part of a head was on another lane", passedOn, apart)
	}
}

// made lists the launches of a program that belong to layers or parts of a lane, in words that tests
// compare.
func made(p *Program, s Spec, lane int) (out []string) {
	for _, l := range p.Launches {
		if v := p.Visits[l.Visit]; s.At(v.Layer, v.Part) == lane {
			out = append(out, fmt.Sprint(v.Phase, v.Layer, v.Stage, v.Part, l.MicroBatch))
		}
	}
	return out
}

// lanesAtWork simulates the programs of several lanes. Words stand for the contents of activations.
type lanesAtWork struct {
	spec     Spec
	programs []*Program
	r        *rand.Rand
	slots    []map[int]string // by lane and object
	spilled  []map[int]string // by lane and place
	passage  map[int]string   // by place; empty: free
	arrived  map[int]bool     // by object
	next     []int            // by lane: launch
	takes    []int            // by lane
	passed   int
}

func (y *lanesAtWork) run() (passed int, err error) {
	y.passage, y.arrived = map[int]string{}, map[int]bool{}
	y.next, y.takes = make([]int, len(y.programs)), make([]int, len(y.programs))
	for range y.programs {
		y.slots, y.spilled = append(y.slots, map[int]string{}), append(y.spilled, map[int]string{})
	}
	for {
		moved, left := false, false
		for _, lane := range y.r.Perm(len(y.programs)) {
			for k := y.r.Intn(4); k >= 0 && y.next[lane] < len(y.programs[lane].Launches); k-- {
				left = true
				ok, err := y.launch(lane)
				if err != nil {
					return 0, fmt.Errorf("lane %d launch %d: %w", lane, y.next[lane], err)
				}
				moved = moved || ok
			}
		}
		if !left {
			return y.passed, nil
		}
		if !moved {
			return 0, fmt.Errorf("no lane can go on after %v launches", y.next)
		}
	}
}

// launch runs the next launch of a lane. It returns false if the launch must wait for an arrival.
func (y *lanesAtWork) launch(lane int) (bool, error) {
	p := y.programs[lane]
	at := y.next[lane]
	for ; y.takes[lane] < len(p.ActTakes) && p.ActTakes[y.takes[lane]].At <= at; y.takes[lane]++ {
		if ok, err := y.take(lane, p.ActTakes[y.takes[lane]]); err != nil || !ok {
			return false, err
		}
	}
	l := p.Launches[at]
	if all := l.MicroBatch < 0; all != (l.Tokens == 0) {
		return false, fmt.Errorf("a launch of micro-batch %d has %d tokens", l.MicroBatch, l.Tokens)
	}
	if l.MicroBatch >= 0 {
		if err := y.compute(lane, l, p.Visits[l.Visit]); err != nil {
			return false, err
		}
	}
	for _, r := range l.Releases {
		if err := y.release(lane, p.Objects[r.Object], r); err != nil {
			return false, err
		}
	}
	y.next[lane]++
	return true, nil
}

func (y *lanesAtWork) take(lane int, k Take) (bool, error) {
	o := y.programs[lane].Objects[k.Object]
	if o.Lane != lane {
		return false, fmt.Errorf("object %d of lane %d is taken", k.Object, o.Lane)
	}
	if k.Arrives && !y.arrived[k.Object] {
		return false, nil
	}
	if len(y.slots[lane]) >= y.spec.ActivationSlots {
		return false, fmt.Errorf("no slot for object %d", k.Object)
	}
	switch {
	case k.Arrives:
		y.slots[lane][k.Object] = y.passage[o.Passage]
		delete(y.passage, o.Passage)
	case k.Fetch:
		y.slots[lane][k.Object] = y.spilled[lane][o.Host]
	default:
		y.slots[lane][k.Object] = "nothing yet"
	}
	return true, nil
}

func (y *lanesAtWork) release(lane int, o Object, r Release) error {
	switch {
	case r.Pass && y.passage[o.Passage] != "":
		return fmt.Errorf("object %d is passed on, and its place has %q", r.Object, y.passage[o.Passage])
	case r.Pass:
		y.passed++
		y.passage[o.Passage], y.arrived[o.To] = y.slots[lane][r.Object], true
	case r.Spill:
		y.spilled[lane][o.Host] = y.slots[lane][r.Object]
	}
	delete(y.slots[lane], r.Object)
	return nil
}

// compute simulates a launch: it checks that the input activations have the right contents, and
// sets the content of the output.
func (y *lanesAtWork) compute(lane int, l Launch, v Visit) error {
	mb := l.MicroBatch
	input := func(layer int) string { return fmt.Sprintf("input of layer %d, micro-batch %d", layer, mb) }
	gradient := func(layer int) string { return fmt.Sprintf("gradient of input of layer %d, micro-batch %d", layer, mb) }
	want := func(object int, words string) error {
		if got := y.slots[lane][object]; got != words {
			return fmt.Errorf("layer %d %s %s reads %q, want %q", v.Layer, v.Stage, v.Phase, got, words)
		}
		return nil
	}
	if l.In >= 0 {
		if err := want(l.In, input(v.Layer)); err != nil {
			return err
		}
	}
	if l.Grad >= 0 {
		of := gradient(v.Layer + 1)
		if v.Layer == len(y.spec.Layers)-1 && v.Stage == Head {
			of = input(v.Layer)
		} else if v.Stage == HeadPart {
			of = gradient(v.Layer)
		}
		if err := want(l.Grad, of); err != nil {
			return err
		}
	}
	switch {
	case v.Uses.Has(Output):
		y.slots[lane][l.Out] = input(v.Layer + 1)
	case v.Uses.Has(AllocatesGrad):
		y.slots[lane][l.Out] = gradient(v.Layer)
	case v.Uses.Has(UpdatesGradInPlace):
		y.slots[lane][l.Grad] = gradient(v.Layer)
	case l.Out >= 0: // for the head's next part
		y.slots[lane][l.Out] = input(v.Layer)
	}
	return nil
}
