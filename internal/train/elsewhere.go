package train

import (
	"errors"
	"fmt"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/ranks"
)

// This file is how ranks go on from a checkpoint that not all of them see. Rank 0 finds it and tells
// the others what it is. Where all see it, each reads it; else rank 0 alone does, and sends every
// rank the tiles and its shares of the rest, one layer at a time.

// receive fills the store from a checkpoint that rank 0 reads for all; dir is what it is called.
// Where it does not load, all ranks have the same error.
func (s *session) receive(dir string, beside checkpoint.Beside) (err error) {
	var r *checkpoint.Reader
	if s.team.first() {
		if r, err = checkpoint.OpenReader(dir, s.plan.Layouts); err == nil {
			defer r.Close()
		}
	}
	for i := range s.store.Layers {
		if lending := s.store.Lend(i, true, func(l *host.LayerState) error { return s.receiveLayer(dir, r, err, i, l, beside) }); lending != nil {
			return lending
		}
	}
	return nil
}

// receiveLayer fills layer i, which rank 0 reads from r; opening is the error of opening that.
func (s *session) receiveLayer(dir string, r *checkpoint.Reader, opening error, i int, l *host.LayerState, beside checkpoint.Beside) error {
	var whole wholeLayer
	err := opening
	if s.team.first() && err == nil {
		whole = s.staging.whole(l)
		err = r.Layer(i, whole.Layer, beside)
	}
	if err = s.agreeOnLayer(dir, err); err != nil {
		return err
	}
	if err := s.staging.spread(i, l, whole, beside); err != nil {
		return fmt.Errorf("send layer %d: %w", i, err)
	}
	return nil
}

// agreeOnLayer tells all ranks whether rank 0 has read a layer of dir; err is what came of it.
func (s *session) agreeOnLayer(dir string, err error) error {
	var bad *doesNotLoad
	if err != nil && !errors.As(s.loading(dir, err), &bad) {
		return s.loading(dir, err) // the others hear of it at the end
	}
	mine := filled{}
	if bad != nil {
		mine = filled{Unloadable: bad.dir, Why: bad.err.Error()}
	}
	all, err := tell(s.team, "a layer of the checkpoint", mine)
	if err != nil {
		return err
	}
	if f := all[0]; f.Unloadable != "" {
		return &doesNotLoad{f.Unloadable, errors.New(f.Why)}
	}
	return nil
}

// wholeLayer is a layer of which rank 0 has all.
type wholeLayer struct {
	checkpoint.Layer
	lo []byte // Lo, in bytes
}

// whole is memory for a layer of which rank 0 has all: the tile is that of its store. It is good
// until the next call.
func (g *staging) whole(l *host.LayerState) (out wholeLayer) {
	out.Layout, out.Tile = l.Layout, l.Tile
	free := g.arena.Bytes()
	take := func(bytes int64) []byte {
		b := free[:bytes:bytes]
		free = free[optim.Pages(bytes):]
		return b
	}
	if l.Layout.Split() {
		out.lo = take(2 * l.Layout.Elems)
		out.Lo = optim.View[uint16](out.lo)
	}
	for _, p := range l.Planes {
		out.Planes = append(out.Planes, optim.State{Placed: p.Placed, Data: take(p.Bytes())})
	}
	return out
}

// spread is the opposite of bring: rank 0, which alone has whole, sends every rank layer i's tile
// and its share of what was read beside it. All call it for the same layers in the same order.
func (g *staging) spread(i int, l *host.LayerState, whole wholeLayer, beside checkpoint.Beside) error {
	tile := make([]int, g.team.Size())
	tile[0] = int(l.Layout.TileBytes)
	if err := ranks.Wait(func(done func(error)) { g.comm.AllGatherV(l.Tile[:l.Layout.TileBytes], tile, done) }); err != nil {
		return fmt.Errorf("tile: %w", err)
	}
	if l.Layout.Split() {
		if err := g.deal(whole.lo, l.LoBytes(), func(r int) int64 { return 2 * g.shares[i][r].Elems() }); err != nil {
			return fmt.Errorf("lower halves: %w", err)
		}
	}
	for k, p := range l.Planes {
		if beside != checkpoint.Everything {
			break
		}
		var all []byte
		if g.team.first() {
			all = whole.Planes[k].Data
		}
		if err := g.deal(all, p.Data, func(r int) int64 { return p.ShareBytes(l.Layout, g.shares[i][r]) }); err != nil {
			return fmt.Errorf("%s %s: %w", p.Kind, p.Name, err)
		}
	}
	return nil
}

// deal sends each rank its part of a plane that rank 0 has whole; bytes says how large each is.
func (g *staging) deal(whole, own []byte, bytes func(rank int) int64) error {
	n := g.team.Size()
	sends, receives := make([]int, n), make([]int, n)
	receives[0] = len(own)
	if g.team.first() {
		for r := range n {
			sends[r] = int(bytes(r))
		}
	}
	return ranks.Wait(func(done func(error)) { g.comm.AllToAllV(whole, sends, own, receives, done) })
}
