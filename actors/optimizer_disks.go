package actors

import (
	"mt/host"
	"mt/host/optim"
)

// This file is what the Optimizer does where the state of some layers is on disks: it updates such a layer
// when the Stager has told that its state is in a state slot, and tells the Stager when it has. A gradient that waits for the
// norm on a disk it hands to the Stager as soon as it is measured; when the norm is known, it asks for all of them.

// diskCore is the subcore, and the hook that holds up layers whose state is away.
type diskCore struct {
	c      *optimizerCore
	staged []bool // by layer: its state is in a state slot
	round  int    // how often the states of all layers were asked for
	wanted int    // the last step whose gradients were asked for
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

// wantStates asks for the states of all layers that are away, which no update brings to the Checkpointer.
// What was fetched for updates is given up.
func (p *diskCore) wantStates() []effect {
	p.round++
	clear(p.staged)
	return []effect{send{stagerID, StatesWanted{}}}
}

// next asks for the gradients that wait on disks, once in a step, when the norm is known.
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

// begin takes over nothing: the update is made in the state slot as it is made in memory.
func (p *diskCore) begin(u update) ([]effect, bool) {
	p.staged[u.Layer] = false
	return nil, false
}

// done has the Stager write a state that has changed. When a step was skipped that is to be saved, it shows all states to the
// Checkpointer, behind the last layer.
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

// gradsOnDisk are gradients of which some wait for the norm on a disk.
type gradsOnDisk struct {
	gradients
	p *diskCore
}

// measured hands a gradient that waits on a disk to the Stager, which gives the slab back. In
// a step that is skipped too: that is rare, and the gradient is asked for in no step.
func (g gradsOnDisk) measured(s *stepState, l int) []effect {
	if !g.p.c.gradOnDisk[l] {
		return nil
	}
	slab := s.landed[l]
	s.landed[l] = noSlab
	return []effect{send{stagerID, GradMeasured{Layer: l, Slab: slab, Lane: s.lane[l]}}}
}

// diskTileListeners is the audience where some tiles are on disks too: the Stager tells the Prefetchers of these, when they are
// written.
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

// updateFromDisk moves a layer by the gradient that has waited on a disk.
func (r *run) updateFromDisk(l *host.LayerState, e update) {
	l.Update(r.stagedGrad(e), r.o.Optimizer, e.rate())
}

// stagedGrad views the gradient of a layer in its state slot.
func (r *run) stagedGrad(e update) optim.Grad {
	return r.gradIn(r.o.Home.Grad(e.Layer), r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems)
}
