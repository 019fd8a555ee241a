package train

import (
	"context"
	"fmt"
	"math"

	"mt/actors"
	"mt/data"
	"mt/internal/config"
)

// EvalOptions say what to evaluate. Config holds model, data and device keys.
type EvalOptions struct {
	Options
	Config *config.Config
}

// EvalResult is the outcome of an evaluation.
type EvalResult struct {
	Loss       float64 `json:"loss"` // nats per supervised token
	Perplexity float64 `json:"perplexity"`
	Tokens     int64   `json:"tokens"` // supervised tokens
}

// Eval computes the loss of a model over all rows of a data set.
func Eval(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	in, err := Open(o.Config, o.Options, Asks{Team: alone(ctx), OrCheckpoint: true, HeldOut: true})
	if err != nil {
		return EvalResult{}, err
	}
	defer closeAfter(in, &err)
	if in.modelDir == "" {
		return EvalResult{}, in.c.Errorf("model", "an evaluation needs a model directory")
	}
	if in.set.IsPairs() {
		return EvalResult{}, in.c.Errorf(in.c.DataKey(), "%s: its rows are pairs of answers, which an evaluation in training compares (eval_dataset or val_size, with dpo); mt eval takes text, chats and input_ids", in.c.DataKey())
	}
	rows := data.NewSampler(in.set.All(), in.c.RowsPerStep(), 0, false)
	r, err := ToEvaluate(in)
	if err != nil {
		return EvalResult{}, err
	}
	news := newsOf(in.devs)
	showAll(o.Stderr, newOutput(r).allNotes(), news.take())
	hw, err := in.start()
	if err != nil {
		return EvalResult{}, err
	}
	defer closeAfter(hw, &err)
	store, err := in.weightsOf(r.plan.Layouts, false, hw.pool)
	if err != nil {
		return EvalResult{}, err
	}
	defer store.Close()
	err = actors.Run(actors.Options{Devices: hw.devs, Home: store, Pool: hw.pool, Plan: r.plan, MaxGradNorm: 1, Stop: ctx.Done(), ThroughHost: !r.c.PeerCopies,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: rows.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			return rows.Batch(step, r.c.Pipeline.MicroBatchTokens)
		},
		OnEval: func(r actors.EvalReport) {
			res = EvalResult{Loss: r.Loss, Perplexity: math.Exp(r.Loss), Tokens: r.Tokens}
		}})
	if err == nil && ctx.Err() != nil {
		err = ErrInterrupted
	}
	if err == nil && math.IsNaN(res.Loss) {
		err = fmt.Errorf("the loss is not finite: the model's weights are damaged, or compute_dtype does not hold them")
	}
	return res, err
}
