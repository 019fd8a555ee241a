package schedule

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// planned plans a training step for micro-batches of these sizes. With eval it plans a pass of an
// evaluation, which another pass follows.
func planned(t *testing.T, eval bool, s Spec, tokens ...int) *Program {
	t.Helper()
	s.Eval, s.Again = eval, eval
	return mustPlan(t, s, tokens...)
}

func mustPlan(t *testing.T, s Spec, tokens ...int) *Program {
	t.Helper()
	p := testkit.Must(New(s, tokens))(t)
	return p
}

// blockTakes lists the blocks whose weights a program fetches, in order, and counts its other
// fetches.
func blockTakes(p *Program) (blocks []int, others int) {
	for _, v := range p.WeightTakes {
		if p.Visits[v].Stage == Block {
			blocks = append(blocks, p.Visits[v].Layer)
		} else {
			others++
		}
	}
	return blocks, others
}

// TestWeightTrafficOfParts: with a head in parts, each part is fetched like a block. The head's
// second sweep begins with the parts that the first sweep left in slots, so these are not fetched
// again.
func TestWeightTrafficOfParts(t *testing.T) {
	for blocks := 1; blocks <= 4; blocks++ {
		for parts := 2; parts <= 5; parts++ {
			for slots := 1; slots <= blocks+parts+1; slots++ {
				s := Spec{Layers: dense(blocks+2, parts), WeightSlots: slots, ActivationSlots: 64}
				tiles := blocks + parts
				step := planned(t, false, s, 3, 2)
				if want := 2*tiles - min(slots, tiles); len(step.WeightTakes) != want || len(step.Held) != 0 {
					t.Errorf("%d blocks, %d parts, %d slots: a step loads %d tiles, want %d, and holds %v", blocks, parts, slots, len(step.WeightTakes), want, step.Held)
				}
				first := planned(t, true, s, 3, 2)
				s.Held = first.Held
				saved := min(slots, tiles)
				if slots == 1 {
					saved = 0 // the slot holds the last part of the head, and the first block comes next
				}
				if second := planned(t, true, s, 3, 2); len(first.WeightTakes) != tiles || len(second.WeightTakes) != tiles-saved {
					t.Errorf("%d blocks, %d parts, %d slots: evaluations load %d and %d tiles, want %d and %d", blocks, parts, slots,
						len(first.WeightTakes), len(second.WeightTakes), tiles, tiles-saved)
				}
			}
		}
	}
}

// TestWeightTraffic: with S weight slots a training step fetches 2·blocks − min(S, blocks) tiles
// and the head. In an evaluation each pass but the first fetches S blocks less, or none less with
// one slot. The last pass leaves the slots empty, so the next step fetches as many tiles as every
// step.
func TestWeightTraffic(t *testing.T) {
	for blocks := 1; blocks <= 6; blocks++ {
		for slots := 1; slots <= blocks+2; slots++ {
			t.Run(fmt.Sprintf("%d blocks %d slots", blocks, slots), func(t *testing.T) {
				s := Spec{Layers: dense(blocks+2, 1), WeightSlots: slots, ActivationSlots: 64}
				step := planned(t, false, s, 3, 2)
				got, heads := blockTakes(step)
				if want := 2*blocks - min(slots, blocks); len(got) != want || heads != 1 {
					t.Errorf("a step loads blocks %v and %d others, want %d blocks and the head", got, heads, want)
				}
				if len(step.Held) != 0 {
					t.Errorf("after a step %v are held, whose weights change", step.Held)
				}
				first := planned(t, true, s, 3, 2)
				if got, heads := blockTakes(first); len(got) != blocks || heads != 1 {
					t.Errorf("the first evaluation loads %v and %d others", got, heads)
				}
				s.Held = first.Held
				kept := min(slots, blocks)
				if len(s.Held) != kept {
					t.Fatalf("%v are held after an evaluation, want %d", s.Held, kept)
				}
				saved := kept
				if slots == 1 && blocks > 1 {
					saved = 0 // the slot holds the last block, and the first comes next
				}
				second := planned(t, true, s, 3, 2)
				if got, _ := blockTakes(second); len(got) != blocks-saved {
					t.Errorf("the second evaluation loads %v, want %d blocks", got, blocks-saved)
				}
				s.Eval = true
				last := mustPlan(t, s, 3, 2)
				if got, _ := blockTakes(last); len(got) != blocks-saved || len(last.Held) != 0 {
					t.Errorf("the last evaluation loads %v, want %d blocks, and holds %v", got, blocks-saved, last.Held)
				}
			})
		}
	}
}

// TestMicroBatchesTurnAround: the order in which a layer takes the micro-batches depends only on
// the layer's index, and not on the depths or the kind of pass. With Lanes the order is the same
// for all layers.
func TestMicroBatchesTurnAround(t *testing.T) {
	for k := range 4 {
		eval, lanes := k%2 == 1, Order(k/2)
		for weights := 1; weights <= 4; weights++ { // and as many parts of the head
			for acts := 3; acts <= 20; acts += 4 {
				p := planned(t, eval, Spec{Order: lanes, Layers: dense(5, weights), WeightSlots: weights, ActivationSlots: acts}, 5, 4, 3, 2)
				order := map[int][]int{}
				for _, l := range p.Launches {
					order[l.Visit] = append(order[l.Visit], l.MicroBatch)
				}
				for v, got := range order {
					want := []int{0, 1, 2, 3}
					if lanes == Zigzag && (p.Visits[v].Layer+p.Visits[v].Part)%2 == 1 {
						slices.Reverse(want)
					}
					if !slices.Equal(got, want) {
						t.Errorf("eval %t, depths %d, %d: layer %d %s takes %v, want %v", eval, weights, acts, p.Visits[v].Layer, p.Visits[v].Phase, got, want)
					}
				}
			}
		}
	}
}

// TestTooFewActivationSlots: if a launch needs more activation slots than there are, the error
// names the configuration's key.
func TestTooFewActivationSlots(t *testing.T) {
	for slots := 1; slots <= 3; slots++ {
		_, err := New(Spec{Layers: dense(4, 1), WeightSlots: 1, ActivationSlots: slots}, []int{1, 1, 1})
		if (err == nil) != (slots >= 2) {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
}

// TestPlacesOfSpills simulates the spills of random programs. A place on the host holds one
// activation until its last use. All places together are no larger than the inputs of all layers,
// or of one layer in an evaluation.
func TestPlacesOfSpills(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	reused := false
	for trial := range 600 {
		var tokens []int
		for range 1 + r.Intn(6) {
			tokens = append(tokens, 1+r.Intn(9))
		}
		eval := r.Intn(3) == 0
		parts := 1 + trial%3
		s := Spec{Layers: dense(3+r.Intn(5), parts), WeightSlots: 1 + r.Intn(3), ActivationSlots: 3 + r.Intn(12)}
		p := planned(t, eval, s, tokens...)
		kept := len(s.Layers) - 1 // of a micro-batch
		if parts > 1 {
			kept++
		}
		bound := kept * sum(tokens)
		if eval {
			bound = sum(tokens)
		}
		if p.HostTokens > bound {
			t.Fatalf("trial %d: %d tokens on the host, at most %d are planned for: %+v", trial, p.HostTokens, bound, s)
		}
		if all := kept * len(tokens); !eval && s.ActivationSlots >= all && p.HostTokens > 0 {
			t.Fatalf("trial %d: %d slots for %d activations, and %d tokens spill", trial, s.ActivationSlots, all, p.HostTokens)
		}
		if eval && s.ActivationSlots > len(tokens) && p.HostTokens > 0 {
			t.Fatalf("trial %d: an evaluation of %d micro-batches spills %d tokens with %d slots", trial, len(tokens), p.HostTokens, s.ActivationSlots)
		}
		reused = checkPlaces(t, p) || reused
	}
	if !reused {
		t.Error("no place was ever used twice")
	}
}

// checkPlaces simulates p's spills and fetches, and checks that no activation on the host is
// overwritten before its last use. It reports whether any place held two activations in turn.
func checkPlaces(t *testing.T, p *Program) (reused bool) {
	t.Helper()
	owner := map[int]int{} // token on the host → object
	next := 0
	for l := range p.Launches {
		for ; next < len(p.ActTakes) && p.ActTakes[next].At <= l; next++ {
			k := p.ActTakes[next]
			o := p.Objects[k.Object]
			for i := range o.Tokens {
				if at, ok := owner[o.Host+i]; k.Fetch && (!ok || at != k.Object) {
					t.Fatalf("launch %d fetches object %d, and token %d of its place holds object %d (%t)", l, k.Object, i, at, ok)
				}
			}
		}
		for _, r := range p.Launches[l].Releases {
			o := p.Objects[r.Object]
			for i := 0; r.Spill && i < o.Tokens; i++ {
				if was, ok := owner[o.Host+i]; ok && was != r.Object {
					reused = true
				}
				owner[o.Host+i] = r.Object
			}
		}
	}
	return reused
}

// TestProgramsAreDeterministic: planning twice with the same batch and depths gives equal programs.
func TestProgramsAreDeterministic(t *testing.T) {
	for range 20 {
		s := Spec{Layers: dense(6, 1), WeightSlots: 2, ActivationSlots: 4}
		a, b := planned(t, false, s, 4, 3, 2, 1), planned(t, false, s, 4, 3, 2, 1)
		if !reflect.DeepEqual(a, b) {
			t.Fatal("two plans differ")
		}
	}
}

func sum(v []int) (n int) {
	for _, x := range v {
		n += x
	}
	return n
}

// TestTooFewWeightSlots: without a weight slot, the error names the configuration's key.
func TestTooFewWeightSlots(t *testing.T) {
	_, err := New(Spec{Layers: dense(4, 1), ActivationSlots: 64}, []int{1})
	if want := "0 weight slots are too few (pipeline.weight_slots is at least 1)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestEdgesOfSweeps: FirstPart and LastPart report whether a visit is to the part of a head with
// which the sweep over its parts begins or ends. In the backward the sweep goes from the last part
// to the first.
func TestEdgesOfSweeps(t *testing.T) {
	for _, phase := range []Phase{Forward, Backward, Evaluate} {
		for part := range 3 {
			v := Visit{Part: part, Parts: 3, Phase: phase}
			first, last := part == 0, part == 2
			if phase == Backward {
				first, last = last, first
			}
			if v.FirstPart() != first || v.LastPart() != last {
				t.Errorf("%v, part %d of 3: first %t, last %t", phase, part, v.FirstPart(), v.LastPart())
			}
		}
	}
}
