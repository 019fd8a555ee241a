package bench

import (
	"context"
	"fmt"

	"mt/actors"
	"mt/device"
	"mt/internal/train"
	"mt/model"
)

// ours is mt's side of a comparison: the whole pipeline over random tokens.
type ours struct {
	run   *train.Synthetic
	timed PipelineSample
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
	return model.FromInline(map[string]any{"hidden_size": int64(s.HiddenSize), "intermediate_size": int64(s.IntermediateSize),
		"num_hidden_layers": int64(s.Layers), "num_attention_heads": int64(s.Heads), "num_key_value_heads": int64(s.KVHeads),
		"vocab_size": int64(s.VocabSize), "max_position_embeddings": int64(s.SeqLen), "tie_word_embeddings": false}, "shape")
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
		run, err := train.StartSynthetic(o)
		if err != nil {
			return nil, err
		}
		r := &ours{run: run}
		if _, _, err := r.RunSteps(max(1, s.Warmup)); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		r.timed = PipelineSample{}
		return r, nil
	}
}

// RunSteps implements TrainRunner.
func (r *ours) RunSteps(k int) (seconds []float64, tokens int64, err error) {
	reports, err := r.run.Run(k)
	for _, p := range reports {
		seconds = append(seconds, p.Elapsed.Seconds())
		tokens += p.Tokens
		r.timed.add(p)
	}
	return seconds, tokens, err
}

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
