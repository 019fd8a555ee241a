package run

import (
	"math"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// TestNoiseOfSteps: noise on embeddings changes the losses of steps but not of evaluations. It depends on the seed
// and not on the division into micro-batches.
func TestNoiseOfSteps(t *testing.T) {
	testkit.NotShort(t)
	plain := newScene(t, "val_size: 3\neval_steps: 1\nlearning_rate: 0\nmax_steps: 3\npacking: false\nshuffle: false\n")
	noise := plain.in(t).with("neftune_noise_alpha: 20\n")
	plain.mustTrain(t)
	noise.mustTrain(t)
	_, want := plain.evals(t)
	if _, got := noise.evals(t); len(want) < 2 || !slices.Equal(got, want) {
		t.Errorf("held-out losses are %v with noise, %v without", got, want)
	}
	losses := noise.losses(t)
	for i, without := range plain.losses(t) {
		if math.Abs(losses[i]/without-1) < 1e-4 {
			t.Errorf("step %d: the loss is %v with noise, %v without", i+1, losses[i], without)
		}
	}
	cut := noise.in(t).with("pipeline: {micro_batch_tokens: 1}\n")
	cut.mustTrain(t)
	near(t, cut.losses(t), losses)
	var seeds [][]float64 // of one model and the same rows
	for _, seed := range []string{"1", "5"} {
		s := noise.in(t).without("model").with("model_name_or_path: " + plain.out + "\nval_size: 0\neval_steps: 0\nseed: " + seed + "\n")
		s.mustTrain(t)
		seeds = append(seeds, s.losses(t))
	}
	if slices.Equal(seeds[0], seeds[1]) {
		t.Errorf("two seeds have the same noise: losses %v", seeds[0])
	}
}
