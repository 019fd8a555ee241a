package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"mt/actors"
	"mt/device"
	"mt/device/wrap"
	"mt/internal/measure"
	"mt/internal/run/predict"
	"mt/internal/run/trials"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// This file corrects rates by a short training run. An operation that is timed by itself, over
// and over, finds its operands in the caches, and nothing else runs. In a run it does not. So a
// small model is trained with every operation timed, the same run is predicted, and rates are
// divided by what each kind of operation took longer than predicted.

// trained is the run that corrects rates. Its shape is none that is measured by itself.
type trained struct {
	layers, hidden, ffn, heads, vocab int
	rows, length, micro               int
	rounds                            int // of train.PredictedSteps steps each
}

// trainedFor is the run for a kind of device.
func trainedFor(kind string, small bool) trained {
	switch {
	case small:
		return trained{layers: 2, hidden: 32, ffn: 48, heads: 2, vocab: 64, rows: 2, length: 16, micro: 16, rounds: 1}
	case kind == "cuda":
		return trained{layers: 3, hidden: 2048, ffn: 5632, heads: 16, vocab: 16384, rows: 12, length: 1536, micro: 4608, rounds: 3}
	}
	return trained{layers: 3, hidden: 320, ffn: 880, heads: 5, vocab: 3000, rows: 5, length: 192, micro: 480, rounds: 3}
}

// model is a model of that shape.
func (t trained) model() (*model.Config, error) {
	return model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(t.hidden), "intermediate_size": int64(t.ffn), "num_hidden_layers": int64(t.layers),
		"num_attention_heads": int64(t.heads), "num_key_value_heads": int64(t.heads), "vocab_size": int64(t.vocab), "max_position_embeddings": int64(t.length),
		"tie_word_embeddings": false}, "the run that corrects rates")
}

// options are those of the run, with activations of that type.
func (t trained) options(act device.DType) (trials.SyntheticOptions, error) {
	cfg, err := t.model()
	return trials.SyntheticOptions{Model: cfg, Rows: t.rows, SeqLen: t.length, MicroTokens: t.micro, Act: act, Recompute: "auto"}, err
}

// reportsOf makes a run of so many steps, and returns its plan and what it reports of each; nothing where memory does not suffice.
func reportsOf(ctx context.Context, o trials.SyntheticOptions, steps int) (p *plan.Run, reports []actors.StepReport, err error) {
	s, err := trials.StartSynthetic(o)
	if lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	reports, err = s.Run(steps)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, nil, err
	}
	return s.Plan, reports, nil
}

// corrections are how often rates are corrected: what runs beside an operation changes with them.
const corrections = 2

// inRun corrects the rates of operations, and then measures messages and restarts. Where such a run is not possible, for want of memory,
// they stay as they are, and Sources says so.
func (r *run) inRun(ctx context.Context) error {
	for _, dt := range dtypes {
		if len(r.out.Device.Products[dt.name]) == 0 || len(r.out.Device.Attention[dt.name]) == 0 {
			continue
		}
		err := r.correct(ctx, dt.name, dt.dtype)
		said := "corrected by a short training run"
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			said = fmt.Sprintf("of operations by themselves: a training run was not possible: %v", err)
		}
		r.out.Device.Sources["products."+dt.name], r.out.Device.Sources["attention."+dt.name] = said, said
		if dt.dtype == r.operands() {
			r.out.Device.Sources["ops"] = said
		}
	}
	return errors.Join(r.messages(ctx), r.restart(ctx))
}

// correct corrects the rates of one dtype. It has a run of its own, whose profile it needs.
func (r *run) correct(ctx context.Context, name string, dtype device.DType) (err error) {
	t := trainedFor(r.o.Device.Kind(), r.o.Small)
	o, err := t.options(dtype)
	if err != nil {
		return err
	}
	o.On, o.Profile = r.o.Device, true
	s, err := trials.StartSynthetic(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Run(1); err != nil { // in which memory is first touched
		return err
	}
	if _, err := s.Times(); err != nil {
		return err
	}
	rounds := map[string][]float64{}
	for range t.rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := s.Run(predict.PredictedSteps); err != nil {
			return err
		}
		times, err := s.Times()
		if err != nil {
			return err
		}
		for op, seconds := range byOp(times) {
			rounds[op] = append(rounds[op], seconds)
		}
	}
	took := map[string]float64{}
	for op, seconds := range rounds {
		took[op] = measure.Sum(seconds).Median
	}
	return r.match(s.Plan, took, name, dtype)
}

// match corrects rates so that the operations of p's steps are predicted to take what they took,
// in seconds.
func (r *run) match(p *plan.Run, took map[string]float64, name string, dtype device.DType) error {
	for range corrections {
		times, err := predict.PredictTimes(p, r.out)
		if err != nil {
			return fmt.Errorf("predict what was measured: %w", err)
		}
		for op, seconds := range byOp(times) {
			if took[op] > 0 && seconds > 0 && !math.IsInf(seconds, 0) {
				r.slower(op, name, dtype, took[op]/seconds)
			}
		}
	}
	return nil
}

// byOp adds up times by operation, in seconds.
func byOp(times []wrap.OpTime) map[string]float64 {
	out := map[string]float64{}
	for _, t := range times {
		out[t.Op] += t.Total.Seconds()
	}
	return out
}

// slower makes an operation of that dtype take so many times as long.
func (r *run) slower(op, name string, dtype device.DType, times float64) {
	d := &r.out.Device
	switch op {
	case "MatMul":
		for i := range d.Products[name] {
			d.Products[name][i].Rate = rates.Round(d.Products[name][i].Rate / times)
		}
	case "Attention":
		for i := range d.Attention[name] {
			d.Attention[name][i].Forward = rates.Round(d.Attention[name][i].Forward / times)
		}
	case "AttentionBackward":
		for i := range d.Attention[name] {
			d.Attention[name][i].Backward = rates.Round(d.Attention[name][i].Backward / times)
		}
	default:
		if o, ok := d.Ops[op]; ok && dtype == r.operands() {
			d.Ops[op] = rates.Op{Fixed: rates.Round(o.Fixed * times), Rate: rates.Round(o.Rate / times), Cores: o.Cores}
		}
	}
}
