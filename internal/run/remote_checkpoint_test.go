package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// apart is one scene per rank, each with its own output directory, as on hosts without a shared
// file system.
type apart []scene

func newApart(t *testing.T, s scene, n int) (out apart) {
	for range n {
		out = append(out, s.in(t))
	}
	return out
}

// try trains one rank per scene, each with its own directory and the keys extra.
func (a apart) try(t *testing.T, extra string) []rankRun {
	t.Helper()
	return trainRanks(t, len(a), t.Context(), func(rank int) (*config.Config, settings.Hooks) {
		return a[rank].with(extra).config(t), settings.Hooks{}
	})
}

// must calls try and fails the test if a rank has an error. It returns the output of rank 0.
func (a apart) must(t *testing.T, extra string) string {
	t.Helper()
	runs := a.try(t, extra)
	for r, run := range runs {
		if run.err != nil {
			t.Fatalf("rank %d: %v\n%s", r, run.err, runs[0].said)
		}
	}
	return runs[0].said
}

// TestTogetherApart: if no other rank sees rank 0's files, a run still resumes them with the same bits, with the same
// number of ranks and with others. Files of another run in another rank's directory play no part.
func TestTogetherApart(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	stale := newScene(t, "save_steps: 3\nlearning_rate: 0.02\n")
	stale.mustTrain(t)
	for i, extra := range []string{
		"save_steps: 3\nval_size: 2\neval_steps: 3\n",
		"save_steps: 3\nmax_grad_norm: 0\nsave_dtype: fp32\noptimizer_zstd: true\n",
		"save_steps: 3\ncompute_dtype: bf16\n",
		"save_steps: 3\ncompute_dtype: bf16\nsave_dtype: fp32\n",
		"save_steps: 3\ncompute_dtype: bf16\nmaster_dtype: bf16\n",
	} {
		for n := 2; n <= 3; n++ {
			t.Run(fmt.Sprint(strings.ReplaceAll(extra, "\n", " "), n, " ranks"), func(t *testing.T) {
				if n != 2+i%2 {
					testkit.LongOnly(t)
				}
				s := newScene(t, extra)
				want, got := newApart(t, s, n), newApart(t, s, n)
				want.must(t, "")
				got.must(t, "")
				copyTree(t, filepath.Join(stale.out, settings.CheckpointName(3)), filepath.Join(got[1].out, settings.CheckpointName(3)))
				forget(t, got[0].out, settings.CheckpointName(6), settings.CheckpointName(8), settings.EndFile) // as if it was killed before its second checkpoint
				said := got.must(t, "")
				for _, says := range []string{"resuming from " + filepath.Join(got[0].out, settings.CheckpointName(3)), "not all ranks see " + filepath.Join(got[0].out, settings.CheckpointName(3))} {
					if strings.Count(said, says) != 1 {
						t.Errorf("it does not say once %q\n%s", says, said)
					}
				}
				sameRun(t, got[0], want[0])
				if said := got.must(t, ""); !strings.Contains(said, "training is done") {
					t.Errorf("a finished run begins again\n%s", said)
				}
				// A run continues with the same bits on another number of ranks, whether all ranks
				// see the checkpoint or only rank 0.
				longer := "max_steps: 10\nlr_scheduler_type: constant\n"
				shared := s
				shared.out = filepath.Join(t.TempDir(), "out")
				copyTree(t, got[0].out, shared.out)
				shared.with(longer).trainRanks(t, 5-n)
				more := append(apart{got[0]}, newApart(t, s, 4-n)...)
				more.must(t, longer)
				sameRun(t, got[0], shared)
			})
		}
	}
}

// forget removes files and directories.
func forget(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		testkit.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
}

// TestBestApart: save_best works if only rank 0 sees the checkpoint with the best evaluation: all
// ranks end with its weights.
func TestBestApart(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, keys := range []string{"compute_dtype: bf16\n", "save_only_model: true\ncompute_dtype: bf16\n", "early_stopping_patience: 2\n"} {
		s := wandering(t, "save_best: true\nsave_total_limit: 2\nmax_steps: 6\n").with(keys)
		all := newApart(t, s, 3)
		all.must(t, "")
		steps, losses := all[0].evals(t)
		best := lowest(steps, losses)
		if best == steps[len(steps)-1] {
			t.Fatalf("the last evaluation is the best: %v", losses)
		}
		if a, b := readFile(t, all[0].out, "model.safetensors"), readFile(t, all[0].out, settings.CheckpointName(best), "model.safetensors"); a != b {
			t.Errorf("%s: the model is not that of step %d", keys, best)
		}
	}
}

// TestDoesNotLoadApart: if rank 0 cannot load a checkpoint that only it sees, all ranks skip the
// checkpoint. If the config names this checkpoint, all ranks return the error.
func TestDoesNotLoadApart(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 3\n")
	want, got := newApart(t, s, 2), newApart(t, s, 2)
	want.must(t, "")
	got.must(t, "")
	forget(t, got[0].out, settings.CheckpointName(8), settings.EndFile)
	newest := filepath.Join(got[0].out, settings.CheckpointName(6))
	swapLayers(t, newest)
	for _, run := range got.try(t, "resume_from_checkpoint: "+newest+"\n") {
		checkError(t, run.err, false, "resume from "+newest, "belongs to no parameter of the layer")
	}
	if said := got.must(t, ""); !strings.Contains(said, "checkpoint "+newest+" is skipped: ") || !strings.Contains(said, "resuming from "+filepath.Join(got[0].out, settings.CheckpointName(3))) {
		t.Errorf("it does not go on from step 3\n%s", said)
	}
	sameRun(t, got[0], want[0])
}
