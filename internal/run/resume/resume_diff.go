package resume

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mt/base/files"
	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/open"
)

// resumeDiff holds the differences between a run and the run whose checkpoint it resumes.
type resumeDiff struct {
	*startSearch
	from        *Point
	saved       *config.Config
	was         map[string]string // digests of the checkpoint's run
	now         map[string]string
	resetData   bool // reset_data takes effect
	resetPlanes bool // reset_optimizer takes effect
	changes     []config.Difference
}

// apply decides what the run keeps from the checkpoint's run and adds notes about the changes. If the run cannot
// resume with these changes, it returns an error with advice.
func (a *resumeDiff) apply() error {
	c, from := a.Config, a.from
	a.now = a.Digests()
	// A reset happens once. A checkpoint saved after the reset has the key in its configuration, and resuming that
	// checkpoint does not reset again.
	a.resetPlanes = c.ResetOptimizer && (from.Other || !a.saved.ResetOptimizer || a.otherPlanes())
	a.resetData = c.ResetData && (from.Other || !a.saved.ResetData || a.otherData())
	if !a.resetData {
		c.KeepResolved(a.saved, !a.stepsDiffer())
	}
	if a.resetData {
		from.State.DataPos = 0
	}
	if a.resetPlanes {
		from.Reset, from.State.AdamStep = true, 0
	}
	if err := a.placeData(from.State, a.saved.MaxSteps); err != nil {
		return err
	}
	from.Products = c.MatMul != a.saved.MatMul
	a.changes = c.Changes(a.saved)
	for _, d := range a.changes {
		if err := a.allow(d); err != nil {
			return err
		}
	}
	if err := a.checkDigests(); err != nil {
		return err
	}
	if a.ranksDiffer() && c.MaxSteps > from.State.Step {
		a.note("%s goes on with ranks: %d (was %d): gradients are summed in another order, so results differ in their last bits",
			from.Dir, a.Ranks.Size(), max(1, from.State.Ranks))
	}
	return a.schedule()
}

// stepsDiffer reports whether a step's gradients need another amount of memory than in the checkpoint's run. They do
// if the number of rows or ranks differs, or if only one of the runs keeps all gradients until the global norm is
// known.
func (a *resumeDiff) stepsDiffer() bool {
	return a.ranksDiffer() || a.Config.RowsPerStep() != a.saved.RowsPerStep() || a.Config.WaitsForNorm() != a.saved.WaitsForNorm()
}

// ranksDiffer reports whether the number of ranks differs from the checkpoint's run.
func (a *resumeDiff) ranksDiffer() bool { return max(1, a.from.State.Ranks) != a.Ranks.Size() }

// otherData reports whether the rows or their order differ from the checkpoint's run.
func (a *resumeDiff) otherData() bool {
	return a.now["dataset"] != a.was["dataset"] ||
		slices.ContainsFunc(a.Config.Changes(a.saved), func(d config.Difference) bool { return d.Part == config.PartDataset && !a.moved(d) })
}

// otherPlanes reports whether the optimizer keeps other planes (arrays of state) than the checkpoint has.
func (a *resumeDiff) otherPlanes() bool {
	return a.Config.Optim != a.saved.Optim || a.otherMomentum() || a.otherAverage()
}

// otherMomentum and otherAverage each report whether one run keeps a certain plane and the other run does not: SGD's
// momentum, or the moving average of the weights.
func (a *resumeDiff) otherMomentum() bool {
	return a.Config.Optim == "sgd" && (a.Config.Momentum == 0) != (a.saved.Momentum == 0)
}

func (a *resumeDiff) otherAverage() bool { return (a.Config.EMADecay == 0) != (a.saved.EMADecay == 0) }

// moved reports whether d changes only the name or place of the data, not its content.
func (a *resumeDiff) moved(d config.Difference) bool {
	return (d.Key == "dataset" || d.Key == "datasets" || d.Key == "dataset_dir") && a.now["dataset"] == a.was["dataset"]
}

// Advice in errors about differences that are not allowed.
const (
	takeReset  = "set reset_data: true to go on with the checkpoint's weights and moments from the first row of this data, choose another output_dir"
	takeOther  = "choose another output_dir"
	takeAfresh = "or start afresh with resume_from_checkpoint: false"
)

// allow returns nil if a resumed run may have the difference d, and otherwise an error with advice.
func (a *resumeDiff) allow(d config.Difference) error {
	wayOut := ""
	part := d.Part
	if d.Key == "momentum" && a.otherMomentum() || d.Key == "ema_decay" && a.otherAverage() {
		part = config.PartOptimizer // with momentum 0 the optimizer keeps no momentum
	}
	switch part {
	case config.PartModel:
		if dir, err := config.ModelDir(a.saved.Model.Path); err == nil && d.Key == open.ModelKey && a.ModelDir != "" && files.Same(dir, a.ModelDir) {
			return nil
		}
		wayOut = fmt.Sprintf("train from the checkpoint's weights alone with model_name_or_path: %s and another output_dir", a.from.Dir)
	case config.PartDataset:
		if !a.resetData && !a.moved(d) {
			wayOut = takeReset
		}
	case config.PartOptimizer:
		if !a.resetPlanes {
			wayOut = "set reset_optimizer: true to go on with the checkpoint's weights and with moments of zero, " + takeOther
		}
	case config.PartNumerics:
		if !a.resetData && !a.from.Other && !a.stepsDiffer() {
			wayOut = fmt.Sprintf("go on from there with other roundings by resume_from_checkpoint: %s and another output_dir", a.from.Dir)
		}
	}
	if wayOut == "" {
		return nil
	}
	return a.Config.Errorf(d.Key, "the checkpoint %s was made with another value: %s; restore it, %s, %s", a.from.Dir, d, wayOut, takeAfresh)
}

// checkDigests compares the digests of model, tokenizer and data with the checkpoint's. They show changes that the
// configuration does not show, such as a file with other content under the same name.
func (a *resumeDiff) checkDigests() error {
	for _, part := range []struct{ name, key, what, wayOut string }{
		{"model", "model_name_or_path", "config.json", takeOther},
		{"tokenizer", "model_name_or_path", "files, since the weights know its ids and no others", takeOther},
		{"dataset", "dataset", "files", takeReset},
	} {
		was, now := a.was[part.name], a.now[part.name]
		switch {
		case was == now, part.name == "dataset" && a.resetData:
			continue
		case part.name == "tokenizer" && (was == "" || now == ""): // an older version did not record it, or the data came as ids
			continue
		}
		return a.Config.Errorf(part.key, "the checkpoint %s was made with another %s (there %s, here %s): restore its %s, %s, %s",
			a.from.Dir, part.name, was, now, part.what, part.wayOut, takeAfresh)
	}
	return nil
}

// schedule checks max_steps, fits the schedule of the learning rate to the changed run, and adds notes that tell the
// changes.
func (a *resumeDiff) schedule() error {
	c, step := a.Config, a.from.State.Step
	what := a.words()
	if a.resetData || a.resetPlanes {
		if c.MaxSteps <= step {
			return c.Errorf("max_steps", "max_steps is %d and counts the %d steps of %s too: raise it, or leave it to num_train_epochs, which counts from here",
				c.MaxSteps, step, a.from.Dir)
		}
		a.note("%s goes on with %s: %s", a.from.Dir, strings.Join(what, ", "), c.Restart(step))
		return nil
	}
	if c.MaxSteps < step {
		return c.Errorf("max_steps", "max_steps is %d, and the checkpoint %s is at step %d: raise it, or name an earlier checkpoint in resume_from_checkpoint",
			c.MaxSteps, a.from.Dir, step)
	}
	meaning := c.Relay(a.saved, step)
	switch {
	case len(what) == 0:
	case c.MaxSteps == step:
		a.note("%s: no effect, since all steps are done; raise max_steps to go on", strings.Join(what, ", "))
	case meaning == "":
		a.note("%s goes on with %s: the learning rate's schedule stays", a.from.Dir, strings.Join(what, ", "))
	default:
		a.note("%s goes on with %s: %s", a.from.Dir, strings.Join(what, ", "), meaning)
	}
	return nil
}

// words returns the changes since the checkpoint in words, such as "max_steps 16 (was 8)".
func (a *resumeDiff) words() []string {
	var out []string
	if a.resetData {
		out = append(out, "data from its first row (reset_data)")
	}
	if a.resetPlanes {
		out = append(out, "moments of zero (reset_optimizer)")
	}
	for _, d := range a.changes {
		text := fmt.Sprintf("%s %s (was %s)", d.Key, d.Now, d.Was)
		if d.Part == config.PartRows && !a.resetData {
			text += fmt.Sprintf(" after row %d of the data", a.from.State.DataPos)
		}
		out = append(out, text)
	}
	return out
}

// placeData makes the next step take the row at which the checkpoint at stopped. If num_train_epochs decides how long
// the run is, it also sets the number of steps. maxSteps is the number of steps of the checkpoint's run, for the error
// that the checkpoint is past the last epoch.
func (f *startSearch) placeData(at checkpoint.TrainerState, maxSteps int) error {
	c := f.Config
	all := f.Data.Sampler(c.RowsPerStep())
	f.Train = all.From(at.Step, at.DataPos)
	if !f.Epochs {
		return nil
	}
	end := all.Pos(int(math.Ceil(c.NumTrainEpochs * float64(all.StepsPerEpoch()))))
	if past := at.DataPos - end; past >= int64(f.Data.Train().Rows()) {
		return c.Errorf("num_train_epochs", "num_train_epochs is %v, and the checkpoint at step %d is at epoch %.2f: raise it, give max_steps "+
			"(the checkpoint's run had max_steps %d), or name an earlier checkpoint in resume_from_checkpoint",
			c.NumTrainEpochs, at.Step, float64(at.DataPos)/float64(f.Data.Train().Rows()), maxSteps)
	}
	c.MaxSteps = f.Train.StepAt(end)
	return nil
}
