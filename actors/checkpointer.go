package actors

import "fmt"

// The Checkpointer writes a consistent state: every layer as it is after step N. The Optimizer
// delays a layer's next update until the layer is written, so saving runs beside training and needs
// no second copy of the model. If no update is to follow (SaveRequested.AtRest), all layers are
// already in that state and are written in order.

// checkpointerCore is the pure part of the Checkpointer.
type checkpointerCore struct {
	layers   int
	reported int             // the last reported step
	queue    []SaveRequested // checkpoints to write; the first is in progress
	opened   bool            // the directory of queue[0] exists
	left     int             // layers of queue[0] not yet written
	ready    []LayerUpdated  // layers that can be written
	last     LayerUpdated    // the last written layer of queue[0]
	busy     bool            // a work is in progress
	// stateOnDisk: by layer, the state is on a disk. nil: no state is.
	// shown: by layer, the Stager has read the state from the disk and keeps it in memory until the
	// layer is saved. A layer that was just updated is saved without waiting for shown, unless
	// checkpoints hard-link the files of states (links).
	stateOnDisk, shown []bool
	links              bool
}

// newCheckpointerCore makes the core for a run that begins after the given step.
func newCheckpointerCore(layers, step int) *checkpointerCore {
	return &checkpointerCore{layers: layers, reported: step}
}

// openSave is the task of beginning a checkpoint: it checks the space on the disk and creates the folder.
type openSave struct{ Save SaveRequested }

type saveOpened struct{}

// saveLayer is the task of writing one layer of the checkpoint.
type saveLayer struct{ Layer int }

type layerWritten struct{ Layer, Step int }

// commitSave is the task of making the checkpoint valid, by renaming its folder. The step's report comes first, so no
// checkpoint is ahead of the log.
type commitSave struct {
	Save      SaveRequested
	AdamStep  int64
	NonFinite int
}

type saveCommitted struct{ Step int }

func (c *checkpointerCore) step(msg message) []effect {
	var out []effect
	switch m := msg.(type) {
	case SaveRequested:
		c.queue = append(c.queue, m)
		for l := 0; m.AtRest && l < c.layers; l++ {
			c.ready = append(c.ready, LayerUpdated{Layer: l, Version: m.Step, Save: true, Unchanged: true, AdamStep: m.AdamStep, NonFinite: m.NonFinite})
		}
	case StepReported:
		c.reported = m.Step
	case LayerUpdated:
		c.ready = append(c.ready, m)
	case StateFetched:
		c.shown[m.Layer] = true
	case StateFlushed:
		c.shown[m.Layer] = true
	case saveOpened:
		c.busy, c.opened, c.left = false, true, c.layers
	case layerWritten:
		c.busy = false
		c.left--
		saved := LayerSaved{Step: m.Step, Layer: m.Layer}
		if c.stateOnDisk != nil && c.stateOnDisk[m.Layer] { // tell the Stager before the Optimizer can ask it for states again
			c.shown[m.Layer] = false
			out = append(out, send{stagerID, saved})
		}
		out = append(out, send{optimizerID, saved})
	case saveCommitted:
		c.busy, c.opened = false, false
		c.queue = c.queue[1:]
		out = append(out, send{conductorID, SaveDone(m)})
	default:
		panic(unexpected(checkpointerID, msg))
	}
	return append(out, c.advance()...)
}

func (c *checkpointerCore) advance() []effect {
	if c.busy || len(c.queue) == 0 {
		return nil
	}
	save := c.queue[0]
	if !c.opened {
		c.busy = true
		return []effect{work{do: openSave{save}, done: []send{{checkpointerID, saveOpened{}}}}}
	}
	if c.left == 0 {
		if c.reported < save.Step {
			return nil
		}
		c.busy = true
		return []effect{work{do: commitSave{Save: save, AdamStep: c.last.AdamStep, NonFinite: c.last.NonFinite},
			done: []send{{checkpointerID, saveCommitted{Step: save.Step}}}}}
	}
	for i, m := range c.ready {
		if m.Version == save.Step {
			if c.stateOnDisk != nil && c.stateOnDisk[m.Layer] && !c.shown[m.Layer] && (m.Unchanged || c.links) {
				if c.links {
					continue
				}
				return nil // several ranks write layers together, so their order must not depend on when states are read
			}
			c.ready = append(c.ready[:i], c.ready[i+1:]...)
			c.busy, c.last = true, m
			return []effect{work{do: saveLayer{m.Layer}, done: []send{{checkpointerID, layerWritten{Layer: m.Layer, Step: m.Version}}}}}
		}
	}
	return nil
}

func (e openSave) start(r *lane, w work) error {
	r.hub.async(checkpointerID, w, func() (any, error) {
		r.saving.Store(true)
		if err := r.o.Saver.Open(e.Save.Step); err != nil {
			return nil, fmt.Errorf("save step %d: %w", e.Save.Step, err)
		}
		return nil, nil
	})
	return nil
}

func (e saveLayer) start(r *lane, w work) error {
	r.hub.async(checkpointerID, w, func() (any, error) {
		if err := r.saveLayer(e.Layer); err != nil {
			return nil, fmt.Errorf("save %s: %w", r.names[e.Layer], err)
		}
		return nil, nil
	})
	return nil
}

func (e commitSave) start(r *lane, w work) error {
	r.hub.async(checkpointerID, w, func() (any, error) {
		at := State{Step: e.Save.Step, AdamStep: e.AdamStep, NonFinite: e.NonFinite, Tokens: e.Save.Tokens}
		if err := r.o.Saver.Commit(at, e.Save.DataPos); err != nil {
			return nil, fmt.Errorf("save step %d: %w", e.Save.Step, err)
		}
		r.saving.Store(false)
		return nil, nil
	})
	return nil
}

// saveLayer borrows a layer from the home and passes it to the Saver (Options.Saver), which writes it.
func (r *run) saveLayer(layer int) error {
	l, err := r.o.Home.Acquire(layer)
	if err != nil {
		return err
	}
	defer r.o.Home.Release(layer)
	return r.o.Saver.Layer(layer, l)
}
