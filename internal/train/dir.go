package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"mt/checkpoint"
)

// lockOutput makes the output directory this run's until it ends, so that two runs do
// not write one set of checkpoints. On a file system without locks another run is not
// kept out.
func (j *Output) lockOutput() (unlock func(), err error) {
	unlock, err = checkpoint.Lock(j.c.OutputDir)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, fmt.Errorf("output_dir %s: another run writes there now; wait for its end, or choose another", j.c.OutputDir)
	}
	return unlock, err
}

// sweep removes what killed runs have left unfinished, which takes room.
func (j *Output) sweep() {
	for _, name := range []string{configFile, metricsFile, endFile, algorithmsFile, timelineFile, curveFile, samplesFile, boardsFile} {
		_ = j.fs().RemoveAll(filepath.Join(j.c.OutputDir, name+checkpoint.WholeTemp)) // what stays is overwritten
	}
	j.prune(0, 0, 0, 0)
	if j.c.EMADecay > 0 {
		_ = checkpoint.Prune(j.fs(), averagesIn(j.c), 0, 0, 0, 0) // what stays takes room
	}
}

// prune removes surplus checkpoints, as checkpoint.Prune says. A failure does not end
// the run: what it saves is safe, and only takes more room.
func (j *Output) prune(keep, finite, current, best int) {
	if !j.team.first() {
		return
	}
	if err := checkpoint.Prune(j.fs(), j.c.OutputDir, keep, finite, current, best); err != nil {
		j.late.add(fmt.Sprintf("%v; the run goes on, and what could not be removed takes room", err))
	}
}

// markUnfinished removes endFile, since the model is about to be replaced.
func (j *Output) markUnfinished() error {
	err := os.Remove(filepath.Join(j.c.OutputDir, endFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// markFinished writes endFile: the model in the output directory is that of state.
func (j *Output) markFinished(state checkpoint.TrainerState) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return j.writeWhole(endFile, append(raw, '\n'))
}

// dropCheckpoints removes the checkpoints of a finished run that keeps none. A failure
// to do so does not fail the run, since the model is there.
func (j *Output) dropCheckpoints() {
	if j.c.KeepCheckpoints {
		return
	}
	if err := checkpoint.Remove(j.c.OutputDir); err != nil {
		j.late.add(fmt.Sprintf("%v; the model is written, and the same command tries to remove them again", err))
	}
}

func newOutput(r *Resolved) *Output { return &Output{Resolved: r, late: &lateNotes{}} }

// allNotes are what the user should know before the run begins.
func (j *Output) allNotes() []string {
	return slices.Concat(j.c.Warnings, j.Inputs.notes, j.Start.notes, j.Resolved.notes, j.notes)
}
