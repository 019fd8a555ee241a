package train

import (
	"fmt"

	"mt/host"
	"mt/host/optim"
	"mt/internal/parallel"
)

// Weights are the weights of a run in memory, with what is kept beside them, and their ways from and into files.
type Weights struct {
	*Output
	pool    *parallel.Pool
	store   *host.Store
	staging *staging
	closers closers
}

// openStore takes the memory for the weights and what is kept beside them.
func (s *Weights) openStore(pool *parallel.Pool) (err error) {
	s.pool = pool
	tier, err := s.openTier(s.plan, true, s.closers.addErr)
	if err != nil {
		return err
	}
	if tier.Away != nil && s.team.first() {
		note, err := s.checkDisk() // once more: states may be on the disk of output_dir
		if err != nil {
			return err
		}
		if note != "" {
			s.late.add(note)
		}
	}
	var shares []optim.Share
	if s.team.Size() > 1 {
		shares = s.plan.OwnShares()
	}
	if s.store, err = host.NewTieredStore(s.plan.Layouts, s.plan.Planes, shares, tier, s.pool); err != nil {
		return err
	}
	s.closers.add(func() { _ = s.store.Close() })
	for _, note := range nodeNotes(host.Nodes()) {
		s.late.add(note)
	}
	s.store.Draw(uint64(s.c.Seed))
	s.store.Average(average(s.c))
	if s.staging, err = openStaging(s.team, s.plan, s.pool); err != nil {
		return err
	}
	s.closers.add(func() { _ = s.staging.Close() })
	return nil
}

// fill fills the store with the weights that the run begins with.
func (s *Weights) fill(say *line) error {
	from := s.from
	switch {
	case from.dir != "":
		if err := s.load(); err != nil {
			return err
		}
		if from.reset {
			for i := range s.store.Layers {
				if err := s.store.Lend(i, true, func(l *host.LayerState) error {
					for _, p := range l.Planes {
						clear(p.Data)
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		say.above(fmt.Sprintf("resuming from %s, step %d of %d", from.dir, from.state.Step, s.c.MaxSteps))
	case s.modelDir != "":
		if err := s.loadModel(s.store, s.team.Size() > 1, s.pool, say); err != nil {
			return err
		}
	default:
		return initialise(s.store, s.model, s.c.Seed, s.pool)
	}
	return nil
}

// Close gives the memory back.
func (s *Weights) Close() error { return s.closers.close() }
