package actors

// This file is what the Optimizer does where the state of some layers is on disks: it updates such a layer
// when the Stager has told that its state is in a state slot, and tells the Stager when it has. A gradient that waits for the
// norm on a disk it hands to the Stager as soon as it is measured; when the norm is known, it asks for all of them.

// setAway tells the core, by layer, whose state is on a disk; nil: none is.
func (c *optimizerCore) setAway(away []bool) {
	c.away, c.staged = away, make([]bool, len(away))
}

// noSlab is the slab of a gradient that has not landed, or that is in its layer's state slot or on its way there.
const noSlab = -1

// putAway hands the gradient of layer l, which is measured, to the Stager, if it waits on a disk. The Stager gives the slab back. In
// a step that is skipped too: that is rare, and the gradient is asked for in no step.
func (c *optimizerCore) putAway(s *stepState, l int) []effect {
	if c.gradAway == nil || !c.gradAway[l] {
		return nil
	}
	slab := s.landed[l]
	s.landed[l] = noSlab
	return []effect{send{stagerID, GradMeasured{Layer: l, Slab: slab, Lane: s.lane[l]}}}
}

// wantGrads asks for the gradients that wait on disks, once in a step.
func (c *optimizerCore) wantGrads(s *stepState) []effect {
	if c.gradAway == nil || s.wanted {
		return nil
	}
	s.wanted = true
	return []effect{send{stagerID, GradsWanted{}}}
}

// wantStates asks for the states of all layers that are away, which no update brings to the Checkpointer.
// What was fetched for updates is given up.
func (c *optimizerCore) wantStates() []effect {
	if c.away == nil {
		return nil
	}
	c.round++
	clear(c.staged)
	return []effect{send{stagerID, StatesWanted{}}}
}

// announce tells that layer l is at the step's version, unchanged where the step is skipped. Where its tile is to be
// written to a disk, the Stager tells the Prefetchers.
func (c *optimizerCore) announce(s *stepState, l int, adam int64, unchanged bool) []effect {
	m := LayerUpdated{Layer: l, Version: s.step, Save: s.closed.Save, Waited: s.waited[l], Unchanged: unchanged, AdamStep: adam, NonFinite: c.skipped}
	c.saving[l] = s.closed.Save
	var staged []effect
	if c.away != nil && c.away[l] && !unchanged {
		staged = []effect{send{stagerID, StateUpdated{m}}}
	}
	if c.several {
		return append([]effect{send{gathererID, ShareUpdated{Updated: m}}}, staged...)
	}
	var out []effect
	if c.params == nil || !c.params[l] || unchanged {
		out = m.toPrefetchers(c.lanes)
	}
	if m.Save {
		out = append(out, send{checkpointerID, m})
	}
	return append(out, staged...)
}
