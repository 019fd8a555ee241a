package save

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"mt/checkpoint"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/settings"
)

// LockOutput makes the output directory this run's until it ends, so that two runs do
// not write one set of checkpoints. On a file system without locks another run is not
// kept out.
func (j *Output) LockOutput() (unlock func(), err error) {
	unlock, err = checkpoint.Lock(j.Config.OutputDir)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, fmt.Errorf("output_dir %s: another run writes there now; wait for its end, or choose another", j.Config.OutputDir)
	}
	return unlock, err
}

// Sweep removes what killed runs have left unfinished, which takes room.
func (j *Output) Sweep() {
	for _, name := range []string{settings.ConfigFile, settings.MetricsFile, settings.EndFile, settings.AlgorithmsFile, settings.TimelineFile, settings.CurveFile, settings.SamplesFile, settings.BoardsFile} {
		_ = j.FS().RemoveAll(filepath.Join(j.Config.OutputDir, name+checkpoint.WholeTemp)) // what stays is overwritten
	}
	j.prune(0, 0, 0, 0)
	if j.Config.EMADecay > 0 {
		_ = checkpoint.Prune(j.FS(), settings.AveragesIn(j.Config), 0, 0, 0, 0) // what stays takes room
	}
}

// prune removes surplus checkpoints, as checkpoint.Prune says. A failure does not end
// the run: what it saves is safe, and only takes more room.
func (j *Output) prune(keep, finite, current, best int) {
	if !j.Team.First() {
		return
	}
	if err := checkpoint.Prune(j.FS(), j.Config.OutputDir, keep, finite, current, best); err != nil {
		j.Late.Add(fmt.Sprintf("%v; the run goes on, and what could not be removed takes room", err))
	}
}

// MarkUnfinished removes endFile, since the model is about to be replaced.
func (j *Output) MarkUnfinished() error {
	err := os.Remove(filepath.Join(j.Config.OutputDir, settings.EndFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MarkFinished writes endFile: the model in the output directory is that of state.
func (j *Output) MarkFinished(state checkpoint.TrainerState) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return j.WriteWhole(settings.EndFile, append(raw, '\n'))
}

// DropCheckpoints removes the checkpoints of a finished run that keeps none. A failure
// to do so does not fail the run, since the model is there.
func (j *Output) DropCheckpoints() {
	if j.Config.KeepCheckpoints {
		return
	}
	if err := checkpoint.Remove(j.Config.OutputDir); err != nil {
		j.Late.Add(fmt.Sprintf("%v; the model is written, and the same command tries to remove them again", err))
	}
}

func NewOutput(r *resolve.Resolved) *Output { return &Output{Resolved: r, Late: &report.Notes{}} }

// AllNotes are what the user should know before the run begins.
func (j *Output) AllNotes() []string {
	return slices.Concat(j.Config.Warnings, j.Inputs.Notes, j.Start.Notes, j.Resolved.Notes, j.Notes)
}
