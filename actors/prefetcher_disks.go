package actors

import (
	"fmt"

	"mt/base/accounts"
	"mt/layers"
	"mt/layers/schedule"
)

// This file adds weights on disks to the Prefetcher. Each weight slot has a param buffer on the host, as large as the
// largest tile on disk (a layer, or an expert). When the device has finished with a weight slot, the next tile is read
// into the slot's param buffer and copied from there. A unified device computes in the param buffer. So the number of
// weight slots bounds the read-ahead. For these layers the Stager sends LayerUpdated after it has written the weights,
// so the tile can then be read.

// diskHook reads tiles from disks, one tile at a time, because a disk is fastest with few large reads. Each tile takes
// several works in turn: waiting for the slot, reading, and copying.
type diskHook struct {
	c      *prefetcherCore
	toRead []grantedTile // tiles with idle slots, in the order of reading; the first one is being read
}

// awaitSlot is the task of waiting until the device has finished with a weight slot.
type awaitSlot struct{ Layer, Slot int }

// slotIdle tells the Prefetcher that the device has finished with a weight slot.
type slotIdle struct{ grantedTile }

// readParams is the task of reading a tile from its disk into the param buffer of a weight slot.
type readParams struct{ Layer, Tile, Slot, Step int }

// paramsRead tells the Prefetcher that a tile is read from its disk into a param buffer.
type paramsRead struct{ grantedTile }

func (x *diskHook) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case slotIdle:
		if x.toRead = append(x.toRead, m.grantedTile); len(x.toRead) > 1 {
			return nil, true
		}
		return x.readNext(), true
	case paramsRead:
		out := m.fetch(x.c.lane)
		if x.toRead = x.toRead[1:]; len(x.toRead) > 0 {
			out = append(out, x.readNext()...)
		}
		return out, true
	}
	return nil, false
}

func (x *diskHook) ready(*prefetchState, schedule.Visit) (Cause, bool) { return NoStall, true }

func (x *diskHook) idle(*prefetchState, schedule.Visit) bool { return false }

// begin takes over the fetch of a tile whose weights are on a disk. It starts the wait until the
// weight slot is idle; the tile is read after that.
func (x *diskHook) begin(g *grantedTile) ([]effect, bool) {
	if !x.c.weightsOnDisk[g.copy.Layer] {
		return nil, false
	}
	if g.sent.Cause == StallWeights { // a disk is slower than a link
		g.sent.Cause = StallDisk
	}
	return []effect{work{do: awaitSlot{Layer: g.copy.Layer, Slot: g.copy.Slot}, done: []send{{x.c.lane.prefetcher(), slotIdle{*g}}}}}, true
}

func (x *diskHook) readNext() []effect {
	g := x.toRead[0]
	return []effect{work{do: readParams{Layer: g.copy.Layer, Tile: g.copy.Tile, Slot: g.copy.Slot, Step: g.copy.Step}, done: []send{{x.c.lane.prefetcher(), paramsRead{g}}}}}
}

func (e awaitSlot) start(r *lane, w work) error {
	s := r.h2d.Stream // the plain stream: a trace has no copy to show
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

// allocParams allocates the param buffers and registers them for fast copies.
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
		r.register(b, usedAtOnce)
	}
	return nil
}

// inParamBuffer is the tileView of layers whose weights are on a disk. It returns the bytes [from,
// from+bytes) of a layer's tile, after tile t was read into the param buffer of weight slot s.
func (r *lane) inParamBuffer(t layers.Tile, s slot, _ int, from, bytes int64) []byte {
	read, _ := r.plan.ParamSpan(t)
	return r.params[s.index][from-read:][:bytes]
}
