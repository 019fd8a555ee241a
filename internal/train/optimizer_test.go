package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/host/optim"
	"mt/internal/bfloat"
	"mt/internal/config"
	"mt/internal/long"
)

// TestMuonsRates: both rates follow the schedule of learning_rate, which they are unless they are given.
func TestMuonsRates(t *testing.T) {
	for keys, want := range map[string][2]float64{
		"":                               {1, 1},
		"muon_lr: 0.03\n":                {3, 1},
		"adam_lr: 0.005\n":               {1, 0.5},
		"muon_lr: 0.02\nadam_lr: 0.02\n": {2, 2},
	} {
		c, err := config.Parse("t.yaml", []byte("model: tiny\ndataset: x\noptim: muon\nlearning_rate: 0.01\n"+keys), config.Args{})
		if err != nil {
			t.Fatal(err)
		}
		m := muon(c)
		if math.Abs(m.Scale-want[0])+math.Abs(m.OthersScale-want[1]) > 1e-12 {
			t.Errorf("%q: matrices have %v times the schedule's rate, all else %v, want %v", keys, m.Scale, m.OthersScale, want)
		}
	}
}

// TestGroupsRates: a group's rate takes the place of learning_rate, of muon_lr and of adam_lr, and its decay that of weight_decay.
func TestGroupsRates(t *testing.T) {
	groups := "lr_groups: [{name: a, modules: [x], lr: 0.1}, {name: b, modules: [y], lr: 0.02, weight_decay: 0}]\n"
	for keys, want := range map[string][2]float64{ // the scales of the first group, of matrices and of all else
		"optim: muon\n":                   {10, 10},
		"optim: muon_8bit\nmuon_lr: 1\n":  {10, 10},
		"optim: muon\nadam_lr: 0.001\n":   {10, 100},
		"":                                {0, 10},
		"optim: adamw_8bit\n":             {0, 10},
		"optim: adamw_4bit\nadam_lr: 1\n": {0, 10},
		"optim: lion\n":                   {0, 10},
		"optim: lion_8bit\n":              {0, 10},
		"optim: sgd\n":                    {0, 10},
	} {
		c, err := config.Parse("t.yaml", []byte("model: tiny\ndataset: x\nlearning_rate: 0.01\nweight_decay: 0.3\n"+groups+keys), config.Args{})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, got *optim.Groups, scale float64) {
			if g := *got; len(g) != 2 || math.Abs(g[0].Scale-scale) > 1e-9 || math.Abs(g[1].Scale-scale/5) > 1e-9 || g[0].WeightDecay != 0.3 || g[1].WeightDecay != 0 {
				t.Errorf("%q: %s have groups %v, want the scale %v", keys, what, g, scale)
			}
		}
		o := optimizerOf(c)
		if m, ok := o.(optim.Muon); ok {
			check("matrices", m.Groups, want[0])
			o = m.Others
		}
		if q, ok := o.(optim.Quantised); ok {
			o = q.By
		}
		check("elements", o.(optim.Grouped).Groups, want[1])
	}
}

// TestWhatIsInNoGroup: the error of a group that cannot be is of the key, and a group that can be is told with its size.
func TestWhatIsInNoGroup(t *testing.T) {
	s := newScene(t, "lr_groups: [{name: a, modules: [lora_A], lr: 1}]\n")
	_, err := s.train(t, t.Context(), hooks{})
	checkError(t, err, true, "run.yaml:", `lr_groups: group a: "lora_A" matches no tensor`)
	out := newScene(t, "lr_groups: [{name: a, modules: ['layers\\.0\\.self_attn\\.k_proj'], lr: 0.25}]\n").mustTrain(t)
	if want := "parameters are in a, with a learning rate of 0.25"; !strings.Contains(out, want) {
		t.Errorf("the run does not say %q:\n%s", want, out)
	}
}

// TestWhatRanksCannotDo: several ranks are told what they cannot do, and what to do instead.
func TestWhatRanksCannotDo(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"optim: muon\n", "muon moves whole matrices, of which 2 ranks have parts: train on one host, or with optim: adamw"},
		{"clip: layerwise\nmodel: {hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2, vocab_size: 48, tie_word_embeddings: true}\n",
			"where they share a table, and 2 ranks exchange them apart: take clip: global"},
		{"param_dir: .\nstate_dir: .\n", "param_dir: each of 2 ranks has all weights in memory"},
	} {
		s := newScene(t, c.keys)
		for _, run := range trainTogether(t, 2, t.Context(), func(int) (*config.Config, hooks) { return s.config(t), hooks{} }) {
			checkError(t, run.err, true, c.want)
		}
	}
}

// TestMatrixBuffers: a run has as many matrix buffers as its configuration says, its config.yaml has how many those were,
// and they change no bit.
func TestMatrixBuffers(t *testing.T) {
	long.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "optim: muon\n")
	auto := openScene(t, base).plan.Depths.MatrixBuffers
	base.mustTrain(t)
	for _, n := range []int{1, auto + 4} {
		s := base.with(fmt.Sprintf("pipeline: {matrix_buffers: %d}\n", n)).in(t)
		if got := openScene(t, s).plan.Depths.MatrixBuffers; got != n {
			t.Errorf("matrix_buffers %d: %d are planned", n, got)
		}
		s.mustTrain(t)
		sameModel(t, s, base)
		raw, err := os.ReadFile(filepath.Join(s.out, configFile))
		if want := fmt.Sprintf("matrix_buffers: %d\n", n); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%q is not in config.yaml (%v):\n%s", want, err, raw)
		}
	}
}

// TestAnotherOptimizer: a run whose optimizer keeps something else than the checkpoint has is told how to
// start that anew.
func TestAnotherOptimizer(t *testing.T) {
	long.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\noptim: sgd\nmomentum: 0.9\n")
	base.mustTrain(t)
	for _, keys := range []string{"optim: adamw_8bit\n", "momentum: 0\n"} {
		_, err := base.with(keys).startedAt(t, base, 4).train(t, t.Context(), hooks{})
		checkError(t, err, true, strings.Split(keys, ":")[0], "checkpoint-4", "reset_optimizer: true", "resume_from_checkpoint: false")
	}
	base.with("momentum: 0.8\n").startedAt(t, base, 4).mustTrain(t)
}

// TestAnotherMaster: a run does not go on with other master weights than its checkpoint has, and is told what it can do;
// weights that stream as fp32 cannot be kept as bf16.
func TestAnotherMaster(t *testing.T) {
	long.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for was, now := range map[string]string{"fp32": "bf16", "bf16": "fp32"} {
		base := newScene(t, "save_steps: 4\ncompute_dtype: bf16\nmaster_dtype: "+was+"\n")
		base.mustTrain(t)
		for _, more := range []string{"", "reset_optimizer: true\n", "reset_data: true\n"} {
			_, err := base.with("master_dtype: "+now+"\n"+more).startedAt(t, base, 4).train(t, t.Context(), hooks{})
			checkError(t, err, true, "master_dtype", "checkpoint-4", "model_name_or_path: ", "another output_dir")
		}
	}
	_, err := newScene(t, "compute_dtype: fp32\nmaster_dtype: bf16\n").train(t, t.Context(), hooks{})
	checkError(t, err, true, "master_dtype", "compute_dtype is fp32", "set compute_dtype: bf16")
}

// TestBF16MasterFollowsTheSeed: what a checkpoint has of matrices are bf16 numbers, and two runs that differ in their seeds
// alone, from the same checkpoint over the same rows, round otherwise.
func TestBF16MasterFollowsTheSeed(t *testing.T) {
	long.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\nsave_dtype: fp32\ncompute_dtype: bf16\nmaster_dtype: bf16\nshuffle: false\n")
	base.mustTrain(t)
	weights := func(seed int) (out []float32) {
		s := base.with(fmt.Sprintf("seed: %d\nreset_data: true\n", seed)).startedAt(t, base, 4)
		s.mustTrain(t)
		for _, l := range loadState(t, filepath.Join(s.out, checkpointName(8))).Layers {
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
		if x != bfloat.Widen(bfloat.Round(x)) {
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

// TestMuonBits: muon_8bit keeps its momentum in 8 bits, and muon in fp32.
func TestMuonBits(t *testing.T) {
	for name, bits := range map[string]int{"muon": 0, "muon_8bit": 8} {
		if m := muon(&config.Config{Optim: name, LearningRate: 1}); m == nil || m.Bits != bits {
			t.Errorf("%s keeps its momentum as %+v, want %d bits", name, m, bits)
		}
	}
}
