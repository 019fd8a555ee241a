package tune

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/testkit"
)

func init() { machine.CPURateSize = 64 }

// TestTuneEnds: if a tuning is cancelled while plans run, it returns the cause and the measurements
// so far, and proposes nothing.
func TestTuneEnds(t *testing.T) {
	testkit.NotShort(t)
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	c, err := config.Parse("t.yaml", []byte("model: tiny\nmax_seq_len: 32\nper_device_train_batch_size: 2\ndevice: cpu\nbinding: copy\nthreads: 1\npipeline: {weight_slots: 1}\n"), config.Args{})
	testkit.NoError(t, err)
	m := slower(t, "h100", 1, 1)
	m.Device.Kind = "cpu"
	runs := 0
	r, err := Tune(ctx, Options{Config: c, Stderr: io.Discard, Machine: m, Predictions: 20, Candidates: 3, Pairs: 6, Steps: 1, Progress: func(what string, done, of int, _ time.Duration) {
		if what == "short runs" {
			if runs++; runs == 4 {
				cancel(stopped)
			}
		}
	}})
	if !errors.Is(err, stopped) || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	measured := 0
	for _, row := range r.Rows {
		if row.Measured != nil {
			measured += row.Measured.Runs
		}
	}
	var b strings.Builder
	testkit.NoError(t, r.WriteTable(&b))
	if measured != 3 || r.Faster != nil || len(r.Settings) != 0 || !strings.HasSuffix(b.String(), "nothing was held against the start: keep what you have\n") {
		t.Errorf("%d runs are told of, %+v\n%s", measured, r.Faster, b.String())
	}
}

// TestSettings: the proposed settings include all depths, and other keys only if they change.
func TestSettings(t *testing.T) {
	trials := open(t, "100MiB", "")
	start := testkit.Must(trials.Plan(trials.Asked()))(t)
	from := knobs(start, trials.Asked())
	to := from
	to.WeightSlots, to.Threads = 5, 1
	want := "pipeline: {activation_slots: 7, weight_slots: 5, grad_buffers: 2, grad_slabs: 3}, threads: 1"
	if got := config.Settings(bestSettings(spaceOf(start, true), from, to)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	to.MicroBatchTokens, to.Threads = 512, 0
	want = "pipeline: {activation_slots: 7, weight_slots: 5, grad_buffers: 2, grad_slabs: 3, micro_batch_tokens: 512}"
	if got := config.Settings(bestSettings(spaceOf(start, true), from, to)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWriteCurves: a key that has an effect gets a line with its predictions. All other keys are
// named in one line.
func TestWriteCurves(t *testing.T) {
	r := &Result{Curves: []Curve{{Key: "pipeline.weight_slots", Of: "best", Points: []CurvePoint{{Value: 1, TokPerSec: 300}, {Value: 2, TokPerSec: 400.4}}},
		{Key: "threads", Of: "best", Points: []CurvePoint{{Value: 1, TokPerSec: 300}, {Value: 2, TokPerSec: 300}}}}}
	var b strings.Builder
	want := "\npredicted tok/s by one key, all else as in the best\nweight_slots:  1→300  2→400  ▁█\n\nof no effect, as predicted: threads\n"
	if err := r.WriteCurves(&b); err != nil || b.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), want)
	}
}
