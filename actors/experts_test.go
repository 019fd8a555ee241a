package actors

import (
	"fmt"
	"slices"
	"testing"

	"mt/layers/schedule"
	"mt/model"
)

// TestIdleExperts: if a program fetches experts on demand, no expert's tile is fetched before the
// routing has landed, and then all tiles except those of idle experts (without tokens). Otherwise
// all tiles are fetched at once. A forward skips an idle expert; its backward sets its gradient and
// needs no weights.
func TestIdleExperts(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		s := schedule.Spec{Layers: stages([]model.LayerKind{model.Embedding, model.Attention, model.MoE, model.Head}, 4, 1), OnDemand: onDemand, WeightSlots: 9, ActivationSlots: 12}
		p := planned(t, s, fakeBatch(2))
		depths := testDepths(9)
		depths.WeightSlots = 9
		pre := newPrefetcherCore(fetching(s, false, depths), 0)
		fetched := func(msg message) (parts []int) {
			for _, e := range pre.step(msg) {
				if w, ok := e.(work); ok {
					f, _ := w.do.(fetchWeights)
					if x, ok := w.do.(fetchExpert); ok {
						f = x.fetchWeights
					}
					if p.Visits[2].Layer == f.Layer {
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

// checkIdleLaunches runs p through Compute's core with every input granted. It checks which experts
// are launched, and which of these wait for weights.
func checkIdleLaunches(t *testing.T, p *Pass, landed RoutingLanded, gradBuffers int, onDemand bool) {
	t.Helper()
	c := newComputeCore(computeSpec{gradBuffers: gradBuffers, experts: true})
	msgs := []message{PassPlanned{p}, BatchFetched{}}
	for o := range p.Objects {
		msgs = append(msgs, ActivationFetched{Object: o, Slot: o})
	}
	slot := 0
	for _, v := range p.WeightTakes {
		if visit := p.Visits[v]; !onDemand || visit.Stage != schedule.Expert || landed.Offsets[visit.Part] > landed.Offsets[visit.Part-1] {
			msgs = append(msgs, LayerFetched{Visit: v, Slot: slot})
			slot++
		}
	}
	msgs = append(msgs, landed)
	var got []string
	freed := 0
	for len(msgs) > 0 {
		m := msgs[0]
		msgs = msgs[1:]
		for _, e := range c.step(m) {
			switch e := e.(type) {
			case work:
				for _, s := range e.done {
					if s.msg == (LaunchPassed{}) {
						msgs = append(msgs, s.msg)
					}
				}
				if l, ok := e.do.(enqueue); ok && p.Visits[p.Launches[l.Index].Visit].Stage == schedule.Expert {
					v := p.Visits[p.Launches[l.Index].Visit]
					got = append(got, fmt.Sprintf("%d %s %d+%d %t", v.Part, v.Phase, l.From, l.Pairs, l.Weights >= 0))
				}
			case send:
				if _, ok := e.msg.(SlotFreed); ok {
					freed++
				}
			}
		}
	}
	// An idle expert's weights are not read. But if they were fetched, the copy must end before the gradient is
	// reported, because the weights are updated then.
	want := []string{"1 forward 0+1 true", "3 forward 1+2 true",
		fmt.Sprintf("4 backward 3+0 %t", !onDemand), "3 backward 1+2 true", fmt.Sprintf("2 backward 1+0 %t", !onDemand), "1 backward 0+1 true"}
	if !slices.Equal(got, want) {
		t.Errorf("on demand %t: experts run as %v, want %v", onDemand, got, want)
	}
	if c.next != 0 || len(c.programs) != 0 || freed != slot {
		t.Errorf("on demand %t: the program stopped at launch %d, %d of %d slots came back", onDemand, c.next, freed, slot)
	}
}

// TestExpertTrafficIsCounted: a step that fetches all experts ahead copies each twice (forward and
// backward), except those still in slots. On demand it copies only the experts that get tokens. On
// a unified device it copies none.
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

// TestExpertTrafficIsForgotten: reading the counts of a program frees their memory.
func TestExpertTrafficIsForgotten(t *testing.T) {
	var x expertTraffic
	for prog := range 4 {
		x.add(prog, 10)
		x.add(prog, 20)
	}
	if got := x.read(2); got != (traffic{tiles: 2, bytes: 30}) || len(x.byPass) != 1 {
		t.Errorf("program 2 moved %+v, and %d programs are remembered; want 2 tiles of 30 bytes, and the last", got, len(x.byPass))
	}
}
