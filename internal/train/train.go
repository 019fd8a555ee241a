package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/config"
	"mt/internal/parallel"
	"mt/internal/tensorboard"
	"mt/plan"
)

// Plan prints what a run of c would take, without running it.
func Plan(c *config.Config, o Options) (err error) {
	o.paper = true
	j, _, err := openRun(nil, c, o)
	if err != nil {
		return err
	}
	defer j.closeAfter(&err)
	j.showNotes(o.Stderr)
	bound, err := j.bound()
	if err != nil {
		return err
	}
	return j.showPlan(o.Stdout, o.JSON, bound)
}

// Train runs c to its end, from the newest checkpoint if there is one. A
// cancelled ctx ends it after the step in progress, saved, with ErrInterrupted.
func Train(ctx context.Context, c *config.Config, o Options) (err error) {
	j, from, err := openRun(ctx.Done(), c, o)
	if err != nil {
		return err
	}
	defer j.closeAfter(&err)
	if f := o.hooks.planned; f != nil {
		f(j)
	}
	j.showNotes(o.Stderr)
	if from.state.Step >= c.MaxSteps {
		fmt.Fprintf(o.Stdout, "%s is at step %d of %d: training is done\n", from.dir, from.state.Step, c.MaxSteps)
		if j.finished(from) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if err := j.showPlan(o.Stderr, false, nil); err != nil {
		return err
	}
	return j.run(ctx, from, o)
}

// openRun opens what a training run of c needs, finds where it goes on from and
// plans it. Nothing is allocated or written yet.
func openRun(stop <-chan struct{}, c *config.Config, o Options) (_ *job, from resume, err error) {
	j, err := openJob(stop, c, o, (*job).checkOutput)
	if err != nil {
		return nil, from, err
	}
	if from, err = j.findResume(); err == nil {
		err = j.resolvePlan()
	}
	if err != nil {
		j.closeAfter(&err)
	}
	return j, from, err
}

// showNotes prints what the user should know, once.
func (j *job) showNotes(w io.Writer) {
	for _, s := range slices.Concat(j.c.Warnings, j.notes, j.deviceNotes()) {
		fmt.Fprintln(w, "note:", s)
	}
}

// showPlan prints memory and, unless it is nil, what bounds the time of a step.
func (j *job) showPlan(w io.Writer, asJSON bool, bound *plan.Bound) error {
	t := j.plan.Table()
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"memory": t, "max_steps": j.c.MaxSteps, "rows_per_step": j.c.RowsPerStep(),
			"rows": j.set.Train().Rows(), "recompute_keeps": j.plan.Spec.Keep.String(), "pipeline": j.plan.Depths,
			"micro_batch_tokens": j.c.Pipeline.MicroBatchTokens, "head_shards": j.plan.Spec.Shards(), "experts": j.plan.ExpertTraffic(), "bound": bound, "compute_dtype": j.c.ComputeDType, "grad_dtype": j.c.GradDType})
	}
	count := func(n int) string { return humanize.Comma(int64(n)) }
	fmt.Fprintf(w, "%s parameters, %s rows of at most %s tokens\n", humanize.Comma(t.Params), count(j.set.Train().Rows()), count(j.rowTokens()))
	fmt.Fprintf(w, "%s steps of %s rows, compute %s, gradients %s\n", count(j.c.MaxSteps), count(j.c.RowsPerStep()), j.c.ComputeDType, j.c.GradDType)
	fmt.Fprintf(w, "micro-batches of %s tokens, kept for the backward: %s\n", count(j.c.Pipeline.MicroBatchTokens), j.plan.Spec.Keep)
	if n := j.plan.Spec.Shards(); n > 1 {
		fmt.Fprintf(w, "the head in %d shards of the vocabulary, in two sweeps\n", n)
	}
	if x := j.plan.ExpertTraffic(); x != nil {
		fmt.Fprintln(w, x)
	}
	t.Write(w)
	if bound != nil {
		bound.Write(w)
	}
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
	board *tensorboard.Writer // nil: not asked for
	meter *meter
	stop  context.CancelCauseFunc // ends the run with an error after the step in progress

	resumed  int // the step it goes on from
	lastStep int
	lastEval actors.EvalReport
}

func (j *job) run(ctx context.Context, from resume, o Options) error {
	c := j.c
	s := &session{job: j, o: o, line: &line{w: o.Stderr, interactive: o.Interactive}}
	if err := os.MkdirAll(c.OutputDir, 0o755); err != nil {
		return c.Errorf("output_dir", "output_dir: %w", err)
	}
	if err := j.lockOutput(); err != nil {
		return err
	}
	if err := s.open(from); err != nil {
		return err
	}
	if err := j.markUnfinished(); err != nil {
		return err
	}
	if err := checkpoint.Prune(c.OutputDir, 0); err != nil { // what a killed save has left takes no room
		return err
	}
	c.Resume = "auto" // given config.yaml, a run goes on from where this one came to
	yaml := c.YAML("The configuration of this run, every auto resolved.")
	if err := writeWhole(filepath.Join(c.OutputDir, configFile), yaml); err != nil {
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
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop = stop
	sv := &saver{j: j, log: s.log, layers: checkpointLayers(s.store), extra: withConfig, last: from.state}
	opts := s.options(from, sv)
	opts.Stop = running.Done()
	err = actors.Run(opts)
	if recording := s.recordAlgorithms(); err == nil {
		err = recording
	}
	s.tellNotes()
	s.line.end()
	if cause := context.Cause(running); err == nil && cause != nil && cause != context.Cause(ctx) {
		err = cause
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil && (s.lastStep < c.MaxSteps || s.eval != nil && s.lastEval.Step < c.MaxSteps):
		if step := sv.last.Step; step > from.state.Step {
			s.line.above(fmt.Sprintf("step %d of %d is saved in %s", step, c.MaxSteps, filepath.Join(c.OutputDir, checkpointName(step))))
		}
		return ErrInterrupted
	}
	return s.finish(ctx, extra, sv.last)
}

// open allocates memory and fills it: from the checkpoint, from the model's
// directory, or at random.
func (s *session) open(from resume) (err error) {
	if f := s.hooks.allocating; f != nil {
		f()
	}
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
	if s.log, s.lastEval, err = openMetrics(s.c.OutputDir, from.state.Step, s.hooks.metrics); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.log.f.Close() })
	if err := s.openBoard(); err != nil {
		return err
	}
	s.resumed, s.lastStep = from.state.Step, from.state.Step
	s.meter = &meter{j: s.job, dev: s.dev}
	s.meter.peakFLOPS, err = MatMulRate(s.dev, s.act, s.rateSize())
	return err
}

// loadModel reads the weights of modelDir.
func (j *job) loadModel(store *host.Store, l *line) error {
	unexpected, err := checkpoint.LoadModel(j.modelDir, checkpointLayers(store), nil)
	if err != nil {
		return err
	}
	if len(unexpected) > 0 {
		l.above(fmt.Sprintf("note: %s has %d tensors that are not trained, such as %s: they are saved as they are", j.modelDir, len(unexpected), unexpected[0]))
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
			EvalPasses: evalPasses, EvalAtStart: s.evalOwed(), EvalAtEnd: true, MaxNonFinite: c.MaxNonfiniteSteps, SynchronousUpdates: c.SynchronousUpdates,
			LR: c.Schedule, DataPos: s.train.Pos},
		Start:       actors.State{Step: from.state.Step, AdamStep: from.state.AdamStep, NonFinite: from.state.NonFinite, Tokens: from.state.Tokens},
		Adam:        host.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay},
		MaxGradNorm: c.MaxGradNorm,
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if f := s.hooks.packing; f != nil {
				f(step, eval)
			}
			if eval {
				return s.eval.Batch(step, c.Pipeline.MicroBatchTokens), nil
			}
			return s.train.Batch(step, c.Pipeline.MicroBatchTokens), nil
		},
		Saver: sv, OnStep: s.onStep, OnEval: s.onEval,
	}
}

// tellNotes prints what the device had to say since.
func (s *session) tellNotes() {
	for _, n := range s.deviceNotes() {
		s.line.above("note: " + n)
	}
}

func (s *session) onStep(r actors.StepReport) {
	s.tellNotes()
	m := s.meter.step(r)
	s.lastStep = r.Step
	logged := r.Step%max(1, s.c.LoggingSteps) == 0 || r.Step == s.c.MaxSteps || r.Skipped
	if f := s.hooks.logging; f != nil {
		f(r.Step)
	}
	if logged {
		s.record(m)
		s.onBoard(m.Step, m.scalars()...)
	}
	if logged || s.o.Interactive {
		s.line.show(m.texts(s.o.Interactive)...)
	}
	if f := s.hooks.stepped; f != nil {
		f(r.Step)
	}
}

func (s *session) onEval(r actors.EvalReport) {
	s.lastEval = r
	s.line.above(fmt.Sprintf("step %d/%d  eval_loss %.4f  perplexity %.3f  (%s tokens)", r.Step, s.c.MaxSteps, r.Loss, math.Exp(r.Loss), humanize.Comma(r.Tokens)))
	s.onBoard(r.Step, tensorboard.Scalar{Tag: "eval/loss", Value: r.Loss})
	s.record(evalMetrics{Step: r.Step, Loss: number(r.Loss), Perplexity: number(math.Exp(r.Loss)), Tokens: r.Tokens})
}

// record writes v to metrics.jsonl. Where that fails the run ends.
func (s *session) record(v any) {
	if err := s.log.write(v); err != nil {
		s.stop(err)
	}
}

// evalOwed says whether the step that the run goes on from is due an evaluation
// that metrics.jsonl does not have.
func (s *session) evalOwed() bool {
	step, every := s.lastStep, s.c.EvalSteps
	due := step > 0 && (every > 0 && step%every == 0 || step == s.c.MaxSteps)
	return due && s.lastEval.Step != step
}
