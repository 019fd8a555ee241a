package save

import (
	"errors"
	"fmt"
	"hash/crc32"

	"mt/checkpoint"
	"mt/host"
	"mt/internal/run/open"
	"mt/internal/run/resume"
	"mt/internal/run/team"
)

// This file fills weights from checkpoints. Where not all ranks see one, rank 0 alone reads it, and sends every
// rank the tiles and its shares of the rest, one layer at a time.

// load fills the store from the checkpoint that the run goes on from; with reset, moments begin at
// zero.
func (s *Weights) load() error {
	from := s.From
	beside, load := checkpoint.Everything, checkpoint.Load
	if from.Reset {
		beside, load = checkpoint.LowerHalves, checkpoint.LoadWeights
	}
	if from.Sent {
		return s.receive(from.Dir, beside)
	}
	_, err := load(from.Local, open.CheckpointLayers(s.Store), nil)
	return s.loading(from.Dir, err)
}

// loading is the error of loading the checkpoint dir, of which err came. Where the user named that
// checkpoint, none is taken in its place.
func (s *Weights) loading(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case checkpoint.IsDiskError(err) || s.Config.Resume == dir:
		return fmt.Errorf("resume: %w", err)
	}
	return &resume.DoesNotLoad{Dir: dir, Err: err}
}

// receive fills the store from a checkpoint that rank 0 reads for all; dir is what it is called.
// Where it does not load, all ranks have the same error.
func (s *Weights) receive(dir string, beside checkpoint.Beside) (err error) {
	var r *checkpoint.Reader
	if s.Team.First() {
		if r, err = checkpoint.OpenReader(dir, s.Plan.Layouts); err == nil {
			defer r.Close()
		}
	}
	for i := range s.Store.Layers {
		if lending := s.Store.Lend(i, true, func(l *host.LayerState) error { return s.receiveLayer(dir, r, err, i, l, beside) }); lending != nil {
			return lending
		}
	}
	return nil
}

// receiveLayer fills layer i, which rank 0 reads from r; opening is the error of opening that.
func (s *Weights) receiveLayer(dir string, r *checkpoint.Reader, opening error, i int, l *host.LayerState, beside checkpoint.Beside) error {
	var whole wholeLayer
	err := opening
	if s.Team.First() && err == nil {
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
func (s *Weights) agreeOnLayer(dir string, err error) error {
	var bad *resume.DoesNotLoad
	if err != nil && !errors.As(s.loading(dir, err), &bad) {
		return s.loading(dir, err) // the others hear of it at the end
	}
	mine := filled{}
	if bad != nil {
		mine = filled{Unloadable: bad.Dir, Why: bad.Err.Error()}
	}
	all, err := team.Tell(s.Team, "a layer of the checkpoint", mine)
	if err != nil {
		return err
	}
	if f := all[0]; f.Unloadable != "" {
		return &resume.DoesNotLoad{Dir: f.Unloadable, Err: errors.New(f.Why)}
	}
	return nil
}

// filled is what a rank has after its store was filled.
type filled struct {
	Unloadable string   `json:"unloadable,omitempty"` // the checkpoint that did not load, and Why
	Why        string   `json:"why,omitempty"`
	Tiles      []uint32 `json:"tiles,omitempty"` // by layer, the CRC32C of its tile
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AgreeOnTiles has all ranks compare the weights that they have loaded; err is that of loading.
// Where a checkpoint does not load on one rank, all take the one before.
func (s *Weights) AgreeOnTiles(err error) error {
	t := s.Team
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
		mine.Tiles = make([]uint32, len(s.Store.Layers))
		s.Pool.Run(len(mine.Tiles), func(i int) { mine.Tiles[i] = crc32.Checksum(s.Store.Layers[i].Tile, castagnoli) })
	}
	all, err := team.Tell(t, "the loaded weights", mine)
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
				// All ranks find this, and say it in one way.
				return fmt.Errorf("the weights of layer %d are not the same on %s and %s after they were loaded: %s", i, t.Named(0), t.Named(r), team.AlikeFiles)
			}
		}
	}
	return nil
}

// LoadBest fills the store with the weights of the checkpoint dir, which rank 0 sends where not all
// ranks see it.
func (s *Weights) LoadBest(dir string) (err error) {
	at := resume.Point{Dir: dir, Local: dir}
	if s.Team.First() {
		err = checkpoint.Verify(dir)
	}
	if err == nil && s.Team.Size() > 1 {
		err = at.Sight(s.Inputs)
	}
	if err == nil && !s.Team.First() && !at.Sent {
		err = checkpoint.Verify(at.Local)
	}
	var bad *resume.DoesNotLoad
	switch {
	case err != nil:
	case at.Sent:
		beside := checkpoint.LowerHalves
		if s.Config.SaveOnlyModel {
			beside = checkpoint.Nothing
		}
		if err = s.receive(dir, beside); errors.As(err, &bad) {
			err = bad.Err // no other checkpoint can take its place
		}
	case s.Config.SaveOnlyModel:
		_, err = checkpoint.LoadModel(at.Local, open.CheckpointLayers(s.Store), s.Model.VocabSize, nil)
	default:
		_, err = checkpoint.LoadWeights(at.Local, open.CheckpointLayers(s.Store), nil)
	}
	return err
}
