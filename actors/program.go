package actors

import (
	"fmt"

	"mt/data"
	"mt/model"
)

// Visit is one stay of a layer, or of a part of it, on the device: all
// micro-batches go through it.
type Visit struct {
	Pass  Pass
	Layer int
	Kind  model.LayerKind
	Stage Stage
	Part  int // which part of the layer: of the head's vocabulary; the router or an expert
	Parts int // into how many the layer is cut; 1: it is whole
	Tile  int // what the weight slots know its weights by
	Turn  int // odd: it takes the micro-batches backward
	First int // its first launch
	// Take: the weights must be fetched; else an earlier visit left them.
	Take bool
	// Release: the slot is free after the visit.
	Release bool
	// Loss: the losses of the pass are complete after it.
	Loss bool
}

// Stage is what a visit does for its layer.
type Stage uint8

// The stages. Those of a layer with experts follow each other in this order, in
// every pass.
const (
	Whole  Stage = iota // all of it, or what a part of the head is to do
	Route               // the router (part 0) says which tokens go to which experts
	Expert              // one expert (part 1, 2, …) serves its tokens, of all micro-batches at once
	Join                // what the experts made becomes the output; in the backward the router's and the norm's turn
)

func (s Stage) String() string { return [...]string{"whole", "route", "expert", "join"}[s] }

// Grad says whether the visit computes a gradient.
func (v Visit) Grad() bool { return v.Pass == Backward && v.Stage != Route }

// streams says whether the weights go through the ordinary slots: all but the
// embedding's, and those of a whole head, which has a slot of its own.
func (v Visit) streams() bool {
	return v.Kind != model.Embedding && (v.Kind != model.Head || v.Parts > 1)
}

// weighs says whether the visit reads weights of its tile.
func (v Visit) weighs() bool {
	return v.Kind != model.Embedding && (v.Stage != Join || v.Pass == Backward)
}

// FirstPart and LastPart say whether the visit is the first or the last of its
// sweep over the parts of the head; the second sweep goes backward.
func (v Visit) FirstPart() bool { return v.Part == v.edge(v.Pass == Backward) }

// LastPart: see FirstPart.
func (v Visit) LastPart() bool { return v.Part == v.edge(v.Pass != Backward) }

func (v Visit) edge(top bool) int {
	if top {
		return v.Parts - 1
	}
	return 0
}

// Launch is one micro-batch going through one visit.
type Launch struct {
	Visit      int
	MicroBatch int // −1: all of them at once, through an expert
	// In, Out: the layer's input and output; Grad: the gradient, turned in
	// place from that of the output into that of the input. −1: none.
	In, Out, Grad int
	Releases      []release
}

// Object is one activation: a layer's input for one micro-batch, or a
// micro-batch's gradient as it wanders down. The gradient begins as the input of
// a whole head; a head in parts reads its input until the last one.
type Object struct {
	Tokens int
	Host   int // where it spills to, in tokens into the host's region; −1: it never does
}

// Program is one pass over the layers, planned before it runs: which launches,
// in which order, and when weights and activations come and go. It depends on
// the batch and the depths alone, never on timing.
type Program struct {
	Seq     int
	Step    int // the training step it belongs to; for an evaluation the step it follows
	Eval    bool
	Check   bool // diagnosis: look for non-finite values after every launch
	Again   bool // another pass over the same weights follows this evaluation's
	Version int  // of the weights it wants: steps taken
	Batch   *data.Batch

	// OnDemand: an expert's weights are fetched when it is known that tokens go
	// there, else not at all.
	OnDemand bool
	Visits   []Visit
	Launches []Launch
	Objects  []Object
	// WeightTakes are the visits to fetch weights for, in order.
	WeightTakes []int
	ActTakes    []take
	// Stale are the tiles whose held weights are released before it starts.
	Stale      []int
	HostTokens int   // how much of the host's region it spills to
	Waited     Cause // what the device stood still for before it was planned
	heldAfter  []int
}

func (p *Program) String() string {
	return fmt.Sprintf("program %d step %d eval %t visits %d launches %d", p.Seq, p.Step, p.Eval, len(p.Visits), len(p.Launches))
}

// microBatchOrder is the order in which a visit takes n micro-batches: it turns
// around from one to the next, so that what was computed last is read first.
func microBatchOrder(turn, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if turn%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}

// programSpec is what planProgram needs besides the batch.
type programSpec struct {
	layers          []model.LayerKind // embedding and head included
	experts         int               // of every layer that has some
	onDemand        bool              // see Program.OnDemand
	headShards      int               // parts of the head; 0 and 1 leave it whole
	weightSlots     int
	activationSlots int
	held            []int // tiles whose weights are in slots at the right version
}

// planProgram plans one pass. It fails when activationSlots are too few.
func planProgram(p *Program, s programSpec) error {
	p.OnDemand = s.onDemand
	p.Visits = s.visits(p.Eval)
	n := len(p.Batch.MicroBatches)
	b := programBuilder{p: p, n: n, top: len(s.layers) - 1, cut: s.headShards > 1}
	for v := range p.Visits {
		p.Visits[v].First = len(p.Launches)
		if p.Visits[v].Stage == Expert {
			p.Launches = append(p.Launches, Launch{Visit: v, MicroBatch: -1, In: -1, Out: -1, Grad: -1})
			continue
		}
		for _, mb := range microBatchOrder(p.Visits[v].Turn, n) {
			b.launch(v, mb)
		}
	}
	acts, ok := planResidency(b.uses, len(p.Launches), s.activationSlots, false, nil, true)
	if !ok {
		return fmt.Errorf("plan %s: %d activation slots are too few (pipeline.activation_slots is at least 3)", p, s.activationSlots)
	}
	p.ActTakes = acts.takes
	for l := range p.Launches {
		p.Launches[l].Releases = acts.releases[l]
	}
	placeSpills(p, b.uses, n)
	return planWeights(p, s)
}

// placeSpills says where on the host objects go. The place of one that is not
// used any more serves the next of its micro-batch: the launch that ended its
// use comes before the copy that overwrites it.
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

type programBuilder struct {
	p      *Program
	n, top int
	cut    bool // the head is in parts
	uses   []use
}

// object is the id of the input of layer (1 … top) for a micro-batch.
func (b *programBuilder) object(layer, mb int) int { return (layer-1)*b.n + mb }

// gradient is the layer whose input is, by its id, the micro-batch's gradient:
// the head where it is whole, else none there is.
func (b *programBuilder) gradient() int {
	if b.cut && !b.p.Eval {
		return b.top + 1
	}
	return b.top
}

func (b *programBuilder) launch(v, mb int) {
	p, visit, at := b.p, b.p.Visits[v], len(b.p.Launches)
	if len(p.Objects) == 0 {
		for i := range b.gradient() * b.n {
			p.Objects = append(p.Objects, Object{Tokens: p.Batch.MicroBatches[i%b.n].Tokens, Host: -1})
		}
	}
	l := Launch{Visit: v, MicroBatch: mb, In: -1, Out: -1, Grad: -1}
	x, grad := b.object(b.top, mb), b.object(b.gradient(), mb)
	switch {
	case visit.Kind == model.Embedding && visit.Pass != Backward:
		l.Out = b.object(1, mb)
	case visit.Kind == model.Embedding:
		l.Grad = grad
	case visit.Kind == model.Head && visit.Pass != Backward:
		l.In = x
	case visit.Kind == model.Head && !b.cut:
		l.Grad = grad
	case visit.Kind == model.Head && visit.FirstPart():
		l.In, l.Out = x, grad
	case visit.Kind == model.Head:
		l.In, l.Grad = x, grad
	case visit.Pass == Backward:
		l.In, l.Grad = b.object(visit.Layer, mb), grad
	case visit.Stage == Route:
		l.In = b.object(visit.Layer, mb)
	case visit.Stage == Join:
		l.Out = b.object(visit.Layer+1, mb)
	default:
		l.In, l.Out = b.object(visit.Layer, mb), b.object(visit.Layer+1, mb)
	}
	if l.In >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.In})
	}
	if l.Grad >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Grad, modify: visit.Stage != Route})
	}
	if l.Out >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Out, create: true})
	}
	p.Launches = append(p.Launches, l)
}

// planWeights plans the weight slots of all tiles but the embedding, which takes
// none, and a whole head, which has its own. Where another pass of an evaluation
// follows, the same version serves it: its forward counts as the future. Not so for
// experts that are fetched on demand: whether a slot holds one depends on the batch.
// The last pass leaves the slots empty, so that a training step moves the same bytes
// whether an evaluation of this run came before it or not.
func planWeights(p *Program, s programSpec) error {
	var uses, again []use
	for v, visit := range p.Visits {
		if !visit.streams() || !visit.weighs() {
			continue
		}
		uses = append(uses, use{at: v, object: visit.Tile})
		if p.Again && !(p.OnDemand && visit.Stage == Expert) { // its visits are those of a forward
			again = append(again, use{at: len(p.Visits) + v, object: visit.Tile})
		}
	}
	uses = append(uses, again...)
	res, ok := planResidency(uses, len(p.Visits), s.weightSlots, true, s.held, false)
	if !ok {
		return fmt.Errorf("plan %s: %d weight slots are too few (pipeline.weight_slots is at least 1)", p, s.weightSlots)
	}
	p.heldAfter = res.held
	taken := map[int]bool{}
	for _, t := range res.takes {
		taken[t.At] = true
	}
	for v := range p.Visits {
		visit := &p.Visits[v]
		if !visit.streams() {
			visit.Take = visit.Pass != Backward || visit.Kind == model.Head
			visit.Release = visit.Kind == model.Head || visit.Pass == Backward || p.Eval
		} else {
			visit.Take = taken[v]
			visit.Release = len(res.releases[v]) > 0
		}
		if visit.Take && visit.weighs() {
			p.WeightTakes = append(p.WeightTakes, v)
		}
	}
	for _, r := range res.releases[-1] {
		p.Stale = append(p.Stale, r.Object)
	}
	return nil
}
