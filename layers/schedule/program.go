package schedule

import (
	"fmt"
	"slices"
)

// Launch is one micro-batch in one visit: the operations that the device computes for it. A launch of an expert covers
// all micro-batches.
type Launch struct {
	Visit      int
	MicroBatch int // −1: all of them, in an expert
	Tokens     int // of the micro-batch; 0: all micro-batches
	// In, Out, Grad and Kept are numbers of objects (activations); −1: none.
	//
	// In is the layer's input. The launch writes Out: the layer's output. In a head in parts Out is the gradient of the
	// head's input or, in the forward, what the next part needs on another lane. Grad is the gradient of the layer's
	// output. The launch reads it, or replaces it by the gradient of the input.
	//
	// Kept is what a layer keeps of the forward for its backward, if it is in a slot.
	In, Out, Grad, Kept int
	Releases            []Release // objects that leave their slots after it
}

// Object is one activation: a layer's input for one micro-batch, or a micro-batch's gradient in the backward, or what a
// layer keeps of a micro-batch's forward for its backward.
//
//   - A whole head overwrites its input with the gradient, in the same object.
//   - A head in parts reads its input until its last part, so its gradient is a separate object.
//   - An object is on one lane. An activation that passes to another lane becomes another object there.
type Object struct {
	Tokens     int
	MicroBatch int
	Host       int // its place in the lane's spill memory, in tokens; −1: it never spills
	Lane       int
	From       int // the same activation's object on the previous lane; −1: none
	To         int // the same activation's object on the next lane, after its last use here; −1: none
	// Passage is the object's place in the host memory through which activations pass from lane to lane, in tokens.
	// Every micro-batch has one place, because only one of its hidden states is in transit at a time.
	Passage int
	// Input is the layer whose input the object is; 0: it is a gradient, or kept. A whole head turns it into the gradient.
	Input int
	// Layer is the layer that keeps the object for its backward; 0: the object is a hidden state or a gradient. Such
	// an object has a slot of a class of its own, and its layer and micro-batch say where it spills to.
	Layer int
}

// Order is the order in which visits take the micro-batches. Gradients are summed in this order.
// The order decides how they are rounded, so two orders give different bits.
type Order uint8

// The two orders.
const (
	// Zigzag reverses the order from visit to visit. The activations computed last are read first, so fewer activations
	// are spilled.
	Zigzag Order = iota
	// Lanes takes the first micro-batch first in every visit, so micro-batches can follow each other from device to
	// device.
	Lanes
)

func (o Order) String() string { return [...]string{"zigzag", "lanes"}[o] }

// Spec has the settings from which a program is planned. A program depends only on these and on the
// sizes of the micro-batches.
type Spec struct {
	Order           Order
	Layers          []Layer // including embedding and head
	OnDemand        bool    // see Program.OnDemand
	WeightSlots     int
	ActivationSlots int
	KeptSlots       int   // for what visits with Keeps leave for the backward
	Kept            Share // the micro-batches of a round for which they do
	PerRound        int   // the most micro-batches of a round; 0: all are in one
	Eval            bool  // an evaluation pass, without gradients
	Lane            []int // by layer: its lane; nil: all on lane 0
	Again           bool  // another pass of the same evaluation follows, with the same weights
	Held            []int // tiles that the previous pass left in slots, at the right version
}

// Share is a share of a step's micro-batches: N of every Of, spread evenly.
type Share struct{ N, Of int }

// Has reports whether micro-batch mb belongs to the share.
func (s Share) Has(mb int) bool { return s.Of > 0 && (mb+1)*s.N/s.Of != mb*s.N/s.Of }

// Program is one lane's part of a pass, planned before it runs: the launches in order, and the times when weights and
// activations come and go.
type Program struct {
	// OnDemand: an expert's tile is fetched only after the routing has sent tokens to the expert. Otherwise the tile is
	// fetched ahead in any case.
	OnDemand bool
	Visits   []Visit
	Launches []Launch
	Objects  []Object // of all lanes
	// WeightTakes lists the visits whose weights must be fetched, in order.
	WeightTakes []int
	ActTakes    []Take // activation slots to acquire, in order
	// Stale lists tiles left in slots by the previous pass (Spec.Held) that this program does not
	// use. Their slots are released before the program starts.
	Stale      []int
	HostTokens int   // size of the lane's spill memory, in tokens
	Held       []int // tiles in slots at the end
}

// of returns the indices of n micro-batches in the order in which a visit takes them. turn is the visit's place in the
// zigzag. With Zigzag, odd turns reverse the order.
func (o Order) of(turn, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if o == Zigzag && turn%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}

// New plans a pass with all layers on one lane. tokens are the sizes of the micro-batches. It fails if a single launch
// needs more slots than there are.
func New(s Spec, tokens []int) (*Program, error) {
	s.Lane = nil
	p, err := Programs(s, tokens)
	if err != nil {
		return nil, err
	}
	return p[0], nil
}

// Programs plans a pass: one program for each lane, with the visits of its layers and parts. All programs share their
// objects.
// tokens are the sizes of the micro-batches.
func Programs(s Spec, tokens []int) ([]*Program, error) {
	b := newBuilder(s, tokens)
	for _, v := range s.visits(b.n) {
		b.visit(v)
	}
	for lane, p := range b.programs {
		p.Objects = b.objects
		acts, ok := planResidency(b.uses[lane], len(p.Launches), s.ActivationSlots, false, nil, true)
		if !ok {
			return nil, fmt.Errorf("%d activation slots are too few (pipeline.activation_slots is at least 3)", s.ActivationSlots)
		}
		kept, ok := planResidency(b.kept[lane], len(p.Launches), s.KeptSlots, false, nil, true)
		if !ok {
			return nil, fmt.Errorf("%d slots for kept tensors are too few", s.KeptSlots)
		}
		p.ActTakes = slices.Concat(acts.takes, kept.takes)
		slices.SortStableFunc(p.ActTakes, func(a, b Take) int { return a.At - b.At })
		for l := range p.Launches {
			p.Launches[l].Releases = slices.Concat(acts.releases[l], kept.releases[l])
		}
		p.finishReleases(b.uses[lane], b.inRound, b.places())
		if err := planWeights(p, s.of(lane)); err != nil {
			return nil, err
		}
	}
	return b.programs, nil
}

// finishReleases completes the plan of when objects leave their slots. It decides which objects are
// copied to another lane, and where each spilled object lies on the host. inRound has, by micro-batch, its
// index in its round. Micro-batches with the same index share places; sizes has, by index, the tokens of a
// place. When an object on the host is no longer used, the next object with this index reuses its place. That
// is safe, because the last launch that uses the old object precedes the copy that overwrites it.
func (p *Program) finishReleases(uses []use, inRound, sizes []int) {
	last := make([]int, len(p.Objects)) // launch; of kept tensors it is not asked
	for _, u := range uses {
		last[u.object] = u.at
	}
	free := make([][]int, len(sizes)) // by index in the round
	for l := range p.Launches {
		releases := p.Launches[l].Releases
		for i := range releases {
			o := p.Objects[releases[i].Object]
			over := last[releases[i].Object] == l
			releases[i].Pass = over && o.To >= 0
			if over && o.Host >= 0 {
				free[inRound[o.MicroBatch]] = append(free[inRound[o.MicroBatch]], o.Host)
			}
		}
		for _, r := range releases {
			o := &p.Objects[r.Object]
			places := &free[inRound[o.MicroBatch]]
			switch k := len(*places); {
			case !r.Spill || o.Host >= 0 || o.Layer > 0:
			case k > 0:
				o.Host, *places = (*places)[k-1], (*places)[:k-1]
			default:
				o.Host = p.HostTokens
				p.HostTokens += sizes[inRound[o.MicroBatch]]
			}
		}
	}
}

// places returns, by index in the round, the tokens of the largest micro-batch with this index.
func (b *builder) places() (sizes []int) {
	for mb, i := range b.inRound {
		if i == len(sizes) {
			sizes = append(sizes, 0)
		}
		sizes[i] = max(sizes[i], b.tokens[mb])
	}
	return sizes
}

// planWeights plans which tile is in which weight slot, and when. The embedding needs no slot, and a whole head has its
// own.
//
// If another pass of the same evaluation follows, the weights do not change, so tiles may stay in their slots for that
// pass. Experts that are fetched on demand may not stay, because only the batch decides whether a slot holds one. The
// last pass leaves the slots empty, so a training step moves the same bytes with or without an evaluation before it.
func planWeights(p *Program, s Spec) error {
	var uses, again []use
	for v, visit := range p.Visits {
		if visit.Class != Streamed || !visit.Weighs() {
			continue
		}
		uses = append(uses, use{at: v, object: visit.Tile})
		if s.Again && !(p.OnDemand && visit.Stage == Expert) { // the next pass makes the same visits
			again = append(again, use{at: len(p.Visits) + v, object: visit.Tile})
		}
	}
	uses = append(uses, again...)
	res, ok := planResidency(uses, len(p.Visits), s.WeightSlots, true, s.Held, false)
	if !ok {
		return fmt.Errorf("%d weight slots are too few (pipeline.weight_slots is at least 1)", s.WeightSlots)
	}
	p.Held = res.held
	taken := map[int]bool{}
	for _, t := range res.takes {
		taken[t.At] = true
	}
	for v := range p.Visits {
		visit := &p.Visits[v]
		visit.Take, visit.Release = taken[v], len(res.releases[v]) > 0
		if visit.Class == Whole { // fetched for its one visit and released after it
			visit.Take, visit.Release = true, true
		}
		if visit.Take {
			p.WeightTakes = append(p.WeightTakes, v)
		}
	}
	for _, r := range res.releases[-1] {
		p.Stale = append(p.Stale, r.Object)
	}
	return nil
}
