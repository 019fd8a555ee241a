package actors

import "mt/plan"

// The Gatherer exists with several ranks. Each rank updates only its share of a layer's tile. The
// Gatherer then receives the other shares from all ranks, and reports the layer as updated when the
// tile is complete. It gathers layers in the order of the share updates, which is the same on all
// ranks. It reports them in that order too, whatever order the gathers end in.

// gathererCore is the pure part of the Gatherer.
type gathererCore struct {
	lanes    int
	ahead    int         // the maximum number of gathers in progress
	queue    []gathering // what to send, in order
	underWay int
}

// gathering is one entry of the Gatherer's queue. It has the messages to send when the gather of the layer and all
// earlier entries are done.
type gathering struct {
	layer       int // the layer to gather
	version     int // its version after the gather
	begun, done bool
	then        []effect
}

func newGathererCore(lanes int, d plan.Depths) *gathererCore {
	return &gathererCore{lanes: lanes, ahead: d.GathersAhead}
}

// gather is the task of completing the tile of a layer: each rank sends the part that it has updated to all others.
type gather struct{ Layer, Version int }

// gathered tells the Gatherer that the gather of a layer is done: the tile is complete.
type gathered struct{ Layer int }

func (c *gathererCore) step(msg message) []effect {
	switch m := msg.(type) {
	case ShareUpdated:
		u := m.Updated
		var sends []effect
		for lane := range laneID(c.lanes) {
			sends = append(sends, send{lane.prefetcher(), u})
		}
		if u.Save {
			sends = append(sends, send{checkpointerID, u})
		}
		c.queue = append(c.queue, gathering{layer: u.Layer, version: u.Version, begun: u.Unchanged, done: u.Unchanged, then: sends})
	case gathered:
		c.underWay--
		for i := range c.queue {
			if g := &c.queue[i]; g.begun && !g.done && g.layer == m.Layer {
				g.done = true
				break
			}
		}
	case StepUpdated:
		c.queue = append(c.queue, gathering{begun: true, done: true, then: []effect{send{conductorID, m}}})
	case GradNotFinite:
		c.queue = append(c.queue, gathering{begun: true, done: true, then: []effect{work{do: nonFiniteGradient(m)}}})
	default:
		panic(unexpected(gathererID, msg))
	}
	return append(c.begin(), c.tell()...)
}

// begin starts the gathers of the next layers in the queue, until c.ahead gathers are in progress.
func (c *gathererCore) begin() (out []effect) {
	for i := range c.queue {
		g := &c.queue[i]
		if g.begun {
			continue
		}
		if c.underWay == c.ahead {
			break
		}
		g.begun = true
		c.underWay++
		out = append(out, work{do: gather{Layer: g.layer, Version: g.version}, done: []send{{gathererID, gathered{g.layer}}}})
	}
	return out
}

// tell sends the messages of finished entries at the head of the queue and removes these entries.
// It stops at the first unfinished entry, so messages keep the queue's order.
func (c *gathererCore) tell() (out []effect) {
	for len(c.queue) > 0 && c.queue[0].done {
		out = append(out, c.queue[0].then...)
		c.queue = c.queue[1:]
	}
	return out
}

func (e gather) start(r *lane, w work) error {
	layout := r.run.plan.Layouts[e.Layer]
	var counts []int
	for _, s := range r.run.plan.Shares[e.Layer] {
		from, to := s.Tile(layout)
		counts = append(counts, int(to-from))
	}
	r.comm.sent.Add(int64((r.comm.size - 1) * counts[r.comm.rank]))
	r.collective(gathererID, w, "gather the weights of "+r.names[e.Layer], func(done func(error)) {
		r.comm.weights.AllGatherV(r.o.Home.Tile(e.Layer)[:layout.TileBytes], counts, done)
	}, nil)
	return nil
}
