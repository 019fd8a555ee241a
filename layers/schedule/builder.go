package schedule

import "slices"

// builder lists the launches of a pass's programs, and which objects (activations and their gradients) each launch
// uses.
type builder struct {
	spec     Spec
	programs []*Program // by lane
	objects  []Object
	tokens   []int          // by micro-batch
	inRound  []int          // by micro-batch: its index among those of its round
	first    []int          // by micro-batch: tokens before it in the batch
	n, top   int            // number of micro-batches; index of the head
	uses     [][]use        // by lane
	kept     [][]use        // the same for what layers keep for their backward
	keeps    map[[2]int]int // by layer and micro-batch: the object that the layer keeps
	gradient []int          // by micro-batch: the object that currently holds its gradient
	coming   map[int]bool   // objects from another lane, not used yet
	copies   map[[2]int]int // by lane and micro-batch: the copy of the head's input there, if an earlier part is on another lane
}

func newBuilder(s Spec, tokens []int) *builder {
	b := &builder{spec: s, tokens: tokens, inRound: s.InRound(len(tokens)), n: len(tokens), top: len(s.Layers) - 1, uses: make([][]use, s.Lanes()), kept: make([][]use, s.Lanes()),
		keeps: map[[2]int]int{}, coming: map[int]bool{}, copies: map[[2]int]int{}}
	for range b.uses {
		b.programs = append(b.programs, &Program{OnDemand: s.OnDemand})
	}
	at := 0
	for _, n := range tokens {
		b.first = append(b.first, at)
		at += n
	}
	for layer := 1; layer <= b.top; layer++ {
		for mb := range tokens {
			b.objects[b.object(mb, s.At(layer, 0))].Input = layer
		}
	}
	apart := slices.ContainsFunc(s.visits(b.n), func(v Visit) bool { return v.Uses.Has(AllocatesGrad) })
	for mb := range tokens {
		if apart { // the head's input stays; otherwise the head overwrites its input with the gradient
			b.gradient = append(b.gradient, b.object(mb, s.At(b.top, s.Layers[b.top].Tiles-1)))
		} else {
			b.gradient = append(b.gradient, b.input(b.top, mb))
		}
	}
	return b
}

// On returns the lane (the device) that has a layer.
func (s Spec) On(layer int) int {
	if s.Lane == nil {
		return 0
	}
	return s.Lane[layer]
}

// At returns the lane that has part number part of a layer.
func (s Spec) At(layer, part int) int {
	if lanes := s.Layers[layer].Lanes; s.Lane != nil && lanes != nil {
		return lanes[part]
	}
	return s.On(layer)
}

// Lanes returns the number of lanes.
func (s Spec) Lanes() (n int) {
	n = 1
	for i, l := range s.Layers {
		for part := range l.Tiles {
			n = max(n, 1+s.At(i, part))
		}
	}
	return n
}

// InParts reports whether any layer has several tiles. Its gradient then arrives in several parts.
func (s Spec) InParts() bool {
	return slices.ContainsFunc(s.Layers, func(l Layer) bool { return l.Tiles > 1 })
}

// of returns the settings for a lane: s.Held, the tiles that the previous pass left in slots, keeps
// only that lane's tiles.
func (s Spec) of(lane int) Spec {
	var held []int
	if len(s.Held) == 0 {
		return s
	}
	tile := 0
	for i, l := range s.Layers {
		for part := range l.Tiles {
			if s.At(i, part) == lane && slices.Contains(s.Held, tile) {
				held = append(held, tile)
			}
			tile++
		}
	}
	s.Held = held
	return s
}

// object adds an object for one activation of micro-batch mb on a lane, and returns its index.
func (b *builder) object(mb, lane int) int {
	b.objects = append(b.objects, Object{Tokens: b.tokens[mb], MicroBatch: mb, Host: -1, Lane: lane, From: -1, To: -1, Passage: b.first[mb]})
	return len(b.objects) - 1
}

// input returns the index of the object that is a layer's input for micro-batch mb, on the lane of the layer's first
// part. layer is from 1 (after the embedding) to top, the head.
func (b *builder) input(layer, mb int) int { return (layer-1)*b.n + mb }

// inputOn returns the object that is a layer's input on a lane that has a part of the layer.
func (b *builder) inputOn(lane, layer, mb int) int {
	if in := b.input(layer, mb); b.objects[in].Lane == lane {
		return in
	}
	return b.copies[[2]int{lane, mb}]
}

// onward returns the object that a part's forward writes for the next part, which is on another lane: the layer's input,
// and what the parts so far have computed. The object is then copied to that lane. It returns −1 if the next part is on
// the same lane, or there is none.
func (b *builder) onward(v Visit, mb int) int {
	if v.Phase == Backward || v.Part+1 >= len(b.spec.Layers[v.Layer].Lanes) {
		return -1
	}
	lane, next := b.spec.At(v.Layer, v.Part), b.spec.At(v.Layer, v.Part+1)
	if lane == next {
		return -1
	}
	out, in := b.object(mb, lane), b.object(mb, next)
	b.objects[out].Input, b.objects[in].Input = v.Layer, v.Layer
	b.pass(out, in)
	b.copies[[2]int{next, mb}] = in
	return out
}

// gradientOn returns the object that holds micro-batch mb's gradient on a lane. If the gradient is on another lane,
// gradientOn adds an object on this lane, to which the gradient is copied.
func (b *builder) gradientOn(lane, mb int) int {
	was := b.gradient[mb]
	if b.objects[was].Lane != lane {
		b.gradient[mb] = b.object(mb, lane)
		b.pass(was, b.gradient[mb])
	}
	return b.gradient[mb]
}

// pass records that an object's content is copied to the object to, which is on another lane.
func (b *builder) pass(object, to int) {
	b.objects[object].To, b.objects[to].From = to, object
	b.coming[to] = true
}

// output returns the object that a layer writes its output to for micro-batch mb. On one lane this is the next layer's
// input. If the next layer is on another lane, it is an object here whose content is then copied to that input.
func (b *builder) output(layer, mb int) int {
	in, lane := b.input(layer+1, mb), b.spec.On(layer)
	if b.objects[in].Lane == lane {
		return in
	}
	out := b.object(mb, lane)
	b.objects[out].Input = layer + 1
	b.pass(out, in)
	return out
}

// visit appends visit v to the program of its part's lane, with one launch for each micro-batch. A visit to an expert
// has one launch for all.
func (b *builder) visit(v Visit) {
	p := b.programs[b.spec.At(v.Layer, v.Part)]
	v.First = len(p.Launches)
	p.Visits = append(p.Visits, v)
	if v.Stage == Expert {
		p.Launches = append(p.Launches, Launch{Visit: len(p.Visits) - 1, MicroBatch: -1, In: -1, Out: -1, Grad: -1, Kept: -1})
		return
	}
	from, to := b.spec.Round(v.Round, b.n)
	for _, mb := range b.spec.Order.of(v.Turn, to-from) {
		b.launch(v, from+mb)
	}
}

// launch appends the launch of visit v for micro-batch mb to the program of the part's lane, whose last visit is v,
// and records the objects that it uses.
func (b *builder) launch(v Visit, mb int) {
	lane := b.spec.At(v.Layer, v.Part)
	p := b.programs[lane]
	at := len(p.Launches)
	l := Launch{Visit: len(p.Visits) - 1, MicroBatch: mb, Tokens: b.tokens[mb], In: -1, Out: -1, Grad: -1, Kept: -1}
	if v.Uses.Has(Input) {
		l.In = b.inputOn(lane, v.Layer, mb)
		b.use(lane, use{at: at, object: l.In})
	}
	switch {
	case v.Uses.Has(Output):
		l.Out = b.output(v.Layer, mb)
	case v.Uses.Has(AllocatesGrad):
		l.Out = b.gradient[mb]
	case v.Uses.Has(UpdatesGradInPlace), v.Uses.Has(ReadsGrad):
		l.Grad = b.gradientOn(lane, mb)
		b.use(lane, use{at: at, object: l.Grad, modify: v.Uses.Has(UpdatesGradInPlace)})
	default:
		l.Out = b.onward(v, mb)
	}
	if l.Out >= 0 {
		b.use(lane, use{at: at, object: l.Out, create: true})
	}
	if v.Uses.Has(Keeps) && b.spec.Kept.Has(b.inRound[mb]) {
		l.Kept = b.keep(v, mb)
		b.kept[lane] = append(b.kept[lane], use{at: at, object: l.Kept, create: v.Phase == Forward})
	}
	p.Launches = append(p.Launches, l)
}

// keep returns the object that the layer of visit v keeps of micro-batch mb. The forward makes it.
func (b *builder) keep(v Visit, mb int) int {
	of := [2]int{v.Layer, mb}
	if v.Phase == Forward {
		b.keeps[of] = b.object(mb, b.spec.On(v.Layer))
		b.objects[b.keeps[of]].Layer = v.Layer
	}
	return b.keeps[of]
}

// use records that a launch on the lane uses an object. The first use of an object that another lane passes on must
// wait until it has arrived.
func (b *builder) use(lane int, u use) {
	u.arrives = b.coming[u.object]
	delete(b.coming, u.object)
	b.uses[lane] = append(b.uses[lane], u)
}
