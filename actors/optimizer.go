package actors

import (
	"fmt"
	"math"
	"slices"

	"mt/host/optim"
)

// The Optimizer takes gradients as they land. It measures them, and updates weights and
// what is kept beside them, on all cores, one layer after the other. With clipping the
// updates begin when the norm over all layers is known and go in forward order, so that
// the next forward can follow close behind them. Without clipping a layer is updated as
// soon as its gradient has landed.

// optimizerCore is the pure part of the Optimizer.
type optimizerCore struct {
	layers  int
	lanes   int
	clip    float64 // max_grad_norm of all gradients together; 0: they are not clipped so
	bound   float64 // without clip, that of each layer's gradient; 0: nothing is clipped
	into    []int   // by layer: into whose gradient its own is added; itself, unless both share a table
	version int     // steps taken by all layers
	adam    int64   // updates made: Adam's step count
	skipped int     // steps skipped in a row
	busy    bool
	cur     *stepState
	dropped bool // the step in progress was given up, and the run is about to end
	// saving says, by layer, that its state is being written, so its next update waits.
	saving []bool
	// order is that in which layers are updated without clipping, whichever gradient is measured first.
	order []int
	// away says, by layer, that its state is on a disk, and staged that it is in a state slot; nil: none is
	// away. round counts how often all were asked for.
	away, staged []bool
	round        int
	// gradAway says, by layer, that its gradient waits for the norm on a disk; nil: none does.
	gradAway []bool
	// params says, by layer, that its tile is on a disk too: the Stager tells when that is updated; nil: none is.
	params []bool
	// frozen says, by layer, that it has no gradient: it only goes from version to version; nil: none is.
	frozen []bool
	// several: the rank is not alone. Gradients come from the Exchanger, summed over all ranks they
	// are this rank's shares, all ranks agree on norms, and the Gatherer is told of updates.
	several bool
	// matrices says, by layer, how many matrices are moved whole; nil: none are. laneOf is the lane of a
	// layer, and matrixBuffers has, by lane, the matrix buffers that are free.
	matrices      []int
	laneOf        []laneID
	matrixBuffers [][]int
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
	next    int       // with clipping: next layer whose update is to begin
	pending int       // without clipping: index into the core's order of the next layer to update
	waited  []Cause   // by layer: what its update had to wait for
	begun   bool      // a layer is being updated, or has been
	finite  int       // the last step before this one that was not skipped
	wanted  bool      // the gradients that wait on disks have been asked for

	matrices matrixStep
	// Of several ranks:
	allIDs [][]int32 // unique ids of each rank's batch
	buffer []int     // by layer: the exchange buffer that its gradient still needs; −1: none
	asked  bool      // with clipping: the ranks agree on the norm
	agreed bool      // they have agreed
	all    float64   // with clipping: the sum of squares over all ranks
	spoilt int       // without clipping: the layer whose gradient is not finite; −1: none so far
}

// newOptimizerCore makes an Optimizer of len(into) layers that are where start says; for
// into see optimizerCore.
func newOptimizerCore(into []int, lanes int, start State, clip float64) *optimizerCore {
	layers := len(into)
	return &optimizerCore{layers: layers, lanes: lanes, clip: clip, into: into, order: backwardOrder(into), version: start.Step, adam: start.AdamStep,
		skipped: start.NonFinite, saving: make([]bool, layers)}
}

// merge is for a layer that shares its table with another: it adds the layer's gradient,
// of the rows with these ids, to the other's gradient of the whole table.
type merge struct {
	Layer      int
	Rows, Into int // the slabs of either gradient
	IDs        []int32
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

func (m measured) with(result any) any {
	m.Squares = result.(float64)
	return m
}

// merged tells that merge is done.
type merged struct{ Layer int }

// update updates a layer by its gradient.
type update struct {
	Layer, Slab int
	IDs         []int32
	AdamStep    int64
	LR          float64
	Clip        float32
}

// updateDone tells that update is done.
type updateDone struct{ Layer int }

func (c *optimizerCore) step(msg any) []effect {
	if c.dropped {
		return nil
	}
	s := c.cur
	switch m := msg.(type) {
	case GradLanded:
		c.landed(m)
	case GradExchanged:
		if s == nil {
			s = c.open(m.Step)
		}
		s.allIDs, s.buffer[m.Layer], s.landed[m.Layer] = m.AllIDs, m.Buffer, m.Layer
		if c.clip == 0 {
			s.landed[m.Layer] = m.Buffer
		}
		s.queue = append(s.queue, m.Layer)
	case StepClosed:
		if s == nil {
			s = c.open(m.Step)
		}
		s.closed = &m
	case merged:
		c.busy = false
		s.squares[m.Layer], s.have[m.Layer] = 0, true // its share is measured with the sum
		s.queue = append(s.queue, c.into[m.Layer])
	case measured:
		c.busy = false
		s.squares[m.Layer], s.have[m.Layer] = m.Squares, true
		return append(c.putAway(s, m.Layer), c.advance()...)
	case summed:
		c.busy = false
		return append(c.summed(m), c.advance()...)
	case normAgreed:
		if m.Layer < 0 {
			s.all, s.agreed = m.Squares, true
		} else {
			s.squares[m.Layer], s.have[m.Layer] = m.Squares, true
		}
	case updateDone:
		c.busy = false
		return append(c.workDone(m.Layer), c.advance()...)
	case MatrixPrepared:
		return c.prepared(m)
	case MatrixOrthogonalized:
		s.matrices.returned = append(s.matrices.returned, m)
	case MatrixApplied:
		return c.applied(m)
	case LayerSaved:
		c.saving[m.Layer] = false
	case StateFetched:
		if m.Round == c.round {
			c.staged[m.Layer] = true
		}
	case StatesWanted:
		return c.wantStates()
	case StepGivenUp:
		return c.giveUp(m)
	default:
		panic(unexpected(optimizerID, msg))
	}
	return c.advance()
}

// landed queues a gradient to be measured.
func (c *optimizerCore) landed(m GradLanded) {
	s := c.cur
	if s == nil {
		s = c.open(m.Step)
	}
	if s.step != m.Step {
		panic(fmt.Sprintf("optimizer: a gradient of step %d in step %d", m.Step, s.step))
	}
	s.landed[m.Layer], s.lane[m.Layer], s.ids = m.Slab, m.Lane, m.IDs
	if len(c.shares(m.Layer)) == 1 || c.into[m.Layer] != m.Layer { // else it is measured once the others' are added to it
		s.queue = append(s.queue, m.Layer)
	}
}

// shares lists the layers whose gradients are added into the same one as that of l, with l
// among them: l alone, unless it shares a table.
func (c *optimizerCore) shares(l int) (out []int) {
	for k, into := range c.into {
		if into == c.into[l] {
			out = append(out, k)
		}
	}
	return out
}

func (c *optimizerCore) open(step int) *stepState {
	c.cur = &stepState{step: step, finite: step - 1 - c.skipped, landed: make([]int, c.layers), lane: make([]laneID, c.layers), squares: make([]float64, c.layers),
		have: make([]bool, c.layers), updated: make([]bool, c.layers), waited: make([]Cause, c.layers)}
	for i := range c.cur.landed {
		c.cur.landed[i] = noSlab
	}
	copy(c.cur.have, c.frozen)
	c.cur.matrices.layer = -1
	if c.cur.spoilt = -1; c.several {
		c.cur.buffer = slices.Repeat([]int{-1}, c.layers)
	}
	return c.cur
}

// advance starts the next work, or ends a step that is skipped.
func (c *optimizerCore) advance() []effect {
	s := c.cur
	if s == nil || c.busy {
		return nil
	}
	if out := c.advanceMatrices(s); c.busy {
		return out
	}
	if len(s.queue) > 0 {
		return c.startMeasure(s)
	}
	if s.closed == nil || s.matrices.layer >= 0 {
		return nil
	}
	if c.clip == 0 && !s.closed.Skip && s.spoilt < 0 {
		return c.advanceUnclipped(s)
	}
	var out []effect
	if s.closed.Skip || s.spoilt >= 0 {
		out = c.dropMeasured(s)
	}
	for _, ok := range s.have {
		if !ok {
			return out
		}
	}
	switch {
	case s.spoilt >= 0:
		return append(out, c.spoil(s)...)
	case c.several && c.clip > 0 && !s.agreed:
		return append(out, c.agree(s)...)
	}
	norm := s.norm()
	if s.closed.Skip || math.IsNaN(norm) || math.IsInf(norm, 0) {
		return append(out, c.skip(s)...)
	}
	coef := 1.0
	if c.clip > 0 {
		coef = clipping(c.clip, norm)
	}
	if s.next == c.layers {
		return nil // all have begun
	}
	out = c.wantGrads(s)
	begun := c.startUpdate(s, s.next, float32(coef))
	if begun != nil {
		s.next++
		begun = append(begun, c.pastFrozen(s.next-1)...)
	}
	return append(out, begun...)
}

// pastFrozen goes on behind layer l if that is frozen: nothing will tell that its update is done.
func (c *optimizerCore) pastFrozen(l int) []effect {
	if c.frozen == nil || !c.frozen[l] {
		return nil
	}
	return c.advance()
}

func (c *optimizerCore) startMeasure(s *stepState) []effect {
	l := s.queue[0]
	if into := c.into[l]; into != l {
		if s.landed[into] < 0 {
			return nil // until that has landed too
		}
		s.queue, c.busy = s.queue[1:], true
		return []effect{work{do: merge{Layer: l, Rows: s.landed[l], Into: s.landed[into], IDs: s.ids}, done: []send{{optimizerID, merged{l}}}}}
	}
	s.queue, c.busy = s.queue[1:], true
	if c.several {
		return []effect{work{do: sumShare{Step: s.step, Layer: l, Buffer: s.buffer[l], Into: s.landed[l], AllIDs: s.allIDs}, done: []send{{optimizerID, summed{Layer: l}}}}}
	}
	return []effect{work{do: measure{Layer: l, Slab: s.landed[l], IDs: s.ids}, done: []send{{optimizerID, measured{Layer: l}}}}}
}

// advanceUnclipped updates the next layer, if its gradient is measured.
func (c *optimizerCore) advanceUnclipped(s *stepState) []effect {
	if s.pending == len(c.order) {
		return nil
	}
	l := c.order[s.pending]
	if !s.have[l] {
		return nil // until it is, and ranks have agreed on it
	}
	if !optim.AllFinite(s.squares[c.into[l]]) {
		if c.several {
			s.spoilt = l
			return c.advance()
		}
		return []effect{work{do: nonFiniteGradient{Step: s.step, Layer: l, Finite: s.finite}}}
	}
	coef := 1.0
	if c.bound > 0 {
		coef = clipping(c.bound, math.Sqrt(s.squares[c.into[l]]))
	}
	out := c.startUpdate(s, l, float32(coef))
	if out != nil {
		s.pending++
		out = append(out, c.pastFrozen(l)...)
	}
	return out
}

// nonFiniteGradient fails the run: without clipping other layers are updated already, so
// the step cannot be skipped. Finite is the last step before it that was not skipped.
type nonFiniteGradient struct{ Step, Layer, Finite int }

func (c *optimizerCore) startUpdate(s *stepState, l int, clip float32) []effect {
	switch {
	case c.saving[l]:
		s.waited[l] = StallCheckpoint
		return nil
	case c.frozen != nil && c.frozen[l]:
		return c.updated(l)
	case c.away != nil && c.away[l] && !c.staged[l]:
		s.waited[l] = StallDisk
		return nil
	case c.away != nil:
		c.staged[l] = false
	}
	s.begun = true
	u := update{Layer: l, Slab: s.landed[c.into[l]], IDs: s.ids, AdamStep: c.adam + 1, LR: s.closed.LR, Clip: clip}
	if c.matrices != nil && c.matrices[l] > 0 {
		return c.beginMatrices(s, u)
	}
	c.busy = true
	return []effect{work{do: u, done: []send{{optimizerID, updateDone{l}}}}}
}

// updated tells that l is at the step's version, gives back slabs that nobody reads any
// more, and ends the step after the last layer.
func (c *optimizerCore) updated(l int) []effect {
	s := c.cur
	c.skipped = 0
	s.updated[l] = true
	s.done++
	out := c.announce(s, l, c.adam+1, c.frozen != nil && c.frozen[l])
	if shares := c.shares(l); !slices.ContainsFunc(shares, func(k int) bool { return !s.updated[k] }) {
		for _, k := range shares {
			if c.several || s.landed[k] != noSlab {
				out = append(out, c.free(s, k)...)
			}
		}
	}
	if s.done == c.layers {
		c.adam++
		out = append(out, c.finish(s, false))
	}
	return out
}

// dropMeasured gives back, in a step that is skipped, the slabs of gradients that have been
// measured: gradients that have not landed may be waiting for a slab.
func (c *optimizerCore) dropMeasured(s *stepState) []effect {
	var out []effect
	for l := range c.layers {
		if s.have[l] && s.landed[l] >= 0 && s.have[c.into[l]] {
			out = append(out, c.free(s, l)...)
			s.landed[l] = -1
		}
	}
	return out
}

// skip ends a step that changes nothing. It need not wait for a layer that is being saved,
// whose version changes but not its bytes, unless this step is to be saved too.
func (c *optimizerCore) skip(s *stepState) []effect {
	out := c.dropMeasured(s)
	for l := range c.layers {
		if c.saving[l] && s.closed.Save {
			return out // the layer's earlier save comes first
		}
	}
	c.skipped++
	for l := range c.layers {
		saving := c.saving[l]
		out = append(out, c.announce(s, l, c.adam, true)...)
		c.saving[l] = saving || s.closed.Save
	}
	if s.closed.Save {
		out = append(out, c.wantStates()...)
	}
	return append(out, c.finish(s, true))
}

func (c *optimizerCore) finish(s *stepState, skipped bool) send {
	c.cur, c.version = nil, s.step
	to := conductorID
	if c.several {
		to = gathererID
	}
	return send{to, StepUpdated{Step: s.step, GradNorm: s.norm(), Skipped: skipped, AdamStep: c.adam, NonFinite: c.skipped}}
}

// free gives back the slab with the gradient of layer l or, of several ranks, the exchange buffer
// that it needed, if it still does.
func (c *optimizerCore) free(s *stepState, l int) []effect {
	if !c.several {
		return []effect{send{s.lane[l].offloader(), SlabFreed{s.landed[l]}}}
	}
	b := s.buffer[l]
	if s.buffer[l] = -1; b < 0 {
		return nil
	}
	return []effect{send{exchangerID, ExchangeBufferFreed{b}}}
}

func (r *run) execOptimizer(w work) error {
	switch e := w.do.(type) {
	case nonFiniteGradient:
		return r.nonFiniteGradient(e)
	case merge:
		r.hub.async(optimizerID, w, func() (any, error) {
			r.merge(e)
			return nil, nil
		})
	case measure:
		r.hub.async(optimizerID, w, func() (any, error) { return r.squares(e), nil })
	case sumShare:
		r.hub.async(optimizerID, w, func() (any, error) { return r.sumShare(e), nil })
	case agreeNorm:
		r.agreeNorm(w, e)
	case update:
		r.hub.async(optimizerID, w, func() (any, error) { return nil, r.update(e) })
	default:
		if !r.execMatrix(w) {
			panic(fmt.Sprintf("optimizer: work %T", w.do))
		}
	}
	return nil
}

// merge adds a layer's gradient of some rows of a table to another layer's gradient of
// the whole table.
func (r *shared) merge(e merge) {
	g, n := r.gradients[e.Layer], int64(len(e.IDs))
	optim.AddRows(r.o.Pool, r.slab(e.Into, g.From, g.Table), e.IDs, r.slab(e.Rows, 0, n*g.Row), int(g.Row))
}

// squares is the sum of squares of a layer's gradient, added up tensor by tensor.
func (r *shared) squares(e measure) float64 {
	var sum float64
	for _, x := range r.gradients[e.Layer].Ranges(len(e.IDs)) {
		sum += optim.SumSquares(r.o.Pool, r.slab(e.Slab, x.To, x.Elems))
	}
	return sum
}

// update updates one layer.
func (r *shared) update(e update) error {
	o, g := r.o.Optimizer, r.gradients[e.Layer]
	rate := e.rate()
	l, err := r.o.Home.Acquire(e.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Layer], err)
	}
	defer r.o.Home.Release(e.Layer)
	if r.team != nil {
		r.updateShare(l, e, rate)
		return nil
	}
	if g.OfRows(e.Layer) {
		l.UpdateRows(e.IDs, r.slab(e.Slab, 0, int64(len(e.IDs))*g.Row), o, rate)
		return nil
	}
	l.Update(r.landedGrad(e), o, rate)
	return nil
}

// landedGrad views the gradient by which e updates a layer: in its slab or, if it has waited on a disk, in the layer's state slot.
func (r *shared) landedGrad(e update) optim.Grad {
	from, n := r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems
	if e.Slab == noSlab {
		return r.gradIn(r.o.Home.Grad(e.Layer), from, n)
	}
	return r.slab(e.Slab, from, n)
}
