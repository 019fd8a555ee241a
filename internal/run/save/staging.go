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

// staging collects the ranks' shares of a layer's lower halves and optimizer planes on rank 0, so that a single
// process writes the files. It handles one layer at a time. Shares are contiguous and in rank order, so one behind the
// other they are the whole planes.
type staging struct {
	ranks  *ranks.Group
	comm   cluster.Comm
	shares [][]optim.Share // by layer and rank
	arena  *host.Arena     // on rank 0: lower halves and planes of the largest layer
}

// openStaging allocates memory for one layer on rank 0. It returns nil for a single rank.
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

// Close frees the memory.
func (g *staging) Close() error {
	if g == nil || g.arena == nil {
		return nil
	}
	return g.arena.Close()
}

// parts says which data of a layer a caller of bring needs besides the layer's tile.
type parts int

const (
	lowerHalves parts = iota // of the weights
	everything               // lower halves and the optimizer's planes
	averages                 // the weights' moving average, in place of the weights
)

// bring returns layer number i for a checkpoint, with the data that what selects complete. A single rank returns its
// own memory. With several ranks all of them call bring for the same layers in the same order. Rank 0 gets the layer,
// which is valid until the next call.
func (g *staging) bring(i int, l *host.LayerState, what parts) (checkpoint.Layer, error) {
	whole := open.CheckpointLayer(l)
	if g == nil {
		return whole, nil
	}
	var free []byte // the part of the arena that is still free
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

// move sends own, this rank's share of a plane, to rank 0. Rank 0 puts the shares one behind the other at the start of
// free, shortens free by them, and returns the plane. bytes returns the size of each rank's share.
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

// needsLower reports whether the model's file needs the lower halves of layer l: weights are split and not saved as
// bf16.
func (out *Output) needsLower(l model.Layout) bool {
	return checkpoint.DType(out.Config.SaveDType) != checkpoint.BF16 && l.Split()
}

// needs reports whether writing the model needs more of the layer l than its tile: lower halves or a moving average,
// as what says.
func (out *Output) needs(l *host.LayerState, what parts) bool {
	if what == averages {
		return optim.MeanOf(l.Planes) != nil
	}
	return out.needsLower(l.Layout)
}

// wholeLayer is a complete layer on rank 0.
type wholeLayer struct {
	checkpoint.Layer
	lo []byte // Lo as bytes
}

// whole returns memory for a complete layer on rank 0. The tile is the store's own. The memory is valid until the
// next call.
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

// spread is the reverse of bring. Rank 0 has layer number i in whole and sends every rank the tile, and each rank its
// shares of the data that beside names. All ranks call spread for the same layers in the same order.
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

// deal sends each rank its share of the plane whole, which rank 0 has, into the rank's memory own. bytes returns the
// size of each rank's share.
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
