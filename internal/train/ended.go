package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"mt/actors"
	"mt/checkpoint"
)

// cadence is how often a run saves, evaluates and logs: every so many steps (0:
// not before its end), or at the end of every epoch.
type cadence struct {
	save, eval, log        int
	saveEpochs, evalEpochs bool
	saveEvals              bool // at every evaluation too
}

func (j *job) cadence() cadence {
	c := j.c
	n := cadence{save: c.SaveSteps.Of(c.MaxSteps), eval: c.EvalSteps.Of(c.MaxSteps), log: c.LoggingSteps.Of(c.MaxSteps),
		saveEpochs: c.SaveStrategy == "epoch", evalEpochs: c.EvalStrategy == "epoch", saveEvals: c.SaveBest}
	if n.saveEpochs {
		n.save = 0
	}
	if n.evalEpochs {
		n.eval = 0
	}
	return n
}

// epochsAfter is how many epochs of the data are over after a step.
func (j *job) epochsAfter(step int) int { return int(j.train.Pos(step) / int64(j.set.Train().Rows())) }

// endsEpoch says whether a step takes the last row of an epoch.
func (j *job) endsEpoch(step int) bool { return j.train.Pos(step)%int64(j.set.Train().Rows()) == 0 }

// reached is the state that the pipeline starts from.
func (r resume) reached() actors.State {
	return actors.State{Step: r.state.Step, AdamStep: r.state.AdamStep, NonFinite: r.state.NonFinite, Tokens: r.state.Tokens}
}

// after is the state after the step that r reports; was is the state before that step.
func after(was actors.State, r actors.StepReport) actors.State {
	now := actors.State{Step: r.Step, AdamStep: was.AdamStep + 1, Tokens: r.TotalTokens}
	if r.Skipped {
		now.AdamStep, now.NonFinite = was.AdamStep, was.NonFinite+1
	}
	return now
}

// resumable says whether the checkpoint that was saved last is that of the last step
// and a run can go on from it.
func (s *session) resumable(saved checkpoint.TrainerState) bool {
	return saved.Step == s.lastStep && !saved.ModelOnly
}

// interrupted is the error of a run that was stopped before its end. from is where it
// went on from, saved the state of its last checkpoint.
func (s *session) interrupted(from resume, saved checkpoint.TrainerState) error {
	dir := filepath.Join(s.c.OutputDir, checkpointName(saved.Step))
	if saved.Step > from.state.Step {
		s.line.above(fmt.Sprintf("step %d of %d is saved in %s", saved.Step, s.c.MaxSteps, dir))
	}
	switch {
	case s.c.SaveStrategy == "no":
		return fmt.Errorf("%w; with save_strategy: no nothing is kept, and the same command begins again", ErrInterrupted)
	case saved.ModelOnly:
		return fmt.Errorf("%w; with save_only_model the run cannot be resumed, but another can train from the weights in %s", ErrInterrupted, dir)
	case s.evalOwed():
		s.line.above(fmt.Sprintf("the evaluation of step %d was cut off and comes first when the run goes on", s.lastStep))
	case s.samplesOwed():
		s.line.above(fmt.Sprintf("the samples of step %d were cut off and come first when the run goes on", s.lastStep))
	}
	return ErrResumable
}

// findStart finds where the run begins, on rank 0 for all.
func (j *job) findStart() (r resume, err error) {
	if j.team.first() {
		if r, err = j.lookForStart(); err == nil {
			err = r.readConfig()
		}
		if err != nil {
			return resume{}, err
		}
		r.local = r.dir
	}
	if r, err = j.agreeOnStart(r); err != nil {
		return resume{}, err
	}
	if err := j.settle(&r); err != nil {
		return resume{}, err
	}
	if err := j.chooseAttention(); err != nil {
		return resume{}, err
	}
	r.over = !r.ended && r.state.Step == r.end.Step && j.endedEarly(r.end)
	return r, nil
}

// lookForStart is findResume, except that the output directory may also hold the model of a
// finished run without the checkpoint of its last step.
func (j *job) lookForStart() (resume, error) {
	c := j.c
	end, ok, damage, err := j.ended()
	switch {
	case err != nil:
		return resume{}, c.Errorf("output_dir", "look for a finished run: %w", err)
	case ok && (c.MaxSteps <= end.Step || j.endedEarly(end)):
		return resume{dir: c.OutputDir, state: end, ended: true}, nil
	}
	r, err := j.findResume()
	switch {
	case err != nil:
		return resume{}, err
	case !ok:
		r.end = end
		if r.dir == "" && damage != nil {
			return r, c.Errorf("output_dir", "output_dir %s holds a finished run that is damaged and no checkpoint: %w; "+
				"restore what is damaged, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, damage)
		}
	case r.dir == "":
		return r, c.Errorf("output_dir", "output_dir %s holds the model of a run of %d steps and not its optimizer's state, so it cannot be lengthened to %d: "+
			"train from its weights with model_name_or_path: %s and another output_dir, or set resume_from_checkpoint: false to start afresh",
			c.OutputDir, end.Step, c.MaxSteps, c.OutputDir)
	}
	return r, nil
}

// ended is the state of the finished run whose model is in the output directory. ok is
// false where there is no such run, where the checkpoint of its last step is there too,
// or where resume_from_checkpoint does not ask for it.
//
// err is an error of the disk: a finished run that cannot be read must not be begun
// again over its model. damage says that endFile, or the model, is not what a run has
// written; such a run must not be begun again either. damage is nil where there are no
// weights to lose, or where overwrite_output_dir allows it.
func (j *job) ended() (end checkpoint.TrainerState, ok bool, damage, err error) {
	c := j.c
	if c.Resume != "auto" && c.Resume != "true" {
		return end, false, nil, nil
	}
	mark := filepath.Join(c.OutputDir, endFile)
	raw, err := os.ReadFile(mark)
	if err == nil {
		if damage = json.Unmarshal(raw, &end); damage != nil {
			damage = fmt.Errorf("%s: %w", mark, damage)
		} else {
			damage = checkpoint.CheckModel(c.OutputDir, j.model.Layouts(false))
		}
		err = damage
	}
	if err == nil {
		_, err = checkpoint.ReadState(filepath.Join(c.OutputDir, checkpointName(end.Step)))
		ok = errors.Is(err, os.ErrNotExist)
	}
	if checkpoint.IsDiskError(err) {
		return end, false, nil, err
	}
	if damage != nil && (c.OverwriteOutputDir || !holdsWeights(c.OutputDir)) {
		damage = nil
	}
	return end, ok, damage, nil
}

// holdsWeights tells whether there is a file of a model's weights in dir.
func holdsWeights(dir string) bool {
	entries, _ := os.ReadDir(dir) // a directory that cannot be listed fails when it is written to
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return checkpoint.IsWeights(e.Name()) })
}

// dropCheckpoints removes the checkpoints of a finished run that keeps none. A failure
// to do so does not fail the run, since the model is there.
func (j *job) dropCheckpoints() {
	if j.c.KeepCheckpoints {
		return
	}
	if err := checkpoint.Remove(j.c.OutputDir); err != nil {
		j.late.add(fmt.Sprintf("%v; the model is written, and the same command tries to remove them again", err))
	}
}
