package actors

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"mt/data"
	"mt/model"
)

// fakeBatch has micro-batches of the given sizes.
func fakeBatch(tokens ...int) *data.Batch {
	b := &data.Batch{Supervised: 1}
	for _, n := range tokens {
		b.MicroBatches = append(b.MicroBatches, data.MicroBatch{Tokens: n})
		b.Tokens += int64(n)
	}
	return b
}

// planned plans a training step, or a pass of an evaluation that another follows.
func planned(t *testing.T, eval bool, b *data.Batch, s programSpec) *Program {
	t.Helper()
	return plannedAs(t, &Program{Eval: eval, Again: eval, Batch: b}, s)
}

func plannedAs(t *testing.T, p *Program, s programSpec) *Program {
	t.Helper()
	if err := planProgram(p, s); err != nil {
		t.Fatal(err)
	}
	return p
}

// blockTakes are the blocks that a program fetches weights for.
func blockTakes(p *Program) (blocks []int, others int) {
	for _, v := range p.WeightTakes {
		if p.Visits[v].Kind == model.Block {
			blocks = append(blocks, p.Visits[v].Layer)
		} else {
			others++
		}
	}
	return blocks, others
}

// TestWeightTrafficOfParts: the parts of the head count like blocks, and the
// second sweep begins with what the first left.
func TestWeightTrafficOfParts(t *testing.T) {
	for blocks := 1; blocks <= 4; blocks++ {
		for parts := 2; parts <= 5; parts++ {
			for slots := 1; slots <= blocks+parts+1; slots++ {
				s := programSpec{layers: dense(blocks + 2), headShards: parts, weightSlots: slots, activationSlots: 64}
				tiles := blocks + parts
				step := planned(t, false, fakeBatch(3, 2), s)
				if want := 2*tiles - min(slots, tiles); len(step.WeightTakes) != want || len(step.heldAfter) != 0 {
					t.Errorf("%d blocks, %d parts, %d slots: a step loads %d tiles, want %d, and holds %v", blocks, parts, slots, len(step.WeightTakes), want, step.heldAfter)
				}
				first := planned(t, true, fakeBatch(3, 2), s)
				s.held = first.heldAfter
				saved := min(slots, tiles)
				if slots == 1 {
					saved = 0 // the part it holds is the last, and the first block comes next
				}
				if second := planned(t, true, fakeBatch(3, 2), s); len(first.WeightTakes) != tiles || len(second.WeightTakes) != tiles-saved {
					t.Errorf("%d blocks, %d parts, %d slots: evaluations load %d and %d tiles, want %d and %d", blocks, parts, slots,
						len(first.WeightTakes), len(second.WeightTakes), tiles, tiles-saved)
				}
			}
		}
	}
}

// TestWeightTraffic: with S slots a training step loads 2·blocks − min(S,
// blocks) tiles and the head; an evaluation's pass that follows another loads S
// blocks less (with one slot none less). The last pass leaves the slots empty: the
// step after it loads what every step loads.
func TestWeightTraffic(t *testing.T) {
	for blocks := 1; blocks <= 6; blocks++ {
		for slots := 1; slots <= blocks+2; slots++ {
			t.Run(fmt.Sprintf("%d blocks %d slots", blocks, slots), func(t *testing.T) {
				s := programSpec{layers: dense(blocks + 2), weightSlots: slots, activationSlots: 64}
				b := fakeBatch(3, 2)
				step := planned(t, false, b, s)
				got, heads := blockTakes(step)
				if want := 2*blocks - min(slots, blocks); len(got) != want || heads != 1 {
					t.Errorf("a step loads blocks %v and %d others, want %d blocks and the head", got, heads, want)
				}
				if len(step.heldAfter) != 0 {
					t.Errorf("after a step %v are held, whose weights change", step.heldAfter)
				}
				first := planned(t, true, b, s)
				if got, heads := blockTakes(first); len(got) != blocks || heads != 1 {
					t.Errorf("the first evaluation loads %v and %d others", got, heads)
				}
				s.held = first.heldAfter
				kept := min(slots, blocks)
				if len(s.held) != kept {
					t.Fatalf("%v are held after an evaluation, want %d", s.held, kept)
				}
				saved := kept
				if slots == 1 && blocks > 1 {
					saved = 0 // the block it holds is the last, and the first comes next
				}
				second := planned(t, true, b, s)
				if got, _ := blockTakes(second); len(got) != blocks-saved {
					t.Errorf("the second evaluation loads %v, want %d blocks", got, blocks-saved)
				}
				last := plannedAs(t, &Program{Eval: true, Batch: b}, s)
				if got, _ := blockTakes(last); len(got) != blocks-saved || len(last.heldAfter) != 0 {
					t.Errorf("the last evaluation loads %v, want %d blocks, and holds %v", got, blocks-saved, last.heldAfter)
				}
			})
		}
	}
}

// TestMicroBatchesTurnAround: every layer and every part of the head takes the
// micro-batches in the order that its index alone says, whatever the depths, in
// every pass.
func TestMicroBatchesTurnAround(t *testing.T) {
	b := fakeBatch(5, 4, 3, 2)
	for _, eval := range []bool{false, true} {
		for weights := 1; weights <= 4; weights++ { // and as many parts of the head
			for acts := 3; acts <= 20; acts += 4 {
				p := planned(t, eval, b, programSpec{layers: dense(5), headShards: weights, weightSlots: weights, activationSlots: acts})
				order := map[int][]int{}
				for _, l := range p.Launches {
					order[l.Visit] = append(order[l.Visit], l.MicroBatch)
				}
				for v, got := range order {
					want := []int{0, 1, 2, 3}
					if (p.Visits[v].Layer+p.Visits[v].Part)%2 == 1 {
						slices.Reverse(want)
					}
					if !slices.Equal(got, want) {
						t.Errorf("eval %t, depths %d, %d: layer %d %s takes %v, want %v", eval, weights, acts, p.Visits[v].Layer, p.Visits[v].Pass, got, want)
					}
				}
			}
		}
	}
}

// TestVisits: up through all layers, the head once, and in training down again.
func TestVisits(t *testing.T) {
	p := planned(t, false, fakeBatch(1), programSpec{layers: dense(4), weightSlots: 1, activationSlots: 3})
	var got []string
	for _, v := range p.Visits {
		got = append(got, fmt.Sprintf("%d %s %s", v.Layer, v.Kind, v.Pass))
	}
	want := []string{"0 embedding forward", "1 block forward", "2 block forward", "3 head backward", "2 block backward", "1 block backward", "0 embedding backward"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestVisitsOfParts: a head in parts has a sweep over them for the losses and one
// in reverse for the gradient; an evaluation has the first alone.
func TestVisitsOfParts(t *testing.T) {
	for eval, want := range map[bool][]string{
		false: {"0.0 forward", "1.0 forward", "2.0 forward", "2.1 forward", "2.2 forward loss", "2.2 backward", "2.1 backward", "2.0 backward",
			"1.0 backward", "0.0 backward"},
		true: {"0.0 evaluate", "1.0 evaluate", "2.0 evaluate", "2.1 evaluate", "2.2 evaluate loss"},
	} {
		p := planned(t, eval, fakeBatch(1, 1), programSpec{layers: dense(3), headShards: 3, weightSlots: 1, activationSlots: 3})
		var got []string
		for _, v := range p.Visits {
			s := fmt.Sprintf("%d.%d %s", v.Layer, v.Part, v.Pass)
			if v.Loss {
				s += " loss"
			}
			got = append(got, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		// The head's input is read until the last part, the gradient made by the first
		// part of the second sweep and turned in place by all that follow.
		for _, l := range p.Launches {
			v, x, grad := p.Visits[l.Visit], 2+l.MicroBatch, 4+l.MicroBatch
			switch {
			case v.Kind == model.Head && v.Pass != Backward && (l.In != x || l.Out >= 0 || l.Grad >= 0),
				v.Kind == model.Head && v.Pass == Backward && v.Part == 2 && (l.In != x || l.Out != grad || l.Grad >= 0),
				v.Kind == model.Head && v.Pass == Backward && v.Part < 2 && (l.In != x || l.Out >= 0 || l.Grad != grad),
				v.Kind != model.Head && v.Pass == Backward && l.Grad != grad:
				t.Errorf("eval %t: layer %d part %d %s: %+v", eval, v.Layer, v.Part, v.Pass, l)
			}
		}
	}
}

// TestTooFewActivationSlots: the error names the key.
func TestTooFewActivationSlots(t *testing.T) {
	for slots := 1; slots <= 3; slots++ {
		err := planProgram(&Program{Batch: fakeBatch(1, 1, 1)}, programSpec{layers: dense(4), weightSlots: 1, activationSlots: slots})
		if (err == nil) != (slots >= 2) {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
}

// TestPlacesOfSpills replays the spills of random programs: a place on the host
// holds one tensor until its last use, and all places together are no more than
// the inputs of all layers (in an evaluation of one).
func TestPlacesOfSpills(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	reused := false
	for trial := range 600 {
		var tokens []int
		for range 1 + r.Intn(6) {
			tokens = append(tokens, 1+r.Intn(9))
		}
		b, eval := fakeBatch(tokens...), r.Intn(3) == 0
		s := programSpec{layers: dense(3 + r.Intn(5)), weightSlots: 1 + r.Intn(3), activationSlots: 3 + r.Intn(12), headShards: 1 + trial%3}
		p := planned(t, eval, b, s)
		kept := len(s.layers) - 1 // of a micro-batch
		if s.headShards > 1 {
			kept++
		}
		bound := kept * int(b.Tokens)
		if eval {
			bound = int(b.Tokens)
		}
		if p.HostTokens > bound {
			t.Fatalf("trial %d: %d tokens on the host, at most %d are planned for: %+v", trial, p.HostTokens, bound, s)
		}
		if all := kept * len(tokens); !eval && s.activationSlots >= all && p.HostTokens > 0 {
			t.Fatalf("trial %d: %d slots for %d activations, and %d tokens spill", trial, s.activationSlots, all, p.HostTokens)
		}
		if eval && s.activationSlots > len(tokens) && p.HostTokens > 0 {
			t.Fatalf("trial %d: an evaluation of %d micro-batches spills %d tokens with %d slots", trial, len(tokens), p.HostTokens, s.activationSlots)
		}
		reused = checkPlaces(t, p) || reused
	}
	if !reused {
		t.Error("no place was ever used twice")
	}
}

// checkPlaces plays p's spills and fetches; it says whether a place served two.
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

// TestProgramsAreDeterministic: the same batch and depths give the same plan.
func TestProgramsAreDeterministic(t *testing.T) {
	for range 20 {
		s := programSpec{layers: dense(6), weightSlots: 2, activationSlots: 4}
		a, b := planned(t, false, fakeBatch(4, 3, 2, 1), s), planned(t, false, fakeBatch(4, 3, 2, 1), s)
		if !reflect.DeepEqual(a, b) {
			t.Fatal("two plans differ")
		}
	}
}

// dense are the kinds of n layers without experts.
func dense(n int) []model.LayerKind {
	kinds := make([]model.LayerKind, n)
	for i := range kinds {
		kinds[i] = model.Block
	}
	kinds[0], kinds[n-1] = model.Embedding, model.Head
	return kinds
}

// TestFetchesWaitForSpills: an activation comes back when it has been spilled as
// often as the program says, not before.
func TestFetchesWaitForSpills(t *testing.T) {
	c := newPrefetcherCore(3, 0, false, testDepths(1))
	p := &Program{Seq: 7, Objects: []Object{{Tokens: 4, Host: 8}}, ActTakes: []take{{Object: 0, Fetch: true, Spills: 2}}}
	var fetched []int // after how many spills
	for spills, m := range []any{PassPlanned{p}, ActivationSpilled{Prog: 7}, ActivationSpilled{Prog: 6}, ActivationSpilled{Prog: 7}} {
		for _, e := range c.step(m) {
			if w, ok := e.(work); ok {
				if f, ok := w.do.(fetchActivation); ok && f.Host == 8 && f.Tokens == 4 {
					fetched = append(fetched, spills)
				}
			}
		}
	}
	if len(fetched) != 1 || fetched[0] != 3 { // the second is another program's
		t.Errorf("fetched after the messages %v, want the last", fetched)
	}
}
