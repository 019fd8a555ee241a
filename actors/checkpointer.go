package actors

// The Checkpointer writes a consistent cut: every layer after update N. The
// Optimizer holds a layer's next update until that layer is on disk, so saving
// runs beside training and needs no second copy of the model. Where nothing is
// updated any more, all layers can be written at once.

// checkpointerCore is the pure part of the Checkpointer.
type checkpointerCore struct {
	layers int
	queue  []SaveRequested // the first is being written
	opened bool
	left   int // layers of queue[0] not yet written
	ready  []LayerUpdated
	last   LayerUpdated // of queue[0]
	busy   bool
}

func newCheckpointerCore(layers int) *checkpointerCore { return &checkpointerCore{layers: layers} }

// openSave begins a checkpoint: checks the disk, creates the directory.
type openSave struct{ Save SaveRequested }

type saveOpened struct{}

// saveLayer writes one layer of it.
type saveLayer struct{ Layer int }

type layerWritten struct{ Layer, Step int }

// commitSave makes it valid by one rename. Its done message is SaveDone to the
// Conductor, made by the shell, which knows the directory, after saveCommitted.
type commitSave struct {
	Save      SaveRequested
	AdamStep  int64
	NonFinite int
}

type saveCommitted struct {
	Step int
	Dir  string
}

func (c *checkpointerCore) step(msg any) []any {
	var out []any
	switch m := msg.(type) {
	case SaveRequested:
		c.queue = append(c.queue, m)
		for l := 0; m.AtRest && l < c.layers; l++ {
			c.ready = append(c.ready, LayerUpdated{Layer: l, Version: m.Step, Save: true, AdamStep: m.AdamStep, NonFinite: m.NonFinite})
		}
	case LayerUpdated:
		c.ready = append(c.ready, m)
	case saveOpened:
		c.busy, c.opened, c.left = false, true, c.layers
	case layerWritten:
		c.busy = false
		c.left--
		out = append(out, send{optimizerID, LayerSaved{Step: m.Step, Layer: m.Layer}})
	case saveCommitted:
		c.busy, c.opened = false, false
		c.queue = c.queue[1:]
		out = append(out, send{conductorID, SaveDone(m)})
	default:
		panic(unexpected(checkpointerID, msg))
	}
	return append(out, c.advance()...)
}

func (c *checkpointerCore) advance() []any {
	if c.busy || len(c.queue) == 0 {
		return nil
	}
	save := c.queue[0]
	if !c.opened {
		c.busy = true
		return []any{work{do: openSave{save}, done: saveOpened{}}}
	}
	if c.left == 0 {
		c.busy = true
		return []any{work{do: commitSave{Save: save, AdamStep: c.last.AdamStep, NonFinite: c.last.NonFinite}}}
	}
	for i, m := range c.ready {
		if m.Version == save.Step {
			c.ready = append(c.ready[:i], c.ready[i+1:]...)
			c.busy, c.last = true, m
			return []any{work{do: saveLayer{m.Layer}, done: layerWritten{Layer: m.Layer, Step: m.Version}}}
		}
	}
	return nil
}
