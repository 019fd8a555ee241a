package save

import (
	"fmt"

	"mt/host"
	"mt/host/optim"
	"mt/internal/parallel"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// Weights are the weights of a run in memory, with what is kept beside them, and their ways from and into files.
type Weights struct {
	*Output
	Pool    *parallel.Pool
	Store   *host.Store
	staging *staging
	closers open.Closers
}

// Open takes the memory for the weights and what is kept beside them.
func (s *Weights) Open(pool *parallel.Pool) (err error) {
	s.Pool = pool
	tier, err := s.OpenTier(s.Plan, true, s.closers.AddErr)
	if err != nil {
		return err
	}
	if tier.Away != nil && s.Team.First() {
		note, err := s.CheckDisk() // once more: states may be on the disk of output_dir
		if err != nil {
			return err
		}
		if note != "" {
			s.Late.Add(note)
		}
	}
	var shares []optim.Share
	if s.Team.Size() > 1 {
		shares = s.Plan.OwnShares()
	}
	if s.Store, err = host.NewTieredStore(s.Plan.Layouts, s.Plan.Planes, shares, tier, s.Pool); err != nil {
		return err
	}
	s.closers.Add(func() { _ = s.Store.Close() })
	for _, note := range open.NodeNotes(host.Nodes()) {
		s.Late.Add(note)
	}
	s.Store.Draw(uint64(s.Config.Seed))
	s.Store.Average(settings.Average(s.Config))
	if s.staging, err = openStaging(s.Team, s.Plan, s.Pool); err != nil {
		return err
	}
	s.closers.Add(func() { _ = s.staging.Close() })
	return nil
}

// Fill fills the store with the weights that the run begins with.
func (s *Weights) Fill(say *report.Line) error {
	from := s.From
	switch {
	case from.Dir != "":
		if err := s.load(); err != nil {
			return err
		}
		if from.Reset {
			for i := range s.Store.Layers {
				if err := s.Store.Lend(i, true, func(l *host.LayerState) error {
					for _, p := range l.Planes {
						clear(p.Data)
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		say.Above(fmt.Sprintf("resuming from %s, step %d of %d", from.Dir, from.State.Step, s.Config.MaxSteps))
	case s.ModelDir != "":
		if err := s.LoadModel(s.Store, s.Team.Size() > 1, s.Pool, say); err != nil {
			return err
		}
	default:
		return open.Initialise(s.Store, s.Model, s.Config.Seed, s.Pool)
	}
	return nil
}

// Close gives the memory back.
func (s *Weights) Close() error { return s.closers.Close() }
