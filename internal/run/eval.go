package run

import (
	"context"
	"fmt"
	"math"

	"mt/actors"
	"mt/data"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/save"
	"mt/internal/run/settings"
)

// EvalOptions configures Eval. Config has the keys of the model, the data and the device.
type EvalOptions struct {
	settings.Options
	Config *config.Config
}

// EvalResult is the outcome of an evaluation.
type EvalResult struct {
	Loss       float64 `json:"loss"` // nats per supervised token
	Perplexity float64 `json:"perplexity"`
	Tokens     int64   `json:"tokens"` // supervised tokens
}

// Eval returns the loss of a model over all rows of a data set.
func Eval(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	err = open.OrCopied(o.Config, o.Options, func(c *config.Config) (err error) {
		o.Config = c
		res, err = eval(ctx, o)
		return err
	})
	return res, err
}

func eval(ctx context.Context, o EvalOptions) (res EvalResult, err error) {
	in, err := open.Open(o.Config, o.Options, open.Asks{Ranks: ranks.Alone(ctx), OrCheckpoint: true, HeldOut: true})
	if err != nil {
		return EvalResult{}, err
	}
	defer open.CloseAfter(in, &err)
	if in.ModelDir == "" {
		return EvalResult{}, in.Config.Errorf("model", "an evaluation needs a model directory")
	}
	if in.Data.IsPairs() {
		return EvalResult{}, in.Config.Errorf(in.Config.DataKey(), "%s: its rows are pairs of answers, which an evaluation in training compares (eval_dataset or val_size, with dpo); mt eval takes text, chats and input_ids", in.Config.DataKey())
	}
	rows := data.NewSampler(in.Data.All(), in.Config.RowsPerStep(), 0, false)
	r, err := resolve.ToEvaluate(in)
	if err != nil {
		return EvalResult{}, err
	}
	news := report.NotesOf(in.Devices)
	report.ShowAll(o.Stderr, save.NewOutput(r).AllNotes(), news.Take())
	hw, err := in.OpenHardware()
	if err != nil {
		return EvalResult{}, err
	}
	defer open.CloseAfter(hw, &err)
	store, err := in.WeightsOf(r.Plan.Layouts, false, hw.Pool)
	if err != nil {
		return EvalResult{}, err
	}
	defer store.Close()
	err = actors.Run(actors.Options{Devices: hw.Devs, Home: store, Pool: hw.Pool, Plan: r.Plan, MaxGradNorm: 1, Stop: ctx.Done(), ThroughHost: !r.Config.PeerCopies,
		LeavePinned: func(err error) bool { return err == nil && o.ProcessEnds && !machine.Emulated() },
		Schedule:    actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: rows.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			return rows.Batch(step, r.Config.Pipeline.MicroBatchTokens)
		},
		OnEval: func(r actors.EvalReport) {
			res = EvalResult{Loss: r.Loss, Perplexity: math.Exp(r.Loss), Tokens: r.Tokens}
		}})
	if err == nil && ctx.Err() != nil {
		err = settings.ErrInterrupted
	}
	if err == nil && math.IsNaN(res.Loss) {
		err = fmt.Errorf("the loss is not finite: the model's weights are damaged, or compute_dtype does not hold them")
	}
	return res, err
}
