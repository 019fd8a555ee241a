package run

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// recipes are configurations of runs that tests interrupt and resume. The first line may name a
// model of recipeModels.
var recipes = map[string]string{
	"fp32":            "save_dtype: fp32\n",
	"fp32-saved-bf16": "save_dtype: bf16\noptimizer_zstd: true\n",
	"fp32-no-clip":    "max_grad_norm: 0\noptimizer_zstd: true\nsave_dtype: fp32\n",
	"bf16":            "compute_dtype: bf16\nsave_dtype: bf16\n",
	"bf16-zstd":       "compute_dtype: bf16\nsave_dtype: fp32\noptimizer_zstd: true\ngrad_dtype: bf16\nbinding: copy\n",
	"shards":          "compute_dtype: bf16\npipeline: {head_shards: 3, micro_batch_tokens: 1, activation_slots: 3}\n",
	"bf16-no-clip":    "compute_dtype: bf16\nmax_grad_norm: 0\npipeline: {grad_slabs: 1}\n",
	"eval":            "val_size: 2\neval_steps: 3\npacking: true\n",
	"windows":         "logging_steps: 3\nval_size: 2\neval_steps: 1\n",
	"one-window":      "logging_steps: 100\n",
	"tied":            "tied\nmax_grad_norm: 0\n",
	"experts":         "experts\nbinding: copy\nsave_dtype: fp32\n", // on demand
	"experts-ahead":   "experts\nbinding: copy\nper_device_train_batch_size: 24\nval_size: 2\neval_steps: 2\npipeline: {weight_slots: 9}\n",
	"experts-bf16":    "experts\ncompute_dtype: bf16\nmax_grad_norm: 0\npipeline: {grad_slabs: 2, micro_batch_tokens: 1}\n",
	"muon":            "optim: muon\nmuon_lr: 0.02\nsave_dtype: fp32\n",
	"groups":          "lr_groups: [{name: a, modules: [k_proj, embed_tokens], lr: 1e-3}, {name: b, modules: ['layers\\.1\\.mlp'], lr: 0.1, weight_decay: 0}]\nmax_grad_norm: 0\ncompute_dtype: bf16\nsave_dtype: fp32\n",
	"averaged":        "wide\noptim: adamw_8bit\nema_decay: 0.9\nema_update_after_step: 2\ncompute_dtype: bf16\nsave_dtype: fp32\n",
	"averaged-muon":   "optim: muon\nema_decay: 0.3\ncompute_dtype: bf16\nmaster_dtype: bf16\nfreeze: ['layers\\.0\\.mlp']\nmax_grad_norm: 0\n",
	"muon-bf16":       "optim: muon\nadjust_lr_fn: match_rms_adamw\ncompute_dtype: bf16\nbinding: copy\nmax_grad_norm: 0\noptimizer_zstd: true\n",
	"muon-8bit":       "wide\noptim: muon_8bit\nmuon_lr: 0.02\ncompute_dtype: bf16\nsave_dtype: fp32\n",
	"adamw-8bit":      "wide\noptim: adamw_8bit\ncompute_dtype: bf16\nsave_dtype: fp32\n",
	"adamw-4bit":      "wide\noptim: adamw_torch_4bit\nmax_grad_norm: 0\noptimizer_zstd: true\nbinding: copy\n",
	"lion-8bit":       "wide\noptim: lion_8bit\nlearning_rate: 1e-3\n",
	"sgd":             "optim: sgd\n",
	"sgd-bf16-master": "optim: sgd\ncompute_dtype: bf16\nmaster_dtype: bf16\n",
	"bf16-master":     "wide\noptim: adamw_8bit\ncompute_dtype: bf16\nmaster_dtype: bf16\nmax_grad_norm: 0\n",
	"muon-master":     "optim: muon\ncompute_dtype: bf16\nmaster_dtype: bf16\nsave_dtype: fp32\noptimizer_zstd: true\n",
	"sgd-bf16":        "optim: sgd\nmomentum: 0.9\nnesterov: true\ncompute_dtype: bf16\n",
	"frozen":          "freeze: [embed_tokens, 'layers\\.0\\.', norm]\ncompute_dtype: bf16\nsave_dtype: fp32\n",
	"frozen-experts":  "experts\nfreeze: ['experts\\.1?[0-9]\\.', self_attn]\nbinding: copy\nmax_grad_norm: 0\n",
	"frozen-but":      "tied\noptim: muon\nunfrozen_parameters: ['layers\\.1\\.']\nmax_grad_norm: 0\n",
	"tied-bf16-clip":  "tied\ncompute_dtype: bf16\npipeline: {micro_batch_tokens: 1, activation_slots: 3}\nrecompute: full\n",
}

// recipeModels are the models that the first line of a recipe can name, as keys under `model:`.
var recipeModels = map[string]string{
	"tied": "  tie_word_embeddings: true\n",
	"experts": "  model_type: qwen3_moe\n  num_experts: 40\n  num_experts_per_tok: 1\n  moe_intermediate_size: 20\n  mlp_only_layers: [1]\n" +
		"  output_router_logits: true\n",
}

func recipeScene(t *testing.T, recipe string) scene {
	first, rest, _ := strings.Cut(recipe, "\n")
	if keys, ok := recipeModels[first]; ok {
		s := newScene(t, rest)
		s.yaml = override(s.yaml, tinyModel+keys)
		return s
	}
	if first == "wide" { // some of its tensors have 4,096 elements: an optimizer may keep codes for them
		s := newScene(t, rest)
		s.yaml = override(s.yaml, strings.NewReplacer("intermediate_size: 24", "intermediate_size: 256", "vocab_size: 48", "vocab_size: 256").Replace(tinyModel))
		return s
	}
	return newScene(t, recipe)
}

// TestResumeAfterEveryStep: resuming any checkpoint of a run reproduces the rest bit for bit. Without long tests one
// checkpoint is drawn.
func TestResumeAfterEveryStep(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	for name, recipe := range recipes {
		t.Run(name, func(t *testing.T) {
			if name != "bf16" {
				testkit.NotShort(t)
			}
			t.Parallel()
			want := recipeScene(t, recipe)
			steps := want.config(t).MaxSteps
			after := sample(t, steps-1, 1)
			every := 1
			if len(after) == 1 {
				every = after[0]
			}
			want = want.with(fmt.Sprintf("save_steps: %d\n", every))
			want.mustTrain(t)
			for _, at := range after {
				got := want.in(t).with("save_steps: 100\n") // and after the last step
				copyTree(t, filepath.Join(want.out, settings.CheckpointName(at)), filepath.Join(got.out, settings.CheckpointName(at)))
				copyMetrics(t, want, got)
				out := got.mustTrain(t)
				if line := fmt.Sprintf("step %d of %d", at, steps); !strings.Contains(out, line) {
					t.Fatalf("the run did not go on from %s:\n%s", line, out)
				}
				sameTraffic(t, got, want)
			}
		})
	}
}

// TestResumeAfterInterrupts: a run that is interrupted after each reported step ends like an uninterrupted one.
// Without long tests one recipe in three is stopped twice.
func TestResumeAfterInterrupts(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	for i, name := range slices.Sorted(maps.Keys(recipes)) {
		recipe := recipes[name]
		t.Run(name, func(t *testing.T) {
			if testkit.NotShort(t); i%3 > 0 {
				testkit.LongOnly(t)
			}
			t.Parallel()
			want := recipeScene(t, recipe).with("save_steps: 3\n")
			want.mustTrain(t)
			got := want.in(t)
			interrupts, steps := 0, want.config(t).MaxSteps
			after := stops(t, 0, steps, 2)
			for _, step := range after {
				out, err := got.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(step, cancel) })
				if err == nil {
					break
				}
				if !errors.Is(err, settings.ErrInterrupted) {
					t.Fatalf("%v\n%s", err, out)
				}
				interrupts++
			}
			if least := min(len(after)-1, (steps-1)/2); interrupts < least {
				t.Fatalf("the run was interrupted %d times in %d steps", interrupts, steps)
			}
			if out := got.mustTrain(t); interrupts == steps && !strings.Contains(out, "training is done") {
				t.Fatalf("the run does not get on\n%s", out)
			}
			sameTraffic(t, got, want)
		})
	}
}

// stopsAfter returns hooks that interrupt a run when it reports step, or at its first report if
// that is of a later step. The batch of the second step after that waits for the interruption, so
// at most one more step is made. If the batch of the next step waited, an evaluation before the
// first step would wait too.
func stopsAfter(step int, cancel func()) settings.Hooks {
	stopped := make(chan struct{})
	var first, once sync.Once
	last := step
	return settings.Hooks{
		Packing: func(n int, eval bool) {
			if eval {
				return
			}
			if first.Do(func() { last = max(last, n) }); n > last+1 {
				<-stopped
			}
		},
		Stepped: func(n int) {
			if n >= step {
				once.Do(func() { cancel(); close(stopped) })
			}
		},
	}
}

// interrupted trains the scene with the hooks that with returns. They may call cancel, which
// interrupts the run.
func (s scene) interrupted(t *testing.T, with func(cancel func()) settings.Hooks) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	return s.train(t, ctx, with(cancel))
}

func copyMetrics(t *testing.T, from, to scene) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(from.out, settings.MetricsFile)))(t)
	write(t, filepath.Join(to.out, settings.MetricsFile), string(raw))
}

// TestDone: a finished run says so and changes no file, also if keys that do not matter differ.
func TestDone(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "")
	s.mustTrain(t)
	before := s.left(t)
	for _, extra := range []string{"", "threads: 1\n", "logging_steps: 5\n", "save_steps: 2\nsave_total_limit: 1\n", "binding: copy\n", "synchronous_updates: true\n",
		"pipeline: {weight_slots: 2, grad_buffers: 1, activation_slots: 4, batches_ahead: 1}\n", "per_device_train_batch_size: 4\ngradient_accumulation_steps: 1\n"} {
		h := settings.Hooks{Allocating: func() { t.Errorf("%q: the run takes memory", extra) }}
		out, err := s.with(extra).train(t, t.Context(), h)
		if err != nil || !strings.Contains(out, "step 8 of 8: training is done") {
			t.Errorf("%q: %v\n%s", extra, err, out)
		}
		for name, content := range s.left(t) {
			if before[name] != content {
				t.Errorf("%q: %s has changed", extra, name)
			}
		}
	}
	// If the run was killed before its model was complete, the same command writes the model again,
	// after the last evaluation.
	testkit.NoError(t, os.Remove(filepath.Join(s.out, "model.safetensors")))
	testkit.NoError(t, os.Remove(filepath.Join(s.out, settings.EndFile)))
	s.mustTrain(t)
	after := s.left(t)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// TestResumeWithOtherDepths: depths and other keys that do not affect results may change when a run
// resumes, and no bit of the result changes.
func TestResumeWithOtherDepths(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "save_steps: 2\n")
	want.mustTrain(t)
	got := want.in(t)
	for i, extra := range []string{"threads: 1\nrecompute: none\n", "binding: copy\nrecompute: full\npipeline: {weight_slots: 1, grad_buffers: 1, activation_slots: 3, batches_ahead: 1}\n",
		"threads: 3\nsynchronous_updates: true\n", ""} {
		if i == 3 {
			got.with(extra).mustTrain(t)
			break
		}
		_, err := got.with(extra).interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(2*i+1, cancel) })
		if !errors.Is(err, settings.ErrInterrupted) {
			t.Fatal(err)
		}
	}
	sameRun(t, got, want)
}

// poisoned returns a run from a model directory in which the embedding of one token is NaN. One of
// its rows has that token, so one of the three steps of each epoch has no finite loss.
func poisoned(t *testing.T) scene {
	t.Helper()
	s := withModel(t)
	name := filepath.Join(s.root, "model", "model.safetensors")
	raw := testkit.Must(os.ReadFile(name))(t)
	data := 8 + int(binary.LittleEndian.Uint64(raw))
	var h map[string]struct {
		Offsets []int `json:"data_offsets"`
	}
	testkit.NoError(t, json.Unmarshal(raw[8:data], &h))
	end := data + h[embedW].Offsets[1] // of the last row
	binary.LittleEndian.PutUint32(raw[end-4:], math.Float32bits(float32(math.NaN())))
	write(t, name, string(raw))
	var rows strings.Builder
	for i := range 10 {
		fmt.Fprintf(&rows, `{"input_ids": [%d, %d, 3, 4, 5]}`+"\n", i, 2*i)
	}
	write(t, s.rows, rows.String()+`{"input_ids": [1, 47, 3]}`)
	return s
}

// TestResumeAfterSkippedSteps: a step whose loss is not finite has its own line, ends a window, and enters no mean,
// whether or not the run was stopped since the previous line. Without long tests the run is stopped at two drawn
// steps.
func TestResumeAfterSkippedSteps(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := poisoned(t).with("logging_steps: 4\nsave_steps: 1\nsave_dtype: fp32\n")
	want.mustTrain(t)
	skipped, before := 0, 0
	for _, l := range want.logLines(t) {
		if l.Skipped {
			skipped++
		}
		if l.Skipped != (l.StepLoss == nil) || (l.Loss == nil) != (l.Skipped && l.WindowSteps == 1) || l.WindowSteps != l.Step-before {
			t.Errorf("step %d after %d: skipped %t, loss %v, step_loss %v, over %d steps", l.Step, before, l.Skipped, l.Loss, l.StepLoss, l.WindowSteps)
		}
		before = l.Step
	}
	if skipped < 2 {
		t.Fatalf("%d steps were skipped:\n%s", skipped, strings.Join(want.metrics(t), "\n"))
	}
	for _, at := range sample(t, 7, 2) {
		got := want.in(t).with("save_steps: 100\n")
		copyTree(t, filepath.Join(want.out, settings.CheckpointName(at)), filepath.Join(got.out, settings.CheckpointName(at)))
		copyMetrics(t, want, got)
		got.mustTrain(t)
		sameTraffic(t, got, want)
	}
}
