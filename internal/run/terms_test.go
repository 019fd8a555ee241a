package run

import (
	"slices"
	"testing"

	"mt/internal/testkit"
)

// TestEvaluatedWithoutTerms: label smoothing and z-loss change the losses of steps but not of evaluations, with a
// whole head and with shards.
func TestEvaluatedWithoutTerms(t *testing.T) {
	testkit.NotShort(t)
	for _, head := range []string{"", "pipeline: {head_shards: 3}\n"} {
		plain := newScene(t, "val_size: 3\neval_steps: 1\nlearning_rate: 0\nmax_steps: 2\n"+head)
		terms := plain.in(t).with("label_smoothing_factor: 0.3\nz_loss_coef: 0.05\n")
		plain.mustTrain(t)
		terms.mustTrain(t)
		_, want := plain.evals(t)
		if _, got := terms.evals(t); len(want) < 2 || !slices.Equal(got, want) {
			t.Errorf("%s: held-out losses are %v with terms, %v without", head, got, want)
		}
		if with, without := terms.metrics(t, "eval_loss"), plain.metrics(t, "eval_loss"); slices.Equal(with, without) {
			t.Errorf("%s: the losses of steps are %v with terms and without", head, with)
		}
	}
}
