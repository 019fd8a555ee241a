package actors

import (
	"mt/host"
	"mt/host/optim"
)

// This file adds states on disks to the Optimizer. It updates such a layer when the Stager has put the state into a
// state slot, and then returns the slot to the Stager. A gradient that waits on a disk goes to the Stager when it is
// measured. When the norm is known, the Optimizer requests all these gradients.

// diskCore is the subcore for states on disks. Its hook holds up layers whose state is not in memory.
type diskCore struct {
	c      *optimizerCore
	staged []bool // by layer: its state is in a state slot
	round  int    // save rounds so far
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

// wantStates requests the states of all layers on disks for the Checkpointer, because no update sends them. States
// prefetched for updates are dropped.
func (p *diskCore) wantStates() []effect {
	p.round++
	clear(p.staged)
	return []effect{send{stagerID, StatesWanted{}}}
}

// next requests the gradients on disks, once in a step, when the norm is known.
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

// begin marks the state as used. It does not take over the update, which is the same as in memory.
func (p *diskCore) begin(u update) ([]effect, bool) {
	p.staged[u.Layer] = false
	return nil, false
}

// done asks the Stager to write a changed state. If a skipped step must be saved, it requests all states for the
// Checkpointer after the last layer.
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

// gradsOnDisk manages gradients, some of them on disks until the norm is known.
type gradsOnDisk struct {
	gradients
	p *diskCore
}

// measured hands the slab of a gradient on disk to the Stager, which writes the gradient and frees the slab. It does so
// even in a skipped step, which is rare; the gradient is then never requested.
func (g gradsOnDisk) measured(s *stepState, l int) []effect {
	if !g.p.c.gradOnDisk[l] {
		return nil
	}
	slab := s.landed[l]
	s.landed[l] = noSlab
	return []effect{send{stagerID, GradMeasured{Layer: l, Slab: slab, Lane: s.lane[l]}}}
}

// diskTileListeners sends updates if some tiles are on disks. For these the Stager notifies the Prefetchers, after the
// write.
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

// updateFromDisk updates a layer with the gradient that waited on a disk.
func (r *run) updateFromDisk(l *host.LayerState, e update) {
	l.Update(r.stagedGrad(e), r.o.Optimizer, e.rate())
}

// stagedGrad views the layer's gradient in its state slot.
func (r *run) stagedGrad(e update) optim.Grad {
	return r.gradIn(r.o.Home.Grad(e.Layer), r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems)
}
