package train

import (
	"errors"
	"fmt"
	"path/filepath"

	"mt/checkpoint"
	"mt/host"
	"mt/host/extents"
	"mt/plan"
)

// This file opens the files of state_dir and param_dir.

// The names of the files in each directory of state_dir, the first two, and of param_dir, for each rank its own.
const (
	stateFile = "mt-state-%d.bin"
	gradFile  = "mt-grads-%d.bin"
	paramFile = "mt-params-%d.bin"
)

// openTier makes the files for what r has on disks; with saves in such a way that checkpoints can link states, where that can be. closing is told how
// to remove them.
func (j *Output) openTier(r *plan.Run, saves bool, closing func(end func() error)) (host.Tier, error) {
	if saves { // else it is a trial, which has nothing of the run's
		if err := j.sweepUnused(r); err != nil {
			return host.Tier{}, err
		}
	}
	if r.Away == nil {
		return host.Tier{}, nil
	}
	tier := host.Tier{Away: r.Away, Slots: r.Depths.StateSlots, Tiles: r.ParamAway}
	saves = saves && j.c.SaveStrategy != "no" && !j.c.SaveOnlyModel
	var err error
	if tier.Extents, err = j.openStates(r, saves, closing); err == nil && r.GradAway != nil {
		for l := range r.Layouts {
			tier.Grads = append(tier.Grads, r.GradExtentBytes(l))
		}
		tier.GradExtents, err = j.openExtents(gradFile, "the gradient of layer ", r, r.GradExtentBytes, nothingMore, closing)
	}
	if err == nil && r.ParamAway != nil {
		tier.TileExtents, err = j.openExtents(paramFile, "the weights of layer ", r, r.ParamBytes, nothingMore, closing)
	}
	return tier, err
}

// openStates makes the files of states; saves as for openTier.
func (j *Output) openStates(r *plan.Run, saves bool, closing func(end func() error)) (*extents.Files, error) {
	why, size := j.whyCopied(), func(l int) int64 {
		if !r.Away[l] {
			return 0
		}
		return r.ExtentBytes(l)
	}
	e, err := j.openExtents(stateFile, "the state of layer ", r, size, func(o *extents.Options) {
		if saves && why == "" {
			j.linkable(o, r)
		}
	}, closing)
	if err == nil && saves {
		j.useLinks(e, why)
	}
	return e, err
}

// nothingMore is for files that nothing else is asked of.
func nothingMore(*extents.Options) {}

// openExtents makes the files of a name, for an extent of each layer of r, what and its number by name; asks adds what else
// is asked of them.
func (j *Output) openExtents(file, what string, r *plan.Run, size func(layer int) int64, asks func(*extents.Options), closing func(end func() error)) (*extents.Files, error) {
	key := keyOf(file)
	o, err := j.extents(file, r)
	if err != nil {
		return nil, err
	}
	asks(&o)
	for _, dir := range o.Dirs {
		if err := checkpoint.MakeDirs(j.fs(), dir); err != nil {
			return nil, j.c.Errorf(key, "%s: %w", key, err)
		}
	}
	for l := range r.Layouts {
		o.Bytes, o.Names = append(o.Bytes, size(l)), append(o.Names, what+fmt.Sprint(l))
	}
	e, err := extents.Open(o)
	if err != nil {
		return nil, j.c.Errorf(key, "%s: %w", key, err)
	}
	for _, note := range e.Notes() {
		j.late.add(note)
	}
	closing(e.Close)
	return e, nil
}

// keyOf is the key that says where the files of a name are.
func keyOf(file string) string {
	if file == paramFile {
		return "param_dir"
	}
	return "state_dir"
}

// extents says which files those of a name are, for the layers of r.
func (j *Output) extents(file string, r *plan.Run) (o extents.Options, err error) {
	o = extents.Options{Dirs: j.c.StateDir, Name: fmt.Sprintf(file, j.team.Rank())}
	if file == paramFile {
		o.Dirs, o.Chunk = j.c.ParamDir, r.ChunkBytes()
	}
	if o.Compress = file != gradFile && j.c.Compress == "byteplane"; o.Compress {
		o.Chunk = r.ChunkBytes() // there is memory for some chunks
	}
	if o.Run, err = filepath.Abs(j.c.OutputDir); err != nil {
		return o, j.c.Errorf("output_dir", "output_dir: %w", err)
	}
	return o, nil
}

// sweepStates removes the files that the run has left when it was killed at its very end.
func (j *Output) sweepStates() error {
	for _, file := range []string{stateFile, gradFile, paramFile} {
		if err := j.sweepFiles(file); err != nil {
			return err
		}
	}
	return nil
}

// sweepUnused removes the files that the run has left when it was killed, and that it has no use for as r plans it.
func (j *Output) sweepUnused(r *plan.Run) error {
	for _, left := range []struct {
		file   string
		unused bool
	}{{stateFile, r.Away == nil}, {gradFile, r.GradAway == nil}, {paramFile, r.ParamAway == nil}} {
		if !left.unused {
			continue
		}
		if err := j.sweepFiles(left.file); err != nil {
			return err
		}
	}
	return nil
}

// sweepFiles removes the files of a name that the run has left.
func (j *Output) sweepFiles(file string) error {
	o, err := j.extents(file, j.plan)
	if err != nil {
		return err
	}
	if err := o.Sweep(); err != nil {
		key := keyOf(file)
		return j.c.Errorf(key, "%s: %w", key, err)
	}
	return nil
}

// damagedState is what to tell of a run that ends because a state, a gradient or weights did not come back from their disk.
func damagedState(err error) error {
	var bad *extents.Damaged
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%w; run the same command again to go on from the last checkpoint, with another state_dir or param_dir if it happens again", err)
}
