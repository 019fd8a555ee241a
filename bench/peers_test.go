package bench

import (
	"context"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mt/internal/run/trials"
	"mt/internal/testkit"
)

// TestHandedOverWeights: every element of a parameter has the value that the rule of type Handover
// gives. The test checks stacked parameters, rows that wrap around the end of the table, and norms.
func TestHandedOverWeights(t *testing.T) {
	shape := tinySetup().Shape
	c := testkit.Must(shape.Config())(t)
	h := newHandover(shape)
	if again := newHandover(shape); again.batches[3][5] != h.batches[3][5] || h.table[0] == h.table[1] {
		t.Error("another call draws other numbers")
	}
	seen := map[string]bool{}
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				seen[s.Name] = true
				for r := range s.Rows {
					row := make([]float32, p.Cols)
					h.row(p, s.Row+r, row)
					for i, got := range row {
						want := h.table[(int(crc32.ChecksumIEEE([]byte(s.Name)))+r*p.Cols+i)%len(h.table)]
						if p.Dims == 1 {
							want = 1
							if filepath.Ext(s.Name) == ".bias" {
								want = 0
							}
						}
						if got != want {
							t.Fatalf("%s row %d column %d is %g, want %g", s.Name, r, i, got, want)
						}
					}
				}
			}
		}
	}
	if !seen["model.layers.0.self_attn.v_proj.bias"] || !seen["lm_head.weight"] || len(seen) != 15 {
		t.Errorf("%d tensors: %v", len(seen), seen)
	}
}

// TestHandedOverBatches: a step uses the rows of its batch, and after the last batch the first follows.
func TestHandedOverBatches(t *testing.T) {
	h := newHandover(tinySetup().Shape)
	for step, batch := range map[int]int{1: 0, 2: 1, givenBatches: givenBatches - 1, givenBatches + 1: 0} {
		rows := h.batch(step)
		if len(rows) != 2 || len(rows[1].IDs) != 16 || &rows[1].IDs[0] != &h.batches[batch][16] {
			t.Errorf("step %d has not batch %d", step, batch)
		}
	}
}

// TestOurSide: of the steps in a round only those in the middle are timed and counted, but the
// results of all are recorded.
func TestOurSide(t *testing.T) {
	setup := tinySetup()
	setup.Given = newHandover(setup.Shape)
	side := testkit.Must(NewOurs(trials.SyntheticOptions{Unified: true, Recompute: "auto"})(t.Context(), setup))(t)
	o := side.(*ours)
	for turn := 1; turn <= 2; turn++ {
		seconds, tokens, err := o.RunSteps(3)
		if err != nil || len(seconds) != 3 || tokens != 3*32 {
			t.Errorf("turn %d: %v, %d tokens, %v", turn, seconds, tokens, err)
		}
		if want := 1 + 5*turn; len(o.Records()) != want {
			t.Errorf("turn %d: %d steps are recorded, want %d", turn, len(o.Records()), want)
		}
	}
	if first := o.Records()[0]; math.Abs(first.Loss-math.Log(256)) > 0.1 || first.GradNorm <= 0 {
		t.Errorf("the first step has %+v, want a loss of about log 256", first)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// TestPeersTrainTheSame: each peer system trains on the CPU beside mt. Train fails if the parameter
// counts, losses or gradient norms differ.
func TestPeersTrainTheSame(t *testing.T) {
	for _, tt := range []struct {
		peer, shape, dtype string
		needs              []string
	}{
		{"torch", "quickstart", "fp32", []string{"torch", "transformers"}}, // a Llama
		{"torch", "tiny", "bf16", []string{"torch", "transformers"}},       // a Qwen2
		{"fsdp2", "tiny", "bf16", []string{"torch"}},
		{"zero3", "tiny", "fp32", []string{"torch", "deepspeed"}},
	} {
		t.Run(tt.peer+" "+tt.dtype, func(t *testing.T) {
			t.Setenv(PythonVariable, testkit.NeedPython(t, tt.needs...))
			start, title, err := TrainPeer(tt.peer, "cpu")
			testkit.NoError(t, err)
			trainBeside(t, tt.shape, tt.dtype, title, start)
		})
	}
}

// TestMegaTrainScript: MegaTrain's script calls the functions of its package as it should. It runs
// on the CPU with a stand-in for that package.
func TestMegaTrainScript(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers")
	here := testkit.Must(os.Getwd())(t)
	t.Setenv("PYTHONPATH", filepath.Join(here, "testdata", "fake"))
	s := trainPeers["megatrain"]
	trainBeside(t, "tiny", "bf16", s.title, func(ctx context.Context, setup TrainSetup) (TrainRunner, error) {
		return s.start(ctx, python, setup, nil)
	})
}

// trainBeside compares mt with a peer over four steps.
func trainBeside(t *testing.T, shape, dtype, title string, peer NewRunner) {
	t.Helper()
	setup := TrainSetup{Shape: TrainShapes()[shape].With(TrainShape{Layers: 2, Rows: 4, SeqLen: 32}), DType: dtype, Threads: 1, Warmup: 1}
	r := testkit.Must(Train(t.Context(), TrainOptions{TrainSetup: setup, Rounds: 1, Steps: 1, Rest: time.Nanosecond, PeerName: title,
		Ours: NewOurs(trials.SyntheticOptions{Unified: true, Recompute: "auto"}), Peer: peer}))(t)
	if a := r.Agreement; a == nil || a.Steps != 4 || r.Ratio == nil || r.PeerTFLOPS <= 0 {
		t.Errorf("agreement %+v, ratio %v, %g TFLOP/s", a, r.Ratio, r.PeerTFLOPS)
	}
	t.Logf("losses and norms differ by %.1g and %.1g", r.Agreement.Loss, r.Agreement.GradNorm)
}
