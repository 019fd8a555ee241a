package actors

import "math"

// This file says what effects do in the world of the model test, and checks
// that they find what they need.

func (w *world) do(id actorID, e work) {
	switch d := e.do.(type) {
	case fetchWeights:
		key := d.Slot
		if d.Head {
			key = -1
		}
		w.slots[key] = content{layer: d.Layer, shard: d.Shard, version: w.version[d.Layer], written: true}
	case fetchBatch:
	case fetchActivation:
		c := w.spilled[d.Host]
		if !c.written {
			w.failf("host buffer %d is fetched before it was spilled", d.Host)
		}
		w.acts[d.Slot] = c
	case launch:
		w.launch(d)
	case spill:
		c := w.acts[d.Slot]
		w.d2h = append(w.d2h, func() {
			if w.acts[d.Slot] != c {
				w.failf("activation slot %d was reused before its spill landed", d.Slot)
			}
			w.spilled[d.Host] = c
			w.done(id, e.done)
		})
	case offloadGrad:
		w.d2h = append(w.d2h, func() {
			w.land(d, e.done != nil)
			w.done(id, e.done)
		})
	case offloadLoss:
		sum := 1.0
		if !d.p.Eval && w.cfg.skip[d.p.Step] {
			sum = math.NaN()
		}
		w.d2h = append(w.d2h, func() {
			w.send(conductorID, LossLanded{Prog: d.p.Seq, Step: d.p.Step, Eval: d.p.Eval, Sum: sum})
		})
	case saveLayer:
		w.checkSave(d)
		w.start(id, e)
	case runEnded:
		w.ended = true
		if d.Err != nil {
			w.failf("run ended: %v", d.Err)
		}
	case StepReport:
		w.steps = append(w.steps, d.Step)
	case EvalReport:
		w.evals++
	case nonFiniteGradient:
		w.failf("non-finite gradient in step %d", d.Step)
	case update:
		if w.cores[optimizerID].(*optimizerCore).saving[d.Layer] {
			w.failf("layer %d is updated while it is being saved", d.Layer)
		}
		w.start(id, e)
	default:
		w.start(id, e)
	}
}

// land checks that all parts of a gradient land in one slab before it is told.
func (w *world) land(d offloadGrad, told bool) {
	parts := 1
	if d.Layer == w.cfg.layers-1 {
		parts = max(1, w.cfg.headShards)
	}
	if w.landing = append(w.landing, d); w.landing[0].Slab != d.Slab || w.landing[0].Layer != d.Layer || told != (len(w.landing) == parts) {
		w.failf("parts of a gradient have landed as %+v, told %t", w.landing, told)
	}
	if told {
		w.landing = nil
	}
}

func (w *world) start(id actorID, e work) {
	w.async = append(w.async, e)
	w.owner = append(w.owner, id)
}

func (w *world) checkSave(d saveLayer) {
	c := w.cores[checkpointerID].(*checkpointerCore)
	step := c.queue[0].Step
	w.saved[step]++
	want := step
	for s := range w.cfg.skip {
		if s <= step {
			want-- // a skipped step changes no weights
		}
	}
	if w.version[d.Layer] != want {
		w.failf("layer %d is saved for step %d after %d updates", d.Layer, step, w.version[d.Layer])
	}
}

// launch checks that the slots of a launch hold what the program says.
func (w *world) launch(d launch) {
	l := d.p.Launches[d.Index]
	v := d.p.Visits[l.Visit]
	if d.Weights >= 0 {
		key := d.Weights
		if v.Layer == w.cfg.layers-1 && w.cfg.headShards < 2 {
			key = -1
		}
		c := w.slots[key]
		if !c.written || c.layer != v.Layer || c.shard != v.Shard || c.version != w.version[v.Layer] {
			w.failf("%v: slot %d holds %+v for layer %d part %d, whose weights are at %d", d.p, key, c, v.Layer, v.Shard, w.version[v.Layer])
		}
	}
	want := func(slot, object int) {
		if c := w.acts[slot]; c.prog != d.p.Seq || c.object != object || !c.written {
			w.failf("%v launch %d: activation slot %d holds %+v, not object %d", d.p, d.Index, slot, c, object)
		}
	}
	if l.In >= 0 {
		want(d.In, l.In)
	}
	if l.Grad >= 0 {
		want(d.Gr, l.Grad)
	}
	if l.Out >= 0 {
		w.acts[d.Out] = content{prog: d.p.Seq, object: l.Out, written: true}
	}
}
