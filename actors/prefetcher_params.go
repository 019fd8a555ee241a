package actors

import (
	"fmt"

	"mt/internal/accounts"
	"mt/layers"
)

// This file is what the Prefetcher does where the tiles of some layers are on disks. Each weight slot then has a param
// buffer on the host, as large as the largest of them (a layer, or an expert). A tile that is granted a slot is read into the slot's buffer when
// the slot is idle, and copied from there; a unified device computes on it there. So weight slots bound how
// far reading is ahead. It is known that a tile can be read by LayerUpdated, which the Stager sends for these
// layers, when they are written.

// granted is a tile that has got a slot, and what Compute is told when it is on its way there.
type granted struct {
	copy fetchWeights
	sent LayerFetched
}

// awaitSlot waits until a weight slot is idle.
type awaitSlot struct{ Layer, Slot int }

// slotIdle tells that awaitSlot is done.
type slotIdle struct{ granted }

// readParams reads a tile from its disk into the param buffer of a weight slot.
type readParams struct{ Layer, Tile, Slot, Step int }

// paramsRead tells that readParams is done.
type paramsRead struct{ granted }

// fetch brings a tile into its slot and tells Compute; one that is on a disk is read first.
func (c *prefetcherCore) fetch(g granted) []effect {
	if c.onDisk == nil || !c.onDisk[g.copy.Layer] {
		return g.fetch(c.lane)
	}
	if g.sent.Cause == StallWeights { // the disk is slower than a link
		g.sent.Cause = StallDisk
	}
	return []effect{work{do: awaitSlot{Layer: g.copy.Layer, Slot: g.copy.Slot}, done: []send{{c.lane.prefetcher(), slotIdle{g}}}}}
}

// slotIdle has a tile read when those before it are. One is read at a time, by several calls: a disk reads large
// pieces fastest.
func (c *prefetcherCore) slotIdle(g granted) []effect {
	if c.toRead = append(c.toRead, g); len(c.toRead) > 1 {
		return nil
	}
	return c.readNext()
}

func (c *prefetcherCore) readNext() []effect {
	g := c.toRead[0]
	return []effect{work{do: readParams{Layer: g.copy.Layer, Tile: g.copy.Tile, Slot: g.copy.Slot, Step: g.copy.Step}, done: []send{{c.lane.prefetcher(), paramsRead{g}}}}}
}

// paramsRead fetches a tile that has been read, and has the next one read.
func (c *prefetcherCore) paramsRead(g granted) []effect {
	out := g.fetch(c.lane)
	if c.toRead = c.toRead[1:]; len(c.toRead) > 0 {
		out = append(out, c.readNext()...)
	}
	return out
}

func (g granted) fetch(lane laneID) []effect {
	return []effect{work{do: g.copy}, send{lane.compute(), g.sent}}
}

func (e awaitSlot) start(r *lane, w work) error {
	s := r.h2d.Stream // nothing is copied that a trace could show
	s.Wait(r.weights[e.Slot].idle)
	s.Notify(func(err error) {
		r.hub.notified(func() {
			if err != nil {
				r.hub.fail(r.index.prefetcher(), fmt.Errorf("prefetch %s: %w", r.names[e.Layer], err))
				return
			}
			r.hub.done(w, nil)
		})
	})
	return nil
}

func (e readParams) start(r *lane, w work) error {
	from, bytes := r.plan.ParamSpan(r.tiles[e.Tile])
	r.onDisk(r.index.prefetcher(), w, &r.disks.read, bytes, func() error {
		return r.named("read the weights of", e.Layer, r.o.Home.ReadTile(e.Layer, from, r.params[e.Slot][:bytes]))
	})
	return nil
}

// allocParams makes the param buffers, and makes copies from them fast.
func (r *lane) allocParams() error {
	bytes := r.plan.ParamBufferBytes()
	if bytes == 0 {
		return nil
	}
	for range r.plan.Depths.WeightSlots {
		b, err := r.newArena(accounts.ParamBuffers, bytes)
		if err != nil {
			return err
		}
		r.params = append(r.params, b)
		r.placement().register(b, usedAtOnce)
	}
	return nil
}

// hostBytes is where so many bytes of a layer's tile lie on the host, from byte from on, which are copied or bound for tile t
// in slot s.
func (r *lane) hostBytes(t layers.Tile, s slot, layer int, from, bytes int64) []byte {
	if r.plan.ParamBytes(layer) == 0 {
		return r.o.Home.Tile(layer)[from : from+bytes]
	}
	read, _ := r.plan.ParamSpan(t)
	return r.params[s.index][from-read:][:bytes]
}
