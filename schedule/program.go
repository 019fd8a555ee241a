package schedule

import (
	"fmt"
	"slices"
)

// Launch is one micro-batch going through one visit or, for an expert, all micro-batches
// at once.
type Launch struct {
	Visit      int
	MicroBatch int // −1: all of them, through an expert
	// In, Out and Grad are objects, −1: none. In is the layer's input. Out is what the
	// launch makes: the layer's output, or the gradient of a head in parts. Grad is the
	// gradient of the output, which is read or turned in place into that of the input.
	In, Out, Grad int
	Releases      []Release // what gives up its slot after it
}

// Object is one activation: a layer's input for one micro-batch, or a micro-batch's
// gradient on its way down through the layers. A whole head turns its input into the
// gradient, in the same object. A head in parts reads its input until its last part, so
// there the gradient is an object of its own.
type Object struct {
	Tokens int
	Host   int // where it spills to, in tokens from the start of the host's memory for spills; −1: it never spills
}

// Spec is what a program follows from, beside the sizes of the micro-batches.
type Spec struct {
	Layers          []Layer // embedding and head included
	OnDemand        bool    // see Program.OnDemand
	WeightSlots     int
	ActivationSlots int
	Eval            bool  // a pass of an evaluation: no gradients
	Again           bool  // another pass over the same weights follows this one of an evaluation
	Held            []int // tiles that the pass before left in slots, at the right version
}

// Program is one pass over the layers, planned before it runs: which launches,
// in which order, and when weights and activations come and go.
type Program struct {
	// OnDemand: an expert's tile is fetched only when it is known that tokens go to the
	// expert. Else it is fetched ahead, whether tokens go there or not.
	OnDemand bool
	Visits   []Visit
	Launches []Launch
	Objects  []Object
	// WeightTakes are the visits to fetch weights for, in order.
	WeightTakes []int
	ActTakes    []Take // activation slots to acquire, in order
	// Stale are tiles of Spec.Held that are released before the program starts.
	Stale      []int
	HostTokens int   // how much of the host's memory for spills it uses, in tokens
	Held       []int // tiles that are in slots when it is over
}

// order is the order in which a visit takes n micro-batches: it turns around from
// one visit to the next, so that what was computed last is read first.
func order(turn, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if turn%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}

// New plans one pass of micro-batches of so many tokens. It fails where slots are
// too few for a single launch.
func New(s Spec, tokens []int) (*Program, error) {
	p := &Program{OnDemand: s.OnDemand, Visits: s.visits()}
	b := programBuilder{p: p, tokens: tokens, n: len(tokens), top: len(s.Layers) - 1}
	b.apart = slices.ContainsFunc(p.Visits, func(v Visit) bool { return v.Uses.Has(Makes) })
	b.objects()
	for v := range p.Visits {
		p.Visits[v].First = len(p.Launches)
		if p.Visits[v].Stage == Expert {
			p.Launches = append(p.Launches, Launch{Visit: v, MicroBatch: -1, In: -1, Out: -1, Grad: -1})
			continue
		}
		for _, mb := range order(p.Visits[v].Turn, b.n) {
			b.launch(v, mb)
		}
	}
	acts, ok := planResidency(b.uses, len(p.Launches), s.ActivationSlots, false, nil, true)
	if !ok {
		return nil, fmt.Errorf("%d activation slots are too few (pipeline.activation_slots is at least 3)", s.ActivationSlots)
	}
	p.ActTakes = acts.takes
	for l := range p.Launches {
		p.Launches[l].Releases = acts.releases[l]
	}
	placeSpills(p, b.uses, b.n)
	return p, planWeights(p, s)
}

// placeSpills chooses where on the host objects spill to. The place of an object that is
// not used any more serves the next object of the same micro-batch. That is safe because
// the launch that used the old one last comes before the copy that overwrites it.
func placeSpills(p *Program, uses []use, n int) {
	last := make([]int, len(p.Objects)) // launch
	for _, u := range uses {
		last[u.object] = u.at
	}
	free := make([][]int, n) // by micro-batch
	for l := range p.Launches {
		for _, r := range p.Launches[l].Releases {
			if o := p.Objects[r.Object]; o.Host >= 0 && last[r.Object] == l {
				free[r.Object%n] = append(free[r.Object%n], o.Host)
			}
		}
		for _, r := range p.Launches[l].Releases {
			o, places := &p.Objects[r.Object], &free[r.Object%n]
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

// programBuilder lists the launches of a program and what they use.
type programBuilder struct {
	p      *Program
	tokens []int // of each micro-batch
	n, top int   // how many micro-batches; the index of the head
	apart  bool  // the gradient has objects of its own, beside the head's input
	uses   []use
}

// object is the id of the input of layer (1 … top) for a micro-batch.
func (b *programBuilder) object(layer, mb int) int { return (layer-1)*b.n + mb }

// gradient is the id of a micro-batch's gradient: that of the input of a whole head, whose
// place it takes; or with a head in parts the id of an object of its own, numbered after the
// inputs.
func (b *programBuilder) gradient(mb int) int {
	if b.apart {
		return b.object(b.top+1, mb)
	}
	return b.object(b.top, mb)
}

// objects lists the activations: the inputs of all layers, and the gradients where they
// have objects of their own.
func (b *programBuilder) objects() {
	for i := range b.gradient(0) + b.n {
		b.p.Objects = append(b.p.Objects, Object{Tokens: b.tokens[i%b.n], Host: -1})
	}
}

// launch appends one micro-batch going through visit v.
func (b *programBuilder) launch(v, mb int) {
	p, visit, at := b.p, b.p.Visits[v], len(b.p.Launches)
	l := Launch{Visit: v, MicroBatch: mb, In: -1, Out: -1, Grad: -1}
	if visit.Uses.Has(Input) {
		l.In = b.object(visit.Layer, mb)
	}
	switch {
	case visit.Uses.Has(Output):
		l.Out = b.object(visit.Layer+1, mb)
	case visit.Uses.Has(Makes):
		l.Out = b.gradient(mb)
	case visit.Uses.Has(Turns), visit.Uses.Has(Reads):
		l.Grad = b.gradient(mb)
	}
	if l.In >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.In})
	}
	if l.Grad >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Grad, modify: visit.Uses.Has(Turns)})
	}
	if l.Out >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Out, create: true})
	}
	p.Launches = append(p.Launches, l)
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
