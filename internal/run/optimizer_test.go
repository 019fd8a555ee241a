package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/base/bf16"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestWhatIsInNoGroup: an lr_groups entry that matches no tensor is an error that names the key. A
// valid group is reported with its number of parameters.
func TestWhatIsInNoGroup(t *testing.T) {
	s := newScene(t, "lr_groups: [{name: a, modules: [lora_A], lr: 1}]\n")
	_, err := s.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml:", `lr_groups: group a: "lora_A" matches no tensor`)
	out := newScene(t, "lr_groups: [{name: a, modules: ['layers\\.0\\.self_attn\\.k_proj'], lr: 0.25}]\n").mustTrain(t)
	if want := "parameters are in a, with a learning rate of 0.25"; !strings.Contains(out, want) {
		t.Errorf("the run does not say %q:\n%s", want, out)
	}
}

// TestWhatRanksCannotDo: keys that several ranks do not support give an error that says what to use
// instead.
func TestWhatRanksCannotDo(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"optim: muon\n", "muon moves whole matrices, of which 2 ranks have parts: train on one host, or with optim: adamw"},
		{"clip: layerwise\nmodel: {hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2, vocab_size: 48, tie_word_embeddings: true}\n",
			"where they share a table, and 2 ranks exchange them apart: take clip: global"},
		{"param_dir: .\nstate_dir: .\n", "param_dir: each of 2 ranks has all weights in memory"},
	} {
		s := newScene(t, c.keys)
		for _, run := range trainRanks(t, 2, t.Context(), func(int) (*config.Config, settings.Hooks) { return s.config(t), settings.Hooks{} }) {
			checkError(t, run.err, true, c.want)
		}
	}
}

// TestMatrixBuffers: a run with Muon has as many matrix buffers as its configuration says. It
// records their number in config.yaml, and the number changes no bit.
func TestMatrixBuffers(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "optim: muon\n")
	auto := openScene(t, base).Plan.Depths.MatrixBuffers
	base.mustTrain(t)
	for _, n := range []int{1, auto + 4} {
		s := base.with(fmt.Sprintf("pipeline: {matrix_buffers: %d}\n", n)).in(t)
		if got := openScene(t, s).Plan.Depths.MatrixBuffers; got != n {
			t.Errorf("matrix_buffers %d: %d are planned", n, got)
		}
		s.mustTrain(t)
		sameModel(t, s, base)
		raw, err := os.ReadFile(filepath.Join(s.out, settings.ConfigFile))
		if want := fmt.Sprintf("matrix_buffers: %d\n", n); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%q is not in config.yaml (%v):\n%s", want, err, raw)
		}
	}
}

// TestAnotherOptimizer: a run whose optimizer has other state than the checkpoint is refused. The
// error says which key starts the optimizer anew.
func TestAnotherOptimizer(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\noptim: sgd\nmomentum: 0.9\n")
	base.mustTrain(t)
	for _, keys := range []string{"optim: adamw_8bit\n", "momentum: 0\n"} {
		_, err := base.with(keys).startedAt(t, base, 4).train(t, t.Context(), settings.Hooks{})
		checkError(t, err, true, strings.Split(keys, ":")[0], "checkpoint-4", "reset_optimizer: true", "resume_from_checkpoint: false")
	}
	base.with("momentum: 0.8\n").startedAt(t, base, 4).mustTrain(t)
}

// TestAnotherMaster: a run cannot resume with another master_dtype than its checkpoint. The error
// says which changes are possible. Weights that stream as fp32 cannot have bf16 masters.
func TestAnotherMaster(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for was, now := range map[string]string{"fp32": "bf16", "bf16": "fp32"} {
		base := newScene(t, "save_steps: 4\ncompute_dtype: bf16\nmaster_dtype: "+was+"\n")
		base.mustTrain(t)
		for _, more := range []string{"", "reset_optimizer: true\n", "reset_data: true\n"} {
			_, err := base.with("master_dtype: "+now+"\n"+more).startedAt(t, base, 4).train(t, t.Context(), settings.Hooks{})
			checkError(t, err, true, "master_dtype", "checkpoint-4", "model_name_or_path: ", "another output_dir")
		}
	}
	_, err := newScene(t, "compute_dtype: fp32\nmaster_dtype: bf16\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "master_dtype", "compute_dtype is fp32", "set compute_dtype: bf16")
}

// TestBF16MasterFollowsTheSeed: with master_dtype: bf16, a checkpoint contains only bf16 numbers
// for matrices. Two runs that differ only in their seeds, from the same checkpoint and on the same
// rows, round updates differently.
func TestBF16MasterFollowsTheSeed(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\nsave_dtype: fp32\ncompute_dtype: bf16\nmaster_dtype: bf16\nshuffle: false\n")
	base.mustTrain(t)
	weights := func(seed int) (out []float32) {
		s := base.with(fmt.Sprintf("seed: %d\nreset_data: true\n", seed)).startedAt(t, base, 4)
		s.mustTrain(t)
		for _, l := range loadState(t, filepath.Join(s.out, settings.CheckpointName(8))).Layers {
			for k, tl := range l.Layout.Tensors {
				if tl.Dims < 2 || tl.Ref {
					continue
				}
				x := make([]float32, tl.Elems())
				l.ReadRows(k, 0, tl.Rows, x)
				out = append(out, x...)
			}
		}
		return out
	}
	one := weights(5)
	for i, x := range one {
		if x != bf16.Widen(bf16.Round(x)) {
			t.Fatalf("weight %d is %g, which is no bf16 number", i, x)
		}
	}
	if !slices.Equal(one, weights(5)) {
		t.Error("the same run has other weights")
	}
	if slices.Equal(one, weights(6)) {
		t.Error("another seed gives the same weights")
	}
}
