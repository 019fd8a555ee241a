package save

import (
	"errors"
	"fmt"

	"mt/actors"
	"mt/checkpoint"
)

// NonFinite is the error of a run that gave up because steps were not finite.
// The checkpoints that may have broken weights, up to the one of step last, are
// marked, so that the next run goes on from one before them.
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

// modelOnly tells whether the checkpoint in dir holds weights alone.
func modelOnly(dir string) bool {
	state, err := checkpoint.ReadState(dir)
	return err == nil && state.ModelOnly
}
