package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mt/model"
)

// withExperts are the kinds of a model of blocks with experts.
func withExperts(blocks int) []model.LayerKind {
	kinds := []model.LayerKind{model.Embedding}
	for range blocks {
		kinds = append(kinds, model.Attention, model.MoE)
	}
	return append(kinds, model.Head)
}

// TestVisitsOfExperts: forward the router, its experts and the router's second
// turn; backward the same with the experts in reverse. Numbers of tiles go on
// behind a layer's experts, turns of the micro-batches behind its two sweeps.
func TestVisitsOfExperts(t *testing.T) {
	for eval, want := range map[bool]string{
		false: `0.0 embed forward tile 0 turn 0
1.0 attention forward tile 1 turn 1
2.0 route forward tile 2 turn 2
2.1 expert forward tile 3 turn 2
2.2 expert forward tile 4 turn 2
2.0 join forward tile 2 turn 3
3.0 head part forward tile 5 turn 4
3.1 head part forward tile 6 turn 5
3.1 head part backward tile 6 turn 5
3.0 head part backward tile 5 turn 4
2.0 route backward tile 2 turn 3
2.2 expert backward tile 4 turn 2
2.1 expert backward tile 3 turn 2
2.0 join backward tile 2 turn 2
1.0 attention backward tile 1 turn 1
0.0 embed backward tile 0 turn 0`,
		true: `0.0 embed evaluate tile 0 turn 0
1.0 attention evaluate tile 1 turn 1
2.0 route evaluate tile 2 turn 2
2.1 expert evaluate tile 3 turn 2
2.2 expert evaluate tile 4 turn 2
2.0 join evaluate tile 2 turn 3
3.0 head part evaluate tile 5 turn 4
3.1 head part evaluate tile 6 turn 5`,
	} {
		p := planned(t, eval, Spec{Layers: withExperts(1), Experts: 2, HeadShards: 2, WeightSlots: 1, ActivationSlots: 3}, 1, 1)
		var got []string
		for _, v := range p.Visits {
			got = append(got, fmt.Sprintf("%d.%d %s %s tile %d turn %d", v.Layer, v.Part, v.Stage, v.Phase, v.Tile, v.Turn))
		}
		if s := strings.Join(got, "\n"); s != want {
			t.Errorf("eval %t:\n%s\nwant\n%s", eval, s, want)
		}
	}
}

// TestLaunchesOfExperts: the router reads the layer's input, its second turn
// writes the output; in the backward the first reads both input and gradient and
// the second turns the gradient. An expert has one launch without activations,
// and no gradient comes of routing again.
func TestLaunchesOfExperts(t *testing.T) {
	const n = 2 // micro-batches; object k·n+mb is the input of layer k+1
	p := planned(t, false, Spec{Layers: withExperts(1), Experts: 3, WeightSlots: 2, ActivationSlots: 12}, 3, 2)
	experts := 0
	for i, l := range p.Launches {
		v := p.Visits[l.Visit]
		if v.Stage < Route || v.Stage > Join {
			continue
		}
		in, out, grad := n+l.MicroBatch, 2*n+l.MicroBatch, 2*n+l.MicroBatch // the gradient begins as the head's input
		want := Launch{Visit: l.Visit, MicroBatch: l.MicroBatch, In: -1, Out: -1, Grad: -1, Releases: l.Releases}
		switch {
		case v.Stage == Expert:
			experts++
			want.MicroBatch = -1
		case v.Phase == Backward:
			want.In, want.Grad = in, grad
		case v.Stage == Route:
			want.In = in
		default:
			want.Out = out
		}
		if fmt.Sprint(l) != fmt.Sprint(want) {
			t.Errorf("launch %d, %s %s of part %d: %+v, want %+v", i, v.Phase, v.Stage, v.Part, l, want)
		}
		if v.Grad() != (v.Phase == Backward && v.Stage != Route) {
			t.Errorf("%s %s: gradient %t", v.Phase, v.Stage, v.Grad())
		}
	}
	if experts != 2*3 {
		t.Errorf("%d launches of experts, want 6", experts)
	}
}

// TestMicroBatchesTurnAroundAtExperts: between any two sweeps of the micro-batches
// that follow each other the order turns, up and down.
func TestMicroBatchesTurnAroundAtExperts(t *testing.T) {
	for experts := 1; experts <= 4; experts++ {
		p := planned(t, false, Spec{Layers: withExperts(3), Experts: experts, WeightSlots: 2, ActivationSlots: 9}, 3, 2, 1)
		var sweeps [][]int
		for v, visit := range p.Visits {
			if visit.Stage == Expert {
				continue
			}
			var order []int
			for _, l := range p.Launches {
				if l.Visit == v {
					order = append(order, l.MicroBatch)
				}
			}
			sweeps = append(sweeps, order)
		}
		for i := 1; i < len(sweeps); i++ {
			turned := slices.Clone(sweeps[i-1])
			slices.Reverse(turned)
			if !slices.Equal(sweeps[i], turned) {
				t.Errorf("%d Experts: sweep %d takes %v after %v", experts, i, sweeps[i], sweeps[i-1])
			}
		}
	}
}

// TestTrafficOfExperts: every part of a layer is a tile of its own, and the slots
// spare the backward what the forward used last. A pass of an evaluation finds what
// the one before left in the slots; of experts fetched on demand nothing, as none may
// have come. The last one leaves nothing.
func TestTrafficOfExperts(t *testing.T) {
	for experts := 1; experts <= 5; experts++ {
		for slots := 2; slots <= 8; slots++ {
			s := Spec{Layers: withExperts(2), Experts: experts, WeightSlots: slots, ActivationSlots: 64}
			tiles := 2 * (2 + experts)
			step := planned(t, false, s, 3, 2)
			// The whole head stands apart and takes one more.
			if got, want := len(step.WeightTakes), 2*tiles-min(slots, tiles)+1; got > want+1 || got < want {
				t.Errorf("%d experts, %d slots: a step loads %d tiles, want %d or, for a router, one more", experts, slots, got, want)
			}
			for _, onDemand := range []bool{false, true} {
				s.OnDemand, s.Held = onDemand, nil
				first := planned(t, true, s, 3, 2)
				kinds := map[int]Stage{}
				for _, v := range first.Visits {
					if v.Weighs() {
						kinds[v.Tile] = v.Stage
					}
				}
				for _, tile := range first.Held {
					if onDemand && kinds[tile] == Expert {
						t.Errorf("%d experts, %d slots: expert tile %d counts as held after a pass that may not have fetched it", experts, slots, tile)
					}
				}
				if !onDemand && len(first.Held) != min(slots, tiles) {
					t.Errorf("%d experts, %d slots: %d tiles are held after an evaluation", experts, slots, len(first.Held))
				}
				s.Held = first.Held
				s.Eval = true
				if last := mustPlan(t, s, 3, 2); len(last.Held) != 0 {
					t.Errorf("%d experts, %d slots: tiles %v are held after the last pass of an evaluation", experts, slots, last.Held)
				}
				second := planned(t, true, s, 3, 2)
				for _, v := range second.WeightTakes {
					if slices.Contains(first.Held, second.Visits[v].Tile) && !slices.Contains(second.Stale, second.Visits[v].Tile) && slots >= tiles {
						t.Errorf("%d experts, %d slots: tile %d is fetched though it is held", experts, slots, second.Visits[v].Tile)
					}
				}
			}
		}
	}
}
