package actors

import (
	"mt/host"
	"mt/host/optim"
)

// This file adds layers whose state is on a disk. The Stager reads the state into a state slot; the
// Optimizer then updates the layer and returns the slot to the Stager. A gradient can also wait on
// a disk for the norm over all layers. The Optimizer computes such a gradient's sum of squares and
// hands the gradient to the Stager, which writes it. When the norm is known, the Optimizer requests
// all these gradients.

// diskCore is the part of the optimizer's core for states on disks. As a hook it delays the update of a layer until the
// state is in memory.
type diskCore struct {
	c      *optimizerCore
	staged []bool // by layer: its state is in a state slot
	round  int    // number of times that the Checkpointer has requested all states
	wanted int    // the last step whose gradients were requested
}

func newDiskCore(c *optimizerCore) {
	p := &diskCore{c: c, staged: make([]bool, c.layers)}
	c.subcores, c.hooks = append(c.subcores, p), append(c.hooks, p)
	if c.gradOnDisk != nil {
		c.grads = gradsOnDisk{c.grads, p}
	}
	if c.weightsOnDisk != nil {
		c.listener = diskTileListeners{prefetcherListeners(c.lanes), c.weightsOnDisk}
	}
}

func (p *diskCore) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case StateFetched:
		if m.Round == p.round {
			p.staged[m.Layer] = true
		}
	case StatesWanted:
		return p.wantStates(), true
	default:
		return nil, false
	}
	return nil, true
}

// wantStates asks the Stager, the actor that reads states from disks into slots, for the states of all layers on disks.
// A checkpoint needs them when no update of the layers supplies them. The Stager first frees the slots of states that
// were read ahead for updates, because the save needs slots for its own reads. wantStates therefore clears p.staged,
// the record of states that are ready for updates.
func (p *diskCore) wantStates() []effect {
	p.round++
	clear(p.staged)
	return []effect{send{stagerID, StatesWanted{}}}
}

// next requests the gradients that wait on disks, once in a step, when the norm over all layers is known. Otherwise it
// returns nil.
func (p *diskCore) next() []effect {
	s := p.c.cur
	if p.c.gradOnDisk == nil || s.closed == nil || s.closed.Skip || p.wanted == s.step {
		return nil
	}
	if _, open := p.c.gate.open(s, 0); !open {
		return nil
	}
	p.wanted = s.step
	return []effect{send{stagerID, GradsWanted{}}}
}

func (p *diskCore) ready(l int) (Cause, bool) {
	frozen := p.c.frozen != nil && p.c.frozen[l]
	return StallDisk, !p.c.stateOnDisk[l] || p.staged[l] || frozen
}

// begin notes that update u uses the layer's state slot. It returns false: the update itself is the
// same as for a layer whose state is always in memory.
func (p *diskCore) begin(u update) ([]effect, bool) {
	p.staged[u.Layer] = false
	return nil, false
}

// done asks the Stager to write the state of an updated layer. A skipped step changes no state. If
// such a step must be saved, done requests all states for the Checkpointer after the last layer.
func (p *diskCore) done(m LayerUpdated) []effect {
	skipped := m.NonFinite > 0
	switch {
	case p.c.stateOnDisk[m.Layer] && !m.Unchanged:
		return []effect{send{stagerID, StateUpdated{m}}}
	case skipped && m.Save && m.Layer == p.c.layers-1:
		return p.wantStates()
	}
	return nil
}

// gradsOnDisk implements the interface gradients for runs in which some gradients wait on disks
// until the norm over all layers is known.
type gradsOnDisk struct {
	gradients
	p *diskCore
}

// measured hands the slab of a measured gradient to the Stager, which writes the gradient to the disk and frees the
// slab. In a skipped step the gradient is written in vain; such steps are rare.
func (g gradsOnDisk) measured(s *stepState, l int) []effect {
	if !g.p.c.gradOnDisk[l] {
		return nil
	}
	slab := s.landed[l]
	s.landed[l] = noSlab
	return []effect{send{stagerID, GradMeasured{Layer: l, Slab: slab, Lane: s.lane[l]}}}
}

// diskTileListeners is the updateListener if some layers' weights are on disks. For these layers the Stager notifies
// the Prefetchers, after it has written the weights.
type diskTileListeners struct {
	prefetcherListeners
	weightsOnDisk []bool
}

func (a diskTileListeners) layerUpdated(m LayerUpdated) []effect {
	if a.weightsOnDisk[m.Layer] && !m.Unchanged {
		return m.toCheckpointer()
	}
	return a.prefetcherListeners.layerUpdated(m)
}

// updateFromDisk updates a layer with the gradient that has waited on a disk and was read into the layer's state slot.
func (r *run) updateFromDisk(l *host.LayerState, e update) {
	l.Update(r.stagedGrad(e), r.o.Optimizer, e.rate())
}

// stagedGrad views the gradient of update e's layer in its state slot.
func (r *run) stagedGrad(e update) optim.Grad {
	return r.gradIn(r.o.Home.Grad(e.Layer), r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems)
}
