package actors

// frozenWay is the way of layers that have no gradient: they go from version to version as they are.
type frozenWay struct{ c *optimizerCore }

func (frozenWay) ready(int) (Cause, bool) { return NoStall, true }

func (w frozenWay) begin(u update) ([]effect, bool) {
	if !w.c.frozen[u.Layer] {
		return nil, false
	}
	return w.c.updated(u.Layer, true), true
}

func (frozenWay) done(LayerUpdated) []effect { return nil }
