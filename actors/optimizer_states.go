package actors

// This file is what the Optimizer does where the state of some layers is on disks: it updates such a layer
// when the Stager has told that its state is in a state slot, and tells the Stager when it has.

// setAway tells the core, by layer, whose state is on a disk; nil: none is.
func (c *optimizerCore) setAway(away []bool) {
	c.away, c.staged = away, make([]bool, len(away))
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
