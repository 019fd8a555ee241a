package actors

import (
	"fmt"

	"mt/data"
)

// The Feeder packs the batches that the Conductor requests, one at a time and in order.

// feederCore is the pure part of the Feeder.
type feederCore struct {
	queue []BatchWanted
	busy  bool
}

// packBatch is the task of reading the rows of a step and packing them into a batch.
type packBatch struct {
	Step int
	Eval bool
}

// batchPacked brings the packed batch to the Feeder.
type batchPacked struct{ ready BatchReady }

func (m batchPacked) withResult(result any) message {
	m.ready.Batch = result.(*data.Batch)
	return m
}

func (c *feederCore) step(msg message) []effect {
	var out []effect
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
		out = append(out, work{do: packBatch(m), done: []send{{feederID, batchPacked{BatchReady{Step: m.Step, Eval: m.Eval}}}}})
	}
	return out
}

func (e packBatch) start(r *lane, w work) error {
	r.hub.async(feederID, w, func() (any, error) {
		b, err := r.o.Batch(e.Step, e.Eval)
		if err == nil {
			err = r.checkBatch(b)
		}
		if err == nil {
			err = r.checkPairs(b)
		}
		if err != nil {
			what := "step"
			if e.Eval {
				what = "evaluation pass"
			}
			return nil, fmt.Errorf("pack the batch of %s %d: %w", what, e.Step, err)
		}
		r.passOnStop()
		return b, nil
	})
	return nil
}

// passOnStop sends the Conductor a pending request to stop. The caller does so before it sends a packed batch. A stop
// that came during the packing thus reaches the Conductor first, and no step or evaluation pass begins with that batch.
func (r *run) passOnStop() {
	select {
	case <-r.o.Stop:
		r.hub.tell(conductorID, StopRequested{})
	default:
	}
}

// checkBatch returns an error for a batch that exceeds the plan's buffers or is not divided among the run's ranks.
func (r *run) checkBatch(b *data.Batch) error {
	if r.comm != nil && (b.Ranks == nil || len(b.Ranks.IDs) != r.comm.size) {
		return fmt.Errorf("the batch is not one of %d ranks", r.comm.size)
	}
	l, largest := r.plan.Limits, 0
	for _, m := range b.MicroBatches {
		largest = max(largest, m.Tokens)
	}
	if b.Tokens > int64(l.Tokens) || largest > l.MicroBatchTokens || len(b.MicroBatches) > l.MicroBatches || len(b.UniqueIDs) > l.UniqueIDs {
		return fmt.Errorf("a batch of %d tokens, %d micro-batches of at most %d and %d unique ids exceeds the limits %+v",
			b.Tokens, len(b.MicroBatches), largest, len(b.UniqueIDs), l)
	}
	return nil
}
