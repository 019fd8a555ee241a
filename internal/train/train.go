package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/config"
	"mt/internal/parallel"
)

// Plan prints what a run of c would take, without running it.
func Plan(c *config.Config, o Options) error {
	j, err := openJob(c, o)
	if err != nil {
		return err
	}
	defer j.close()
	if _, err := j.findResume(); err != nil {
		return err
	}
	if err := j.resolvePlan(); err != nil {
		return err
	}
	j.showNotes(o.Stderr)
	return j.showPlan(o.Stdout, o.JSON)
}

// Train runs c to its end, from the newest checkpoint if there is one. A
// cancelled ctx ends it after the step in progress, saved, with ErrInterrupted.
func Train(ctx context.Context, c *config.Config, o Options) error {
	j, err := openJob(c, o)
	if err != nil {
		return err
	}
	defer j.close()
	from, err := j.findResume()
	if err != nil {
		return err
	}
	if err := j.resolvePlan(); err != nil {
		return err
	}
	j.showNotes(o.Stderr)
	if from.state.Step >= c.MaxSteps {
		fmt.Fprintf(o.Stdout, "%s is at step %d of %d: training is done\n", from.dir, from.state.Step, c.MaxSteps)
		if _, err := os.Stat(filepath.Join(c.OutputDir, "config.json")); err == nil {
			return nil
		}
	}
	if err := j.showPlan(o.Stderr, false); err != nil {
		return err
	}
	return j.run(ctx, from, o)
}

// showNotes prints what the user should know, once.
func (j *job) showNotes(w io.Writer) {
	for _, s := range append(append([]string{}, j.c.Warnings...), j.notes...) {
		fmt.Fprintln(w, "note:", s)
	}
}

func (j *job) showPlan(w io.Writer, asJSON bool) error {
	t := j.plan.Table()
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"memory": t, "max_steps": j.c.MaxSteps, "rows_per_step": j.c.RowsPerStep(),
			"rows": j.set.Train().Rows(), "recompute_keeps": j.plan.Spec.Keep.String(), "pipeline": j.plan.Depths,
			"micro_batch_tokens": j.c.Pipeline.MicroBatchTokens, "compute_dtype": j.c.ComputeDType, "grad_dtype": j.c.GradDType})
	}
	fmt.Fprintf(w, "%s parameters, %s rows of at most %s tokens, %s rows a step, %s steps\n", humanize.Comma(t.Params),
		humanize.Comma(int64(j.set.Train().Rows())), humanize.Comma(int64(j.rowTokens())), humanize.Comma(int64(j.c.RowsPerStep())), humanize.Comma(int64(j.c.MaxSteps)))
	fmt.Fprintf(w, "compute %s, gradients %s, micro-batches of %s tokens, kept for the backward: %s\n", j.c.ComputeDType, j.c.GradDType,
		humanize.Comma(int64(j.c.Pipeline.MicroBatchTokens)), j.plan.Spec.Keep)
	t.Write(w)
	return nil
}

// session is a run with its memory allocated.
type session struct {
	*job
	o     Options
	dev   device.Device
	pool  *parallel.Pool
	store *host.Store
	line  *line
	log   *metricsLog
	meter *meter
	err   error // first failure to write a metric

	lastStep int
	lastEval actors.EvalReport
}

func (j *job) run(ctx context.Context, from resume, o Options) error {
	c := j.c
	s := &session{job: j, o: o, line: &line{w: o.Stderr, interactive: o.Interactive}}
	if err := os.MkdirAll(c.OutputDir, 0o755); err != nil {
		return fmt.Errorf("output_dir: %w", err)
	}
	if err := s.open(from); err != nil {
		return err
	}
	defer s.log.f.Close()
	yaml := c.YAML("The configuration of this run, every auto resolved.")
	if err := os.WriteFile(filepath.Join(c.OutputDir, configFile), yaml, 0o644); err != nil {
		return err
	}
	extra, err := j.companions()
	if err != nil {
		return err
	}
	withConfig := map[string][]byte{configFile: yaml}
	for k, v := range extra {
		withConfig[k] = v
	}
	opts := s.options(from, &saver{j: j, layers: checkpointLayers(s.store), extra: withConfig})
	opts.Stop = ctx.Done()
	err = actors.Run(opts)
	s.line.end()
	if err = errors.Join(err, s.err); err != nil {
		return err
	}
	if s.lastStep < c.MaxSteps && ctx.Err() != nil {
		return ErrInterrupted
	}
	return s.finish(ctx, extra)
}

// open allocates memory and fills it: from the checkpoint, from the model's
// directory, or at random.
func (s *session) open(from resume) (err error) {
	if s.dev, s.pool, err = s.openDevice(); err != nil {
		return err
	}
	if s.store, err = host.NewStore(s.plan.Layouts, s.pool); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.store.Close() })
	switch {
	case from.dir != "":
		if _, err = checkpoint.Load(from.dir, checkpointLayers(s.store), nil); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		s.line.above(fmt.Sprintf("resuming from %s, step %d of %d", from.dir, from.state.Step, s.c.MaxSteps))
	case s.modelDir != "":
		if err := s.loadModel(s.store, s.line); err != nil {
			return err
		}
	default:
		initialise(s.store, s.model, s.c.Seed, s.pool)
	}
	if s.log, err = openMetrics(s.c.OutputDir, from.state.Step); err != nil {
		return err
	}
	s.lastStep = from.state.Step
	s.meter = &meter{j: s.job, dev: s.dev}
	s.meter.peakFLOPS, err = matMulRate(s.dev, s.act)
	return err
}

// loadModel reads the weights of modelDir.
func (j *job) loadModel(store *host.Store, l *line) error {
	unexpected, err := checkpoint.LoadModel(j.modelDir, checkpointLayers(store), nil)
	if err != nil {
		return err
	}
	if len(unexpected) > 0 {
		l.above(fmt.Sprintf("note: %s has %d tensors that this architecture does not use, such as %s", j.modelDir, len(unexpected), unexpected[0]))
	}
	return nil
}

// options are the pipeline's.
func (s *session) options(from resume, sv *saver) actors.Options {
	c := s.c
	evalPasses := 0
	if s.eval != nil {
		evalPasses = s.eval.StepsPerEpoch()
	}
	return actors.Options{
		Device: s.dev, Store: s.store, Pool: s.pool, Plan: s.plan,
		Schedule: actors.Schedule{FirstStep: from.state.Step + 1, LastStep: c.MaxSteps, SaveSteps: c.SaveSteps, EvalSteps: c.EvalSteps,
			EvalPasses: evalPasses, EvalAtEnd: true, MaxNonFinite: c.MaxNonfiniteSteps, SynchronousUpdates: c.SynchronousUpdates,
			LR: c.Schedule, DataPos: s.train.Pos},
		Start:       actors.State{Step: from.state.Step, AdamStep: from.state.AdamStep, NonFinite: from.state.NonFinite, Tokens: from.state.Tokens},
		Adam:        host.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay},
		MaxGradNorm: c.MaxGradNorm,
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if eval {
				return s.eval.Batch(step, c.Pipeline.MicroBatchTokens), nil
			}
			return s.train.Batch(step, c.Pipeline.MicroBatchTokens), nil
		},
		Saver: sv, OnStep: s.onStep, OnEval: s.onEval,
	}
}

func (s *session) onStep(r actors.StepReport) {
	m := s.meter.step(r)
	s.lastStep = r.Step
	logged := r.Step%max(1, s.c.LoggingSteps) == 0 || r.Step == s.c.MaxSteps || r.Skipped
	if logged {
		s.fail(s.log.write(m))
	}
	if logged || s.o.Interactive {
		s.line.show(m.text(s.o.Interactive))
	}
}

func (s *session) onEval(r actors.EvalReport) {
	s.lastEval = r
	s.line.above(fmt.Sprintf("step %d/%d  eval_loss %.4f  perplexity %.3f  (%s tokens)", r.Step, s.c.MaxSteps, r.Loss, math.Exp(r.Loss), humanize.Comma(r.Tokens)))
	s.fail(s.log.write(map[string]any{"step": r.Step, "eval_loss": number(r.Loss), "eval_perplexity": number(math.Exp(r.Loss)), "eval_tokens": r.Tokens}))
}

func (s *session) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
