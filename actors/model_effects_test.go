package actors

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"

	"mt/data"
	"mt/layers/schedule"
	"mt/model"
)

// This file executes the effects that cores request in the model test: it simulates devices, disks
// and ranks. It checks that each work finds the inputs that it needs.

func (w *world) do(e work, lane laneID) {
	l := w.lanes[lane]
	switch d := e.do.(type) {
	case fetchWeights:
		w.fetch(d, lane)
	case fetchExpert:
		w.fetch(d.fetchWeights, lane)
	case fetchGradSum:
		if l.buffers[d.Buf] = l.sums[d.Tile]; l.buffers[d.Buf].tile != d.Tile {
			w.failf("the sum of tile %d is fetched and its slab has %+v", d.Tile, l.sums[d.Tile])
		}
	case fetchBatch:
	case fetchActivation:
		c := l.spilled[d.place]
		if !c.written {
			w.failf("%+v is fetched before it was spilled", d.place)
		}
		l.acts[d.Slot] = c
	case fetchPassed:
		c := w.passage[d.Passage]
		if !c.written {
			w.failf("token %d of the passage is taken in before it was passed on", d.Passage)
		}
		delete(w.passage, d.Passage)
		l.acts[d.Slot] = c
	case enqueue:
		w.count("enqueue", nil)
		if n := len(l.streams[computeStream].pending); n >= launchesAhead {
			w.failf("%d launches are enqueued and not done", n+1)
		}
		w.launch(d, l)
		s := &l.streams[computeStream]
		s.pending = append(s.pending, func() []send { return e.completed(nil) })
	case checkOutput:
	case passDirect:
		w.copying(&l.streams[acrossStream], e, l)
	case spill, passToHost:
		w.copying(&l.streams[outStream], e, l)
	case offloadGrad, offloadRouting, offloadLoss:
		w.copying(&l.streams[d2hStream], e, l)
	case readParams:
		w.readParams(d, lane)
		w.start(e)
	case fetchState:
		w.fetchState(d)
		w.start(e)
	case flushState:
		w.needState(d.Layer, "written back")
		w.mayWrite(d.Layer)
		w.tier.states[d.Layer].flushes++
		w.start(e)
	case dropState:
		w.dropState(d)
	case putGrad:
		w.putGrad(d)
		w.start(e)
	case fetchGrad:
		w.fetchGrad(d)
		w.start(e)
	case saveLayer:
		w.needState(d.Layer, "saved")
		w.mayLink(d.Layer)
		w.checkSave(d)
		if w.team != nil {
			w.team.begin(w, e)
			return
		}
		w.start(e)
	case exchange, gather, agreeNorm, agreePass, agreeLoad:
		w.team.begin(w, e)
	case stopAgreed:
		w.team.stops++
	case runEnded:
		w.ended = true
		w.team.end(w)
		if errors.As(d.Err, &w.givenUp) {
			return
		}
		if w.cfg.maxNonFinite+w.cfg.spoilt > 0 {
			w.team.failed = d.Err
		} else if d.Err != nil {
			w.failf("run ended: %v", d.Err)
		}
	case StepReport:
		w.steps = append(w.steps, d.Step)
		var said []effect
		for _, s := range e.completed(nil) {
			said = append(said, s)
		}
		w.todo[seat(reporterID)] = append(said, w.todo[seat(reporterID)]...)
	case EvalReport:
		w.evals++
	case nonFiniteGradient:
		if w.cfg.spoilt == d.Step {
			w.send(conductorID, Failed{Err: &NonFiniteError{Step: d.Step, Finite: d.Finite, err: fmt.Errorf("layer %d", d.Layer)}})
			return
		}
		w.failf("non-finite gradient in step %d", d.Step)
	case update:
		w.needState(d.Layer, "updated")
		w.needGrad(d)
		w.checkUpdate(d.Layer)
		w.start(e)
	case prepareMatrix:
		w.needState(d.Of.Layer, "updated")
		w.needGrad(d.Of)
		w.matrix(e.do, true)
		w.start(e)
	case applyMatrix:
		w.needState(d.Of.Layer, "updated")
		w.matrix(e.do, true)
		w.start(e)
	case orthogonalize:
		w.matrix(e.do, true)
		w.start(e)
	default:
		w.start(e)
	}
}

// stream lets one simulated stream make progress. It sends the next message of a completed work, or
// completes the stream's next work.
func (w *world) stream(s *streamWorld) {
	if len(s.saying) > 0 {
		w.say(&s.saying)
		return
	}
	f := s.pending[0]
	s.pending = s.pending[1:]
	s.saying = f()
}

// copying enqueues the copy e on the simulated stream s of lane l.
func (w *world) copying(s *streamWorld, e work, l *laneWorld) {
	s.pending = append(s.pending, w.landing(e, l))
}

// landing simulates the copy e to the host or to another lane. The returned function runs when the
// copy completes. It records the copied content and returns the messages to send.
func (w *world) landing(e work, l *laneWorld) func() []send {
	switch d := e.do.(type) {
	case spill:
		c := l.acts[d.Slot]
		return func() []send {
			if l.acts[d.Slot] != c {
				w.failf("activation slot %d was reused before its spill landed", d.Slot)
			}
			l.spilled[d.place] = c
			return e.completed(nil)
		}
	case passToHost:
		c := l.acts[d.Slot]
		if w.cfg.onHost {
			w.failf("%+v is in host memory and passed through the host", c)
		}
		if was, ok := w.passage[d.Passage]; ok {
			w.failf("token %d of the passage has %+v when %+v is passed on", d.Passage, was, c)
		}
		w.passage[d.Passage] = content{}
		return func() []send {
			if l.acts[d.Slot] != c {
				w.failf("activation slot %d was reused before what it held was passed on", d.Slot)
			}
			c.object = e.done[0].msg.(ActivationPassed).Object // its number on the other lane
			w.passage[d.Passage] = c
			w.on++
			return e.completed(nil)
		}
	case passDirect:
		c, to := l.acts[d.Slot], w.lanes[d.Lane].acts
		passed := e.done[0].msg.(ActivationPassed)
		if w.cfg.reaches>>(4*l.index+d.Lane)&1 == 0 {
			w.failf("something is passed across from lane %d to lane %d, which it does not reach", l.index, d.Lane)
		}
		if !c.written || !passed.Direct {
			w.failf("activation slot %d, which holds %+v, is passed across as %+v", d.Slot, c, passed)
		}
		to[d.Into] = content{} // later readers find nothing
		return func() []send {
			if l.acts[d.Slot] != c {
				w.failf("activation slot %d was reused before what it held was passed across", d.Slot)
			}
			if is := to[d.Into]; is != (content{}) {
				w.failf("activation slot %d of lane %d was given to %+v while something is passed across into it", d.Into, d.Lane, is)
			}
			c.object = passed.Object // its number on the other lane
			to[d.Into] = c
			w.across++
			return e.completed(nil)
		}
	case offloadGrad:
		if d.Slab >= w.cfg.ownSlabs() && len(l.parts) == 0 && w.full[d.Slab] {
			w.failf("the gradient of layer %d goes into slab %d, which holds another", d.Layer, d.Slab)
		}
		sum := l.buffers[d.Buf]
		return func() []send {
			l.sums[d.Tile] = sum
			if !partial(e) {
				w.land(d, e.done != nil, l)
			}
			return e.completed(nil)
		}
	case offloadRouting:
		return func() []send { return e.completed(w.routed(d.p, d.Layer)) }
	case offloadLoss:
		sum := 1.0
		if !d.p.Eval && w.cfg.skip[d.p.Step] && w.team.skips() {
			sum = math.NaN()
		}
		if want := w.load(d.p).product(); d.Load != want {
			w.failf("%v: the load of the loss is %g, want %g", d.p, d.Load, want)
		}
		return func() []send { return e.completed(losses{sum: sum}) }
	}
	panic(e)
}

// land checks the copy of one gradient part to the host. All parts of a layer must have landed in
// the same slab when the gradient is reported (told).
func (w *world) land(d offloadGrad, told bool, l *laneWorld) {
	parts := 1
	switch w.cfg.kinds()[d.Layer] {
	case model.Head:
		if w.cfg.head != nil { // each lane tells the lane of part 0
			if w.headParts++; d.Slab != d.Layer || !told || w.cfg.head[d.Part] != l.index {
				w.failf("a part of the head has landed as %+v on lane %d, told %t", d, l.index, told)
			}
			if w.headParts == w.cfg.headShards {
				w.headParts, w.full[d.Slab] = 0, true
				w.gradLanded(d)
			}
			return
		}
		parts = max(1, w.cfg.headShards)
	case model.MoE:
		parts = 1 + w.cfg.experts
	}
	if l.parts = append(l.parts, d); l.parts[0].Slab != d.Slab || l.parts[0].Layer != d.Layer || told != (len(l.parts) == parts) {
		w.failf("parts of a gradient have landed as %+v, told %t", l.parts, told)
	}
	if told {
		w.full[d.Slab] = true
		w.gradLanded(d)
		l.parts = nil
	}
}

// offsets returns the made-up routing of a layer in a program, in the form of
// RoutingLanded.Offsets. Some experts get no token; sometimes one expert gets all.
func (w *world) offsets(prog, layer int) []int32 { return w.offsetsOf(w.team.number(), prog, layer) }

// offsetsOf returns what offsets returns, for the given rank. It depends only on its arguments and
// the seed.
func (w *world) offsetsOf(rank, prog, layer int) []int32 {
	key := [3]int{rank, prog, layer}
	out := w.drawn[key]
	if out == nil {
		r := rand.New(rand.NewSource(w.cfg.seed<<20 ^ int64(rank)<<16 ^ int64(prog)<<8 ^ int64(layer)))
		out = []int32{0}
		for range w.cfg.experts {
			out = append(out, out[len(out)-1]+int32(max(0, r.Intn(4)-r.Intn(4))))
		}
		w.drawn[key] = out
	}
	return slices.Clone(out)
}

// routed returns the result of copying the routing of a layer to this rank's host.
func (w *world) routed(p *Pass, layer int) routed { return w.routedOn(w.team.number(), p, layer) }

// routedOn returns the result of copying the routing of a layer to the host of the given rank.
func (w *world) routedOn(rank int, p *Pass, layer int) routed {
	out := routed{offsets: w.offsetsOf(rank, p.Seq, layer)}
	for e := range out.offsets[1:] {
		if w.cfg.balanced && !p.Eval {
			out.probs = append(out.probs, float32(layer+e)/8)
		}
	}
	return out
}

// load returns the experts' load that the loss and the backward of pass p must use: the sum over
// all layers and ranks.
func (w *world) load(p *Pass) (sum expertLoad) {
	for rank := range w.team.size() {
		all := routing{}
		for layer, kind := range w.cfg.kinds() {
			if kind == model.MoE {
				all[layer] = RoutingLanded{}.withResult(w.routedOn(rank, p, layer)).(RoutingLanded)
			}
		}
		sum = sum.plus(all.load())
	}
	return sum
}

// pairs returns how many (token, choice) pairs the made-up routing sends to expert k of a layer,
// counted from 1.
func (w *world) pairs(prog, layer, k int) int {
	o := w.offsets(prog, layer)
	return int(o[k] - o[k-1])
}

// fetch simulates the copy of a tile: it notes in the slot which tile, and which version of its
// weights, the slot holds.
func (w *world) fetch(d fetchWeights, lane laneID) {
	w.checkFetch(d, lane)
	w.needParams(d, lane)
	w.lanes[lane].slots[d.Slot] = content{layer: d.Layer, part: d.Part, version: w.version[d.Layer], written: true}
}

// checkFetch checks that an expert without tokens is not fetched, if the run fetches experts on
// demand.
func (w *world) checkFetch(d fetchWeights, lane laneID) {
	if !w.cfg.onDemand || w.cfg.kinds()[d.Layer] != model.MoE || d.Part == 0 {
		return
	}
	if prog := w.cores[seat(lane.compute())].(*computeCore).programs[0].Seq; w.pairs(prog, d.Layer, d.Part) == 0 {
		w.failf("expert %d of layer %d is idle and fetched", d.Part, d.Layer)
	}
}

func (w *world) start(e work) {
	w.async = append(w.async, e)
}

func (w *world) checkSave(d saveLayer) {
	c := w.once(checkpointerRole).(*checkpointerCore)
	step := c.queue[0].Step
	w.saved[step]++
	want := w.updates(step)
	if w.version[d.Layer] != want {
		w.failf("layer %d is saved for step %d after %d updates", d.Layer, step, w.version[d.Layer])
	}
}

// updates returns how many of steps 1 to step changed weights. The others are skipped in this
// configuration.
func (w *world) updates(step int) int {
	n := step
	for s := range w.cfg.skip {
		if s <= step {
			n--
		}
	}
	return n
}

// launch checks that the slots of a launch hold the content that the program requires.
func (w *world) launch(d enqueue, on *laneWorld) {
	l := d.p.Launches[d.Index]
	v := d.p.Visits[l.Visit]
	idle := v.Stage == schedule.Expert && w.pairs(d.p.Seq, v.Layer, v.Part) == 0
	if (d.Weights >= 0) != (v.Weighs() && !(idle && d.p.OnDemand)) {
		w.failf("%v: layer %d part %d %s has weights in slot %d", d.p, v.Layer, v.Part, v.Phase, d.Weights)
	}
	if v.Stage == schedule.Expert && (int32(d.From) != w.offsets(d.p.Seq, v.Layer)[v.Part-1] || d.Pairs != w.pairs(d.p.Seq, v.Layer, v.Part)) {
		w.failf("%v: layer %d part %d has pairs %d, %d of them", d.p, v.Layer, v.Part, d.From, d.Pairs)
	}
	if d.Weights >= 0 {
		c := on.slots[d.Weights]
		if !c.written || c.layer != v.Layer || c.part != v.Part || c.version != w.version[v.Layer] {
			w.failf("%v: slot %d holds %+v for layer %d part %d, whose weights are at %d", d.p, d.Weights, c, v.Layer, v.Part, w.version[v.Layer])
		}
	}
	if d.Counts != nil {
		if on.counts[d.p.Seq] != nil {
			w.failf("%v: counts of all lanes go to the device once more", d.p)
		}
		on.counts[d.p.Seq] = d.Counts
	}
	w.sum(d, v, on)
	w.order(d.p, v, on)
	want := func(slot, object int) {
		if c := on.acts[slot]; c.prog != d.p.Seq || c.object != object || !c.written {
			w.failf("%v launch %d: activation slot %d holds %+v, not object %d", d.p, d.Index, slot, c, object)
		}
	}
	if l.In >= 0 {
		want(d.In, l.In)
	}
	if l.Grad >= 0 {
		want(d.Gr, l.Grad)
	}
	switch {
	case l.Kept >= 0 && v.Phase == schedule.Forward:
		on.acts[d.Kept] = content{prog: d.p.Seq, object: l.Kept, written: true}
	case l.Kept >= 0:
		want(d.Kept, l.Kept)
	}
	if l.Out >= 0 {
		on.acts[d.Out] = content{prog: d.p.Seq, object: l.Out, written: true}
	}
}

// sum checks, at a launch that adds to a gradient, that its buffer has the sum of all earlier rounds.
func (w *world) sum(d enqueue, v schedule.Visit, on *laneWorld) {
	if !v.Grad() {
		return
	}
	switch has := on.buffers[d.Grad]; {
	case d.First && !v.Resumes:
		on.buffers[d.Grad] = roundSum{d.p.Seq, v.Tile, 0}
	case has != roundSum{d.p.Seq, v.Tile, v.Round}:
		w.failf("%v: round %d of tile %d continues %+v", d.p, v.Round, v.Tile, has)
	case v.Resumes && d.First:
		on.resumed++
	}
	if d.Last {
		on.buffers[d.Grad] = roundSum{d.p.Seq, v.Tile, v.Round + 1}
	}
}

// partial reports whether a later round adds to the gradient that e copies to the host.
func partial(e work) bool {
	if len(e.done) == 0 {
		return false
	}
	_, is := e.done[0].msg.(GradSummed)
	return is
}

// order checks the visits of a layer with experts: router, then experts, then the combination of
// their outputs. No other layer's visit may come between them.
func (w *world) order(p *Pass, v schedule.Visit, on *laneWorld) {
	switch at := &on.routed; {
	case v.Stage < schedule.Route || v.Stage > schedule.Combine:
		if *at != 0 {
			w.failf("%v: layer %d begins within one with experts", p, v.Layer)
		}
	case v.Stage == schedule.Route:
		*at = 1
	case *at != 1:
		w.failf("%v: layer %d part %d before its tokens are routed", p, v.Layer, v.Part)
	case v.Stage == schedule.Combine:
		if counts := w.load(p).Counts; w.cfg.balanced && len(w.lanes)*w.team.size() > 1 && v.Phase == schedule.Backward && !slices.Equal(counts, on.counts[p.Seq]) {
			w.failf("%v: layer %d has the counts %v of all lanes, want %v", p, v.Layer, on.counts[p.Seq], counts)
		}
		on.joined++
		if on.joined == len(p.Batch.MicroBatches) {
			*at, on.joined = 0, 0
		}
	}
}

// batch returns the batch of a step for the simulated run. The number of micro-batches varies from
// step to step.
func (w *world) batch(d packBatch) *data.Batch {
	n := 1 + (w.cfg.micro+d.Step)%w.cfg.micro
	b := &data.Batch{Step: d.Step, Supervised: 1, UniqueIDs: []int32{1}}
	for range n {
		b.MicroBatches = append(b.MicroBatches, data.MicroBatch{Tokens: 1})
	}
	return b
}
