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
