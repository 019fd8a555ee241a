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
	content *Content // of rank 0, which alone writes
	staging *staging
	closers open.Closers
}

// Open takes the memory for the weights and what is kept beside them.
func (w *Weights) Open(pool *parallel.Pool) (err error) {
	w.Pool = pool
	tier, links, err := w.OpenTier(w.Plan, true, w.closers.AddErr)
	if err != nil {
		return err
	}
	if w.Team.First() {
		if w.content, err = w.contentWith(links); err != nil {
			return err
		}
	}
	if tier.Away != nil && w.Team.First() {
		note, err := space{w.content}.check() // once more: states may be on the disk of output_dir
		if err != nil {
			return err
		}
		if note != "" {
			w.Late.Add(note)
		}
	}
	var shares []optim.Share
	if w.Team.Size() > 1 {
		shares = w.Plan.OwnShares()
	}
	if w.Store, err = host.NewTieredStore(w.Plan.Layouts, w.Plan.Planes, shares, tier, w.Pool); err != nil {
		return err
	}
	w.closers.Add(func() { _ = w.Store.Close() })
	for _, note := range open.NodeNotes(host.Nodes()) {
		w.Late.Add(note)
	}
	w.Store.Draw(uint64(w.Config.Seed))
	w.Store.Average(settings.Average(w.Config))
	if w.staging, err = openStaging(w.Team, w.Plan, w.Pool); err != nil {
		return err
	}
	w.closers.Add(func() { _ = w.staging.Close() })
	return nil
}

// Beside are the files that are saved beside weights, on rank 0.
func (w *Weights) Beside() map[string][]byte { return w.content.beside }

// LinksStates says whether checkpoints link states that are on disks.
func (w *Weights) LinksStates() bool { return w.content != nil && w.content.links != nil }

// Fill fills the store with the weights that the run begins with.
func (w *Weights) Fill(say *report.Line) error {
	from := w.From
	switch {
	case from.Dir != "":
		if err := w.load(); err != nil {
			return err
		}
		if from.Reset {
			for i := range w.Store.Layers {
				if err := w.Store.Lend(i, true, func(l *host.LayerState) error {
					for _, p := range l.Planes {
						clear(p.Data)
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		say.Above(fmt.Sprintf("resuming from %s, step %d of %d", from.Dir, from.State.Step, w.Config.MaxSteps))
	case w.ModelDir != "":
		if err := w.LoadModel(w.Store, w.Team.Size() > 1, w.Pool, say); err != nil {
			return err
		}
	default:
		return open.Initialise(w.Store, w.Model, w.Config.Seed, w.Pool)
	}
	return nil
}

// Close gives the memory back.
func (w *Weights) Close() error { return w.closers.Close() }
