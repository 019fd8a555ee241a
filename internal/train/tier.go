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

// This file opens the files of state_dir.

// stateFile is the name of the file in each directory of state_dir, for each rank its own.
const stateFile = "mt-state-%d.bin"

// openTier makes the files for the states of r that are away. closing is told how to remove them.
func (j *job) openTier(r *plan.Run, closing func(end func() error)) (host.Tier, error) {
	if r.Away == nil {
		return host.Tier{}, nil
	}
	o, err := j.stateFiles()
	if err != nil {
		return host.Tier{}, err
	}
	for _, dir := range o.Dirs {
		if err := checkpoint.MakeDirs(j.fs(), dir); err != nil {
			return host.Tier{}, j.c.Errorf("state_dir", "state_dir: %w", err)
		}
	}
	for l, away := range r.Away {
		bytes := int64(0)
		if away {
			bytes = r.ExtentBytes(l)
		}
		o.Bytes, o.Names = append(o.Bytes, bytes), append(o.Names, "the state of layer "+fmt.Sprint(l))
	}
	e, err := extents.Open(o)
	if err != nil {
		return host.Tier{}, j.c.Errorf("state_dir", "state_dir: %w", err)
	}
	for _, note := range e.Notes() {
		j.late.add(note)
	}
	closing(e.Close)
	return host.Tier{Away: r.Away, Slots: r.Depths.StateSlots, Extents: e}, nil
}

// stateFiles says which files the run's states are in.
func (j *job) stateFiles() (o extents.Options, err error) {
	o = extents.Options{Dirs: j.c.StateDir, Name: fmt.Sprintf(stateFile, j.team.number())}
	if o.Run, err = filepath.Abs(j.c.OutputDir); err != nil {
		return o, j.c.Errorf("output_dir", "output_dir: %w", err)
	}
	return o, nil
}

// sweepStates removes the files of states that the run has left when it was killed at its very end.
func (j *job) sweepStates() error {
	o, err := j.stateFiles()
	if err == nil {
		err = o.Sweep()
	}
	return err
}

// damagedState is what to tell of a run that ends because a state did not come back from its disk.
func damagedState(err error) error {
	var bad *extents.Damaged
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%w; run the same command again to go on from the last checkpoint, with another state_dir if it happens again", err)
}
