package actors

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
		false: `0.0 embedding whole forward tile 0 turn 0
1.0 attention whole forward tile 1 turn 1
2.0 moe route forward tile 2 turn 2
2.1 moe expert forward tile 3 turn 2
2.2 moe expert forward tile 4 turn 2
2.0 moe join forward tile 2 turn 3
3.0 head whole forward tile 5 turn 4
3.1 head whole forward tile 6 turn 5
3.1 head whole backward tile 6 turn 5
3.0 head whole backward tile 5 turn 4
2.0 moe route backward tile 2 turn 3
2.2 moe expert backward tile 4 turn 2
2.1 moe expert backward tile 3 turn 2
2.0 moe join backward tile 2 turn 2
1.0 attention whole backward tile 1 turn 1
0.0 embedding whole backward tile 0 turn 0`,
		true: `0.0 embedding whole evaluate tile 0 turn 0
1.0 attention whole evaluate tile 1 turn 1
2.0 moe route evaluate tile 2 turn 2
2.1 moe expert evaluate tile 3 turn 2
2.2 moe expert evaluate tile 4 turn 2
2.0 moe join evaluate tile 2 turn 3
3.0 head whole evaluate tile 5 turn 4
3.1 head whole evaluate tile 6 turn 5`,
	} {
		p := planned(t, eval, fakeBatch(1, 1), programSpec{layers: withExperts(1), experts: 2, headShards: 2, weightSlots: 1, activationSlots: 3})
		var got []string
		for _, v := range p.Visits {
			got = append(got, fmt.Sprintf("%d.%d %s %s %s tile %d turn %d", v.Layer, v.Part, v.Kind, v.Stage, v.Pass, v.Tile, v.Turn))
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
	p := planned(t, false, fakeBatch(3, 2), programSpec{layers: withExperts(1), experts: 3, weightSlots: 2, activationSlots: 12})
	experts := 0
	for i, l := range p.Launches {
		v := p.Visits[l.Visit]
		if v.Kind != model.MoE {
			continue
		}
		in, out, grad := n+l.MicroBatch, 2*n+l.MicroBatch, 2*n+l.MicroBatch // the gradient begins as the head's input
		want := Launch{Visit: l.Visit, MicroBatch: l.MicroBatch, In: -1, Out: -1, Grad: -1, Releases: l.Releases}
		switch {
		case v.Stage == Expert:
			experts++
			want.MicroBatch = -1
		case v.Pass == Backward:
			want.In, want.Grad = in, grad
		case v.Stage == Route:
			want.In = in
		default:
			want.Out = out
		}
		if fmt.Sprint(l) != fmt.Sprint(want) {
			t.Errorf("launch %d, %s %s of part %d: %+v, want %+v", i, v.Pass, v.Stage, v.Part, l, want)
		}
		if v.Grad() != (v.Pass == Backward && v.Stage != Route) {
			t.Errorf("%s %s: gradient %t", v.Pass, v.Stage, v.Grad())
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
		p := planned(t, false, fakeBatch(3, 2, 1), programSpec{layers: withExperts(3), experts: experts, weightSlots: 2, activationSlots: 9})
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
				t.Errorf("%d experts: sweep %d takes %v after %v", experts, i, sweeps[i], sweeps[i-1])
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
			s := programSpec{layers: withExperts(2), experts: experts, weightSlots: slots, activationSlots: 64}
			tiles := 2 * (2 + experts)
			step := planned(t, false, fakeBatch(3, 2), s)
			// The whole head stands apart and takes one more.
			if got, want := len(step.WeightTakes), 2*tiles-min(slots, tiles)+1; got > want+1 || got < want {
				t.Errorf("%d experts, %d slots: a step loads %d tiles, want %d or, for a router, one more", experts, slots, got, want)
			}
			for _, onDemand := range []bool{false, true} {
				s.onDemand, s.held = onDemand, nil
				first := planned(t, true, fakeBatch(3, 2), s)
				kinds := map[int]Stage{}
				for _, v := range first.Visits {
					if v.weighs() {
						kinds[v.Tile] = v.Stage
					}
				}
				for _, tile := range first.heldAfter {
					if onDemand && kinds[tile] == Expert {
						t.Errorf("%d experts, %d slots: expert tile %d counts as held after a pass that may not have fetched it", experts, slots, tile)
					}
				}
				if !onDemand && len(first.heldAfter) != min(slots, tiles) {
					t.Errorf("%d experts, %d slots: %d tiles are held after an evaluation", experts, slots, len(first.heldAfter))
				}
				s.held = first.heldAfter
				if last := plannedAs(t, &Program{Eval: true, Batch: fakeBatch(3, 2)}, s); len(last.heldAfter) != 0 {
					t.Errorf("%d experts, %d slots: tiles %v are held after the last pass of an evaluation", experts, slots, last.heldAfter)
				}
				second := planned(t, true, fakeBatch(3, 2), s)
				for _, v := range second.WeightTakes {
					if slices.Contains(first.heldAfter, second.Visits[v].Tile) && !slices.Contains(second.Stale, second.Visits[v].Tile) && slots >= tiles {
						t.Errorf("%d experts, %d slots: tile %d is fetched though it is held", experts, slots, second.Visits[v].Tile)
					}
				}
			}
		}
	}
}

// TestIdleExperts: on demand nothing is asked for before the routing has landed,
// then all experts but the idle ones; ahead all, at once. A forward passes an idle
// expert by, a backward makes its gradient without weights.
func TestIdleExperts(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		s := programSpec{layers: withExperts(1), experts: 4, onDemand: onDemand, weightSlots: 9, activationSlots: 12}
		p := planned(t, false, fakeBatch(2), s)
		depths := testDepths(9)
		depths.WeightSlots = 9
		pre := newPrefetcherCore(len(s.layers), 0, false, depths)
		fetched := func(msg any) (parts []int) {
			for _, e := range pre.step(msg) {
				if w, ok := e.(work); ok {
					if f, ok := w.do.(fetchWeights); ok && p.Visits[2].Layer == f.Layer {
						parts = append(parts, f.Part)
					}
				}
			}
			return parts
		}
		before := fetched(PassPlanned{p})
		landed := RoutingLanded{Layer: 2, Offsets: []int32{0, 1, 1, 3, 3}}
		after := fetched(landed)
		wantBefore, wantAfter := []int{0, 1, 2, 3, 4}, []int(nil)
		if onDemand {
			wantBefore, wantAfter = []int{0}, []int{1, 3}
		}
		if !slices.Equal(before, wantBefore) || !slices.Equal(after, wantAfter) {
			t.Errorf("on demand %t: parts %v are fetched before the routing has landed, then %v; want %v, %v", onDemand, before, after, wantBefore, wantAfter)
		}
		checkIdleLaunches(t, p, landed, depths.GradBuffers, onDemand)
	}
}

// checkIdleLaunches runs p through Compute with everything granted.
func checkIdleLaunches(t *testing.T, p *Program, landed RoutingLanded, gradBuffers int, onDemand bool) {
	t.Helper()
	c := newComputeCore(testDepths(gradBuffers))
	msgs := []any{PassPlanned{p}, BatchFetched{}}
	for o := range p.Objects {
		msgs = append(msgs, ActivationFetched{Object: o, Slot: o})
	}
	slot := 0
	for _, v := range p.WeightTakes {
		if visit := p.Visits[v]; !onDemand || visit.Stage != Expert || landed.Offsets[visit.Part] > landed.Offsets[visit.Part-1] {
			msgs = append(msgs, LayerFetched{Visit: v, Slot: slot})
			slot++
		}
	}
	msgs = append(msgs, landed)
	var got []string
	freed := 0
	for _, m := range msgs {
		for _, e := range c.step(m) {
			switch e := e.(type) {
			case work:
				if l, ok := e.do.(launch); ok && p.Visits[p.Launches[l.Index].Visit].Stage == Expert {
					v := p.Visits[p.Launches[l.Index].Visit]
					got = append(got, fmt.Sprintf("%d %s %d+%d %t", v.Part, v.Pass, l.From, l.Pairs, l.Weights >= 0))
				}
			case send:
				if _, ok := e.msg.(SlotFreed); ok {
					freed++
				}
			}
		}
	}
	want := []string{"1 forward 0+1 true", "3 forward 1+2 true",
		"4 backward 3+0 false", "3 backward 1+2 true", "2 backward 1+0 false", "1 backward 0+1 true"}
	if !slices.Equal(got, want) {
		t.Errorf("on demand %t: experts run as %v, want %v", onDemand, got, want)
	}
	if c.next != 0 || len(c.programs) != 0 || freed != slot-1 { // the head's slot is another
		t.Errorf("on demand %t: the program stopped at launch %d, %d of %d slots came back", onDemand, c.next, freed, slot-1)
	}
}

// TestExpertTrafficIsCounted: ahead every step fetches all experts twice, less what
// the slots keep beside the router; on demand those that are used; in place none.
func TestExpertTrafficIsCounted(t *testing.T) {
	tr := base()
	tr.blocks, tr.experts, tr.chosen, tr.copyTiles, tr.depths.WeightSlots = 1, 24, 1, true, 3
	tile := tr.plan(tr.config()).Layouts[2].Part(1).TileBytes
	ahead := mustRun(t, tr)
	if want := int64(tr.steps) * (2*24 - 2); ahead.experts != want || ahead.expertBytes != want*tile {
		t.Errorf("ahead %d tiles, %d bytes; want %d tiles of %d", ahead.experts, ahead.expertBytes, want, tile)
	}
	tr.onDemand = true
	onDemand := mustRun(t, tr)
	if n := onDemand.experts; n == 0 || n >= ahead.experts || onDemand.expertBytes != n*tile {
		t.Errorf("on demand %d tiles, %d bytes; ahead %d", n, onDemand.expertBytes, ahead.experts)
	}
	tr.copyTiles = false
	if inPlace := mustRun(t, tr); inPlace.experts != 0 || inPlace.expertBytes != 0 {
		t.Errorf("in place %d tiles", inPlace.experts)
	}
}

// TestExpertTrafficIsForgotten: what was read takes no memory any more.
func TestExpertTrafficIsForgotten(t *testing.T) {
	var x expertTraffic
	for prog := range 4 {
		x.add(prog, 10)
		x.add(prog, 20)
	}
	if got := x.read(2); got != (traffic{tiles: 2, bytes: 30}) || len(x.prog) != 1 {
		t.Errorf("program 2 moved %+v, and %d programs are remembered; want 2 tiles of 30 bytes, and the last", got, len(x.prog))
	}
}
