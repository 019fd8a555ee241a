package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/base/cluster"
	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/ranks"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// rankRun is the outcome of a run on one rank: its output and its error.
type rankRun struct {
	said string
	err  error
}

// trainRanks trains on n ranks in this process. prepare returns the configuration and hooks of each
// rank.
func trainRanks(t *testing.T, n int, ctx context.Context, prepare func(rank int) (*config.Config, settings.Hooks)) []rankRun {
	t.Helper()
	out := make([]rankRun, n)
	var all sync.WaitGroup
	for r, w := range cluster.LocalWorlds(n, cluster.LocalOptions{Seed: uint64(7 * n)}) {
		c, h := prepare(r)
		if h.FS == nil {
			h.FS = lazyFS{checkpoint.OS()}
		}
		all.Go(func() {
			var said bytes.Buffer
			out[r].err = Train(ctx, c, settings.Options{Stdout: &said, Stderr: &said, World: w, Version: "1", Hooks: h})
			out[r].said = said.String()
			_ = w.Close() // where a rank has ended the run it says so again
		})
	}
	all.Wait()
	return out
}

// trainRanks trains the scene on n ranks.
func (s scene) trainRanks(t *testing.T, n int) string {
	t.Helper()
	runs := s.tryRanks(t, n, t.Context(), nil)
	for r, run := range runs {
		if run.err != nil {
			t.Fatalf("%d ranks: rank %d: %v\n%s", n, r, run.err, runs[0].said)
		}
		if r > 0 && run.said != "" {
			t.Errorf("%d ranks: rank %d prints %q", n, r, run.said)
		}
	}
	return runs[0].said
}

// tryRanks trains the scene on n ranks in this process. h returns the hooks of each rank; nil: no
// hooks.
func (s scene) tryRanks(t *testing.T, n int, ctx context.Context, h func(rank int) settings.Hooks) []rankRun {
	t.Helper()
	return trainRanks(t, n, ctx, func(rank int) (*config.Config, settings.Hooks) {
		if h == nil {
			return s.config(t), settings.Hooks{}
		}
		return s.config(t), h(rank)
	})
}

// TestRecordingsTogether: several ranks reproduce the recordings within the bounds of a single process, however data
// is streamed. Without long tests two ranks train the small recordings, and representatives also with copied weights.
func TestRecordingsTogether(t *testing.T) {
	dirs := map[string]string{}
	for _, dir := range testkit.FoundRecordings(t) {
		dirs[filepath.Base(dir)] = dir
	}
	for _, name := range []string{"llama-clipped", "llama-groups", "llama-averaged", "llama-frozen", "dpo-rpo-tied", "qwen3-tied", "qwen3moe-frozen", "qwen3moe-unclipped", "qwen3moe-balanced", "qwen2moe-balanced", "glm4moe-groups", "glm4moe-ahead", "deepseekv2-groups", "deepseekv2-whole", "qwen3next-shared"} {
		dirs[name] = filepath.Join("testdata/recordings", name)
	}
	for name, dir := range dirs {
		var want expected
		readJSON(t, filepath.Join(dir, "expected.json"), &want)
		for n := 2; n <= 4; n++ {
			for variant, extra := range map[string]string{"default": "", "copy": "binding: copy\nrecompute: full\npipeline: {micro_batch_tokens: 40, chunk_tokens: 8, head_shards: 3}", "bf16": "compute_dtype: bf16"} {
				kind := dtypeOf(variant)
				if _, ok := want.Bounds[kind]; !ok && kind == "bf16" {
					continue // it was recorded in fp32 alone
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, variant, n), func(t *testing.T) {
					small := dir == filepath.Join("testdata/recordings", name)
					if n > 2 || variant != "default" && !small {
						testkit.Drawn(t, 3)
					}
					if name != "llama-clipped" || variant != "default" {
						testkit.NotShort(t)
					}
					if !small || variant != "default" && representatives[name] == "" {
						testkit.LongOnly(t)
					}
					out := t.TempDir()
					train := func(dir, out string) {
						runs := trainRanks(t, n, t.Context(), func(int) (*config.Config, settings.Hooks) { return fixtureConfig(t, dir, out, extra), settings.Hooks{} })
						for r, run := range runs {
							if run.err != nil {
								t.Fatalf("rank %d: %v\n%s", r, run.err, runs[0].said)
							}
						}
					}
					train(dir, out)
					compareRun(t, dir, out, kind, want, train)
					var but []string
					if kind == "bf16" {
						but = nearTies[name]
					}
					compareWeights(t, filepath.Join(dir, "model"), filepath.Join(dir, "final.safetensors"), out, weightBound(name, kind, want), kind == "bf16", but...)
					if strings.HasSuffix(name, "-averaged") {
						compareWeights(t, filepath.Join(dir, "model"), filepath.Join(dir, "ema.safetensors"), filepath.Join(out, settings.AverageDir), want.Bounds[kind].Weights, kind == "bf16")
					}
				})
			}
		}
	}
}

// TestTogether: each number of ranks has its own bits, and a resumed run with the same number ends with them. Without
// long tests each configuration has one drawn number of ranks.
func TestTogether(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for name, extra := range map[string]string{
		"clipped":   "save_steps: 3\nval_size: 2\neval_steps: 3\nsave_dtype: fp32\n",
		"unclipped": "save_steps: 3\nmax_grad_norm: 0\n",
		"bf16":      "save_steps: 3\ncompute_dtype: bf16\nsave_dtype: fp32\noptimizer_zstd: true\n",
		"master":    "wide\nsave_steps: 3\noptim: adamw_8bit\ncompute_dtype: bf16\nmaster_dtype: bf16\n",
		"averaged":  "save_steps: 3\ncompute_dtype: bf16\nema_decay: 0.8\nema_update_after_step: 1\n",
		"codes":     "wide\nsave_steps: 3\noptim: adamw_8bit\nsave_dtype: fp32\n",
	} {
		for _, n := range sample(t, 2, 1) {
			n++ // ranks
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				want := recipeScene(t, extra)
				want.trainRanks(t, n)
				again := want.in(t)
				again.trainRanks(t, n)
				sameRun(t, again, want)
				// Remove what was written after step 3, as if the run had been killed before its
				// second checkpoint. It must resume from the first.
				for _, name := range []string{settings.CheckpointName(6), settings.CheckpointName(8), settings.EndFile} {
					testkit.NoError(t, os.RemoveAll(filepath.Join(again.out, name)))
				}
				if said := again.trainRanks(t, n); !strings.Contains(said, "resuming from "+filepath.Join(again.out, settings.CheckpointName(3))) {
					t.Errorf("it does not go on from step 3\n%s", said)
				}
				sameRun(t, again, want)
				sameSteps(t, again.out, n-1)
				if log, err := os.ReadFile(filepath.Join(again.out, "rank-1.log")); err != nil || !strings.Contains(string(log), fmt.Sprintf("rank 1 on host 1, of %d\n", n)) {
					t.Errorf("rank 1 has said %q, %v", log, err)
				}
			})
		}
	}
}

// TestOtherNumbersOfRanks: a run resumes with more ranks, with fewer and with one. Its losses equal a single
// process's except in the last bits.
func TestOtherNumbersOfRanks(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	alone := newScene(t, "save_steps: 2\nneftune_noise_alpha: 3\n")
	alone.mustTrain(t)
	got := alone.in(t)
	for i, n := range []int{2, 1, 3, 2} { // up to steps 2, 4, 6 and 8
		part := got.with(fmt.Sprintf("max_steps: %d\nlr_scheduler_type: constant\n", 2*(i+1)))
		if n == 1 {
			part.mustTrain(t)
			continue
		}
		said := part.trainRanks(t, n)
		if was := []int{0, 2, 1, 3}[i]; i > 0 && !strings.Contains(said, fmt.Sprintf("goes on with ranks: %d (was %d): ", n, was)) {
			t.Errorf("the change from %d to %d ranks is not noted\n%s", was, n, said)
		}
	}
	whole := alone.in(t).with("max_steps: 8\nlr_scheduler_type: constant\n")
	whole.mustTrain(t)
	near(t, got.losses(t), whole.losses(t))
}

// losses returns the losses in metrics.jsonl.
func (s scene) losses(t *testing.T) (out []float64) {
	t.Helper()
	for _, line := range s.metrics(t) {
		var at struct{ Loss *float64 }
		testkit.NoError(t, json.Unmarshal([]byte(line), &at))
		if at.Loss != nil {
			out = append(out, *at.Loss)
		}
	}
	return out
}

// near checks that two runs have equal losses up to the order of their sums: within 1e-4 relative.
// fp32 rounds by 1e-7, and eight steps amplify the difference by less than 1000.
func near(t *testing.T, got, want []float64) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("losses %v, want %v", got, want)
	}
	for i := range got {
		if d := (got[i] - want[i]) / want[i]; d > 1e-4 || d < -1e-4 {
			t.Errorf("step %d: loss %v, want %v", i+1, got[i], want[i])
		}
	}
}

// TestTogetherInterrupted: if one or all ranks are asked to stop, they save once and continue to the same end.
// Without long tests the rank that is asked is drawn.
func TestTogetherInterrupted(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const n = 3
	want := newScene(t, "save_steps: 3\nval_size: 2\neval_steps: 3\n")
	want.trainRanks(t, n)
	for name, tc := range map[string]struct {
		hooks func(cancel func()) settings.Hooks
		saved bool
	}{
		"while data is read":     {func(cancel func()) settings.Hooks { return settings.Hooks{Reading: func(string) { cancel() }} }, false},
		"while memory is taken":  {func(cancel func()) settings.Hooks { return settings.Hooks{Allocating: cancel} }, false},
		"before the first batch": {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(1, false, cancel)} }, true},
		"in the fourth step":     {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} }, true},
		"in an evaluation":       {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(1, true, cancel)} }, true},
	} {
		for _, first := range sample(t, 2, 1) {
			who := 2 * (first - 1) // hears of it first: rank 0 or 2
			t.Run(fmt.Sprint(name, " on rank ", who), func(t *testing.T) {
				got := want.in(t)
				got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n")
				ctxs, cancels := make([]context.Context, n), make([]context.CancelFunc, n)
				for r := range n {
					ctxs[r], cancels[r] = context.WithCancel(t.Context())
					defer cancels[r]()
				}
				runs := make([]rankRun, n)
				var all sync.WaitGroup
				for r, w := range cluster.LocalWorlds(n, cluster.LocalOptions{Seed: 5}) {
					c, h := got.config(t), settings.Hooks{}
					if r == who {
						h = tc.hooks(cancels[r])
					}
					h.FS = lazyFS{checkpoint.OS()}
					all.Go(func() {
						var said bytes.Buffer
						runs[r].err = Train(ctxs[r], c, settings.Options{Stdout: &said, Stderr: &said, World: w, Hooks: h})
						runs[r].said = said.String()
						_ = w.Close()
					})
				}
				all.Wait()
				for r, run := range runs {
					if !errors.Is(run.err, settings.ErrResumable) {
						t.Errorf("rank %d: %v\n%s", r, run.err, runs[0].said)
					}
				}
				found, err := filepath.Glob(filepath.Join(got.out, "checkpoint-[0-9]"))
				if err != nil || (len(found) > 0) != tc.saved {
					t.Errorf("checkpoints are left: %v, %v\n%s", found, err, runs[0].said)
				}
				got.trainRanks(t, n)
				sameRun(t, got, want)
			})
		}
	}
}

// TestTogetherSamples: rank 0 generates the samples while the other ranks wait, also if one of
// those is asked to stop.
func TestTogetherSamples(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := textScene(t, sampling+"save_steps: 3\nsave_total_limit: 3\n")
	want.trainRanks(t, 2)
	if got := want.samples(t); len(got) != 4 || got[0].Step != 3 || got[3].Step != 6 {
		t.Errorf("samples %+v", got)
	}
	for who := range 2 {
		got := want.in(t)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		sampled := make(chan struct{})
		var runs [2]rankRun
		var all sync.WaitGroup
		for r, w := range cluster.LocalWorlds(2, cluster.LocalOptions{Seed: 2}) {
			h := settings.Hooks{FS: lazyFS{checkpoint.OS()}}
			own := t.Context()
			if r == who {
				own = ctx
			}
			if r == 0 {
				h.Sampling = func(int) { cancel(); close(sampled); h.Sampling = nil }
			}
			c := got.config(t)
			all.Go(func() {
				var said bytes.Buffer
				runs[r].err = Train(own, c, settings.Options{Stdout: &said, Stderr: &said, World: w, Hooks: h})
				runs[r].said = said.String()
				_ = w.Close()
			})
		}
		all.Wait()
		<-sampled
		for r, run := range runs {
			if !errors.Is(run.err, settings.ErrResumable) {
				t.Errorf("rank %d is asked to stop in the samples: rank %d: %v\n%s", who, r, run.err, runs[0].said)
			}
		}
		got.trainRanks(t, 2)
		sameRun(t, got, want)
	}
}

// TestTogetherBest: with save_best and early stopping, several ranks end at the same step as one.
// The final model has the weights of the best evaluation, to which every rank contributes its lower
// halves.
func TestTogetherBest(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, keys := range []string{"compute_dtype: bf16\n", "save_only_model: true\ncompute_dtype: bf16\n", "early_stopping_patience: 2\n"} {
		s := wandering(t, "save_best: true\nsave_total_limit: 2\nmax_steps: 6\n").with(keys)
		s.trainRanks(t, 2)
		steps, losses := s.evals(t)
		best := lowest(steps, losses)
		if best == steps[len(steps)-1] {
			t.Fatalf("the last evaluation is the best: %v", losses)
		}
		if a, b := readFile(t, s.out, "model.safetensors"), readFile(t, s.out, settings.CheckpointName(best), "model.safetensors"); a != b {
			t.Errorf("%s: the model is not that of step %d", keys, best)
		}
	}
}

// TestRanksDiffer: ranks whose configurations or data differ end the run on all ranks before
// anything is written. The error names the rank and the key.
func TestRanksDiffer(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for name, tt := range map[string]struct {
		on1  func(t *testing.T, s scene) scene // what rank 1 has
		want []string
	}{
		"learning rate": {func(_ *testing.T, s scene) scene { return s.with("learning_rate: 0.02\n") },
			[]string{"learning_rate is 0.01 on rank 0 on host 0 and 0.02 on rank 1 on host 1", "the same command line"}},
		"length":     {func(_ *testing.T, s scene) scene { return s.with("max_steps: 9\n") }, []string{"max_steps is 8 on rank 0 on host 0 and 9 on rank 1 on host 1"}},
		"chosen":     {func(_ *testing.T, s scene) scene { return s.with("adam_beta1: 0.8\n") }, []string{"adam_beta1 is 0.9 on rank 0", "the same command line"}},
		"begun anew": {func(_ *testing.T, s scene) scene { return s.with("reset_optimizer: true\n") }, []string{"reset_optimizer is false on rank 0", "the same command line"}},
		"held out": {func(t *testing.T, s scene) scene {
			return s.with("eval_dataset: " + writeRows(t, t.TempDir(), 12, 12, 48) + "\n")
		},
			[]string{"the digest of eval_dataset is that of none on rank 0"}},
		"data": {func(t *testing.T, s scene) scene {
			other := writeRows(t, t.TempDir(), 12, 12, 48)
			return s.with(fmt.Sprintf("dataset: %s\n", other))
		}, []string{"dataset is ", "rank 1 on host 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "save_steps: 4\n")
			for r, run := range trainRanks(t, 2, t.Context(), func(rank int) (*config.Config, settings.Hooks) {
				if rank == 1 {
					return tt.on1(t, s).config(t), settings.Hooks{}
				}
				return s.config(t), settings.Hooks{}
			}) {
				checkError(t, run.err, true, tt.want...)
				if r > 0 && run.said != "" {
					t.Errorf("rank %d prints %q", r, run.said)
				}
			}
			if _, err := os.Stat(filepath.Join(s.out, settings.MetricsFile)); err == nil {
				t.Error("the run has begun to write")
			}
		})
	}
}

// TestModelsDiffer: if one rank has loaded other weights than the others, the run ends with an
// error.
func TestModelsDiffer(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	dir := filepath.Join("testdata/recordings", "llama-clipped")
	other := t.TempDir()
	copyTree(t, dir, other)
	file := filepath.Join(other, "model", "model.safetensors")
	raw := testkit.Must(os.ReadFile(file))(t)
	raw[len(raw)-3] ^= 0x10
	testkit.NoError(t, os.WriteFile(file, raw, 0o644))
	out := t.TempDir()
	for _, run := range trainRanks(t, 2, t.Context(), func(rank int) (*config.Config, settings.Hooks) {
		h := settings.Hooks{}
		if rank == 1 { // as if its host had other files at that path
			h.Planned = func(run any) { j := run.(*save.Output); j.ModelDir = filepath.Join(other, "model") }
		}
		return fixtureConfig(t, dir, out, ""), h
	}) {
		checkError(t, run.err, false, "the weights of layer ", "rank 1 on host 1")
	}
}

// TestRankFails: if one rank fails during a step, the run ends on all ranks with its error. The
// checkpoint that was being written is not used, and the same command continues to the same end.
func TestRankFails(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 3\n")
	broken := errors.New("the memory is gone")
	soon := ranks.DefaultHeartbeat
	soon.ExitWait = 50 * time.Millisecond // the others are in a step, and do not come
	for r, run := range s.tryRanks(t, 3, t.Context(), func(rank int) settings.Hooks {
		if rank != 1 {
			return settings.Hooks{Heartbeat: &soon}
		}
		return settings.Hooks{Heartbeat: &soon, Packing: func(step int, _ bool) {
			if step == 5 {
				panic(broken)
			}
		}}
	}) {
		if run.err == nil || !strings.Contains(run.err.Error(), "the memory is gone") {
			t.Errorf("rank %d: %v", r, run.err)
		}
	}
	s.trainRanks(t, 3)
	want := newScene(t, "save_steps: 3\n").in(t)
	want.trainRanks(t, 3)
	sameRun(t, s, want)
}

// sameSteps checks that the metrics file of the given rank has the same steps and losses as the
// run's, each once.
func sameSteps(t *testing.T, out string, rank int) {
	t.Helper()
	of := func(name string) (steps []string) {
		raw := testkit.Must(os.ReadFile(filepath.Join(out, name)))(t)
		for line := range bytes.Lines(raw) {
			var m struct {
				Step   int                `json:"step"`
				Loss   *float64           `json:"loss"`
				StallS map[string]float64 `json:"stall_s"`
			}
			testkit.NoError(t, json.Unmarshal(line, &m))
			if m.Loss != nil {
				steps = append(steps, fmt.Sprint(m.Step, " ", *m.Loss, " ", len(m.StallS)))
			}
		}
		return steps
	}
	if all, own := of(settings.MetricsFile), of(fmt.Sprintf(settings.RankMetricsFile, rank)); len(all) == 0 || !slices.Equal(all, own) {
		t.Errorf("rank %d has metrics of %q, the run of %q", rank, own, all)
	}
}
