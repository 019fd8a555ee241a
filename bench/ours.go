package bench

import (
	"context"
	"errors"
	"fmt"

	"mt/actors"
	"mt/device"
	"mt/internal/train"
	"mt/model"
	"mt/plan"
)

// ours is mt's side of a comparison: the whole pipeline over random tokens.
type ours struct {
	run     *train.Synthetic
	records []StepRecord
	warmup  int // steps before the first turn
	timed   PipelineSample
	sums    sums
}

// sums adds up what the timed steps took and moved.
type sums struct {
	seconds, flops, executed float64
	h2d, d2h                 int64 // bytes
}

func (s *sums) add(r actors.StepReport, flops, executed float64) {
	s.seconds, s.flops, s.executed = s.seconds+r.Elapsed.Seconds(), s.flops+flops, s.executed+executed
	s.h2d, s.d2h = s.h2d+r.H2D, s.d2h+r.D2H
}

// rates are the fields of Details that are amounts a second.
func (s *sums) rates() Details {
	return Details{TFLOPS: s.flops / s.seconds / 1e12, TFLOPSExecuted: s.executed / s.seconds / 1e12,
		H2DGBps: float64(s.h2d) / s.seconds / 1e9, D2HGBps: float64(s.d2h) / s.seconds / 1e9}
}

// Details is what mt reports of its timed steps, beside their speed.
type Details struct {
	Device string `json:"device"`
	// Notes are what the user should know of the device: memory that could not be pinned, products
	// that cuBLASLt did not compute.
	Notes []string `json:"notes"`
	// TFLOPS counts the model's FLOPs, TFLOPSExecuted what was recomputed too; in
	// 10^12 a second.
	TFLOPS         float64 `json:"tflops"`
	TFLOPSExecuted float64 `json:"tflops_executed"`
	DeviceBytes    int64   `json:"device_bytes"` // the most held at a time
	HostBytes      int64   `json:"host_bytes"`   // as planned
	H2DGBps        float64 `json:"h2d_gbps"`     // 10^9 bytes a second, over the whole step
	D2HGBps        float64 `json:"d2h_gbps"`
	// What the plan chose.
	Depths           plan.Depths `json:"pipeline"`
	MicroBatchTokens int         `json:"micro_batch_tokens"`
	ChunkTokens      int         `json:"chunk_tokens"`
	Keep             string      `json:"kept_for_backward"`
	GradBF16         bool        `json:"grad_bf16"`
	HeadShards       int         `json:"head_shards"`
	Attention        string      `json:"attention_kernels,omitempty"` // fused, portable or sm90a, on a GPU
	Memory           plan.Table  `json:"memory"`
}

// PipelineSample sums what the compute stream did over the timed steps.
type PipelineSample struct {
	ComputeS float64            `json:"compute_s"` // of the compute stream, from the end of a step to that of the next
	StallS   map[string]float64 `json:"stall_s"`   // of that, standing still, by cause
	// Share is the sum of the stalls over ComputeS.
	Share float64 `json:"stall_share"`
}

// Config is the architecture of the shape, untied, with random weights.
func (s TrainShape) Config() (*model.Config, error) {
	family := "llama"
	if s.AttentionBias {
		family = "qwen2" // q, k and v have biases there, o has none
	}
	return model.FromInline(map[string]any{"model_type": family, "hidden_size": int64(s.HiddenSize), "intermediate_size": int64(s.IntermediateSize),
		"num_hidden_layers": int64(s.Layers), "num_attention_heads": int64(s.Heads), "num_key_value_heads": int64(s.KVHeads),
		"vocab_size": int64(s.VocabSize), "max_position_embeddings": int64(s.SeqLen), "tie_word_embeddings": false,
		"head_dim": int64(s.headDim()), "rope_theta": ropeTheta, "rms_norm_eps": normEps}, "shape")
}

// With returns s with those of the layers, the rows and the tokens of a row that
// change sets.
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

// NewOurs makes mt's side. The shape and the threads come with the setup.
func NewOurs(options train.SyntheticOptions) NewRunner {
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
		run, err := train.StartSynthetic(o)
		if err != nil {
			return nil, err
		}
		r := &ours{run: run, warmup: max(1, s.Warmup)}
		if _, err := r.steps(r.warmup); err != nil {
			return nil, errors.Join(fmt.Errorf("warm up: %w", err), run.Close())
		}
		if _, err := run.Times(); err != nil { // drops what the warm-up added
			return nil, errors.Join(err, run.Close())
		}
		return r, nil
	}
}

// RunSteps implements TrainRunner: the pipeline runs through all steps of a turn, and each that
// counts is timed from the report of the one before to its own.
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

// steps runs k steps and keeps their losses and norms.
func (r *ours) steps(k int) ([]actors.StepReport, error) {
	reports, err := r.run.Run(k)
	for _, p := range reports {
		r.records = append(r.records, StepRecord{p.Loss, p.GradNorm})
	}
	return reports, err
}

// Records implements recorder.
func (r *ours) Records() []StepRecord { return r.records }

// details returns what the timed steps come to.
func (r *ours) details() *Details {
	p := r.run.Plan
	table := p.Table()
	d := r.sums.rates()
	d.Device, d.DeviceBytes, d.HostBytes, d.Memory = r.run.DeviceName(), r.run.DeviceUsage().PeakTotal, table.Host, table
	d.Depths, d.MicroBatchTokens, d.ChunkTokens = p.Depths, p.Limits.MicroBatchTokens, p.Spec.ChunkTokens
	d.Keep, d.GradBF16, d.HeadShards = p.Spec.Keep.String(), p.GradBF16, p.Spec.Shards()
	d.Attention, d.Notes = r.run.AttentionKernels(), r.run.Notes()
	return &d
}

// Parameters are those of the model.
func (r *ours) Parameters() int64 { return r.run.Plan.Table().Params }

// Pipeline is what the pipeline did in the timed steps.
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
