package save

import (
	"fmt"

	"mt/base/accounts"
	"mt/base/cluster"
	"mt/base/parallel"
	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/model"
	"mt/plan"
)

// staging brings what ranks keep of a layer beside its tile, the lower halves and the optimizer's
// planes, to rank 0, one layer at a time: so one process writes files, as on one host. Shares are
// contiguous and in rank order, so together they are the planes of the whole layer.
type staging struct {
	ranks  *ranks.Group
	comm   cluster.Comm
	shares [][]optim.Share // by layer and rank
	arena  *host.Arena     // of rank 0: the lower halves and planes of the largest layer
}

// openStaging takes the memory for a layer on rank 0; nil: there is one rank, and nothing to bring.
func openStaging(t *ranks.Group, r *plan.Run, pool *parallel.Pool) (*staging, error) {
	if t.Size() == 1 {
		return nil, nil
	}
	g := &staging{ranks: t, shares: r.Shares}
	var err error
	if g.comm, err = t.NewComm(ranks.CheckpointComm); err == nil && t.First() {
		g.arena, err = host.NewArena(accounts.Collected, r.CollectBytes(), pool)
	}
	return g, err
}

// Close gives the memory back.
func (g *staging) Close() error {
	if g == nil || g.arena == nil {
		return nil
	}
	return g.arena.Close()
}

// parts is what a layer has beside its tile.
type parts int

const (
	lowerHalves parts = iota // of the weights
	everything               // those, and the optimizer's planes
	averages                 // the average of the weights, in their place
)

// bring is layer i for a checkpoint, with the parts beside its tile whole. Alone they are where
// they are. Of several ranks all call it for the same layers in the same order, and rank 0 gets the
// layer, which is good until the next call.
func (g *staging) bring(i int, l *host.LayerState, what parts) (checkpoint.Layer, error) {
	whole := open.CheckpointLayer(l)
	if g == nil {
		return whole, nil
	}
	var free []byte // of the arena
	if g.arena != nil {
		free = g.arena.Bytes()
	}
	if l.Layout.Split() && what != averages {
		lo, err := g.move(l.LoBytes(), &free, func(r int) int64 { return 2 * g.shares[i][r].Elems() })
		if err != nil {
			return whole, fmt.Errorf("lower halves: %w", err)
		}
		whole.Lo = optim.View[uint16](lo)
	}
	whole.Planes, whole.Share = nil, nil
	for _, p := range l.Planes {
		if what != everything && (what != averages || p.Name != optim.MeanOf(l.Planes).Name) {
			continue
		}
		data, err := g.move(p.Data, &free, func(r int) int64 { return p.ShareBytes(l.Layout, g.shares[i][r]) })
		if err != nil {
			return whole, fmt.Errorf("%s %s: %w", p.Kind, p.Name, err)
		}
		whole.Planes = append(whole.Planes, optim.State{Placed: p.Placed, Data: data})
	}
	return whole, nil
}

// move sends this rank's part of a plane to rank 0, where it is put together at the start of what is
// free; bytes says how large each rank's part is.
func (g *staging) move(own []byte, free *[]byte, bytes func(rank int) int64) ([]byte, error) {
	n := g.ranks.Size()
	sends, receives := make([]int, n), make([]int, n)
	sends[0] = len(own)
	var whole []byte
	if g.ranks.First() {
		all := int64(0)
		for r := range n {
			receives[r] = int(bytes(r))
			all += bytes(r)
		}
		whole = (*free)[:all:all]
		*free = (*free)[optim.Pages(all):]
	}
	err := cluster.Wait(func(done func(error)) { g.comm.AllToAllV(own, sends, whole, receives, done) })
	return whole, err
}

// needsLower says whether a layer's lower halves are needed to write the model.
func (out *Output) needsLower(l model.Layout) bool {
	return checkpoint.DType(out.Config.SaveDType) != checkpoint.BF16 && l.Split()
}

// needs says whether more of a layer than its tile is needed to write the model as what says.
func (out *Output) needs(l *host.LayerState, what parts) bool {
	if what == averages {
		return optim.MeanOf(l.Planes) != nil
	}
	return out.needsLower(l.Layout)
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
	tile := make([]int, g.ranks.Size())
	tile[0] = int(l.Layout.TileBytes)
	if err := cluster.Wait(func(done func(error)) { g.comm.AllGatherV(l.Tile[:l.Layout.TileBytes], tile, done) }); err != nil {
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
		if g.ranks.First() {
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
	n := g.ranks.Size()
	sends, receives := make([]int, n), make([]int, n)
	receives[0] = len(own)
	if g.ranks.First() {
		for r := range n {
			sends[r] = int(bytes(r))
		}
	}
	return cluster.Wait(func(done func(error)) { g.comm.AllToAllV(whole, sends, own, receives, done) })
}
