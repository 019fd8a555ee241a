package train

import (
	"context"
	"fmt"
	"io"
	"math"

	"mt/actors"
	"mt/data"
	"mt/data/tokenizer"
	"mt/device"
	"mt/host"
	"mt/internal/config"
	"mt/internal/generate"
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
	j, err := openJob(ctx.Done(), o.Config, o.Options)
	if err != nil {
		return EvalResult{}, err
	}
	defer j.closeAfter(&err)
	if j.modelDir == "" {
		return EvalResult{}, j.c.Errorf("model", "an evaluation needs a model directory")
	}
	j.eval, j.evalView = data.NewSampler(j.set.All(), j.c.RowsPerStep(), 0, false), j.set.All()
	if err := j.resolveEvalPlan(); err != nil {
		return EvalResult{}, err
	}
	j.showNotes(o.Stderr)
	dev, pool, err := j.openDevice()
	if err != nil {
		return EvalResult{}, err
	}
	store, err := j.weightsOf(j.plan.Layouts, pool)
	if err != nil {
		return EvalResult{}, err
	}
	err = actors.Run(actors.Options{Device: dev, Store: store, Pool: pool, Plan: j.plan, MaxGradNorm: 1, Stop: ctx.Done(),
		Schedule: actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: j.eval.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			return j.eval.Batch(step, j.c.Pipeline.MicroBatchTokens), nil
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

// GenerateOptions say what to continue, and how.
type GenerateOptions struct {
	Options
	Config       *config.Config // model and device keys
	Prompt       string
	MaxNewTokens int
	Temperature  float64
	TopK         int
	TopP         float64
	Seed         int64
}

// Generate continues a prompt, printing tokens on Stdout as they come.
func Generate(ctx context.Context, o GenerateOptions) (err error) {
	j := &job{c: o.Config, hooks: o.hooks}
	defer j.closeAfter(&err)
	if err := j.c.Require("model"); err != nil {
		return err
	}
	if err := j.openModel(); err != nil {
		return err
	}
	if j.modelDir == "" {
		return j.c.Errorf("model", "generating needs a model directory")
	}
	if j.tokErr != nil {
		return j.tokErr
	}
	if err := j.resolveDevice(o.Options); err != nil {
		return err
	}
	j.showNotes(o.Stderr)
	dev, pool, err := j.openDevice()
	if err != nil {
		return err
	}
	s := &session{job: j, o: o.Options, dev: dev, pool: pool}
	layouts := j.model.Layouts(j.act == device.BF16)
	if s.store, err = j.weightsOf(layouts, pool); err != nil {
		return err
	}
	fmt.Fprint(o.Stdout, o.Prompt)
	err = s.generate(ctx, generate.Options{MaxNewTokens: o.MaxNewTokens, Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, Seed: o.Seed}, o.Prompt, o.Stdout)
	fmt.Fprintln(o.Stdout)
	if err != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// weightsOf loads modelDir into a store without moments.
func (j *job) weightsOf(layouts []model.Layout, pool *parallel.Pool) (*host.Store, error) {
	store, err := host.NewWeights(layouts, pool)
	if err != nil {
		return nil, err
	}
	j.closers = append(j.closers, func() { _ = store.Close() })
	return store, j.loadModel(store, &line{w: io.Discard})
}

// generate continues prompt with the session's weights and prints the text as
// whole characters arrive.
func (s *session) generate(ctx context.Context, g generate.Options, prompt string, w io.Writer) error {
	g.Device, g.Store, g.Config, g.Act = s.dev, s.store, s.model, s.act
	for _, l := range s.store.Layers {
		g.Layout = append(g.Layout, l.Layout)
	}
	ids, err := data.Prompt(s.tok, []byte(prompt))
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	if eos, ok := s.tok.EOS(); ok {
		g.Stop = append(g.Stop, eos)
	}
	for _, id := range s.model.EOS {
		g.Stop = append(g.Stop, int32(id))
	}
	out := tokenizer.NewStream(s.tok, ids...)
	err = generate.Run(ctx, g, ids, func(id int32) { _, _ = io.WriteString(w, out.Next(id)) })
	_, _ = io.WriteString(w, out.Flush())
	return err
}
