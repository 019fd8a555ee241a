package actors

// The Feeder packs the batches the Conductor asks for, one at a time, in the
// order of the requests.

// feederCore is the pure part of the Feeder.
type feederCore struct {
	queue []BatchWanted
	busy  bool
}

// packBatch reads the rows of a step and makes its batch; its done message is
// batchPacked, made by the shell.
type packBatch struct {
	Step int
	Eval bool
}

type batchPacked struct{ ready BatchReady }

func (c *feederCore) step(msg any) []any {
	var out []any
	switch m := msg.(type) {
	case BatchWanted:
		c.queue = append(c.queue, m)
	case batchPacked:
		c.busy = false
		out = append(out, send{conductorID, m.ready})
	default:
		panic(unexpected(feederID, msg))
	}
	if !c.busy && len(c.queue) > 0 {
		m := c.queue[0]
		c.queue, c.busy = c.queue[1:], true
		out = append(out, work{do: packBatch(m)})
	}
	return out
}
