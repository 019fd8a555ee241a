package train

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mt/checkpoint"
	"mt/internal/config"
)

// alteration is what is other in a run than in the one of the checkpoint that it
// goes on from.
type alteration struct {
	*job
	from    *resume
	saved   *config.Config
	was     map[string]string // digests of the checkpoint's run
	now     map[string]string
	data    bool // reset_data takes effect
	planes  bool // reset_optimizer takes effect
	changes []config.Difference
}

// apply settles what the run keeps of the checkpoint's and what it does not,
// notes it, and is an error where the two cannot go together.
func (a *alteration) apply() error {
	c, from := a.c, a.from
	a.now = a.digests()
	// A reset is done once: the checkpoints after it are of a run with the key.
	a.planes = c.ResetOptimizer && (from.other || !a.saved.ResetOptimizer)
	a.data = c.ResetData && (from.other || !a.saved.ResetData || a.otherData())
	if !a.data {
		c.KeepResolved(a.saved, !a.stepsDiffer())
	}
	if a.data {
		from.state.DataPos = 0
	}
	if a.planes {
		from.reset, from.state.AdamStep = true, 0
	}
	if err := a.placeData(from.state); err != nil {
		return err
	}
	a.changes = c.Changes(a.saved)
	for _, d := range a.changes {
		if err := a.allow(d); err != nil {
			return err
		}
	}
	if err := a.checkDigests(); err != nil {
		return err
	}
	return a.schedule()
}

// stepsDiffer tells whether a step is another than it was, in a way that decides
// how much memory it takes.
func (a *alteration) stepsDiffer() bool {
	return a.c.RowsPerStep() != a.saved.RowsPerStep() || (a.c.MaxGradNorm > 0) != (a.saved.MaxGradNorm > 0)
}

// otherData tells whether the rows or their order are others.
func (a *alteration) otherData() bool {
	return a.now["dataset"] != a.was["dataset"] ||
		slices.ContainsFunc(a.c.Changes(a.saved), func(d config.Difference) bool { return d.Part == config.PartDataset && !a.moved(d) })
}

// moved tells whether d is another name of the same data.
func (a *alteration) moved(d config.Difference) bool {
	return (d.Key == "dataset" || d.Key == "dataset_dir") && a.now["dataset"] == a.was["dataset"]
}

// Ways out of a difference that cannot be.
const (
	takeReset  = "set reset_data: true to go on with the checkpoint's weights and moments from the first row of this data, choose another output_dir"
	takeOther  = "choose another output_dir"
	takeAfresh = "or start afresh with resume_from_checkpoint: false"
)

// allow is an error that names the way out where d cannot be.
func (a *alteration) allow(d config.Difference) error {
	wayOut := ""
	switch d.Part {
	case config.PartModel:
		if dir, err := config.ModelDir(a.saved.Model.Path); err == nil && d.Key == modelKey && a.modelDir != "" && sameDir(dir, a.modelDir) {
			return nil
		}
		wayOut = fmt.Sprintf("train from the checkpoint's weights alone with model_name_or_path: %s and another output_dir", a.from.dir)
	case config.PartDataset:
		if !a.data && !a.moved(d) {
			wayOut = takeReset
		}
	case config.PartOptimizer:
		if !a.planes {
			wayOut = "set reset_optimizer: true to go on with the checkpoint's weights and with moments of zero, " + takeOther
		}
	case config.PartNumerics:
		if !a.data && !a.from.other && !a.stepsDiffer() {
			wayOut = fmt.Sprintf("go on from there with other roundings by resume_from_checkpoint: %s and another output_dir", a.from.dir)
		}
	}
	if wayOut == "" {
		return nil
	}
	return a.c.Errorf(d.Key, "the checkpoint %s was made with another value: %s; restore it, %s, %s", a.from.dir, d, wayOut, takeAfresh)
}

// checkDigests compares what the configuration does not show.
func (a *alteration) checkDigests() error {
	for _, part := range []struct{ name, key, what, wayOut string }{
		{"model", "model_name_or_path", "config.json", takeOther},
		{"tokenizer", "model_name_or_path", "files, since the weights know its ids and no others", takeOther},
		{"dataset", "dataset", "files", takeReset},
	} {
		was, now := a.was[part.name], a.now[part.name]
		switch {
		case was == now, part.name == "dataset" && a.data:
			continue
		case part.name == "tokenizer" && (was == "" || now == ""): // a checkpoint from before it was recorded, or data that came as ids
			continue
		}
		return a.c.Errorf(part.key, "the checkpoint %s was made with another %s (there %s, here %s): restore its %s, %s, %s",
			a.from.dir, part.name, was, now, part.what, part.wayOut, takeAfresh)
	}
	return nil
}

// schedule lays the schedule and notes what has changed and what that means.
func (a *alteration) schedule() error {
	c, step := a.c, a.from.state.Step
	what := a.words()
	if a.data || a.planes {
		if c.MaxSteps <= step {
			return c.Errorf("max_steps", "max_steps is %d and counts the %d steps of %s too: raise it, or leave it to num_train_epochs, which counts from here",
				c.MaxSteps, step, a.from.dir)
		}
		a.note("%s goes on with %s: %s", a.from.dir, strings.Join(what, ", "), c.Restart(step))
		return nil
	}
	if c.MaxSteps < step {
		return c.Errorf("max_steps", "max_steps is %d, and the checkpoint %s is at step %d: raise it, or name an earlier checkpoint in resume_from_checkpoint",
			c.MaxSteps, a.from.dir, step)
	}
	meaning := c.Relay(a.saved, step)
	switch {
	case len(what) == 0:
	case c.MaxSteps == step:
		a.note("%s: no effect, since all steps are done; raise max_steps to go on", strings.Join(what, ", "))
	case meaning == "":
		a.note("%s goes on with %s: the learning rate's schedule stays", a.from.dir, strings.Join(what, ", "))
	default:
		a.note("%s goes on with %s: %s", a.from.dir, strings.Join(what, ", "), meaning)
	}
	return nil
}

// words are the changes, such as "max_steps 16 (was 8)".
func (a *alteration) words() []string {
	var out []string
	if a.data {
		out = append(out, "data from its first row (reset_data)")
	}
	if a.planes {
		out = append(out, "moments of zero (reset_optimizer)")
	}
	for _, d := range a.changes {
		text := fmt.Sprintf("%s %s (was %s)", d.Key, d.Now, d.Was)
		if d.Part == config.PartRows && !a.data {
			text += fmt.Sprintf(" after row %d of the data", a.from.state.DataPos)
		}
		out = append(out, text)
	}
	return out
}

// placeData has steps take their rows from where the data was left, and settles
// the number of steps where num_train_epochs decides it.
func (j *job) placeData(at checkpoint.TrainerState) error {
	c := j.c
	all := j.set.Sampler(c.RowsPerStep())
	j.train = all.From(at.Step, at.DataPos)
	if !j.epochs {
		return nil
	}
	end := all.Pos(int(math.Ceil(c.NumTrainEpochs * float64(all.StepsPerEpoch()))))
	if past := at.DataPos - end; past >= int64(j.set.Train().Rows()) {
		return c.Errorf("num_train_epochs", "num_train_epochs is %v, and the checkpoint at step %d is at epoch %.2f: raise it, or name an earlier checkpoint "+
			"in resume_from_checkpoint", c.NumTrainEpochs, at.Step, float64(at.DataPos)/float64(j.set.Train().Rows()))
	}
	c.MaxSteps = j.train.StepAt(end)
	return nil
}
