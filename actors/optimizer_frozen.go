package actors

// frozenHook takes over the updates of frozen layers. These have no gradient, so it only advances their version number.
type frozenHook struct{ c *optimizerCore }

func (frozenHook) ready(int) (Cause, bool) { return NoStall, true }

func (w frozenHook) begin(u update) ([]effect, bool) {
	if !w.c.frozen[u.Layer] {
		return nil, false
	}
	return w.c.updated(u.Layer, true), true
}

func (frozenHook) done(LayerUpdated) []effect { return nil }
