package save

import (
	"errors"
	"fmt"
	"hash/crc32"

	"mt/checkpoint"
	"mt/host"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/internal/run/resume"
)

// This file fills weights from checkpoints. If some ranks do not see the checkpoint, only rank 0 reads it and sends
// every rank the tiles and its shares, one layer at a time.

// load fills the store from the checkpoint that the run resumes. If From.Reset is set, it takes only the weights, and
// moments start at zero.
func (w *Weights) load() error {
	from := w.From
	beside, load := checkpoint.Everything, checkpoint.Load
	if from.Reset {
		beside, load = checkpoint.LowerHalves, checkpoint.LoadWeights
	}
	if from.Sent {
		return w.receive(from.Dir, beside)
	}
	_, err := load(from.Local, open.CheckpointLayers(w.Store), nil)
	return w.loading(from.Dir, err)
}

// loading turns err, an error of loading the checkpoint dir, into a resume.DoesNotLoad, after which the run tries an
// older checkpoint. After a disk error, or if the user has named dir, it returns another error, and the run ends.
func (w *Weights) loading(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case checkpoint.IsDiskError(err) || w.Config.Resume == dir:
		return fmt.Errorf("resume: %w", err)
	}
	return &resume.DoesNotLoad{Dir: dir, Err: err}
}

// receive fills the store from a checkpoint that rank 0 reads for all ranks. dir names the checkpoint in errors.
// `beside` selects the data to read besides the weights. If the checkpoint does not load, all ranks return the same
// error.
func (w *Weights) receive(dir string, beside checkpoint.Beside) (err error) {
	var r *checkpoint.Reader
	if w.Ranks.First() {
		if r, err = checkpoint.OpenReader(dir, w.Plan.Layouts); err == nil {
			defer r.Close()
		}
	}
	for i := range w.Store.Layers {
		if lending := w.Store.WithLayer(i, true, func(l *host.LayerState) error { return w.receiveLayer(dir, r, err, i, l, beside) }); lending != nil {
			return lending
		}
	}
	return nil
}

// receiveLayer fills l, layer number i, which rank 0 reads from r and sends to all. opening is rank 0's error of
// opening the checkpoint; nil if it could. `beside` says what is read besides weights.
func (w *Weights) receiveLayer(dir string, r *checkpoint.Reader, opening error, i int, l *host.LayerState, beside checkpoint.Beside) error {
	var whole wholeLayer
	err := opening
	if w.Ranks.First() && err == nil {
		whole = w.staging.whole(l)
		err = r.Layer(i, whole.Layer, beside)
	}
	if err = w.agreeOnLayer(dir, err); err != nil {
		return err
	}
	if err := w.staging.spread(i, l, whole, beside); err != nil {
		return fmt.Errorf("send layer %d: %w", i, err)
	}
	return nil
}

// agreeOnLayer tells all ranks whether rank 0 could read a layer of the checkpoint dir. err is rank 0's error. All
// ranks return the same result.
func (w *Weights) agreeOnLayer(dir string, err error) error {
	var bad *resume.DoesNotLoad
	if err != nil && !errors.As(w.loading(dir, err), &bad) {
		return w.loading(dir, err) // the other ranks learn of it at the end
	}
	mine := filled{}
	if bad != nil {
		mine = filled{Unloadable: bad.Dir, Why: bad.Err.Error()}
	}
	all, err := ranks.Tell(w.Ranks, "a layer of the checkpoint", mine)
	if err != nil {
		return err
	}
	if f := all[0]; f.Unloadable != "" {
		return &resume.DoesNotLoad{Dir: f.Unloadable, Err: errors.New(f.Why)}
	}
	return nil
}

// filled is a rank's message after filling its store.
type filled struct {
	Unloadable string   `json:"unloadable,omitempty"` // a checkpoint that did not load
	Why        string   `json:"why,omitempty"`
	Tiles      []uint32 `json:"tiles,omitempty"` // CRC32C of the tile, by layer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AgreeOnTiles compares the loaded weights of all ranks by checksum; err is this rank's error of loading. If a
// checkpoint does not load on one rank, all ranks resume from the checkpoint before it.
func (w *Weights) AgreeOnTiles(err error) error {
	t := w.Ranks
	if t.Size() == 1 {
		return err
	}
	var mine filled
	var bad *resume.DoesNotLoad
	switch {
	case errors.As(err, &bad):
		mine.Unloadable, mine.Why = bad.Dir, bad.Err.Error()
	case err != nil:
		return err
	default:
		mine.Tiles = make([]uint32, len(w.Store.Layers))
		w.Pool.Run(len(mine.Tiles), func(i int) { mine.Tiles[i] = crc32.Checksum(w.Store.Layers[i].Tile, castagnoli) })
	}
	all, err := ranks.Tell(t, "the loaded weights", mine)
	if err != nil {
		return err
	}
	for r, f := range all {
		if f.Unloadable != "" {
			return &resume.DoesNotLoad{Dir: f.Unloadable, Err: fmt.Errorf("%s: %s", t.Named(r), f.Why)}
		}
	}
	for r, f := range all {
		for i := range f.Tiles {
			if f.Tiles[i] != all[0].Tiles[i] {
				// All ranks find this and report it identically.
				return fmt.Errorf("the weights of layer %d are not the same on %s and %s after they were loaded: %s", i, t.Named(0), t.Named(r), ranks.AlikeFiles)
			}
		}
	}
	return nil
}

// LoadBest fills the store with the weights of the checkpoint dir. If some ranks do not see it, rank 0 sends the
// weights.
func (w *Weights) LoadBest(dir string) (err error) {
	at := resume.Point{Dir: dir, Local: dir}
	if w.Ranks.First() {
		err = checkpoint.Verify(dir)
	}
	if err == nil && w.Ranks.Size() > 1 {
		err = at.Sight(w.Inputs)
	}
	if err == nil && !w.Ranks.First() && !at.Sent {
		err = checkpoint.Verify(at.Local)
	}
	var bad *resume.DoesNotLoad
	switch {
	case err != nil:
	case at.Sent:
		beside := checkpoint.LowerHalves
		if w.Config.SaveOnlyModel {
			beside = checkpoint.Nothing
		}
		if err = w.receive(dir, beside); errors.As(err, &bad) {
			err = bad.Err // LoadBest has no other checkpoint to try
		}
	case w.Config.SaveOnlyModel:
		_, err = checkpoint.LoadModel(at.Local, open.CheckpointLayers(w.Store), w.Model.VocabSize, nil)
	default:
		_, err = checkpoint.LoadWeights(at.Local, open.CheckpointLayers(w.Store), nil)
	}
	return err
}
