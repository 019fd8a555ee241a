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

// The names of the files in each directory of state_dir and of param_dir, for each rank its own.
const (
	stateFile = "mt-state-%d.bin"
	paramFile = "mt-params-%d.bin"
)

// openTier makes the files for what r has on disks. closing is told how to remove them.
func (j *job) openTier(r *plan.Run, closing func(end func() error)) (host.Tier, error) {
	if r.Away == nil {
		return host.Tier{}, nil
	}
	tier := host.Tier{Away: r.Away, Slots: r.Depths.StateSlots, Tiles: r.ParamAway}
	var err error
	if tier.Extents, err = j.openExtents("state_dir", "the state of layer ", r, func(l int) int64 {
		if !r.Away[l] {
			return 0
		}
		return r.ExtentBytes(l)
	}, closing); err == nil && r.ParamAway != nil {
		tier.TileExtents, err = j.openExtents("param_dir", "the weights of layer ", r, r.ParamBytes, closing)
	}
	return tier, err
}

// openExtents makes the files of a key, for an extent of each layer of r, what and its number by name.
func (j *job) openExtents(key, what string, r *plan.Run, size func(layer int) int64, closing func(end func() error)) (*extents.Files, error) {
	o, err := j.extents(key)
	if err != nil {
		return nil, err
	}
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

// extents says which files those of a key are.
func (j *job) extents(key string) (o extents.Options, err error) {
	o = extents.Options{Dirs: j.c.StateDir, Name: fmt.Sprintf(stateFile, j.team.number())}
	if key == "param_dir" {
		o.Dirs, o.Name, o.Chunk = j.c.ParamDir, fmt.Sprintf(paramFile, j.team.number()), j.plan.ChunkBytes()
	}
	if o.Compress = j.c.Compress == "byteplane"; o.Compress {
		o.Chunk = j.plan.ChunkBytes() // there is memory for some chunks
	}
	if o.Run, err = filepath.Abs(j.c.OutputDir); err != nil {
		return o, j.c.Errorf("output_dir", "output_dir: %w", err)
	}
	return o, nil
}

// sweepStates removes the files that the run has left when it was killed at its very end.
func (j *job) sweepStates() error {
	for _, key := range []string{"state_dir", "param_dir"} {
		o, err := j.extents(key)
		if err == nil {
			err = o.Sweep()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkParams refuses what a run whose weights are on disks cannot do.
func (j *job) checkParams() error {
	if j.plan.ParamAway == nil {
		return nil
	}
	for _, has := range []struct {
		key string
		set bool
	}{{"sample_prompt", j.c.SamplePrompt != ""}, {"sample_prompts", len(j.c.Samples()) > 0}} {
		if has.set {
			return j.c.Errorf(has.key, "%s: the weights of this run are on disks (param_dir), and text is written by a model in memory: leave it out, or give more host_memory", has.key)
		}
	}
	return nil
}

// damagedState is what to tell of a run that ends because a state, or weights, did not come back from their disk.
func damagedState(err error) error {
	var bad *extents.Damaged
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%w; run the same command again to go on from the last checkpoint, with another state_dir or param_dir if it happens again", err)
}
