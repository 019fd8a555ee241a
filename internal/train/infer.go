package train

import (
	"context"
	"fmt"
	"io"
	"math"

	"mt/actors"
	"mt/data"
	"mt/host"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/parallel"
	"mt/model"
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
	o.orCheckpoint = true
	j, err := openJob(ctx.Done(), o.Config, o.Options, func(j *job) error {
		j.heldOut = true
		return nil
	})
	if err != nil {
		return EvalResult{}, err
	}
	defer j.closeAfter(&err)
	if j.modelDir == "" {
		return EvalResult{}, j.c.Errorf("model", "an evaluation needs a model directory")
	}
	if j.set.IsPairs() {
		return EvalResult{}, j.c.Errorf(j.c.DataKey(), "%s: its rows are pairs of answers, which an evaluation in training compares (eval_dataset or val_size, with dpo); mt eval takes text, chats and input_ids", j.c.DataKey())
	}
	j.eval, j.evalView = data.NewSampler(j.set.All(), j.c.RowsPerStep(), 0, false), j.set.All()
	if err := j.resolveEvalPlan(); err != nil {
		return EvalResult{}, err
	}
	j.showNotes(o.Stderr)
	_, pool, err := j.openDevice()
	if err != nil {
		return EvalResult{}, err
	}
	store, err := j.weightsOf(j.plan.Layouts, pool)
	if err != nil {
		return EvalResult{}, err
	}
	err = actors.Run(actors.Options{Devices: j.devs, Home: store, Pool: pool, Plan: j.plan, MaxGradNorm: 1, Stop: ctx.Done(), ThroughHost: !j.c.PeerCopies,
		LeavePinned: func(err error) bool { return err == nil && o.ProcessEnds && !machine.Emulated() },
		Schedule:    actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: j.eval.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			return j.eval.Batch(step, j.c.Pipeline.MicroBatchTokens)
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

// weightsOf loads the weights of modelDir into a store that keeps nothing beside them.
func (j *job) weightsOf(layouts []model.Layout, pool *parallel.Pool) (*host.Store, error) {
	store, err := host.NewStore(layouts, nil, pool)
	if err != nil {
		return nil, err
	}
	j.closers = append(j.closers, func() { _ = store.Close() })
	return store, j.loadModel(store, pool, &line{w: io.Discard})
}
