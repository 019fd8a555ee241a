package bench

import (
	"context"
	"errors"
	"fmt"

	"mt/actors"
	"mt/device"
	"mt/device/cuda"
	"mt/internal/run/predict"
	"mt/internal/run/trials"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// ours is mt's side of a comparison: the whole training pipeline over the given weights and tokens.
type ours struct {
	run     *trials.Synthetic
	records []StepRecord
	warmup  int // uncounted steps before the first round
	timed   PipelineSample
	sums    sums
	machine *rates.Machine // nil: nothing is predicted
	why     string         // why there is no machine
}

// sums accumulates the times and the link traffic of the counted steps of mt's side.
type sums struct {
	steps                    int
	tokens                   int64
	seconds, flops, executed float64
	h2d, d2h                 int64 // bytes
}

func (s *sums) add(r actors.StepReport, flops, executed float64) {
	s.steps, s.tokens = s.steps+1, s.tokens+r.Tokens
	s.seconds, s.flops, s.executed = s.seconds+r.Elapsed.Seconds(), s.flops+flops, s.executed+executed
	s.h2d, s.d2h = s.h2d+r.H2D, s.d2h+r.D2H
}

// rates returns Details in which only the fields that are amounts per second are set.
func (s *sums) rates() Details {
	return Details{TFLOPS: s.flops / s.seconds / 1e12, TFLOPSExecuted: s.executed / s.seconds / 1e12,
		H2DGBps: float64(s.h2d) / s.seconds / 1e9, D2HGBps: float64(s.d2h) / s.seconds / 1e9}
}

// Details describes mt's counted steps beyond their speed.
type Details struct {
	Device string `json:"device"`
	// Notes has the notes of the device, such as memory that could not be pinned or products that cuBLASLt did not
	// compute.
	Notes []string `json:"notes"`
	// TFLOPS counts the model's FLOPs, and TFLOPSExecuted also the FLOPs of recomputation. Both are in 10^12 a second.
	TFLOPS         float64 `json:"tflops"`
	TFLOPSExecuted float64 `json:"tflops_executed"`
	DeviceBytes    int64   `json:"device_bytes"` // peak
	HostBytes      int64   `json:"host_bytes"`   // as planned
	H2DGBps        float64 `json:"h2d_gbps"`     // 10^9 bytes a second, over the whole step
	D2HGBps        float64 `json:"d2h_gbps"`
	// Values that the plan chose.
	Depths           plan.Depths `json:"pipeline"`
	MicroBatchTokens int         `json:"micro_batch_tokens"`
	ChunkTokens      int         `json:"chunk_tokens"`
	Keep             string      `json:"kept_for_backward"`
	GradBF16         bool        `json:"grad_bf16"`
	HeadShards       int         `json:"head_shards"`
	Attention        string      `json:"attention_kernels,omitempty"` // fused, portable, sm90a or sm90a_fused, on a GPU
	Memory           plan.Table  `json:"memory"`
	// Figures has the figures of a step and of memory. PredictedFor names the machine whose rates give the predictions.
	// If there is none, Unpredicted is the reason.
	Figures      []Figure `json:"figures"`
	PredictedFor string   `json:"predicted_for,omitempty"`
	Unpredicted  string   `json:"unpredicted,omitempty"`
}

// PipelineSample sums the activity of the compute stream over the counted steps.
type PipelineSample struct {
	ComputeS float64            `json:"compute_s"` // wall time of the compute stream, from one step's end to the next
	StallS   map[string]float64 `json:"stall_s"`   // stalled time within ComputeS, by cause
	// Share is the sum of all stalls divided by ComputeS.
	Share float64 `json:"stall_share"`
}

// Config returns the model configuration of the shape: output projection not tied to the embedding, random weights.
func (s TrainShape) Config() (*model.Config, error) {
	family := "llama"
	if s.AttentionBias {
		family = "qwen2" // in qwen2, q, k and v have biases and o has none
	}
	return model.FromInline(map[string]any{"model_type": family, "hidden_size": int64(s.HiddenSize), "intermediate_size": int64(s.IntermediateSize),
		"num_hidden_layers": int64(s.Layers), "num_attention_heads": int64(s.Heads), "num_key_value_heads": int64(s.KVHeads),
		"vocab_size": int64(s.VocabSize), "max_position_embeddings": int64(s.SeqLen), "tie_word_embeddings": false,
		"head_dim": int64(s.headDim()), "rope_theta": ropeTheta, "rms_norm_eps": normEps}, "shape")
}

// With returns s with the Layers, Rows and SeqLen of change, as far as they are positive.
func (s TrainShape) With(change TrainShape) TrainShape {
	for _, f := range []struct{ to, from *int }{{&s.Layers, &change.Layers}, {&s.Rows, &change.Rows}, {&s.SeqLen, &change.SeqLen}} {
		if *f.from > 0 {
			*f.to = *f.from
		}
	}
	return s
}

func (s TrainShape) headDim() int {
	if s.HeadDim > 0 {
		return s.HeadDim
	}
	return s.HiddenSize / s.Heads
}

// NewOurs returns a constructor of mt's side with the given options. The setup of a comparison provides shape and
// threads.
func NewOurs(options trials.SyntheticOptions) NewRunner {
	return func(_ context.Context, s TrainSetup) (TrainRunner, error) {
		o := options
		var err error
		if o.Model, err = s.Shape.Config(); err != nil {
			return nil, err
		}
		o.Rows, o.SeqLen, o.Threads = s.Shape.Rows, s.Shape.SeqLen, s.Threads
		if s.DType == "bf16" {
			o.Act = device.BF16
		}
		if s.Given != nil {
			o.Weights, o.Batch = s.Given.row, s.Given.batch
		}
		run, err := trials.StartSynthetic(o)
		if err != nil {
			return nil, err
		}
		r := &ours{run: run, warmup: max(1, s.Warmup)}
		if r.machine, r.why, err = RatesOf(s.Rates, run.Device()); err != nil {
			return nil, errors.Join(fmt.Errorf("--rates: %w", err), run.Close())
		}
		if _, err := r.steps(r.warmup); err != nil {
			return nil, errors.Join(fmt.Errorf("warm up: %w", err), run.Close())
		}
		if _, err := run.Times(); err != nil { // discards the operation times of the warm-up
			return nil, errors.Join(err, run.Close())
		}
		return r, nil
	}
}

// RunSteps implements TrainRunner. All steps of a round run through the pipeline without a pause. The time of a counted
// step lasts from the previous step's report to its own report.
func (r *ours) RunSteps(k int) (seconds []float64, tokens int64, err error) {
	reports, err := r.steps(k + untimed)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range middle(reports) {
		seconds = append(seconds, p.Elapsed.Seconds())
		tokens += p.Tokens
		r.timed.add(p)
		counted, executed := r.run.FLOPs(p)
		r.sums.add(p, counted, executed)
	}
	return seconds, tokens, nil
}

// steps runs k steps and records their losses and gradient norms.
func (r *ours) steps(k int) ([]actors.StepReport, error) {
	reports, err := r.run.Run(k)
	for _, p := range reports {
		r.records = append(r.records, StepRecord{p.Loss, p.GradNorm})
	}
	return reports, err
}

// Records implements recorder.
func (r *ours) Records() []StepRecord { return r.records }

// details returns the details of the counted steps.
func (r *ours) details() (*Details, error) {
	p := r.run.Plan
	table := p.Table()
	d := r.sums.rates()
	d.Device, d.DeviceBytes, d.HostBytes, d.Memory = r.run.DeviceName(), r.run.DeviceUsage().PeakTotal, table.Host, table
	d.Depths, d.MicroBatchTokens, d.ChunkTokens = p.Depths, p.Limits.MicroBatchTokens, p.Spec.ChunkTokens
	d.Keep, d.GradBF16, d.HeadShards = p.Spec.Keep.String(), p.GradBF16, p.Spec.Shards()
	d.Attention, d.Notes, d.Unpredicted = r.run.AttentionKernels(), r.run.Notes(), r.why
	var said *predict.Prediction
	if r.machine != nil {
		d.PredictedFor = r.machine.Name
		var err error
		if said, err = predict.Predict(p, r.machine); err != nil {
			return nil, err
		}
		if r.machine.Device.SM90a && d.Attention != "" && d.Attention != cuda.SM90a {
			d.PredictedFor += ", with attention by its kernels for sm_90a"
		}
	}
	d.Figures = r.figures(&d, said)
	return &d, nil
}

const gib = 1 << 30

// figures returns the figures of a step: the measured values of d beside the predicted values of p. If p is nil, only
// memory has a prediction, which comes from the plan.
func (r *ours) figures(d *Details, p *predict.Prediction) []Figure {
	var said struct{ step, rate, tflops, executed, stall, up, down float64 }
	if p != nil {
		said.step = p.Step().Seconds()
		said.rate, said.tflops, said.executed = float64(p.Report.Tokens)/said.step, p.Counted/said.step/1e12, p.Executed/said.step/1e12
		said.up, said.down = float64(p.Report.H2D)/said.step/1e9, float64(p.Report.D2H)/said.step/1e9
		for _, s := range p.Report.Stall {
			said.stall += 100 * s.Seconds() / p.Report.Compute.Seconds()
		}
	}
	s := r.sums
	out := []Figure{{"step", "s", rates.Against(said.step, s.seconds/float64(s.steps))}, {"tokens", "1/s", rates.Against(said.rate, float64(s.tokens)/s.seconds)},
		{"model", "TFLOP/s", rates.Against(said.tflops, d.TFLOPS)}, {"executed", "TFLOP/s", rates.Against(said.executed, d.TFLOPSExecuted)},
		{"compute stalled", "%", rates.Against(said.stall, 100*r.timed.Share)},
		{"host to device, over the step", "GB/s", rates.Against(said.up, d.H2DGBps)}, {"device to host, over the step", "GB/s", rates.Against(said.down, d.D2HGBps)},
		{"device memory, at most", "GiB", rates.Against(float64(d.Memory.Device)/gib, float64(d.DeviceBytes)/gib)}}
	if peak := processPeak(); peak > 0 && r.run.Device().Kind() == "cuda" {
		out = append(out, Figure{"host memory of the process, at most", "GiB", rates.Against(float64(d.HostBytes)/gib, peak/gib)})
	}
	return out
}

// operations returns the time of each operation since the last call, as a mean over the given number of steps, beside
// its prediction. It returns none if operations are not timed.
func (r *ours) operations(steps int) ([]OpTime, error) {
	times, err := r.run.Times()
	if err != nil || len(times) == 0 {
		return nil, err
	}
	said := map[[2]string]float64{} // milliseconds a step
	if r.machine != nil {
		predicted, err := predict.PredictTimes(r.run.Plan, r.machine)
		if err != nil {
			return nil, err
		}
		for _, t := range predicted {
			said[[2]string{t.Op, t.Shape}] = t.Total.Seconds() * 1e3 / predict.PredictedSteps
		}
	}
	var out []OpTime
	for _, t := range times {
		out = append(out, OpTime{t, rates.Against(said[[2]string{t.Op, t.Shape}], t.Total.Seconds()*1e3/float64(steps))})
	}
	return out, nil
}

// Parameters returns the number of parameters of the model.
func (r *ours) Parameters() int64 { return r.run.Plan.Table().Params }

// Pipeline returns the activity of the compute stream in the counted steps.
func (r *ours) Pipeline() PipelineSample { return r.timed }

// Close implements io.Closer.
func (r *ours) Close() error { return r.run.Close() }

func (p *PipelineSample) add(r actors.StepReport) {
	if p.StallS == nil {
		p.StallS = map[string]float64{}
	}
	p.ComputeS += r.Compute.Seconds()
	var total float64
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		p.StallS[c.String()] += r.Stall[c].Seconds()
	}
	for _, s := range p.StallS {
		total += s
	}
	p.Share = total / p.ComputeS
}
