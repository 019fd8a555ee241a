package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/parallel"
	"mt/internal/tensorboard"
)

// Train runs c to its end, from the newest checkpoint if there is one. Where that does
// not load, it tries again from the one before. A cancelled ctx ends the run after the
// step in progress: it is saved, and the error is ErrResumable, or ErrInterrupted where
// the keys say that nothing to resume from is saved.
func Train(ctx context.Context, c *config.Config, o Options) error {
	for {
		again := c.Clone()
		err := train(ctx, c, o)
		var bad *doesNotLoad
		if !errors.As(err, &bad) {
			return err
		}
		o.unusable = maps.Clone(o.unusable)
		if o.unusable == nil {
			o.unusable = map[string]string{}
		}
		o.unusable[bad.dir], c = bad.err.Error(), again
	}
}

func train(ctx context.Context, c *config.Config, o Options) (err error) {
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
		if from.ended || j.finished(from) {
			j.dropCheckpoints()
			for _, note := range j.late.take() {
				fmt.Fprintln(o.Stderr, "note:", note)
			}
			return nil
		}
	}
	if ctx.Err() != nil {
		return ErrResumable
	}
	if err := j.show(from, o.Stderr, false, nil); err != nil {
		return err
	}
	return j.run(ctx, from, o)
}

// openRun opens what a training run of c needs, finds where it goes on from and
// plans it. Nothing is allocated or written yet.
func openRun(stop <-chan struct{}, c *config.Config, o Options) (_ *job, from resume, err error) {
	j, err := openJob(stop, c, o, (*job).checkOutput, (*job).checkCopied)
	if err != nil {
		return nil, from, err
	}
	if from, err = j.findStart(); err == nil {
		err = j.resolvePlan()
	}
	if err == nil {
		err = j.checkRoom()
	}
	if err == nil && !from.ended {
		err = j.checkDisk(from)
	}
	if err != nil {
		j.closeAfter(&err)
	}
	return j, from, err
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
	kept  windows
	board *tensorboard.Writer // nil: not asked for
	meter *meter
	stop  context.CancelCauseFunc // ends the run with an error after the step in progress
	saver *saver

	from     string               // the checkpoint it goes on from
	resumed  int                  // the step of that checkpoint; 0: none
	products map[string][8]uint64 // how matrix products were computed, by shape
	lastStep int
	reached  actors.State // after lastStep
	lastEval actors.EvalReport
}

func (j *job) run(ctx context.Context, from resume, o Options) error {
	c := j.c
	s := &session{job: j, o: o, line: &line{w: o.Stderr, interactive: o.Interactive}}
	if err := checkpoint.MakeDirs(j.fs(), c.OutputDir); err != nil {
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
	j.sweep()
	c.Resume = "auto" // a run of the config.yaml below goes on from where this one stops
	yaml := c.YAML(configHeader)
	if err := j.writeWhole(configFile, yaml); err != nil {
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
	sv := &saver{j: j, log: s.log, kept: &s.kept, extra: withConfig, last: from.state,
		finite: from.state.Step - from.state.NonFinite}
	s.saver = sv
	opts := s.options(from, sv)
	opts.Stop = running.Done()
	err = actors.Run(opts)
	if recording := s.recordAlgorithms(); err == nil {
		err = recording
	}
	s.tellNotes()
	s.line.end()
	var gave *actors.NonFiniteError
	if cause := context.Cause(running); err == nil && cause != nil && cause != context.Cause(ctx) {
		err = cause
	}
	switch {
	case errors.As(err, &gave):
		return s.nonFinite(gave, err, sv.last.Step)
	case err != nil:
		return err
	case ctx.Err() != nil && (s.lastStep < c.MaxSteps || s.evalOwed() && s.resumable(sv.last)):
		return s.interrupted(from, sv.last)
	}
	return s.finish(ctx, extra)
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
	if s.store, err = host.NewStore(s.plan.Layouts, s.plan.Planes, s.pool); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.store.Close() })
	switch {
	case from.dir != "":
		if err = s.load(from.dir); err != nil {
			return err
		}
		if from.reset {
			for _, l := range s.store.Layers {
				for _, p := range l.Planes {
					clear(p.Data)
				}
			}
		}
		s.line.above(fmt.Sprintf("resuming from %s, step %d of %d", from.dir, from.state.Step, s.c.MaxSteps))
	case s.modelDir != "":
		if err := s.loadModel(s.store, s.pool, s.line); err != nil {
			return err
		}
	default:
		initialise(s.store, s.model, s.c.Seed, s.pool)
	}
	if s.log, s.lastEval, err = openMetrics(s.fs(), s.c.OutputDir, from.state.Step, s.hooks.metrics); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.log.f.Close() })
	if err := s.openBoard(); err != nil {
		return err
	}
	s.from, s.resumed, s.lastStep, s.reached = from.dir, from.state.Step, from.state.Step, from.reached()
	if err := s.readAlgorithms(); err != nil {
		return err
	}
	s.meter = s.newMeter(s.dev, from.state)
	s.meter.peakFLOPS, err = machine.MatMulRate(s.dev, s.act, s.rateSize())
	return err
}

// loadModel reads the weights of modelDir, and gives tokens that are new their rows.
func (j *job) loadModel(store *host.Store, pool *parallel.Pool, l *line) error {
	unexpected, err := checkpoint.LoadModel(j.modelDir, checkpointLayers(store), j.opened.Stored.VocabSize, nil)
	if err != nil {
		return err
	}
	startRows(store, j.opened.newRows(), j.opened.known, pool)
	if len(unexpected) > 0 {
		l.above(fmt.Sprintf("note: %s has %d tensors that are not trained, such as %s: they are saved as they are", j.modelDir, len(unexpected), unexpected[0]))
	}
	return nil
}

// options returns the options of the pipeline.
func (s *session) options(from resume, sv *saver) actors.Options {
	c := s.c
	evalPasses := 0
	if s.eval != nil {
		evalPasses = s.eval.StepsPerEpoch()
	}
	every := s.cadence()
	return actors.Options{
		Device: s.dev, Home: s.store, Pool: s.pool, Plan: s.plan,
		Schedule: actors.Schedule{FirstStep: from.state.Step + 1, LastStep: c.MaxSteps, SaveSteps: every.save, EvalSteps: every.eval,
			SaveEpochs: every.saveEpochs, EvalEpochs: every.evalEpochs, EndsEpoch: s.endsEpoch,
			NoSave: c.SaveStrategy == "no", NoFinalSave: c.SaveOnlyModel || !c.KeepCheckpoints,
			EvalPasses: evalPasses, EvalAtStart: s.evalOwed(), EvalAtEnd: true, MaxNonFinite: c.MaxNonfiniteSteps, SynchronousUpdates: c.SynchronousUpdates,
			LR: c.Schedule, DataPos: s.train.Pos},
		Start:       from.reached(),
		Optimizer:   s.optimizer(),
		MaxGradNorm: c.MaxGradNorm,
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if f := s.hooks.packing; f != nil {
				f(step, eval)
			}
			if eval {
				return s.eval.Batch(step, c.Pipeline.MicroBatchTokens)
			}
			return s.train.Batch(step, c.Pipeline.MicroBatchTokens)
		},
		Saver: sv, OnStep: s.onStep, OnEval: s.onEval,
	}
}

// tellNotes prints the notes of the device and of the run that came up since it was
// called last.
func (s *session) tellNotes() {
	for _, n := range append(s.deviceNotes(), s.late.take()...) {
		s.line.above("note: " + n)
	}
}

func (s *session) onStep(r actors.StepReport) {
	s.tellNotes()
	m := s.meter.step(r)
	s.lastStep, s.reached = r.Step, after(s.reached, r)
	logged := r.Step%max(1, s.cadence().log) == 0 || r.Step == s.c.MaxSteps || r.Skipped
	if f := s.hooks.logging; f != nil {
		f(r.Step)
	}
	if logged {
		s.record(m)
		s.onBoard(m.Step, m.scalars()...)
		s.meter.logged()
	}
	s.kept.reported(r.Step, r.Saved, s.meter.window)
	if logged || s.o.Interactive {
		s.line.show(m.texts(s.o.Interactive)...)
	}
	if !r.Skipped {
		s.saver.stepped(r.Step)
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

// evalOwed says whether an evaluation is due after the last step done (at the start,
// the step that the run goes on from) and metrics.jsonl does not have it.
func (s *session) evalOwed() bool {
	step, every := s.lastStep, s.cadence()
	due := s.eval != nil && step > 0 && (every.eval > 0 && step%every.eval == 0 || every.evalEpochs && s.endsEpoch(step) || step == s.c.MaxSteps)
	return due && s.lastEval.Step != step
}
