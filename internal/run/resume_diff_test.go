package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/open"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
)

// startedAt returns the scene with a new output directory. Into it startedAt copies the checkpoint
// after the given step of the scene from, and the metrics up to that step.
func (s scene) startedAt(t *testing.T, from scene, step int) scene {
	t.Helper()
	s = s.in(t)
	copyTree(t, filepath.Join(from.out, settings.CheckpointName(step)), filepath.Join(s.out, settings.CheckpointName(step)))
	copyMetrics(t, from, s)
	return s
}

// alterations are keys that a resumed run may change, and the output that it must print about the
// change. Step 5, the first after the checkpoint, is the second step of an epoch.
var alterations = map[string]struct{ extra, says string }{
	"longer":        {"max_steps: 13\n", "with max_steps 13 (was 8): the learning rate was 0.00933 at step 4 and is 0.01 at step 5; cosine is laid anew"},
	"shorter":       {"max_steps: 6\n", "with max_steps 6 (was 8): "},
	"rate":          {"learning_rate: 0.003\n", "with learning_rate 0.003 (was 0.01): the learning rate was "},
	"linear":        {"lr_scheduler_type: linear\n", "lr_scheduler_type linear (was cosine): "},
	"wsd":           {"lr_scheduler_type: wsd\nmax_steps: 11\ndecay_ratio: 0.4\n", "lr_scheduler_type wsd (was cosine), decay_ratio 0.4 (was 0.1): "},
	"larger batch":  {"per_device_train_batch_size: 3\n", "with rows_per_step 6 (was 4) after row 15 of the data: the learning rate's schedule stays"},
	"smaller batch": {"gradient_accumulation_steps: 1\n", "with rows_per_step 2 (was 4) after row 15 of the data: "},
	"update": {"adam_beta1: 0.8\nadam_beta2: 0.95\nadam_epsilon: 0.001\nweight_decay: 0.3\nmax_grad_norm: 0.5\n",
		"with adam_beta1 0.8 (was 0.9), adam_beta2 0.95 (was 0.999), adam_epsilon 0.001 (was 1.0e-08), weight_decay 0.3 (was 0.1), max_grad_norm 0.5 (was 1.0): the learning rate's schedule stays"},
	"no clip":   {"max_grad_norm: 0\nsave_steps: 3\n", "with max_grad_norm 0.0 (was 1.0), save_steps 3 (was 4): "},
	"moments":   {"reset_optimizer: true\n", "with moments of zero (reset_optimizer): a new schedule begins: cosine over steps 5 to 8 with warm-up until step 6, "},
	"data":      {"reset_data: true\ndataset: OTHER\n", "with data from its first row (reset_data), dataset ["},
	"all anew":  {"reset_data: true\nreset_optimizer: true\ndataset: OTHER\nmax_seq_len: 20\nseed: 5\nmax_steps: 10\ncompute_dtype: bf16\n", "data from its first row (reset_data), moments of zero (reset_optimizer), dataset ["},
	"lion":      {"optim: lion\nreset_optimizer: true\nlearning_rate: 1e-3\n", "with moments of zero (reset_optimizer), optim lion (was adamw), learning_rate 0.001 (was 0.01): a new schedule begins"},
	"same data": {"reset_data: true\n", "with data from its first row (reset_data): a new schedule begins"},
}

// TestAltered: a run resumes with other keys and says so. If it is interrupted after every step, it gives the same
// bits as without interruptions. Without long tests one interrupted step is drawn.
func TestAltered(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\n")
	base.mustTrain(t)
	other := writeRows(t, base.root, 17, 20, 48)
	for name, tc := range alterations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene := base.with(strings.ReplaceAll(tc.extra, "OTHER", other))
			want := scene.startedAt(t, base, 4)
			out := want.mustTrain(t)
			if !strings.Contains(out, "checkpoint-4 goes on with ") || !strings.Contains(out, tc.says) {
				t.Errorf("the run does not say %q:\n%s", tc.says, out)
			}
			got := scene.startedAt(t, base, 4)
			after, err := stops(t, 4, scene.config(t).MaxSteps, 1), error(settings.ErrInterrupted)
			for i := 0; err != nil; i++ {
				out, err = got.interrupted(t, func(cancel func()) settings.Hooks {
					if i == len(after) {
						return settings.Hooks{}
					}
					return stopsAfter(after[i], cancel)
				})
				if err != nil && (!errors.Is(err, settings.ErrInterrupted) || i == len(after)) {
					t.Fatalf("%v\n%s", err, out)
				}
				if said := strings.Contains(out, " goes on with "); said != (i == 0) {
					t.Errorf("go %d: that something has changed is said: %t\n%s", i, said, out)
				}
			}
			sameRun(t, got, want)
		})
	}
}

// TestAlteredStepsArePlannedAnew: if a resumed run has steps of another size, its plan chooses
// micro-batches and depths anew. It does not keep those of the first run.
func TestAlteredStepsArePlannedAnew(t *testing.T) {
	base := newScene(t, "save_steps: 4\nmax_grad_norm: 0\n")
	if out := base.mustTrain(t); !strings.Contains(out, "micro-batches of 48 tokens") || !strings.Contains(out, "fp32 × 3") {
		t.Fatal(out)
	}
	for extra, says := range map[string]string{
		"per_device_train_batch_size: 3\n": "micro-batches of 72 tokens",
		"max_grad_norm: 1\n":               "all layers wait for the norm",
	} {
		if out := base.with(extra).startedAt(t, base, 4).mustTrain(t); !strings.Contains(out, says) {
			t.Errorf("%q: no %q:\n%s", extra, says, out)
		}
	}
}

// TestResetAgain: reset_data and reset_optimizer take effect once and not again when the same
// command resumes. reset_data takes effect again if the data has changed again.
func TestResetAgain(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "")
	s.mustTrain(t)
	for i, tc := range []struct{ extra, says string }{
		{"max_steps: 9\n", "goes on with data from its first row (reset_data), max_steps 9 (was 8): a new schedule begins: cosine over steps 9 to 9"},
		{"max_steps: 10\n", "goes on with max_steps 10 (was 9): "},
		{"max_steps: 11\nseed: 9\n", "goes on with data from its first row (reset_data), seed 9 (was 42), max_steps 11 (was 10): a new schedule"},
		{"max_steps: 12\nseed: 9\nreset_optimizer: true\n", "goes on with moments of zero (reset_optimizer), max_steps 12 (was 11): a new schedule"},
		{"max_steps: 13\nseed: 9\nreset_optimizer: true\n", "goes on with max_steps 13 (was 12): "},
	} {
		if out := s.with("reset_data: true\n" + tc.extra).mustTrain(t); !strings.Contains(out, tc.says) {
			t.Errorf("go %d does not say %q:\n%s", i, tc.says, out)
		}
	}
}

// TestEarlierCheckpoint: a run can resume from an earlier one of its checkpoints, and says that
// there is a later one.
func TestEarlierCheckpoint(t *testing.T) {
	base := newScene(t, "save_steps: 4\n")
	base.mustTrain(t)
	got := base.in(t)
	copyTree(t, base.out, got.out)
	out := got.with("resume_from_checkpoint: " + got.out + "/checkpoint-4\n").mustTrain(t)
	if !strings.Contains(out, got.out+"/checkpoint-8 is of a later step: resume_from_checkpoint: auto goes on from the highest step of all") ||
		!strings.Contains(out, "resuming from "+got.out+"/checkpoint-4, step 4 of 8") || strings.Contains(out, "goes on with") {
		t.Error(out)
	}
	sameRun(t, got, base)
}

// loadState reads a checkpoint with the moments of AdamW.
func loadState(t *testing.T, dir string) *host.Store {
	t.Helper()
	c := testkit.Must(model.LoadDir(dir))(t)
	s := testkit.Must(host.NewStore(c.Layouts(false), optim.AdamW{}.Planes, nil))(t)
	t.Cleanup(func() { _ = s.Close() })
	testkit.Must(checkpoint.Load(dir, open.CheckpointLayers(s), nil))(t)
	return s
}

// adam has the hyperparameters of an AdamW update, as PyTorch names them. clip is the largest
// gradient norm.
type adam struct{ lr, beta1, beta2, eps, decay, clip float64 }

// TestAlteredUpdate: a hyperparameter that is changed on resume is the one that the next update
// uses. The test derives the gradient of step 5 from the moments before and after it in an
// unchanged run. PyTorch's formula of AdamW with the changed value then gives the weights and
// moments that the changed run must have.
func TestAlteredUpdate(t *testing.T) {
	testkit.NotShort(t)
	base := newScene(t, "save_steps: 1\nsave_dtype: fp32\nlr_scheduler_type: constant\nwarmup_steps: 0\nmax_grad_norm: 0.5\n")
	base.mustTrain(t)
	was := adam{lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.1, clip: 0.5}
	s4, s5 := loadState(t, filepath.Join(base.out, "checkpoint-4")), loadState(t, filepath.Join(base.out, "checkpoint-5"))
	norm := gradNorm(t, base, 5)
	if norm < was.clip {
		t.Fatalf("the norm %g of step 5 is not clipped", norm)
	}
	for extra, change := range map[string]func(a *adam){
		"weight_decay: 0.1\n":   func(*adam) {}, // as it was: the oracle is right
		"learning_rate: 0.02\n": func(a *adam) { a.lr = 0.02 },
		"adam_beta1: 0.5\n":     func(a *adam) { a.beta1 = 0.5 },
		"adam_beta2: 0.9\n":     func(a *adam) { a.beta2 = 0.9 },
		"adam_epsilon: 0.01\n":  func(a *adam) { a.eps = 0.01 },
		"weight_decay: 2\n":     func(a *adam) { a.decay = 2 },
		"max_grad_norm: 0.25\n": func(a *adam) { a.clip = 0.25 },
	} {
		now := was
		change(&now)
		run := base.with(extra).startedAt(t, base, 4)
		out := run.mustTrain(t)
		if said := strings.Contains(out, "goes on with "+strings.Split(extra, ":")[0]); said != (now != was) {
			t.Errorf("%q: the change is said: %t\n%s", extra, said, out)
		}
		got := loadState(t, filepath.Join(run.out, "checkpoint-5"))
		var worst [3]float64 // of weight, m and v: the largest error over the largest change in the tensor
		for i, l := range s4.Layers {
			m4s, v4s, m5s := floats(l, "m"), floats(l, "v"), floats(s5.Layers[i], "m")
			mGot, vGot := floats(got.Layers[i], "m"), floats(got.Layers[i], "v")
			for k, tl := range l.Layout.Tensors {
				w4, w5, wGot := tensor(s4, i, k), tensor(s5, i, k), tensor(got, i, k)
				var e, size [3]float64
				for x := range w4 {
					at := tl.Elem + int64(x)
					m4, v4 := float64(m4s[at]), float64(v4s[at])
					g := (float64(m5s[at]) - was.beta1*m4) / (1 - was.beta1) * now.clip / was.clip
					m := now.beta1*m4 + (1-now.beta1)*g
					v := now.beta2*v4 + (1-now.beta2)*g*g
					w := w4[x]
					if tl.Dims >= 2 {
						w *= 1 - now.lr*now.decay
					}
					w -= now.lr * m / (1 - math.Pow(now.beta1, 5)) / (math.Sqrt(v/(1-math.Pow(now.beta2, 5))) + now.eps)
					for p, pair := range [][3]float64{{wGot[x], w, w5[x] - w4[x]}, {float64(mGot[at]), m, m}, {float64(vGot[at]), v, v}} {
						e[p] = max(e[p], math.Abs(pair[0]-pair[1]))
						size[p] = max(size[p], math.Abs(pair[2]))
					}
				}
				for p := range worst {
					worst[p] = max(worst[p], e[p]/size[p])
				}
			}
		}
		// The gradient is computed from two fp32 moments as (m5 − β1·m4) / (1 − β1). The division
		// by about 0.1 enlarges their rounding errors ten times, far below 1e-4. A wrong
		// hyperparameter changes the first or second digit.
		if limit := 1e-4; !(worst[0] < limit && worst[1] < limit && worst[2] < limit) {
			t.Errorf("%q: weights, m and v differ by %.1e of what they changed by, over %.1e", extra, worst, limit)
		}
	}
}

// floats returns the elements of a layer's fp32 plane with this name.
func floats(l *host.LayerState, name string) []float32 { return optim.View[float32](l.Plane(name)) }

// tensor returns all elements of tensor k of a layer in a store.
func tensor(s *host.Store, layer, k int) []float64 {
	tl := s.Layers[layer].Layout.Tensors[k]
	buf := make([]float32, tl.Rows*tl.Cols)
	s.Layers[layer].ReadRows(k, 0, tl.Rows, buf)
	out := make([]float64, len(buf))
	for i, x := range buf {
		out[i] = float64(x)
	}
	return out
}

// gradNorm returns the gradient norm of a step in metrics.jsonl.
func gradNorm(t *testing.T, s scene, step int) float64 {
	t.Helper()
	for _, text := range s.metrics(t) {
		var line struct {
			Step int
			Norm float64 `json:"grad_norm"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(text), &line))
		if line.Step == step {
			return line.Norm
		}
	}
	t.Fatalf("no line of step %d", step)
	return 0
}

// TestOtherDataAndMoments: a run that resumes with reset_data and reset_optimizer does the same,
// step by step, as a new run that starts from the checkpoint's weights.
func TestOtherDataAndMoments(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_dtype: fp32\n")
	base.mustTrain(t)
	from, other := filepath.Join(base.out, "checkpoint-8"), writeRows(t, base.root, 17, 20, 48)
	const keys = "save_dtype: fp32\nmax_seq_len: 20\nseed: 3\ndataset: "
	want := base.in(t).with(keys + other + "\nmax_steps: 6\nmodel_name_or_path: " + from + "\n").without("model")
	want.mustTrain(t)
	got := base.in(t).with(keys + other + "\nmax_steps: 14\nreset_data: true\nreset_optimizer: true\nresume_from_checkpoint: " + from + "\n")
	got.mustTrain(t)
	counted := append(slices.Clone(timedKeys), "step", "max_steps", "tokens_total")
	if g, w := got.metrics(t, counted...), want.metrics(t, counted...); !slices.Equal(g, w) {
		t.Errorf("metrics are\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	for _, name := range []string{"model.safetensors", "config.json"} {
		if a, b := read(t, filepath.Join(got.out, name)), read(t, filepath.Join(want.out, name)); a != b {
			t.Errorf("%s differs", name)
		}
	}
	for layer := range 5 {
		name := fmt.Sprintf("optimizer/layer-%05d.safetensors", layer)
		if a, b := read(t, filepath.Join(got.out, "checkpoint-14", name)), read(t, filepath.Join(want.out, "checkpoint-6", name)); a != b {
			t.Errorf("%s differs", name)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(name))(t)
	return string(raw)
}

// TestEpochsGoOn: num_train_epochs counts the rows that were trained on, also if a resumed run has
// other steps than before.
func TestEpochsGoOn(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "max_steps: -1\nnum_train_epochs: 1\n")
	s.mustTrain(t) // 4, 4 and 3 rows
	for _, tc := range []struct {
		extra, ends string // keys of a run that goes on from the one before, and its last line
	}{
		{"num_train_epochs: 1\n", "step 3 of 3: training is done"},
		{"num_train_epochs: 2\n", `"epoch":2,"step":6`},
		{"num_train_epochs: 3\nper_device_train_batch_size: 5\n", `"epoch":3,"step":8`},
		{"num_train_epochs: 3\nper_device_train_batch_size: 1\n", "step 8 of 8: training is done"},
		{"num_train_epochs: 3.5\nper_device_train_batch_size: 1\n", `"epoch":3.5454545454545454,"step":11`},
		{"num_train_epochs: 4\nper_device_train_batch_size: 5\n", `"epoch":4,"step":12`},
	} {
		s := s.with(tc.extra)
		out := s.mustTrain(t)
		lines := s.metrics(t, append(slices.Clone(timedKeys), "grad_norm", "loss", "lr", "max_steps", "step_loss")...)
		if last := lines[len(lines)-1]; !strings.Contains(last, tc.ends) && !strings.Contains(out, tc.ends) {
			t.Errorf("%q ends with %s\n%s", tc.extra, last, out)
		}
	}
	_, err := s.with("num_train_epochs: 1\nper_device_train_batch_size: 2\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml", "num_train_epochs is 1", "step 12 is at epoch 4.00", "raise it", "give max_steps (the checkpoint's run had max_steps 12)", "earlier checkpoint")
}

// TestEndedEpochsAreDone: a finished run by num_train_epochs that keeps no checkpoints is
// recognised as finished: the same command says so.
func TestEndedEpochsAreDone(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "max_steps: -1\nnum_train_epochs: 1\nkeep_checkpoints: false\n")
	s.mustTrain(t)
	if out := s.mustTrain(t); !strings.Contains(out, "step 3 of 3: training is done") {
		t.Errorf("the run again says\n%s", out)
	}
}

// TestFromAnotherRun: a run can start from a checkpoint in another run's output directory. The same
// command then resumes from its own checkpoints.
func TestFromAnotherRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	base := newScene(t, "save_steps: 4\n")
	base.mustTrain(t)
	from := filepath.Join(base.out, "checkpoint-4")
	want := base.in(t).with("resume_from_checkpoint: " + from + "\n")
	if out := want.mustTrain(t); !strings.Contains(out, "resuming from "+from) {
		t.Error(out)
	}
	// The metrics of steps 5 to 8 and the model equal those of the uninterrupted run, and there are
	// no lines of earlier steps.
	if g, w := want.metrics(t, timedKeys...), base.metrics(t, timedKeys...)[4:]; !slices.Equal(g, w) {
		t.Errorf("metrics are\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	if read(t, filepath.Join(want.out, "model.safetensors")) != read(t, filepath.Join(base.out, "model.safetensors")) {
		t.Error("the model is not the one that the run left alone has")
	}
	got := want.in(t)
	for i := 4; ; i++ {
		out, err := got.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(1, cancel) })
		if err == nil {
			break
		}
		dir := from
		if i > 4 {
			dir = got.out
		}
		if !errors.Is(err, settings.ErrInterrupted) || i > 8 || !strings.Contains(out, "resuming from "+dir) {
			t.Fatalf("go %d: %v\n%s", i, err, out)
		}
	}
	sameRun(t, got, want)
	if out := got.mustTrain(t); !strings.Contains(out, "training is done") {
		t.Errorf("run again:\n%s", out)
	}
	// A run that starts from another run's checkpoint may have another compute dtype. It mentions
	// checkpoints in its own directory that come from another start.
	if out := want.in(t).with("compute_dtype: bf16\n").mustTrain(t); !strings.Contains(out, "compute_dtype bf16 (was fp32)") {
		t.Errorf("other roundings:\n%s", out)
	}
	if out := base.with("resume_from_checkpoint: " + filepath.Join(want.out, "checkpoint-8") + "\nmax_steps: 9\n").mustTrain(t); !strings.Contains(out, base.out+" holds checkpoints of a run that did not begin from ") {
		t.Errorf("in the directory of another run:\n%s", out)
	}
}
