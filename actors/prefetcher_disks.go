package actors

import (
	"fmt"

	"mt/base/accounts"
	"mt/layers"
	"mt/layers/schedule"
)

// This file is what the Prefetcher does where the tiles of some layers are on disks. Each weight slot then has a param
// buffer on the host, as large as the largest of them (a layer, or an expert). A tile that is granted a slot is read into the slot's buffer when
// the slot is idle, and copied from there; a unified device computes on it there. So weight slots bound how
// far reading is ahead. It is known that a tile can be read by LayerUpdated, which the Stager sends for these
// layers, when they are written.

// diskHook has such tiles read. One is read at a time, by several calls: a disk reads large pieces fastest.
type diskHook struct {
	c      *prefetcherCore
	toRead []grantedTile // tiles whose slots are idle, in the order of reading; the first is being read
}

// awaitSlot waits until a weight slot is idle.
type awaitSlot struct{ Layer, Slot int }

// slotIdle tells that awaitSlot is done.
type slotIdle struct{ grantedTile }

// readParams reads a tile from its disk into the param buffer of a weight slot.
type readParams struct{ Layer, Tile, Slot, Step int }

// paramsRead tells that readParams is done.
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

// begin has a tile that is on a disk read first.
func (x *diskHook) begin(g *grantedTile) ([]effect, bool) {
	if !x.c.weightsOnDisk[g.copy.Layer] {
		return nil, false
	}
	if g.sent.Cause == StallWeights { // the disk is slower than a link
		g.sent.Cause = StallDisk
	}
	return []effect{work{do: awaitSlot{Layer: g.copy.Layer, Slot: g.copy.Slot}, done: []send{{x.c.lane.prefetcher(), slotIdle{*g}}}}}, true
}

func (x *diskHook) readNext() []effect {
	g := x.toRead[0]
	return []effect{work{do: readParams{Layer: g.copy.Layer, Tile: g.copy.Tile, Slot: g.copy.Slot, Step: g.copy.Step}, done: []send{{x.c.lane.prefetcher(), paramsRead{g}}}}}
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
		r.register(b, usedAtOnce)
	}
	return nil
}

// inParamBuffer is where so many bytes of a layer lie in the param buffer of slot s, from byte from of its tile on, when tile t
// has been read.
func (r *lane) inParamBuffer(t layers.Tile, s slot, _ int, from, bytes int64) []byte {
	read, _ := r.plan.ParamSpan(t)
	return r.params[s.index][from-read:][:bytes]
}
