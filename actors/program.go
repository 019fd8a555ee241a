package actors

import (
	"fmt"

	"mt/data"
	"mt/model"
)

// Visit is one stay of a layer, or of a part of the head, on the device: all
// micro-batches go through it.
type Visit struct {
	Pass  Pass
	Layer int
	Kind  model.LayerKind
	Shard int // which part of the head
	Parts int // into how many the layer is cut; 1: it is whole
	First int // its first launch
	// Take: the weights must be fetched; else an earlier visit left them.
	Take bool
	// Release: the slot is free after the visit.
	Release bool
	// Loss: the losses of the pass are complete after it.
	Loss bool
}

// Grad says whether the visit computes a gradient.
func (v Visit) Grad() bool { return v.Pass == Backward }

// tile is what the weight slots know the visit's weights by: the layer, and
// behind the last one the parts of the head.
func (v Visit) tile() int { return v.Layer + v.Shard }

// streams says whether the weights go through the ordinary slots: those of
// blocks, and of a head in parts. A whole head has a slot of its own.
func (v Visit) streams() bool {
	return v.Kind == model.Block || v.Kind == model.Head && v.Parts > 1
}

// FirstShard and LastShard say whether the visit is the first or the last of
// its sweep over the parts of a layer; the second sweep goes backward.
func (v Visit) FirstShard() bool { return v.Shard == v.edge(v.Pass == Backward) }

// LastShard: see FirstShard.
func (v Visit) LastShard() bool { return v.Shard == v.edge(v.Pass != Backward) }

func (v Visit) edge(top bool) int {
	if top {
		return v.Parts - 1
	}
	return 0
}

// Launch is one micro-batch going through one visit.
type Launch struct {
	Visit, MicroBatch int
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
	Version int  // of the weights it wants: steps taken
	Batch   *data.Batch

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

// microBatchOrder is the order in which a tile takes n micro-batches: it turns
// around with every layer and every part, so that what was computed last is read
// first.
func microBatchOrder(tile, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if tile%2 == 1 {
			order[i] = n - 1 - i
		}
	}
	return order
}

// programSpec is what planProgram needs besides the batch.
type programSpec struct {
	layers          int // embedding and head included
	headShards      int // parts of the head; 0 and 1 leave it whole
	weightSlots     int
	activationSlots int
	held            []int // tiles whose weights are in slots at the right version
}

// planProgram plans one pass. It fails when activationSlots are too few.
func planProgram(p *Program, s programSpec) error {
	p.Visits = visits(s.layers, max(1, s.headShards), p.Eval)
	n := len(p.Batch.MicroBatches)
	b := programBuilder{p: p, n: n, top: s.layers - 1, cut: s.headShards > 1}
	for v := range p.Visits {
		p.Visits[v].First = len(p.Launches)
		for _, mb := range microBatchOrder(p.Visits[v].tile(), n) {
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

// visits lists the visits of a pass: forward over the embedding and the blocks,
// the head, and in training back down. A head in parts takes a sweep over them
// for the losses and, in training, one in reverse for the gradient, which begins
// with the tiles that the first one left.
func visits(layers, parts int, eval bool) []Visit {
	kind := func(l int) model.LayerKind {
		switch l {
		case 0:
			return model.Embedding
		case layers - 1:
			return model.Head
		}
		return model.Block
	}
	var out []Visit
	up, top := Forward, Backward
	if eval {
		up, top = Evaluate, Evaluate
	}
	for l := 0; l < layers-1; l++ {
		out = append(out, Visit{Pass: up, Layer: l, Kind: kind(l), Parts: 1})
	}
	head := Visit{Pass: top, Layer: layers - 1, Kind: model.Head, Parts: parts}
	if parts > 1 {
		head.Pass = up
	}
	for ; head.Shard < parts; head.Shard++ {
		head.Loss = head.LastShard()
		out = append(out, head)
	}
	head.Pass, head.Loss = Backward, false
	for head.Shard--; head.Shard >= 0 && parts > 1 && !eval; head.Shard-- {
		out = append(out, head)
	}
	for l := layers - 2; l >= 0 && !eval; l-- {
		out = append(out, Visit{Pass: Backward, Layer: l, Kind: kind(l), Parts: 1})
	}
	return out
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
	case visit.Kind == model.Head && visit.FirstShard():
		l.In, l.Out = x, grad
	case visit.Kind == model.Head:
		l.In, l.Grad = x, grad
	case visit.Pass == Backward:
		l.In, l.Grad = b.object(visit.Layer, mb), grad
	default:
		l.In, l.Out = b.object(visit.Layer, mb), b.object(visit.Layer+1, mb)
	}
	if l.In >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.In})
	}
	if l.Grad >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Grad, modify: true})
	}
	if l.Out >= 0 {
		b.uses = append(b.uses, use{at: at, object: l.Out, create: true})
	}
	p.Launches = append(p.Launches, l)
}

// planWeights plans the weight slots of the decoder blocks and of a head in
// parts. The embedding takes none and a whole head has its own. After an
// evaluation the same version serves the next pass: its forward counts as the
// future.
func planWeights(p *Program, s programSpec) error {
	var uses []use
	for v, visit := range p.Visits {
		if visit.streams() {
			uses = append(uses, use{at: v, object: visit.tile()})
		}
	}
	if p.Eval { // its visits are those of a forward
		for _, u := range uses {
			uses = append(uses, use{at: len(p.Visits) + u.at, object: u.object})
		}
	}
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
		if visit.Take && visit.Kind != model.Embedding {
			p.WeightTakes = append(p.WeightTakes, v)
		}
	}
	for _, r := range res.releases[-1] {
		p.Stale = append(p.Stale, r.Object)
	}
	return nil
}
