package actors

import (
	"fmt"
	"slices"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
	"mt/layers"
	"mt/layers/schedule"
	"mt/plan"
)

// Compute runs the launches of a program in order. It owns the credits of gradient buffers and
// temporarily holds the slots that the Prefetcher has granted. It enqueues a launch when all inputs
// are granted: the batch, weights, activations, a gradient buffer. Layers with experts also need
// their tokens' routing (experts.go).

// computeCore is the pure part of Compute.
type computeCore struct {
	computeSpec
	programs []*Pass
	next     int               // index of the next launch in programs[0]
	weights  map[int]slotGrant // by tile; a tile may stay from one program to the next
	batch    slotGrant
	acts     map[int]slotGrant // by object of programs[0]
	gradFree []int
	grad     int          // buffer in which the current visit sums its gradient; −1: none
	resumed  []resumption // buffers for the next visits, with sums of earlier rounds
	summed   map[int]bool // by tile: the sum of earlier rounds is in its slab
	// deferred holds messages with inputs, such as slot grants, that arrived before their program
	// began. It also holds grants of a tile whose earlier slot is still in use (see admit).
	deferred []message
	ahead    runAhead
	blocked  Cause // what the next launch lacked when it was last checked; NoStall: nothing
	started  bool
	hooks    []launchHook
}

// computeSpec describes a run to Compute.
type computeSpec struct {
	lane        laneID
	gradBuffers int
	experts     bool // some layers have experts
	balance     balancing
}

// launchHook is a piece of Compute that only some runs have, such as the one for layers with experts. Compute calls all
// hooks, in their order, at the points that the methods name.
type launchHook interface {
	// admit stores the input that msg brings for program p. ok is false if the message is not for this hook.
	admit(p *Pass, msg message) (ok bool)
	// ready reports whether a visit's launches have all inputs that this hook watches. If not,
	// waits is the stall cause that names the missing input.
	ready(p *Pass, v schedule.Visit) (waits Cause, ok bool)
	// idle reports whether the visit does no work on its tile, so that its launch need not wait for the tile.
	idle(p *Pass, v schedule.Visit) bool
	// begin adds the launch's inputs to e. skip: there is nothing to enqueue.
	begin(v schedule.Visit, e *enqueue) (skip bool)
	// done returns the effects that follow a launch. They come before all other effects of the launch.
	done(v schedule.Visit, e enqueue) []effect
	// computed adds to m what this hook knows about p's losses, such as the experts' load.
	computed(p *Pass, m *LossComputed)
	// programDone drops what the hook keeps for a program, because all launches of the program are enqueued.
	programDone()
}

// slotGrant is a slot that the Prefetcher has granted to the launches of a program.
type slotGrant struct {
	slot   int
	ok     bool  // granted
	cause  Cause // what the Prefetcher waited for before filling the slot
	filled bool  // by a copy; the next launch that uses the slot waits for it
}

func newComputeCore(x computeSpec) *computeCore {
	c := &computeCore{computeSpec: x, weights: map[int]slotGrant{}, acts: map[int]slotGrant{}, summed: map[int]bool{}, gradFree: ids(x.gradBuffers), grad: -1}
	if x.experts {
		c.hooks = append(c.hooks, &expertLaunches{lane: x.lane, balance: x.balance, routed: routing{}})
	}
	return c
}

// needsSlot reports whether visit v must wait for a slot with its tile. It must if v uses weights,
// and no hook says that v does no work (idle), as for an expert without tokens.
func (c *computeCore) needsSlot(p *Pass, v schedule.Visit) bool {
	return v.Weighs() && !slices.ContainsFunc(c.hooks, func(w launchHook) bool { return w.idle(p, v) })
}

// enqueue is the task of enqueuing one launch on the compute stream.
type enqueue struct {
	p                           *Pass
	Index                       int // of the launch in p.Launches
	Batch                       int // batch slot
	Weights, In, Out, Gr, Kept  int // slots; −1: none
	Grad                        int // gradient buffer; −1: none
	WaitWeights, WaitIn, WaitGr bool
	WaitKept                    bool
	WaitBatch                   bool    // the lane's first launch, unless it is the embedding, which waits with WaitWeights
	First, Last                 bool    // the visit's first and last launch
	Counts                      []int32 // pairs by expert, over the layers of all lanes and ranks, for the backward; nil: the device has them
	From, Pairs                 int     // of an expert: its first (token, choice) pair and the number of its pairs
	Blocked                     Cause   // what the launch waited for before it could be enqueued
	Fetched                     Cause   // what the Prefetcher waited for before fetching the weights or the batch
}

// passBatch is the task of waiting until the device has finished with a pass's batch. Only then may
// the next batch use the batch slot and its staging buffer on the host.
type passBatch struct{}

func (c *computeCore) step(msg message) []effect {
	switch m := msg.(type) {
	case PassPlanned:
		c.programs = append(c.programs, m.Pass)
	case GradBufferFreed:
		c.gradFree = append(c.gradFree, m.Buf)
	case GradSummed:
		c.summed[m.Tile] = true
	case GradSumFetched:
		c.fetchedSum(m.Buf)
	case LaunchPassed:
		c.ahead = c.ahead[1:]
	case LayerFetched, ActivationFetched, BatchFetched, RoutingLanded, LoadAgreed:
		c.deferred = append(c.deferred, msg)
	default:
		panic(unexpected(c.lane.compute(), msg))
	}
	return c.advance()
}

func (c *computeCore) advance() []effect {
	var out []effect
	for len(c.programs) > 0 {
		p := c.programs[0]
		if !c.started {
			c.started = true
			for _, tile := range p.Stale {
				out = append(out, send{c.lane.prefetcher(), SlotFreed{c.weights[tile].slot}})
				delete(c.weights, tile)
			}
		}
		for c.admit(p); c.next < len(p.Launches) && c.ready(p); c.admit(p) {
			out = append(out, c.enqueueNext(p)...)
		}
		if c.next < len(p.Launches) {
			return append(out, c.resume(p)...)
		}
		c.programs, c.next, c.started = c.programs[1:], 0, false
		for _, w := range c.hooks {
			w.programDone()
		}
	}
	return out
}

// admit takes from c.deferred the messages for pass p and stores the slots and other inputs that
// they bring. A second grant for a tile stays deferred while later launches still use the slot of
// the first grant. Such a second grant comes if the Prefetcher reaches a tile's next visit early,
// because experts without tokens left slots free.
func (c *computeCore) admit(p *Pass) {
	rest := c.deferred[:0]
	for _, msg := range c.deferred {
		switch m := msg.(type) {
		case LayerFetched:
			if tile := p.Visits[m.Visit].Tile; m.Prog == p.Seq && !c.weights[tile].ok {
				c.weights[tile] = slotGrant{slot: m.Slot, ok: true, cause: m.Cause, filled: true}
				continue
			}
		case ActivationFetched:
			if m.Prog == p.Seq {
				c.acts[m.Object] = slotGrant{slot: m.Slot, ok: true, filled: m.Filled}
				continue
			}
		case BatchFetched:
			if m.Prog == p.Seq {
				c.batch = slotGrant{slot: m.Slot, ok: true, cause: m.Cause, filled: true}
				continue
			}
		default:
			if slices.ContainsFunc(c.hooks, func(w launchHook) bool { return w.admit(p, msg) }) {
				continue
			}
		}
		rest = append(rest, msg)
	}
	c.deferred = rest
}

// ready reports whether the next launch has all its inputs. If not, it stores the missing one in c.blocked.
func (c *computeCore) ready(p *Pass) bool {
	l := p.Launches[c.next]
	v := p.Visits[l.Visit]
	switch {
	case !c.batch.ok:
		c.blocked = StallData
	case !c.clear(p, v):
	case c.needsSlot(p, v) && !c.weights[v.Tile].ok:
		c.blocked = StallWeights
	case l.In >= 0 && !c.acts[l.In].ok:
		c.blocked = p.inputStall(l)
	case l.Grad >= 0 && !c.acts[l.Grad].ok:
		c.blocked = p.gradStall(l)
	case l.Out >= 0 && !c.acts[l.Out].ok, l.Kept >= 0 && !c.acts[l.Kept].ok:
		c.blocked = StallActivation
	case v.Grad() && c.grad < 0 && !c.hasBuffer(v):
		c.blocked = StallGradBuffer
	case !c.ahead.room(l.Tokens):
		c.blocked = NoStall // the device is busy
	default:
		return true
	}
	return false
}

// hasBuffer reports whether visit v, which makes a gradient and has no buffer yet, can have one.
func (c *computeCore) hasBuffer(v schedule.Visit) bool {
	if v.Resumes {
		return len(c.resumed) > 0 && c.resumed[0].fetched
	}
	return len(c.gradFree) > 0
}

// takeBuffer returns the gradient buffer for visit v, for which hasBuffer is true.
func (c *computeCore) takeBuffer(v schedule.Visit) (buf int) {
	if v.Resumes {
		buf, c.resumed = c.resumed[0].buf, c.resumed[1:]
		return buf
	}
	buf, c.gradFree = c.gradFree[0], c.gradFree[1:]
	return buf
}

// clear reports whether all hooks have the inputs that they need for v. If one lacks an input, clear stores the cause
// in c.blocked.
func (c *computeCore) clear(p *Pass, v schedule.Visit) bool {
	for _, w := range c.hooks {
		if waits, ok := w.ready(p, v); !ok {
			c.blocked = waits
			return false
		}
	}
	return true
}

func (c *computeCore) enqueueNext(p *Pass) []effect {
	i := c.next
	c.next++
	l := p.Launches[i]
	v := p.Visits[l.Visit]
	e := enqueue{p: p, Index: i, Batch: c.batch.slot, Weights: -1, Fetched: c.batch.cause, In: -1, Out: -1, Gr: -1, Kept: -1, Grad: -1,
		First: i == v.First, Last: i+1 == len(p.Launches) || p.Launches[i+1].Visit != l.Visit}
	if slices.ContainsFunc(c.hooks, func(w launchHook) bool { return w.begin(v, &e) }) {
		return c.after(p, v, l, e)
	}
	switch {
	case c.needsSlot(p, v): // also if the launch does not read the tile: the tile's update must wait for the end of the copy
		w := c.weights[v.Tile]
		e.Weights, e.WaitWeights, e.Fetched = w.slot, w.filled, w.cause
		w.filled = false // the stream is in order, so later launches need no second wait
		c.weights[v.Tile] = w
	case v.Stage == schedule.Embed:
		e.WaitWeights = e.First && v.Phase != schedule.Backward
	}
	e.WaitBatch = i == 0 && v.Stage != schedule.Embed
	e.In, e.WaitIn = c.use(l.In)
	e.Out, _ = c.use(l.Out)
	e.Gr, e.WaitGr = c.use(l.Grad)
	e.Kept, e.WaitKept = c.use(l.Kept)
	if v.Grad() {
		if c.grad < 0 {
			c.grad = c.takeBuffer(v)
		}
		e.Grad = c.grad
	}
	if e.Blocked = c.blocked; e.Blocked == StallWeights || e.Blocked == StallData {
		e.Blocked = e.Fetched
	}
	c.blocked = NoStall
	c.ahead = append(c.ahead, l.Tokens)
	out := []effect{work{do: e, done: []send{{c.lane.compute(), LaunchPassed{}}}}}
	for _, x := range p.hooks {
		out = append(out, x.enqueued(v, e)...)
	}
	return append(out, c.after(p, v, l, e)...)
}

// use returns the slot that holds an activation; −1 if object is negative. Argument object is the
// activation's number in the program's Objects. wait: this is the first launch to use the slot
// after a copy into it was enqueued, so the launch must wait for that copy.
func (c *computeCore) use(object int) (slot int, wait bool) {
	if object < 0 {
		return -1, false
	}
	h := c.acts[object]
	wait = h.filled
	h.filled = false
	c.acts[object] = h
	return h.slot, wait
}

// after returns the effects that follow a launch. After every launch, activations are returned, spilled or passed to
// another lane. After the last launch of a visit, its gradient or losses are announced and its slots returned.
func (c *computeCore) after(p *Pass, v schedule.Visit, l schedule.Launch, e enqueue) []effect {
	var out []effect
	for _, w := range c.hooks {
		out = append(out, w.done(v, e)...)
	}
	for _, r := range l.Releases {
		slot := c.acts[r.Object].slot
		delete(c.acts, r.Object)
		if r.Pass {
			out = append(out, send{c.lane.offloader(), ActivationLeft{Prog: p.Seq, Object: r.Object, Slot: slot}})
		} else if r.Spill {
			out = append(out, send{c.lane.offloader(), ActivationComputed{Prog: p.Seq, Object: r.Object, Slot: slot}})
		} else {
			out = append(out, send{c.lane.prefetcher(), ActivationSlotFreed{slot}})
		}
	}
	if !e.Last {
		return out
	}
	out = append(out, c.release(v)...)
	if v.Loss {
		m := LossComputed{Prog: p.Seq, Slot: c.batch.slot}
		for _, w := range c.hooks {
			w.computed(p, &m)
		}
		out = append(out, send{c.lane.offloader(), m})
	}
	if v.Grad() {
		out = append(out, send{c.lane.offloader(), GradComputed{Prog: p.Seq, Step: p.Step, Layer: v.Layer, Stage: v.Stage, Part: v.Part, Tile: v.Tile, Buf: c.grad, Complete: v.Complete, Partial: v.Partial}})
		c.grad = -1
	}
	if e.Index+1 == len(p.Launches) {
		out = append(out, work{do: passBatch{}, done: []send{{c.lane.prefetcher(), BatchSlotFreed{c.batch.slot}}}})
		c.batch = slotGrant{}
	}
	return out
}

// release returns the effects that return the weight slot of a finished visit, if the program says that the slot is
// free then (v.Release). It returns nil for a visit without a slot, such as that of an expert without tokens.
func (c *computeCore) release(v schedule.Visit) []effect {
	w := c.weights[v.Tile]
	if !w.ok || !v.Weighs() || !v.Release {
		return nil
	}
	delete(c.weights, v.Tile)
	return []effect{send{c.lane.prefetcher(), SlotFreed{w.slot}}}
}

func (e passBatch) start(r *lane, w work) error {
	r.compute.Notify(func(err error) {
		r.hub.notified(func() {
			if err != nil { // from the wait, or from a launch that has reported the error already
				r.hub.fail(r.index.compute(), fmt.Errorf("compute: %w", err))
				return
			}
			r.hub.done(w, nil)
		})
	})
	return nil
}

func (e enqueue) start(r *lane, w work) error {
	l := e.p.Launches[e.Index]
	v := e.p.Visits[l.Visit]
	if e.Index == 0 {
		r.bindSaved(e.p.Batch)
		for _, x := range r.hooks {
			x.begin(e.p)
		}
	}
	marks, err := r.enqueue(e, l, v)
	if err != nil {
		return r.launchError(e, v, err)
	}
	r.record(e, v)
	// The first failed launch's notification brings the stream's error. Only this notification reports the error, so
	// the message names the launch.
	r.compute.Notify(func(err error) {
		r.hub.notified(func() {
			if err != nil {
				r.hub.fail(r.index.compute(), r.launchError(e, v, err))
				return
			}
			r.stalls.passed(e.p.Seq, marks)
			r.hub.done(w, nil)
		})
	})
	return nil
}

func (r *lane) launchError(e enqueue, v schedule.Visit, err error) error {
	return fmt.Errorf("compute %s %s step %d: %w", r.names[v.Layer], v.Phase, e.p.Step, err)
}

// enqueue makes the compute stream wait for the launch's inputs and then run the launch. In training it marks the end
// of each wait and of the launch on the pass's timeline (stalls.go). It returns how many marks the timeline has so far.
func (r *lane) enqueue(e enqueue, l schedule.Launch, v schedule.Visit) (marks int, err error) {
	var t *passTimeline
	if !e.p.Eval {
		t = r.stalls.timeline(r.compute, e.p.Seq)
	}
	r.watch.launch(e, l, v, t)
	t.waited(e.Blocked)
	for _, w := range r.waits(e, l, v) {
		r.compute.Wait(w.event)
		t.waited(w.cause)
	}
	for _, x := range r.hooks {
		x.before(e, l, v)
	}
	r.repeats.launch(r, e, l, v)
	t.worked()
	if e.p.Eval && e.Index+1 == len(e.p.Launches) {
		return 0, r.stalls.skip(r.compute)
	}
	return t.marksMade(), t.failed()
}

// laneHook adds operations on the lane's device before or after launches, in runs that need them:
// runs with experts, and runs whose hidden states are in host memory.
type laneHook interface {
	// begin runs before the first launch of a program.
	begin(p *Pass)
	// before runs before each launch.
	before(e enqueue, l schedule.Launch, v schedule.Visit)
	// after runs after the last launch of a visit.
	after(v schedule.Visit)
}

// wait is an event that a launch waits for on the compute stream. The waiting time is counted under cause.
type wait struct {
	event device.Event
	cause Cause
}

// waits lists the events that a launch waits for. The slot of its output needs no event. The slot's
// last user was either a launch on this same stream, or a spill that was complete before the slot
// was granted again.
func (r *lane) waits(e enqueue, l schedule.Launch, v schedule.Visit) []wait {
	var out []wait
	if e.WaitBatch {
		out = append(out, wait{r.batches[e.Batch].ready, StallData})
	}
	if e.WaitWeights {
		// The launch may have been enqueued late because the fetch was late; Blocked accounts for that time. The wait
		// here is only for the rest of the copy.
		if e.Weights >= 0 {
			out = append(out, wait{r.weights[e.Weights].ready, StallWeights})
		} else {
			out = append(out, wait{r.batches[e.Batch].ready, StallData})
		}
	}
	if e.WaitIn {
		out = append(out, wait{r.acts[e.In].ready, e.p.inputStall(l)})
	}
	if e.WaitGr {
		out = append(out, wait{r.acts[e.Gr].ready, e.p.gradStall(l)})
	}
	if e.WaitKept {
		out = append(out, wait{r.acts[e.Kept].ready, StallActivation})
	}
	switch {
	case v.Resumes && e.First: // filled when it was idle
		out = append(out, wait{r.gradBufs[e.Grad].ready, StallGradBuffer})
	case v.Grad() && e.First:
		out = append(out, wait{r.gradBufs[e.Grad].idle, StallGradBuffer})
	}
	return out
}

// record records events on the compute stream after a launch. A slot that the launch filled gets
// the event ready. A slot that no later launch uses before it is refilled gets the event idle.
func (r *lane) record(e enqueue, v schedule.Visit) {
	for _, slot := range []int{e.Out, e.Gr, e.Kept} {
		if slot >= 0 {
			r.compute.Record(r.acts[slot].ready)
		}
	}
	for _, slot := range []int{e.In, e.Out, e.Gr, e.Kept} {
		if slot >= 0 {
			r.compute.Record(r.acts[slot].idle)
		}
	}
	if !e.Last {
		return
	}
	for _, x := range r.hooks {
		x.after(v)
	}
	if e.Weights >= 0 {
		r.compute.Record(r.weights[e.Weights].idle)
	}
	if v.Loss {
		r.compute.Record(r.batches[e.Batch].computed)
	}
	if v.Grad() {
		r.compute.Record(r.gradBufs[e.Grad].ready)
	}
}

// The launch-ahead credit bounds how far Compute runs ahead of the device. A driver's queue holds about 1,024
// operations of a stream. A thread that enqueues one more blocks inside the driver, together with all threads that need
// the driver's locks. So each launch in progress is a credit of Compute.
//
// A launch that lacks only this credit is not late: the device is busy with others. So the credit never causes a stall
// (computeCore.ready).

// The bounds of launches in progress: their number, and the sum of their tokens. One launch is always allowed. The
// bounds keep far below the driver's 1,024 operations: a block's backward has about 80 operations, an expert's has 11.
// A long micro-batch repeats them for about every 16,384 tokens.
const (
	launchesAhead = 8
	tokensAhead   = 8 * 16384
)

// runAhead lists the numbers of tokens of the launches that are enqueued and not complete, the oldest first.
type runAhead []int

// room reports whether a launch of this many tokens may be enqueued beside the launches in progress
// (a). An expert's launch counts as 0 tokens: it has few operations, however many tokens the expert
// gets.
func (a runAhead) room(tokens int) bool {
	for _, n := range a {
		tokens += n
	}
	return len(a) == 0 || len(a) < launchesAhead && tokens <= tokensAhead
}

// gradPlace is the place where a layer's gradient is summed over the micro-batches. It is either a gradient buffer on
// the device, from which the sum is copied to the host (buffered), or the layer's slab (inSlab).
type gradPlace interface {
	// grads views the gradients of a tile's tensors in gradient buffer buf. ids is the number of unique token ids in
	// the batch, which is the number of rows of an embedding's gradient.
	grads(t layers.Tile, buf, ids int) layers.Grads
	// offload enqueues the copies of a tile's gradient from gradient buffer buf into slab number slab. ids is as in
	// grads.
	offload(t layers.Tile, buf, slab, ids int)
	// resume enqueues the copies of a tile's gradient from slab number slab back into gradient buffer buf.
	resume(t layers.Tile, buf, slab, ids int)
}

// buffered sums gradients in gradient buffers in device memory and copies the sums into slabs.
type buffered struct{ r *lane }

func (b buffered) grads(t layers.Tile, buf, ids int) layers.Grads {
	return t.BindGrads(b.r.gradBufs[buf].mem, ids)
}

func (b buffered) offload(t layers.Tile, buf, slab, ids int) {
	r := b.r
	for _, g := range t.Ranges(ids) {
		src := r.gradBufs[buf].mem.Tensor(device.F32, 4*g.From, g.Elems)
		r.d2h.CopyD2H(r.slab(slab, g.To, g.Elems).Data, src.Mem())
	}
}

func (b buffered) resume(t layers.Tile, buf, slab, ids int) {
	r := b.r
	for _, g := range t.Ranges(ids) {
		dst := r.gradBufs[buf].mem.Tensor(device.F32, 4*g.From, g.Elems)
		r.h2d.CopyH2D(dst.Mem(), r.slab(slab, g.To, g.Elems).Data)
	}
}

// narrowed sums gradients like buffered, for slabs of bf16. The device converts fp32 gradients to bf16 before the copy
// to the host.
type narrowed struct{ buffered }

func (b narrowed) offload(t layers.Tile, buf, slab, ids int) {
	r := b.r
	for _, g := range t.Ranges(ids) {
		dst := r.narrow.Tensor(device.BF16, 2*g.From, g.Elems)
		op.Do(r.dev, r.d2h.Stream, op.Convert{Dst: dst, Src: r.gradBufs[buf].mem.Tensor(device.F32, 4*g.From, g.Elems), N: g.Elems})
		r.d2h.CopyD2H(r.slab(slab, g.To, g.Elems).Data, dst.Mem())
	}
}

// inSlab lets launches sum gradients directly in slabs, on a unified device. Each layer has its own slab. A slab is
// never overwritten too early: the layer's next backward comes after the update that reads the slab.
type inSlab struct{ r *lane }

func (l inSlab) grads(t layers.Tile, _, ids int) layers.Grads {
	return t.BindSlab(l.r.dev.BindHost(l.r.slabs[t.Layer]), ids)
}

func (inSlab) offload(layers.Tile, int, int, int) {}

func (inSlab) resume(layers.Tile, int, int, int) {}

// allocGrads allocates the gradient buffers and registers the slabs, so that copies to them are fast. An evaluation has
// neither.
func (r *lane) allocGrads() (err error) {
	p := r.plan
	if p.EvalOnly {
		return nil
	}
	if r.gradBufs, err = r.makeSlots(accounts.GradientBuffers, p.Depths.GradBuffers, p.BufferBytes()); err != nil {
		return err
	}
	if p.GradBF16 {
		if r.narrow, err = r.alloc(accounts.GradientBuffers, 2*p.BufferElems()); err != nil {
			return err
		}
	}
	var copied gradPlace = buffered{r}
	if p.GradBF16 {
		copied = narrowed{buffered{r}}
	}
	for l := range p.Layouts {
		r.gradPlaces = append(r.gradPlaces, [...]gradPlace{plan.Copied: copied, plan.InPlace: inSlab{r}}[p.GradBinding(l)])
	}
	for i, slab := range r.slabs {
		if len(slab) == 0 || p.SlabLane(i) != int(r.index) {
			continue // no layer's slab, or another lane's
		}
		r.register(slab, usedBackward)
	}
	return nil
}

// weightsOf views the weights of a visit in weight slot number slot. It returns nil for slot −1: some visits have no
// weights, such as the backward of an expert without tokens.
func (r *lane) weightsOf(v schedule.Visit, slot int) layers.Weights {
	if slot < 0 {
		return nil
	}
	s := r.weights[slot]
	return s.place.weights(r.tiles[v.Tile], s)
}

// gradsOf views the gradient of a visit's tile in gradient buffer buf; nil if the visit makes no gradient. ids is the
// number of unique token ids in the batch.
func (r *lane) gradsOf(v schedule.Visit, buf, ids int) layers.Grads {
	if !v.Grad() {
		return nil
	}
	return r.gradPlaces[v.Layer].grads(r.tiles[v.Tile], buf, ids)
}

// hidden views the hidden state of this many tokens in activation slot number slot. slot −1: there is none, and the
// result is empty.
func (r *lane) hidden(slot, tokens int) layers.Hidden {
	if slot < 0 {
		return layers.Hidden{}
	}
	return r.state(&r.acts[slot], tokens)
}

// savedFor returns the memory in which a layer's forward of micro-batch mb leaves intermediate results for its
// backward: a slot, unless slot is −1, or memory of the layer's own. It is empty if the layer saves nothing. It is also
// empty for mb −1, which stands for all micro-batches at once.
func (r *lane) savedFor(layer, mb, slot int) layers.Kept {
	if len(r.saved[layer]) == 0 || mb < 0 {
		return layers.Kept{}
	}
	own := r.saved[layer][mb]
	if slot >= 0 {
		return layers.Kept{Dev: r.acts[slot].mem.Slice(0, own.Bytes())}
	}
	return own
}

// stage enqueues the operations of a launch on the compute stream. It collects the launch's memory in a layers.Launch
// and hands this to the layer's kind, which knows the operations.
func (r *lane) stage(e enqueue, l schedule.Launch, v schedule.Visit) {
	b := &r.batches[e.Batch]
	x := layers.Launch{Stream: r.compute.Stream, Visit: v, Block: r.plan.Layouts[v.Layer].Block, First: e.First && !v.Resumes, Last: e.Last, Step: e.p.Batch.Step,
		Weights: r.weightsOf(v, e.Weights), Grads: r.gradsOf(v, e.Grad, len(e.p.Batch.UniqueIDs)), Workspace: r.workspace,
		Rows: b.rows, Losses: b.losses, LSE: b.lse, BatchTokens: int(e.p.Batch.Tokens), Scale: b.scale,
		Experts: r.experts.state, From: e.From, Pairs: e.Pairs, Balances: r.experts.balances, AuxScale: r.experts.auxScale,
		MicroBatch: b.micro[1+l.MicroBatch], At: b.offset[1+l.MicroBatch], Saved: r.savedFor(v.Layer, l.MicroBatch, e.Kept),
		In: r.hidden(e.In, l.Tokens), Out: r.hidden(e.Out, l.Tokens), Grad: r.hidden(e.Gr, l.Tokens)}
	r.kinds[v.Layer].Launch(r.ops, &x)
}
