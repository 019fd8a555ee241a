package actors

// This file has what a step in several rounds adds (plan.Run.Rounds). A gradient is then the sum over all rounds. After
// each round but the last, the sum lands in the layer's slab and goes no further (GradSummed). Before the layer's
// backward of the next round, the Prefetcher copies the sum back into a gradient buffer, to which the launches add. The
// additions have the same order as in one round.

// resumption is a gradient buffer of Compute that a later visit needs with the sum of the rounds so far.
type resumption struct {
	visit, buf int
	fetched    bool // the copy of the sum is enqueued
}

// resume requests the sums that the next visits continue, as far as gradient buffers are free. Buffers go to visits in
// the order of the program, so no visit waits for a buffer that a later one holds.
func (c *computeCore) resume(p *Pass) (out []effect) {
	if c.next == len(p.Launches) {
		return nil
	}
	from := p.Launches[c.next].Visit
	if n := len(c.resumed); n > 0 {
		from = c.resumed[n-1].visit + 1
	} else if c.grad >= 0 {
		from++
	}
	for v := from; v < len(p.Visits) && len(c.gradFree) > 0; v++ {
		visit := p.Visits[v]
		if !visit.Grad() {
			continue
		}
		if !visit.Resumes || !c.summed[visit.Tile] {
			break
		}
		buf := c.gradFree[0]
		c.gradFree = c.gradFree[1:]
		delete(c.summed, visit.Tile)
		c.resumed = append(c.resumed, resumption{visit: v, buf: buf})
		out = append(out, send{c.lane.prefetcher(), GradSumWanted{Step: p.Step, Layer: visit.Layer, Part: visit.Part, Tile: visit.Tile, Buf: buf, IDs: len(p.Batch.UniqueIDs)}})
	}
	return out
}

// fetchedSum records that the copy of a sum into a gradient buffer is enqueued.
func (c *computeCore) fetchedSum(buf int) {
	for i := range c.resumed {
		if c.resumed[i].buf == buf {
			c.resumed[i].fetched = true
		}
	}
}

// gradServer is the server of gradient buffers that Compute has taken for sums of earlier rounds. It fills a buffer when
// Compute asks for it.
type gradServer struct{ lane laneID }

func (x gradServer) take(msg message) ([]effect, bool) {
	m, ok := msg.(GradSumWanted)
	if !ok {
		return nil, false
	}
	return []effect{work{do: fetchGradSum{m}}, send{x.lane.compute(), GradSumFetched{m.Buf}}}, true
}

func (gradServer) serve(*prefetchState) []effect { return nil }

func (gradServer) served(*prefetchState) bool { return true }

// fetchGradSum is the task of enqueuing, on the h2d stream, the copy of a tile's gradient from its layer's slab into a
// gradient buffer. It then records the buffer's ready event.
type fetchGradSum struct{ GradSumWanted }

func (e fetchGradSum) start(r *lane, _ work) error {
	defer r.copying(r.h2d, e).end()
	r.h2d.Wait(r.gradBufs[e.Buf].idle)
	r.gradPlaces[e.Layer].resume(r.tiles[e.Tile], e.Buf, e.Layer, e.IDs)
	r.h2d.Record(r.gradBufs[e.Buf].ready)
	return r.enqueued("fetch the gradient of %s", r.names[e.Layer])
}
