package actors

import (
	"fmt"
	"math"
	"slices"

	"mt/host"
	"mt/host/optim"
)

// The Optimizer takes gradients as they land. It is a queue of gradients to measure, a gate that opens when layers may be
// updated, and an order in which they are. It does one thing at a time, on all cores.
//
// With clipping the gate opens when the norm over all layers is known, and layers are updated in forward order, so that the
// next forward can follow close behind them. Without clipping a layer is updated as soon as its gradient has landed.
//
// What only some runs do has a file of its own: a table that two layers share (optimizer_tied.go), frozen layers
// (optimizer_frozen.go), several ranks (optimizer_ranks.go), states on disks (optimizer_disks.go), matrices that are moved whole
// (matrices.go). newOptimizerCore puts what a run has into its order; nothing else knows what there is.

// optimizerCore is the pure part of the Optimizer.
type optimizerCore struct {
	optimizerSpec
	layers  int
	version int   // steps taken by all layers
	adam    int64 // updates made: Adam's step count
	skipped int   // steps skipped in a row
	busy    bool
	cur     *stepState
	// saving says, by layer, that its state is being written, so its next update waits.
	saving []bool

	order    []int // in which layers are updated
	gate     updateGate
	grads    gradients
	listener updateListener
	subcores []subcore
	hooks    []updateHook
}

// optimizerSpec is what an Optimizer has to know of a run.
type optimizerSpec struct {
	lanes int
	clip  float64 // max_grad_norm of all gradients together; 0: they are not clipped so
	bound float64 // without clip, that of each layer's gradient; 0: nothing is clipped
	into  []int   // by layer: into whose gradient its own is added; itself, unless both share a table
	// frozen says, by layer, that it has no gradient: it only goes from version to version; nil: none is.
	frozen []bool
	// ranks: the rank is not alone. Gradients come from the Exchanger, summed over all ranks they are this rank's shares, all
	// ranks agree on norms, and the Gatherer is told of updates.
	distributed bool
	// By layer: its state, its gradient while that waits for the norm, and its tile are on a disk; nil: none is.
	stateOnDisk, gradOnDisk, weightsOnDisk []bool
	// matrices is how many matrices of each layer are moved whole; nil: none are. laneOf is the lane of each layer, and
	// matrixBuffers how many matrix buffers a lane has.
	matrices      []int
	laneOf        []laneID
	matrixBuffers int
}

// gradients is where the gradients of a step are from when they have landed until nobody reads them.
type gradients interface {
	// landed queues the gradient of layer l, unless something is to be added to it first.
	landed(s *stepState, l int)
	// measure begins to measure the gradient of layer l; none: it cannot begin yet.
	measure(s *stepState, l int) []effect
	// measured tells that the gradient is measured.
	measured(s *stepState, l int) []effect
	// free gives back the memory of the gradient when layer l is updated, and drop when the step is skipped.
	free(s *stepState, l int) []effect
	drop(s *stepState, l int) []effect
}

// updateGate says when the layers of a step may be updated.
type updateGate interface {
	// normKnown says whether everything is known that the step's norm depends on.
	normKnown(s *stepState) bool
	// open says whether layer l may be updated, and by what its gradient is multiplied.
	open(s *stepState, l int) (factor float64, ok bool)
	// blocked returns the effects that follow when it may not.
	blocked(s *stepState, l int) []effect
	// norm is the L2 norm over all layers, as far as it is known.
	norm(s *stepState) float64
}

// updateListener is who is told that a layer and that a step is updated.
type updateListener interface {
	layerUpdated(m LayerUpdated) []effect
	stepUpdated(m StepUpdated) effect
}

// subcore is a core of its own within the Optimizer, with messages and works that only some runs have.
type subcore interface {
	// take handles a message that is the subcore's; ok is false for any other.
	take(msg message) (out []effect, ok bool)
	// next begins what the subcore does before anything is measured or updated.
	next() []effect
}

// updateHook changes an update of a layer. Hooks are tried in their order, and an update that none takes over is one work.
type updateHook interface {
	// ready says whether the update of layer l can begin; if not, what it waits for.
	ready(l int) (waits Cause, ok bool)
	// begin takes over the update u, if it is the hook's.
	begin(u update) (out []effect, ok bool)
	// done follows when a layer is at its new version.
	done(m LayerUpdated) []effect
}

// stepState is what is known of the step in progress.
type stepState struct {
	step    int
	ids     []int32 // unique ids of the batch
	closed  *StepClosed
	landed  []int     // by layer: the slab with its gradient; noSlab: it has not landed, or was handed to the Stager
	lane    []laneID  // by layer: whose slab that is
	squares []float64 // by layer: the sum of squares of its gradient
	have    []bool    // by layer: squares is known
	queue   []int     // layers whose gradients have landed and are to be measured
	updated []bool    // by layer
	done    int       // layers updated
	next    int       // index into the core's order of the next layer to update
	waited  []Cause   // by layer: what its update had to wait for
	begun   bool      // a layer is being updated, or has been
	finite  int       // the last step before this one that was not skipped
}

// noSlab is the slab of a gradient that has not landed, or that is in its layer's state slot or on its way there.
const noSlab = -1

// newOptimizerCore makes an Optimizer of len(x.into) layers that are where start says.
func newOptimizerCore(x optimizerSpec, start State) *optimizerCore {
	n := len(x.into)
	c := &optimizerCore{optimizerSpec: x, layers: n, version: start.Step, adam: start.AdamStep, skipped: start.NonFinite, saving: make([]bool, n)}
	c.grads, c.listener = slabs{}, prefetcherListeners(x.lanes)
	squares, fail := c.squares, c.nonFinite
	c.order = backwardOrder(x.into)
	if x.distributed {
		r := newRankCore(c)
		squares, fail = r.squares, r.nonFinite
	} else if !slices.Equal(x.into, ids(n)) {
		newTiedCore(c)
	}
	if x.clip > 0 {
		c.gate, c.order = &clipGate{c, x.clip, squares}, ids(n)
	} else {
		c.gate = newLayerGate(c, fail)
	}
	if x.frozen != nil {
		c.hooks = append(c.hooks, frozenHook{c})
	}
	if x.stateOnDisk != nil {
		newDiskCore(c)
	}
	if x.matrices != nil {
		newMatrixCore(c)
	}
	return c
}

// measure sums the squares of a landed gradient.
type measure struct {
	Layer, Slab int
	IDs         []int32
}

// measured is the sum of squares of a layer's gradient.
type measured struct {
	Layer   int
	Squares float64
}

func (m measured) withResult(result any) message {
	m.Squares = result.(float64)
	return m
}

// update updates a layer by its gradient.
type update struct {
	Layer, Slab int
	IDs         []int32
	AdamStep    int64
	LR          float64
	Clip        float32
}

// rate is at which rate u is made.
func (u update) rate() optim.Rate { return optim.Rate{LR: u.LR, Step: u.AdamStep, Clip: u.Clip} }

// updateDone tells that update is done.
type updateDone struct{ Layer int }

func (c *optimizerCore) step(msg message) (out []effect) {
	switch m := msg.(type) {
	case GradLanded:
		s := c.open(m.Step)
		s.landed[m.Layer], s.lane[m.Layer], s.ids = m.Slab, m.Lane, m.IDs
		c.grads.landed(s, m.Layer)
	case StepClosed:
		c.open(m.Step).closed = &m
	case measured:
		c.busy = false
		c.cur.squares[m.Layer], c.cur.have[m.Layer] = m.Squares, true
		out = c.grads.measured(c.cur, m.Layer)
	case updateDone:
		c.busy = false
		out = c.updated(m.Layer, false)
	case LayerSaved:
		c.saving[m.Layer] = false
	case StepAbortRequested:
		return c.abortStep(m)
	default:
		out = c.take(msg)
	}
	return append(out, c.advance()...)
}

// take hands a message to the subcore that it is for.
func (c *optimizerCore) take(msg message) []effect {
	for _, p := range c.subcores {
		if out, ok := p.take(msg); ok {
			return out
		}
	}
	panic(unexpected(optimizerID, msg))
}

// open returns the step in progress, which is this one.
func (c *optimizerCore) open(step int) *stepState {
	if s := c.cur; s != nil {
		if s.step != step {
			panic(fmt.Sprintf("optimizer: a message of step %d in step %d", step, s.step))
		}
		return s
	}
	n := c.layers
	c.cur = &stepState{step: step, finite: step - 1 - c.skipped, landed: slices.Repeat([]int{noSlab}, n), lane: make([]laneID, n), squares: make([]float64, n),
		have: make([]bool, n), updated: make([]bool, n), waited: make([]Cause, n)}
	copy(c.cur.have, c.frozen)
	return c.cur
}

// advance begins the next work, or ends a step that is skipped.
func (c *optimizerCore) advance() (out []effect) {
	s := c.cur
	if s == nil || c.busy {
		return nil
	}
	for _, p := range c.subcores {
		if out = append(out, p.next()...); c.busy {
			return out
		}
	}
	switch {
	case len(s.queue) > 0:
		return append(out, c.measureNext(s)...)
	case s.closed == nil:
		return out
	case s.closed.Skip:
		return append(out, c.skip(s)...)
	}
	return append(out, c.updateNext(s)...)
}

// measureNext begins to measure the gradient that landed first.
func (c *optimizerCore) measureNext(s *stepState) []effect {
	out := c.grads.measure(s, s.queue[0])
	if out != nil {
		s.queue, c.busy = s.queue[1:], true
	}
	return out
}

// updateNext begins the update of the next layer, if the gate is open for it and no hook holds it up.
func (c *optimizerCore) updateNext(s *stepState) (out []effect) {
	for !c.busy && s.next < len(c.order) {
		l := c.order[s.next]
		factor, open := c.gate.open(s, l)
		if !open {
			return append(out, c.gate.blocked(s, l)...)
		}
		if waits, ok := c.ready(l); !ok {
			if waits != NoStall {
				s.waited[l] = waits
			}
			return out
		}
		s.next++
		out = append(out, c.begin(update{Layer: l, Slab: s.landed[c.into[l]], IDs: s.ids, AdamStep: c.adam + 1, LR: s.closed.LR, Clip: float32(factor)})...)
	}
	return out
}

// ready says whether the update of layer l can begin; if not, what it waits for.
func (c *optimizerCore) ready(l int) (Cause, bool) {
	if c.saving[l] {
		return StallCheckpoint, false
	}
	for _, h := range c.hooks {
		if waits, ok := h.ready(l); !ok {
			return waits, false
		}
	}
	return NoStall, true
}

// begin begins an update.
func (c *optimizerCore) begin(u update) []effect {
	for _, h := range c.hooks {
		if out, ok := h.begin(u); ok {
			return out
		}
	}
	c.busy, c.cur.begun = true, true
	return []effect{work{do: u, done: []send{{optimizerID, updateDone{u.Layer}}}}}
}

// updated tells that layer l is at the step's version, gives back gradients that nobody reads any more, and ends the step
// after the last layer.
func (c *optimizerCore) updated(l int, unchanged bool) []effect {
	s := c.cur
	c.skipped = 0
	s.updated[l] = true
	s.done++
	out := append(c.announce(s, l, c.adam+1, unchanged), c.grads.free(s, l)...)
	if s.done == c.layers {
		c.adam++
		out = append(out, c.finish(s, false))
	}
	return out
}

// announce tells that layer l is at the step's version, unchanged where the step is skipped or the layer is frozen.
func (c *optimizerCore) announce(s *stepState, l int, adam int64, unchanged bool) []effect {
	c.saving[l] = s.closed.Save
	m := LayerUpdated{Layer: l, Version: s.step, Save: s.closed.Save, Waited: s.waited[l], Unchanged: unchanged, AdamStep: adam, NonFinite: c.skipped}
	out := c.listener.layerUpdated(m)
	for _, h := range c.hooks {
		out = append(out, h.done(m)...)
	}
	return out
}

// dropMeasured gives back, in a step that is skipped, the slabs of gradients that have been
// measured: gradients that have not landed may be waiting for a slab.
func (c *optimizerCore) dropMeasured(s *stepState) (out []effect) {
	for l := range c.layers {
		if s.have[l] && s.landed[l] != noSlab {
			out = append(out, c.grads.drop(s, l)...)
		}
	}
	return out
}

// skip ends a step that changes nothing, when its norm is known. It need not wait for a layer that is being saved,
// whose version changes but not its bytes, unless this step is to be saved too.
func (c *optimizerCore) skip(s *stepState) []effect {
	out := c.dropMeasured(s)
	if !c.gate.normKnown(s) || s.closed.Save && slices.Contains(c.saving, true) { // the earlier save comes first
		return out
	}
	c.skipped++
	for l := range c.layers {
		saving := c.saving[l]
		out = append(out, c.announce(s, l, c.adam, true)...)
		c.saving[l] = saving || s.closed.Save
	}
	return append(out, c.finish(s, true))
}

func (c *optimizerCore) finish(s *stepState, skipped bool) effect {
	c.cur, c.version = nil, s.step
	return c.listener.stepUpdated(StepUpdated{Step: s.step, GradNorm: c.gate.norm(s), Skipped: skipped, AdamStep: c.adam, NonFinite: c.skipped})
}

// squares is the sum of squares over all layers, in the order of the layers, and whether that of every layer is known.
func (c *optimizerCore) squares(s *stepState) (sum float64, known bool) {
	for _, sq := range s.squares {
		sum += sq
	}
	return sum, !slices.Contains(s.have, false)
}

// clipping is by what a gradient of that norm is multiplied so that its norm is at most bound, as in
// torch.nn.utils.clip_grad_norm_.
func clipping(bound, norm float64) float64 { return min(1, bound/(norm+1e-6)) }

// clipGate opens for all layers when the norm over all of them is known. A step whose norm is not finite is skipped.
type clipGate struct {
	c       *optimizerCore
	max     float64
	squares func(s *stepState) (sum float64, known bool)
}

func (g *clipGate) normKnown(s *stepState) bool {
	_, known := g.squares(s)
	return known
}

func (g *clipGate) open(s *stepState, _ int) (float64, bool) {
	sum, known := g.squares(s)
	return clipping(g.max, math.Sqrt(sum)), known && optim.AllFinite(sum)
}

func (g *clipGate) blocked(s *stepState, _ int) []effect {
	if !g.normKnown(s) {
		return nil
	}
	return g.c.skip(s)
}

func (g *clipGate) norm(s *stepState) float64 {
	sum, _ := g.squares(s)
	return math.Sqrt(sum)
}

// layerGate opens for each layer when its own gradient is measured. Where one is not finite, the step cannot be skipped, since
// other layers are updated already: the run fails.
type layerGate struct {
	c     *optimizerCore
	bound float64 // of a layer's norm; infinite: nothing is clipped
	fail  func(s *stepState, l int) []effect
}

func newLayerGate(c *optimizerCore, fail func(*stepState, int) []effect) *layerGate {
	g := &layerGate{c, math.Inf(1), fail}
	if c.bound > 0 {
		g.bound = c.bound
	}
	return g
}

func (g *layerGate) normKnown(s *stepState) bool { return !slices.Contains(s.have, false) }

func (g *layerGate) open(s *stepState, l int) (float64, bool) {
	squares := s.squares[g.c.into[l]]
	return clipping(g.bound, math.Sqrt(squares)), s.have[l] && optim.AllFinite(squares)
}

func (g *layerGate) blocked(s *stepState, l int) []effect {
	if !s.have[l] {
		return nil
	}
	return g.fail(s, l)
}

func (g *layerGate) norm(s *stepState) float64 {
	sum, _ := g.c.squares(s)
	return math.Sqrt(sum)
}

// nonFiniteGradient fails the run. Finite is the last step before it that was not skipped.
type nonFiniteGradient struct{ Step, Layer, Finite int }

func (c *optimizerCore) nonFinite(s *stepState, l int) []effect {
	return []effect{work{do: nonFiniteGradient{Step: s.step, Layer: l, Finite: s.finite}}}
}

// slabs are the gradients of a rank that is alone, each in a slab of a lane.
type slabs struct{}

func (slabs) landed(s *stepState, l int) { s.queue = append(s.queue, l) }

func (slabs) measure(s *stepState, l int) []effect {
	return []effect{work{do: measure{Layer: l, Slab: s.landed[l], IDs: s.ids}, done: []send{{optimizerID, measured{Layer: l}}}}}
}

func (slabs) measured(*stepState, int) []effect { return nil }

func (x slabs) free(s *stepState, l int) []effect { return x.drop(s, l) }

func (slabs) drop(s *stepState, l int) []effect {
	slab := s.landed[l]
	if s.landed[l] = noSlab; slab == noSlab {
		return nil
	}
	return []effect{send{s.lane[l].offloader(), SlabFreed{slab}}}
}

// prefetcherListeners are those of so many lanes. They hear of every layer, and the Checkpointer of what is to be saved.
type prefetcherListeners int

func (n prefetcherListeners) layerUpdated(m LayerUpdated) []effect {
	return append(m.toPrefetchers(int(n)), m.toCheckpointer()...)
}

func (prefetcherListeners) stepUpdated(m StepUpdated) effect { return send{conductorID, m} }

func (e measure) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return r.squares(e), nil })
	return nil
}

// squares is the sum of squares of a layer's gradient, added up tensor by tensor.
func (r *run) squares(e measure) float64 {
	var sum float64
	for _, x := range r.gradients[e.Layer].Ranges(len(e.IDs)) {
		sum += optim.SumSquares(r.o.Pool, r.slab(e.Slab, x.To, x.Elems))
	}
	return sum
}

func (e update) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return nil, r.update(e) })
	return nil
}

// update updates one layer.
func (r *run) update(e update) error {
	l, err := r.o.Home.Acquire(e.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Layer], err)
	}
	defer r.o.Home.Release(e.Layer)
	r.updaters[e.Layer](l, e)
	return nil
}

// chooseUpdaters chooses how each layer is moved by its gradient.
func (r *run) chooseUpdaters() {
	for l, g := range r.gradients {
		move := r.updateFromSlab
		switch {
		case r.comm != nil:
			move = r.updateShare
		case g.OfRows(l):
			move = r.updateRows
		case r.plan.GradOnDisk != nil && r.plan.GradOnDisk[l]:
			move = r.updateFromDisk
		}
		r.updaters = append(r.updaters, move)
	}
}

// updateFromSlab moves a layer by the gradient in its slab.
func (r *run) updateFromSlab(l *host.LayerState, e update) {
	l.Update(r.slabOf(e), r.o.Optimizer, e.rate())
}

// updateRows moves the embedding's table by the gradient of the rows that the batch uses.
func (r *run) updateRows(l *host.LayerState, e update) {
	rows := r.slab(e.Slab, 0, int64(len(e.IDs))*r.gradients[e.Layer].Row)
	l.UpdateRows(e.IDs, rows, r.o.Optimizer, e.rate())
}

// slabOf views the gradient of a layer in its slab.
func (r *run) slabOf(e update) optim.Grad {
	return r.slab(e.Slab, r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems)
}
