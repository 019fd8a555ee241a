package schedule

import (
	"fmt"
)

// Launch is one micro-batch going through one visit or, for an expert, all micro-batches
// at once.
type Launch struct {
	Visit      int
	MicroBatch int // −1: all of them, through an expert
	Tokens     int // of the micro-batch; 0 where it is all of them
	// In, Out and Grad are objects, −1: none. In is the layer's input. Out is what the
	// launch makes: the layer's output, or the gradient of a head in parts. Grad is the
	// gradient of the output, which is read or turned in place into that of the input.
	In, Out, Grad int
	Releases      []Release // what gives up its slot after it
}

// Object is one activation: a layer's input for one micro-batch, or a micro-batch's
// gradient on its way down through the layers. A whole head turns its input into the
// gradient, in the same object. A head in parts reads its input until its last part, so
// there the gradient is an object of its own. So is what a lane makes for another one, or has
// from another: an object is on one lane, and where it is passed on it becomes another object.
type Object struct {
	Tokens     int
	MicroBatch int
	Host       int // where it spills to, in tokens from the start of the lane's memory for spills; −1: it never spills
	Lane       int
	From       int // the object on another lane that it was before; −1: none
	To         int // the object that it becomes on another lane after its last use; −1: none
	// Passage is where it is on the host if it is passed on through it, in tokens: every micro-batch
	// has a place, since there is one hidden state of it at a time that is under way.
	Passage int
}

// Order is how visits take the micro-batches, one after the other. Gradients are summed up
// in this order, so the bits of a run depend on it.
type Order uint8

// The orders.
const (
	// Zigzag turns around from one visit to the next, so that what was computed last is read
	// first, and fewer activations travel.
	Zigzag Order = iota
	// Lanes is the same for every visit, from the first micro-batch to the last, so that
	// micro-batches can follow each other from one device to the next.
	Lanes
)

func (o Order) String() string { return [...]string{"zigzag", "lanes"}[o] }

// Spec is what a program follows from, beside the sizes of the micro-batches.
type Spec struct {
	Order           Order
	Layers          []Layer // embedding and head included
	OnDemand        bool    // see Program.OnDemand
	WeightSlots     int
	ActivationSlots int
	Eval            bool  // a pass of an evaluation: no gradients
	Lane            []int // by layer: the lane that it is on; nil: all are on lane 0
	Again           bool  // another pass over the same weights follows this one of an evaluation
	Held            []int // tiles that the pass before left in slots, at the right version
}

// Program is what one lane does in a pass over the layers, planned before it runs: which launches,
// in which order, and when weights and activations come and go.
type Program struct {
	// OnDemand: an expert's tile is fetched only when it is known that tokens go to the
	// expert. Else it is fetched ahead, whether tokens go there or not.
	OnDemand bool
	Visits   []Visit
	Launches []Launch
	Objects  []Object // those of all lanes
	// WeightTakes are the visits to fetch weights for, in order.
	WeightTakes []int
	ActTakes    []Take // activation slots to acquire, in order
	// Stale are tiles of Spec.Held that are released before the program starts.
	Stale      []int
	HostTokens int   // how much of the host's memory for spills it uses, in tokens
	Held       []int // tiles that are in slots when it is over
}

// of lists n micro-batches in the order in which a visit takes them that counts as so many
// turns.
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

// New plans one pass of micro-batches of so many tokens, with all layers on one lane. It fails
// where slots are too few for a single launch.
func New(s Spec, tokens []int) (*Program, error) {
	s.Lane = nil
	p, err := Programs(s, tokens)
	if err != nil {
		return nil, err
	}
	return p[0], nil
}

// Programs plans one pass of micro-batches of so many tokens: a program for each lane, with the
// visits of its layers. They share their objects.
func Programs(s Spec, tokens []int) ([]*Program, error) {
	b := newBuilder(s, tokens)
	for _, v := range s.visits() {
		b.visit(v)
	}
	for lane, p := range b.programs {
		p.Objects = b.objects
		acts, ok := planResidency(b.uses[lane], len(p.Launches), s.ActivationSlots, false, nil, true)
		if !ok {
			return nil, fmt.Errorf("%d activation slots are too few (pipeline.activation_slots is at least 3)", s.ActivationSlots)
		}
		p.ActTakes = acts.takes
		for l := range p.Launches {
			p.Launches[l].Releases = acts.releases[l]
		}
		p.finishReleases(b.uses[lane], b.n)
		if err := planWeights(p, s.of(lane)); err != nil {
			return nil, err
		}
	}
	return b.programs, nil
}

// finishReleases says which releases pass an object on, and where on the host objects spill to.
// The place of an object that is not used any more serves the next object of the same
// micro-batch. That is safe because the launch that used the old one last comes before the copy
// that overwrites it.
func (p *Program) finishReleases(uses []use, n int) {
	last := make([]int, len(p.Objects)) // launch
	for _, u := range uses {
		last[u.object] = u.at
	}
	free := make([][]int, n) // by micro-batch
	for l := range p.Launches {
		releases := p.Launches[l].Releases
		for i := range releases {
			o := p.Objects[releases[i].Object]
			over := last[releases[i].Object] == l
			releases[i].Pass = over && o.To >= 0
			if over && o.Host >= 0 {
				free[o.MicroBatch] = append(free[o.MicroBatch], o.Host)
			}
		}
		for _, r := range releases {
			o := &p.Objects[r.Object]
			places := &free[o.MicroBatch]
			switch k := len(*places); {
			case !r.Spill || o.Host >= 0:
			case k > 0:
				o.Host, *places = (*places)[k-1], (*places)[:k-1]
			default:
				o.Host = p.HostTokens
				p.HostTokens += o.Tokens
			}
		}
	}
}

// planWeights plans the weight slots for all tiles but the embedding's, which needs none,
// and that of a whole head, which has a slot to itself. Where another pass of the same
// evaluation follows, it needs the same version of the weights, so tiles may stay in their
// slots for it. Experts that are fetched on demand may not: whether a slot holds one depends
// on the batch. The last pass leaves the slots empty, so that a training step moves the same
// bytes whether an evaluation came before it or not.
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
		if visit.Class == Whole { // it is fetched for its one visit and released after it
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
