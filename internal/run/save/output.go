package save

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/settings"
)

// Output is what a run writes into its output directory.
type Output struct {
	*resolve.Resolved
	DeferredNotes *report.Notes // notes that appear during the run
	Notes         []string      // for the user, once
}

// LockOutput locks the output directory until the run ends, so that two runs do not write the same checkpoints. On a
// file system without locks it does not keep another run out.
func (out *Output) LockOutput() (unlock func(), err error) {
	unlock, err = checkpoint.Lock(out.Config.OutputDir)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, fmt.Errorf("output_dir %s: another run writes there now; wait for its end, or choose another", out.Config.OutputDir)
	}
	return unlock, err
}

// Sweep removes unfinished files of killed runs to free space.
func (out *Output) Sweep() {
	for _, name := range []string{settings.ConfigFile, settings.MetricsFile, settings.EndFile, settings.AlgorithmsFile, settings.TimelineFile, settings.CurveFile, settings.SamplesFile, settings.BoardsFile} {
		_ = out.FS().RemoveAll(filepath.Join(out.Config.OutputDir, name+checkpoint.WholeTemp)) // if it fails, the run overwrites the leftover files
	}
	out.prune(0, 0, 0, 0)
	if out.Config.EMADecay > 0 {
		_ = checkpoint.Prune(out.FS(), settings.AveragesIn(out.Config), 0, 0, 0, 0) // if it fails, the leftover files only take space
	}
}

// prune removes checkpoints that save_total_limit does not allow; checkpoint.Prune explains the parameters. A failure
// does not end the run, since checkpoints that remain only take space.
func (out *Output) prune(keep, finite, current, best int) {
	if !out.Ranks.First() {
		return
	}
	if err := checkpoint.Prune(out.FS(), out.Config.OutputDir, keep, finite, current, best); err != nil {
		out.DeferredNotes.Add(fmt.Sprintf("%v; the run goes on, and what could not be removed takes room", err))
	}
}

// MarkUnfinished removes EndFile, the mark of a finished run, before the model in the output directory is replaced.
func (out *Output) MarkUnfinished() error {
	err := os.Remove(filepath.Join(out.Config.OutputDir, settings.EndFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MarkFinished writes EndFile, the mark of a finished run. It holds state, to which the model in the output directory
// belongs.
func (out *Output) MarkFinished(state checkpoint.TrainerState) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return out.WriteWhole(settings.EndFile, append(raw, '\n'))
}

// DropCheckpoints removes the checkpoints of a finished run unless keep_checkpoints is set. A failure is a note,
// since the model is written.
func (out *Output) DropCheckpoints() {
	if out.Config.KeepCheckpoints {
		return
	}
	if err := checkpoint.Remove(out.Config.OutputDir); err != nil {
		out.DeferredNotes.Add(fmt.Sprintf("%v; the model is written, and the same command tries to remove them again", err))
	}
}

// TrainerState returns what a checkpoint keeps so that a run resumes after the step of st. dataPos is the position in
// the data.
func (out *Output) TrainerState(st actors.State, dataPos int64) checkpoint.TrainerState {
	ranks := out.Ranks.Size()
	if ranks == 1 {
		ranks = 0
	}
	return checkpoint.TrainerState{Step: st.Step, AdamStep: st.AdamStep, DataPos: dataPos, Seed: out.Config.Seed, NonFinite: st.NonFinite, Tokens: st.Tokens, Ranks: ranks,
		Schedule: checkpoint.SchedulePosition(out.Config.SchedulePosition), ParentRun: out.ParentRun, Lanes: out.table(), Epoch: float64(dataPos) / float64(out.Data.Train().Rows()), ConfigDigests: out.Digests()}
}

// table returns the number of the device (lane) of each layer and part of the head, for a checkpoint. It is nil if the
// devices are alike: then no bit depends on the lanes, and the checkpoints are the same for any number of devices.
func (out *Output) table() []int {
	if lanes := out.Plan.Placement(); out.DevicesDiffer || slices.Equal(lanes, out.Began) {
		return lanes
	}
	return nil
}

// NewOutput returns the output of the run r.
func NewOutput(r *resolve.Resolved) *Output {
	return &Output{Resolved: r, DeferredNotes: &report.Notes{}}
}

// AllNotes returns the notes for the user before the run begins.
func (out *Output) AllNotes() []string {
	return slices.Concat(out.Config.Warnings, out.Inputs.Notes, out.Start.Notes, out.Resolved.Notes, out.Notes)
}

// NonFinite returns the error of a run that failed because of steps with a non-finite loss or norm. gave has the last
// step that was finite. Checkpoints after that step and up to step last may have broken weights. NonFinite marks them,
// so that the next run resumes from an earlier one.
func (out *Output) NonFinite(gave *actors.NonFiniteError, err error, last int) error {
	good, marked, failed := checkpoint.MarkNonFinite(out.FS(), out.Config.OutputDir, gave.Finite, last, gave.Step)
	if failed != nil {
		return errors.Join(err, failed)
	}
	advice := fmt.Sprintf("lower learning_rate or look at the rows of steps %d to %d", gave.Finite+1, gave.Step)
	switch {
	case good != "" && modelOnly(good):
		return fmt.Errorf("%w; %s is the newest checkpoint that a later step has shown to be good, but with save_only_model no run can go on from it: %s, and "+
			"train from its weights with model_name_or_path: %s and another output_dir, or begin again with resume_from_checkpoint: false", err, good, advice, good)
	case good != "":
		return fmt.Errorf("%w; %s is the newest checkpoint that a later step has shown to be good, and the next run goes on from it: "+
			"unchanged it comes to the same end, so %s", err, good, advice)
	case len(marked) > 0:
		return fmt.Errorf("%w; no checkpoint in %s is known to be good, since no step after %d, that of %s, was finite: %s, and begin again with resume_from_checkpoint: false",
			err, out.Config.OutputDir, gave.Finite, marked[len(marked)-1], advice)
	case out.From.State.Step > 0:
		return fmt.Errorf("%w; no step since %s was finite: name an earlier checkpoint in resume_from_checkpoint, or %s", err, out.From.Dir, advice)
	}
	return fmt.Errorf("%w; no checkpoint was saved before: the next run begins at the first step, and unchanged it comes to the same end, so %s", err, advice)
}

// modelOnly reports whether the checkpoint in dir holds only weights.
func modelOnly(dir string) bool {
	state, err := checkpoint.ReadState(dir)
	return err == nil && state.ModelOnly
}
