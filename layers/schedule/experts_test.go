package schedule

import (
	"slices"
	"testing"
)

// TestMicroBatchesTurnAroundAtExperts: with Zigzag order, each sweep of the micro-batches takes
// them in the reverse order of the previous sweep, in forward and backward. A layer with experts
// has two sweeps.
func TestMicroBatchesTurnAroundAtExperts(t *testing.T) {
	for experts := 1; experts <= 4; experts++ {
		p := planned(t, false, Spec{Layers: withExperts(3, experts), WeightSlots: 2, ActivationSlots: 9}, 3, 2, 1)
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

// TestTrafficOfExperts counts the tiles that a pass fetches; the router and each expert are
// separate tiles. The backward does not fetch the tiles that the forward used last, because they
// are still in slots. A pass of an evaluation reuses the tiles that the previous pass left in
// slots, except experts fetched on demand, which may be missing. The last pass leaves none.
func TestTrafficOfExperts(t *testing.T) {
	for experts := 1; experts <= 5; experts++ {
		for slots := 2; slots <= 8; slots++ {
			s := Spec{Layers: withExperts(2, experts), WeightSlots: slots, ActivationSlots: 64}
			tiles := 2 * (2 + experts)
			step := planned(t, false, s, 3, 2)
			// The whole head has its own slot and takes one more fetch.
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
