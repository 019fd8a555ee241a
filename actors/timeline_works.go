package actors

import (
	"strconv"

	"mt/layers/schedule"
)

// This file names the works on the streams in a trace. It records the slots that each work uses, and which works caused
// it.

// launch records a launch on the compute stream. t has the launch's times; nil in an evaluation.
func (l *laneTracer) launch(e enqueue, la schedule.Launch, v schedule.Visit, t *passTimeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &piece{track: l.compute.track, name: v.Phase.String() + " " + l.visitName(v), step: e.p.Step, enqueued: l.now()}
	if la.MicroBatch >= 0 {
		p.detail = "micro-batch " + strconv.Itoa(la.MicroBatch+1)
	}
	l.launchCredits(e, la, v, p)
	l.launchCauses(e, v, p)
	if t == nil {
		l.compute.begins(p)
	} else {
		t.work = p
	}
}

// launchCredits records the slots that a launch takes and uses.
func (l *laneTracer) launchCredits(e enqueue, la schedule.Launch, v schedule.Visit, p *piece) {
	lane := l.r.index
	batch := credit{batchSlotCredit, e.Batch, lane}
	if e.WaitWeights && e.Weights < 0 {
		l.link("BatchFetched", l.uses(batch, p), p)
	} else if e.Index+1 == len(e.p.Launches) || v.Loss && e.Last {
		l.uses(batch, p)
	}
	if e.Weights >= 0 {
		if before := l.uses(l.r.weightCredit(e.Weights), p); e.WaitWeights {
			l.link("LayerFetched", before, p)
		}
	}
	l.activation(e.p, e.In, la.In, e.WaitIn, false, p)
	l.activation(e.p, e.Gr, la.Grad, e.WaitGr, true, p)
	made := [][2]int{{e.Out, la.Out}}
	if v.Phase == schedule.Forward {
		made = append(made, [2]int{e.Kept, la.Kept})
	} else {
		l.activation(e.p, e.Kept, la.Kept, e.WaitKept, false, p)
	}
	for _, m := range made {
		if slot, id := m[0], m[1]; slot >= 0 {
			l.takes(credit{activationCredit, slot, lane}, l.objectName(e.p, id), p).object = object{e.p.Seq + 1, id}
		}
	}
	switch buf := (credit{gradBufferCredit, e.Grad, lane}); {
	case v.Resumes && e.First:
		l.link("GradSumFetched", l.uses(buf, p), p)
	case v.Grad() && e.First:
		l.takes(buf, "gradient of "+l.visitName(v), p)
	case v.Grad():
		l.uses(buf, p)
	}
}

// activation records that launch p uses an activation, the object with number id, in an activation
// slot; slot −1: there is none. If turned, the launch replaces the activation in the slot by
// another one. If fetched, the activation was copied from the host into the slot.
func (l *laneTracer) activation(pass *Pass, slot, id int, fetched, turned bool, p *piece) {
	if slot < 0 {
		return
	}
	c := credit{activationCredit, slot, l.r.index}
	before := l.uses(c, p)
	h := l.holds[c]
	if h == nil {
		return
	}
	if fetched || h.byPeer {
		l.link("ActivationFetched", before, p)
		h.byPeer = false
	}
	if h.object != (object{pass.Seq + 1, id}) {
		h.object, h.name = object{pass.Seq + 1, id}, l.objectName(pass, id)
	}
	if turned {
		h.made = p
	}
}

// objectName returns the name of an activation in traces, such as the input of a layer. id is its number in the
// program's Objects.
func (l *laneTracer) objectName(pass *Pass, id int) string {
	object, name := pass.Objects[id], "gradient"
	switch {
	case object.Layer > 0:
		name = "kept by " + l.names[object.Layer]
	case object.Input > 0:
		name = "input of " + l.names[object.Input]
	}
	return name + ", micro-batch " + strconv.Itoa(object.MicroBatch+1)
}

// launchCauses records the works that led to launch p, such as the copy of the routing, and notes p as the cause of
// works to come.
func (l *laneTracer) launchCauses(e enqueue, v schedule.Visit, p *piece) {
	if v.Stage == schedule.Expert {
		l.link("RoutingLanded", l.routing, p)
		l.routing = nil
	}
	if v.Stage == schedule.Route && v.Phase != schedule.Backward && e.Last {
		l.routed = p
	}
	if v.Loss && e.Last {
		l.loss = p
	}
}

// reads records that p copies the content of an activation slot elsewhere. message is the name of the message that
// asked for the copy. It returns false if the slot's content is unknown.
func (l *laneTracer) reads(slot int, message string, p *piece) bool {
	c := credit{activationCredit, slot, l.r.index}
	if l.uses(c, p) == nil {
		return false
	}
	p.step = l.holds[c].made.step
	l.link(message, l.holds[c].made, p)
	return true
}

// copying records, for the timeline, the copies that the task `do` makes on stream s.
func (l *laneTracer) copying(s *countedStream, do task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.r.index
	followed := s.watch.(*streamTracer)
	p := &piece{track: followed.track, enqueued: l.now()}
	switch e := do.(type) {
	case fetchBatch:
		p.name, p.step = "fetch the batch", e.p.Step
		l.link("rowsGathered", l.uses(credit{batchSlotCredit, e.Slot, lane}, p), p)
	case fetchWeights:
		l.fetch(e, p)
	case fetchActivation:
		p.name, p.step = "fetch an activation", e.Step
		l.takes(credit{activationCredit, e.Slot, lane}, "activation", p)
	case fetchPassed:
		p.name, p.step = "take an activation in", e.Step
		l.takes(credit{activationCredit, e.Slot, lane}, "activation", p)
	case passToHost:
		p.name = "pass an activation on"
		l.reads(e.Slot, "ActivationLeft", p)
	case passDirect:
		p.name = "pass an activation on, to lane " + strconv.Itoa(e.Lane)
		if l.reads(e.Slot, "ActivationLeft", p) {
			l.takes(credit{activationCredit, e.Into, laneID(e.Lane)}, "activation", p).byPeer = true
		}
	case spill:
		p.name = "spill an activation"
		l.reads(e.Slot, "ActivationComputed", p)
	case offloadGrad:
		p.name = "offload the gradient of " + l.tileName(e.Layer, e.Part)
		l.follows("GradComputed", credit{gradBufferCredit, e.Buf, lane}, p)
		slab := credit{kind: slabCredit, index: e.Slab}
		name := "gradient of " + l.names[e.Layer]
		if h := l.holds[slab]; h != nil && h.name == name && h.step == p.step {
			l.uses(slab, p) // another part of the layer
		} else {
			l.takes(slab, name, p)
		}
	case fetchGradSum:
		what := "gradient of " + l.tileName(e.Layer, e.Part)
		p.name, p.step = "fetch the "+what, e.Step
		l.link("GradSummed", l.uses(credit{kind: slabCredit, index: e.Layer}, p), p)
		l.takes(credit{gradBufferCredit, e.Buf, lane}, what, p)
	case offloadRouting:
		p.name, p.step = "offload the routing of "+l.names[e.Layer], e.p.Step
		l.link("RoutingComputed", l.routed, p)
		l.routed, l.routing = nil, p
	case offloadLoss:
		p.name, p.step = "offload the losses", e.p.Step
		l.link("LossComputed", l.loss, p)
		l.loss = nil
	default:
		return
	}
	followed.begins(p)
}

// matrix records the operations on stream s for orthogonalizing a matrix (Muon). `what` names them in
// the trace, for example "bring up" for the copy to the device.
func (l *laneTracer) matrix(s *countedStream, what string, e orthogonalize) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followed := s.watch.(*streamTracer)
	p := &piece{track: followed.track, name: what + " a matrix of " + l.names[e.Layer], enqueued: l.now()}
	l.follows("MatrixPrepared", credit{matrixCredit, e.Buffer, e.Lane}, p)
	followed.begins(p)
}

// fetch records that p fetches the tile of task e.
func (l *laneTracer) fetch(e fetchWeights, p *piece) {
	what := l.tileName(e.Layer, e.Part)
	p.name, p.step = "fetch "+what, e.Step
	l.takes(l.r.weightCredit(e.Slot), what, p)
	for _, layer := range l.r.tiles[e.Tile].Sources() {
		l.fetches(layer, p)
	}
}

// tileName returns the name of a tile: its layer, and its part if there are several.
func (l *laneTracer) tileName(layer, part int) string {
	if part == 0 {
		return l.names[layer]
	}
	return l.names[layer] + ", part " + strconv.Itoa(part)
}
