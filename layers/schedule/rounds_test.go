package schedule

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
)

// inRounds returns a schedule of two blocks that keep something for a share of a round's micro-batches. perRound is
// Spec.PerRound.
func inRounds(perRound int, kept Share) Spec {
	s := Spec{Order: Lanes, Layers: dense(4, 1), WeightSlots: 2, ActivationSlots: 3, KeptSlots: 2, Kept: kept, PerRound: perRound}
	for l := 1; l <= 2; l++ {
		for _, visits := range []*[]Visit{&s.Layers[l].Forward, &s.Layers[l].Backward} {
			*visits = slices.Clone(*visits)
			(*visits)[0].Uses |= Keeps
		}
	}
	return s
}

// TestRounds: in each round its micro-batches go through all layers, forward and backward. All rounds but the first
// continue the sums of gradients, and the losses are complete in the last.
func TestRounds(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for perRound := range 9 {
			kept := Share{N: 1, Of: 2}
			s := inRounds(perRound, kept)
			p := mustPlan(t, s, slices.Repeat([]int{5}, n)...)
			rounds, next := 1, 0
			if perRound > 0 {
				rounds = int(math.Ceil(float64(n) / float64(perRound)))
			}
			var seen []int // micro-batches of the rounds so far
			for round := range rounds {
				from, to := s.Round(round, n)
				for layer := range 2*len(s.Layers) - 1 {
					v := p.Visits[next]
					backward := layer >= len(s.Layers)-1
					if what := fmt.Sprintf("%d rounds of %d: visit %+v", rounds, n, v); v.Round != round || (v.Phase == Backward) != backward ||
						v.Resumes != (v.Grad() && round > 0) || v.Partial != (v.Grad() && round+1 < rounds) || v.Loss != (v.Stage == Head && round+1 == rounds) {
						t.Fatalf("%s in round %d", what, round)
					}
					var mine []int
					for i := v.First; i < len(p.Launches) && p.Launches[i].Visit == next; i++ {
						mb := p.Launches[i].MicroBatch
						mine = append(mine, mb)
						if has := p.Launches[i].Kept >= 0; has != (v.Stage == Block && kept.Has(mb-from)) {
							t.Errorf("%d rounds of %d: what layer %d keeps of micro-batch %d is in a slot: %t", rounds, n, v.Layer, mb, has)
						}
					}
					if len(mine) != to-from || perRound > 0 && len(mine) > perRound || mine[0] != from || !slices.IsSorted(mine) {
						t.Fatalf("%d rounds of %d: a visit of round %d takes %v", rounds, n, round, mine)
					}
					next++
				}
				for mb := from; mb < to; mb++ {
					seen = append(seen, mb)
				}
			}
			if next != len(p.Visits) || len(seen) != n {
				t.Errorf("%d rounds of %d: %d of %d visits, micro-batches %v", rounds, n, next, len(p.Visits), seen)
			}
		}
	}
}

// TestRoundsShareSpillMemory: spilled activations of all rounds need the memory of the largest round, and each fits in
// its place.
func TestRoundsShareSpillMemory(t *testing.T) {
	for rounds := 2; rounds <= 4; rounds++ {
		one := mustPlan(t, inRounds(3, Share{}), 3, 9, 4)
		if all := mustPlan(t, inRounds(3, Share{}), slices.Repeat([]int{2, 9, 4}, rounds)...); one.HostTokens == 0 || all.HostTokens > one.HostTokens {
			t.Errorf("%d rounds spill into memory for %d tokens, and one into %d", rounds, all.HostTokens, one.HostTokens)
		}
	}
	sizes := map[int]int{} // by place: the largest activation there
	p := mustPlan(t, inRounds(3, Share{}), 3, 9, 4, 8, 1, 2)
	for _, o := range p.Objects {
		if o.Host >= 0 {
			sizes[o.Host] = max(sizes[o.Host], o.Tokens)
		}
	}
	places := append(slices.Sorted(maps.Keys(sizes)), p.HostTokens)
	for i, at := range places[:len(places)-1] {
		if at+sizes[at] > places[i+1] {
			t.Errorf("%d tokens spill to token %d, and others to token %d", sizes[at], at, places[i+1])
		}
	}
}
