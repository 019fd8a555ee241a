package train

import (
	"fmt"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/accounts"
	"mt/internal/ranks"
	"mt/model"
)

// staging brings what ranks keep of a layer beside its tile, the lower halves and the optimizer's
// planes, to rank 0, one layer at a time: so one process writes files, as on one host. Shares are
// contiguous and in rank order, so together they are the planes of the whole layer.
type staging struct {
	team   *team
	comm   ranks.Comm
	shares [][]optim.Share // by layer and rank
	arena  *host.Arena     // of rank 0: the lower halves and planes of the largest layer
}

// openStaging takes the memory for a layer on rank 0; alone there is nothing to bring.
func (s *session) openStaging() error {
	if s.team == nil {
		return nil
	}
	c, err := s.team.NewComm(checkpointComm)
	if err != nil {
		return err
	}
	g := &staging{team: s.team, comm: c, shares: s.plan.Shares}
	if s.team.first() {
		if g.arena, err = host.NewArena(accounts.Collected, s.plan.CollectBytes(), s.pool); err != nil {
			return err
		}
		s.closers = append(s.closers, func() { _ = g.arena.Close() })
	}
	s.staging, s.saver.staging = g, g
	return nil
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
	whole := checkpointLayer(l)
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
	n := g.team.Size()
	sends, receives := make([]int, n), make([]int, n)
	sends[0] = len(own)
	var whole []byte
	if g.team.first() {
		all := int64(0)
		for r := range n {
			receives[r] = int(bytes(r))
			all += bytes(r)
		}
		whole = (*free)[:all:all]
		*free = (*free)[optim.Pages(all):]
	}
	err := ranks.Wait(func(done func(error)) { g.comm.AllToAllV(own, sends, whole, receives, done) })
	return whole, err
}

// needsLower says whether a layer's lower halves are needed to write the model.
func (j *job) needsLower(l model.Layout) bool {
	return checkpoint.DType(j.c.SaveDType) == checkpoint.F32 && l.Split()
}

// needs says whether more of a layer than its tile is needed to write the model as what says.
func (j *job) needs(l *host.LayerState, what parts) bool {
	if what == averages {
		return optim.MeanOf(l.Planes) != nil
	}
	return j.needsLower(l.Layout)
}

// serveModel does the part of a rank that does not write the model: it sends rank 0 the parts of layers
// that it asks for.
func (s *session) serveModel(what parts) error {
	for {
		asked, err := tell(s.team, modelAsked, 0)
		if err != nil || asked[0] < 0 {
			return err
		}
		if err := s.store.Lend(asked[0], false, func(l *host.LayerState) error {
			_, err := s.staging.bring(asked[0], l, what)
			return err
		}); err != nil {
			return err
		}
	}
}

// modelAsked is where ranks meet while the model is written: rank 0 tells which layer it needs, and
// −1 when it is done.
const modelAsked = "the model"

// writeModel writes the model into dir, of the weights or of their averages, as what says. With several ranks it is for rank 0,
// while the others serve.
func (s *session) writeModel(dir string, what parts, extra map[string][]byte) error {
	opts := s.writerOptions(s.lastStep)
	home := s.store
	lent := -1 // a layer whose state is in a state slot until the next one is wanted
	giveBack := func() {
		if lent >= 0 {
			home.Drop(lent)
			lent = -1
		}
	}
	defer giveBack()
	opts.Whole = func(i int) (checkpoint.Layer, error) {
		giveBack()
		l := home.Layers[i]
		if !s.needs(l, what) && !home.TileAway(i) {
			return checkpointLayer(l), nil
		}
		if home.Away(i) {
			if err := home.Fetch(i, 0); err != nil {
				return checkpoint.Layer{}, err
			}
			lent = i
		}
		if s.team != nil {
			if _, err := tell(s.team, modelAsked, i); err != nil {
				return checkpoint.Layer{}, err
			}
		}
		whole, err := s.staging.bring(i, l, what)
		if what == averages {
			whole.Mean = optim.MeanOf(whole.Planes)
		}
		return whole, err
	}
	if err := checkpoint.WriteModel(dir, checkpointLayers(s.store), opts, extra); err != nil {
		return fmt.Errorf("write the model: %w", err)
	}
	if s.team != nil {
		_, err := tell(s.team, modelAsked, -1)
		return err
	}
	return nil
}
