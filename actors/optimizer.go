package actors

import (
	"fmt"
	"math"
	"slices"

	"mt/host"
	"mt/host/optim"
)

// The Optimizer updates layers as their gradients land. It measures each gradient: it computes the sum of squares. A
// gate then decides which layers may be updated. The Optimizer runs one work at a time, on all cores.
//
// With clipping of the global norm, the gate opens when the norm over all layers is known. Layers are then updated in
// forward order, so the next forward follows close behind. Without it, the gate opens for each layer when its own
// gradient is measured.
//
// Features of some runs have their own files: tied embeddings (optimizer_tied.go), frozen layers (optimizer_frozen.go),
// several ranks (optimizer_ranks.go), states on disks (optimizer_disks.go) and matrices (matrices.go). newOptimizerCore
// adds the pieces that the run needs; nothing else knows which there are.

// optimizerCore is the pure part of the Optimizer.
type optimizerCore struct {
	optimizerSpec
	layers  int
	version int   // steps taken by all layers
	adam    int64 // updates: Adam's step count
	skipped int   // steps skipped in a row
	busy    bool
	cur     *stepState
	// saving says by layer that the Checkpointer is still writing it. The layer's next update waits for that.
	saving []bool

	order    []int // order of updates
	gate     updateGate
	grads    gradients
	listener updateListener
	subcores []subcore
	hooks    []updateHook
}

// optimizerSpec has the settings of a run that the Optimizer's core needs.
type optimizerSpec struct {
	lanes int
	clip  float64 // bound of the global gradient norm (max_grad_norm); 0: no global clipping
	bound float64 // bound of each layer's gradient norm, without clip; 0: no clipping
	into  []int   // by layer: the layer whose gradient its own is added to; itself, unless two layers share a table
	// frozen says by layer that it is frozen: it has no gradient and keeps its bytes, and only its version number
	// advances. nil: none is.
	frozen []bool
	// distributed: there are several ranks. Gradients come from the Exchanger and are this rank's shares, summed over
	// all ranks. The ranks agree on norms, and updates go to the Gatherer.
	distributed bool
	// By layer: whether the state is on a disk, whether the gradient waits on a disk for the norm, and whether the tile
	// is on a disk. nil: none.
	stateOnDisk, gradOnDisk, weightsOnDisk []bool
	// matrices is the number of each layer's orthogonalized matrices; nil: none. laneOf is the lane of each layer.
	// matrixBuffers is the number of matrix buffers on a lane.
	matrices      []int
	laneOf        []laneID
	matrixBuffers int
}

// gradients manages a step's gradients on the host, from their landing until their memory is free.
// Its implementations differ in where gradients wait for the update: in slabs, on disks or in
// exchange buffers.
type gradients interface {
	// landed queues the gradient of layer l to be measured, unless another gradient must be added first.
	landed(s *stepState, l int)
	// measure starts to compute the sum of squares of layer l's gradient. nil: the computation cannot start yet.
	measure(s *stepState, l int) []effect
	// measured is called when the sum of squares of layer l's gradient is computed. It returns the
	// effects that follow, such as moving the gradient to a disk.
	measured(s *stepState, l int) []effect
	// free frees the memory of layer l's gradient after the layer's update. drop does the same if the step is skipped.
	free(s *stepState, l int) []effect
	drop(s *stepState, l int) []effect
}

// updateGate decides when the layers of a step may be updated: with global clipping, only when the norm over all layers
// is known.
type updateGate interface {
	// normKnown reports whether the norm of all gradients that the gate waits for is known.
	normKnown(s *stepState) bool
	// open reports whether layer l may be updated. factor scales the layer's gradient, to clip its norm.
	open(s *stepState, l int) (factor float64, ok bool)
	// blocked returns the effects to execute when updateNext finds that layer l may not be updated yet.
	blocked(s *stepState, l int) []effect
	// norm returns the L2 norm of the gradient over all layers, as far as it is known.
	norm(s *stepState) float64
}

// updateListener makes the messages that tell other actors of an updated layer or step.
type updateListener interface {
	layerUpdated(m LayerUpdated) []effect
	stepUpdated(m StepUpdated) effect
}

// subcore is a part of the Optimizer's core with messages and works of its own. Only some runs have one, for example
// for states on disks.
type subcore interface {
	// take handles msg. ok is false if the message is not for this subcore.
	take(msg message) (out []effect, ok bool)
	// next starts the subcore's next work. It has priority over measurements and updates.
	next() []effect
}

// updateHook is a piece of the Optimizer that only some runs have: for states on disks, orthogonalized matrices and
// frozen layers. It can delay the update of a layer or do the update in its own way. Hooks are asked in order. If no
// hook takes the update over, one work updates the whole layer.
type updateHook interface {
	// ready reports whether the update of layer l can begin; if not, waits is the missing input.
	ready(l int) (waits Cause, ok bool)
	// begin takes over update u if this hook has a way of its own to do the update; otherwise ok is false.
	begin(u update) (out []effect, ok bool)
	// done is called when a layer has reached its new version.
	done(m LayerUpdated) []effect
}

// stepState is the state of the step in progress.
type stepState struct {
	step    int
	ids     []int32 // unique ids of the batch
	closed  *StepClosed
	landed  []int     // by layer: the slab of its gradient; noSlab: not landed, or handed to the Stager
	lane    []laneID  // by layer: the slab's lane
	squares []float64 // by layer: its gradient's sum of squares
	have    []bool    // by layer: squares is set
	queue   []int     // layers with landed gradients to measure
	updated []bool    // by layer
	done    int       // updated layers
	next    int       // index in the core's order of the next layer to update
	waited  []Cause   // by layer: what its update waited for
	begun   bool      // a layer's update has begun
	finite  int       // the last earlier step that was not skipped
}

// noSlab marks a gradient that is in no slab: the gradient has not landed yet, or the Stager has taken it.
const noSlab = -1

// newOptimizerCore makes an Optimizer of len(x.into) layers. Training continues from state start.
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

// measure is the task of computing the sum of squares of a landed gradient.
type measure struct {
	Layer, Slab int
	IDs         []int32
}

// measured reports a gradient's sum of squares to the Optimizer.
type measured struct {
	Layer   int
	Squares float64
}

func (m measured) withResult(result any) message {
	m.Squares = result.(float64)
	return m
}

// update is the task of updating a layer with its gradient.
type update struct {
	Layer, Slab int
	IDs         []int32
	AdamStep    int64
	LR          float64
	Clip        float32
}

// rate returns the numbers of update u that optim needs: the learning rate, Adam's step count and
// the clipping factor.
func (u update) rate() optim.Rate { return optim.Rate{LR: u.LR, Step: u.AdamStep, Clip: u.Clip} }

// updateDone tells the Optimizer that the update of a layer is done.
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

// take passes a message that the core itself does not handle to the subcore in charge. It panics if
// there is none.
func (c *optimizerCore) take(msg message) []effect {
	for _, p := range c.subcores {
		if out, ok := p.take(msg); ok {
			return out
		}
	}
	panic(unexpected(optimizerID, msg))
}

// open returns the state of the given step. It makes the state when the step's first message comes. A message of
// another step than the one in progress is a defect, and open panics.
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

// advance starts the next work if none is in progress, or ends a skipped step.
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

// measureNext starts to measure the gradient at the head of the queue. nil: it cannot start yet.
func (c *optimizerCore) measureNext(s *stepState) []effect {
	out := c.grads.measure(s, s.queue[0])
	if out != nil {
		s.queue, c.busy = s.queue[1:], true
	}
	return out
}

// updateNext starts updates in the order of c.order. It stops at a layer in three cases:
//
//   - The gate is closed, because the gradient's norm is not known.
//   - The layer's last save is not done.
//   - A hook delays the update, for example because the layer's state is still on a disk.
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

// ready reports whether the update of layer l can begin: the layer's last save is done, and no hook delays the update.
// If not, the Cause is the missing input.
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

// begin starts update u: a hook takes it over (for frozen layers, states on disks or Muon's
// matrices), or one work updates the whole layer.
func (c *optimizerCore) begin(u update) []effect {
	for _, h := range c.hooks {
		if out, ok := h.begin(u); ok {
			return out
		}
	}
	c.busy, c.cur.begun = true, true
	return []effect{work{do: u, done: []send{{optimizerID, updateDone{u.Layer}}}}}
}

// updated tells the other actors that layer l is at the step's version, frees gradients that are no longer read, and
// ends the step after the last layer.
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

// announce tells the listener that layer l is at the step's version. adam is Adam's step count. unchanged: the step is
// skipped or the layer is frozen, so the layer's bytes are the same as before.
func (c *optimizerCore) announce(s *stepState, l int, adam int64, unchanged bool) []effect {
	c.saving[l] = s.closed.Save
	m := LayerUpdated{Layer: l, Version: s.step, Save: s.closed.Save, Waited: s.waited[l], Unchanged: unchanged, AdamStep: adam, NonFinite: c.skipped}
	out := c.listener.layerUpdated(m)
	for _, h := range c.hooks {
		out = append(out, h.done(m)...)
	}
	return out
}

// dropMeasured frees the slabs of the gradients measured so far in a skipped step. Gradients that have not landed yet
// may need these slabs.
func (c *optimizerCore) dropMeasured(s *stepState) (out []effect) {
	for l := range c.layers {
		if s.have[l] && s.landed[l] != noSlab {
			out = append(out, c.grads.drop(s, l)...)
		}
	}
	return out
}

// skip ends a step whose loss or gradient norm is not finite: no layer is updated, only their versions advance. It
// returns without an end while the norm is not known.
//
// The Checkpointer may still be saving a layer, because skipping does not change the layer's bytes. But if this step is
// to be saved too, the earlier save must end first.
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

// squares returns the sum of squares of all gradients of the step, added in layer order. known: every layer's gradient
// is measured.
func (c *optimizerCore) squares(s *stepState) (sum float64, known bool) {
	for _, sq := range s.squares {
		sum += sq
	}
	return sum, !slices.Contains(s.have, false)
}

// clipping returns the factor that reduces a gradient of this norm to the bound; 1 if the norm is smaller. The formula
// is that of torch.nn.utils.clip_grad_norm_.
func clipping(bound, norm float64) float64 { return min(1, bound/(norm+1e-6)) }

// clipGate is the gate of global clipping. It opens for all layers when the gradient norm over all layers is known. If
// the norm is not finite, the step is skipped: no layer is updated.
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

// layerGate is the gate without global clipping. It opens for each layer when its own gradient is measured. A
// non-finite gradient fails the run: the step cannot be skipped, because other layers are already updated.
type layerGate struct {
	c     *optimizerCore
	bound float64 // bound of a layer's norm; infinite: no clipping
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

// nonFiniteGradient is the task that fails the run after a non-finite gradient. Finite is the last earlier step that
// was not skipped.
type nonFiniteGradient struct{ Step, Layer, Finite int }

func (c *optimizerCore) nonFinite(s *stepState, l int) []effect {
	return []effect{work{do: nonFiniteGradient{Step: s.step, Layer: l, Finite: s.finite}}}
}

// slabs implements gradients for a run with one rank: each gradient waits in one slab of a lane.
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

// prefetcherListeners is the updateListener of a run with one rank. It sends updates to the Prefetchers of this many
// lanes, and to the Checkpointer if a layer must be saved.
type prefetcherListeners int

func (n prefetcherListeners) layerUpdated(m LayerUpdated) []effect {
	return append(m.toPrefetchers(int(n)), m.toCheckpointer()...)
}

func (prefetcherListeners) stepUpdated(m StepUpdated) effect { return send{conductorID, m} }

func (e measure) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return r.squares(e), nil })
	return nil
}

// squares computes the sum of squares of a layer's gradient, which lies in a slab, for the task
// measure. The sum is taken tensor by tensor.
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

// update executes the task e: it acquires the layer from the home and updates it.
func (r *run) update(e update) error {
	l, err := r.o.Home.Acquire(e.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Layer], err)
	}
	defer r.o.Home.Release(e.Layer)
	r.updaters[e.Layer](l, e)
	return nil
}

// chooseUpdaters sets r.updaters: for each layer, the function that updates it. The function depends on where the
// layer's gradient lies.
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

// updateFromSlab updates a layer with its whole gradient, which lies in slab e.Slab.
func (r *run) updateFromSlab(l *host.LayerState, e update) {
	l.Update(r.slabOf(e), r.o.Optimizer, e.rate())
}

// updateRows updates the rows of the embedding that belong to the batch's unique token ids. The slab has one gradient
// row for each id.
func (r *run) updateRows(l *host.LayerState, e update) {
	rows := r.slab(e.Slab, 0, int64(len(e.IDs))*r.gradients[e.Layer].Row)
	l.UpdateRows(e.IDs, rows, r.o.Optimizer, e.rate())
}

// slabOf views the gradient of update e's layer in its slab.
func (r *run) slabOf(e update) optim.Grad {
	return r.slab(e.Slab, r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems)
}
