package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/parallel"
)

// Train runs c to its end, from the newest checkpoint if there is one. Where that does
// not load, it tries again from the one before. A cancelled ctx ends the run after the
// step in progress: it is saved, and the error is ErrResumable, or ErrInterrupted where
// the keys say that nothing to resume from is saved. With a World all of its ranks train
// together.
func Train(ctx context.Context, c *config.Config, o Options) error {
	if o.World != nil && o.World.Size() > 1 {
		return together(ctx, c.OutputDir, o, func(o Options) error { return trainUntilLoaded(ctx, c, o) })
	}
	return trainUntilLoaded(ctx, c, o)
}

// trainUntilLoaded is train, and again where a checkpoint does not load.
func trainUntilLoaded(ctx context.Context, c *config.Config, o Options) error {
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
	if err := j.agreeOnRun(o.Version, from); err != nil {
		return err
	}
	if f := o.hooks.planned; f != nil {
		f(j)
	}
	j.showNotes(o.Stderr)
	if over := from.over || from.ended && from.state.Step < c.MaxSteps; over || from.state.Step >= c.MaxSteps {
		why := ""
		if over {
			why = fmt.Sprintf(", ended by early stopping; a larger early_stopping_patience than %d goes on", c.EarlyStoppingPatience)
		}
		fmt.Fprintf(o.Stdout, "%s is at step %d of %d: training is done%s\n", from.dir, from.state.Step, c.MaxSteps, why)
		if from.ended || j.finished(from) {
			if j.team.first() {
				j.dropCheckpoints()
				j.drawCurve() // the run itself may have failed to
			}
			for _, note := range j.late.take() {
				fmt.Fprintln(o.Stderr, "note:", note)
			}
			return j.sweepStates()
		}
	}
	if j.stopped(ctx) {
		return ErrResumable
	}
	if err := j.show(from, o.Stderr, false, outlook{}); err != nil {
		return err
	}
	return j.run(ctx, from, o)
}

// openRun opens what a training run of c needs, finds where it goes on from and
// plans it. Nothing is allocated or written yet.
func openRun(stop <-chan struct{}, c *config.Config, o Options) (_ *job, from resume, err error) {
	checks := []func(*job) error{(*job).checkOutput, (*job).checkCopied, (*job).checkTrace, (*job).checkBoards, func(j *job) error { return j.listen(!o.paper) }}
	if !o.team.first() {
		checks = nil // it writes nothing there
	}
	j, err := openJob(stop, c, o, checks...)
	if err != nil {
		return nil, from, err
	}
	if from, err = j.findStart(); err == nil {
		j.prompts, err = j.findPrompts()
	}
	if err == nil {
		j.ref.unneeded = len(c.DPO) > 0 && (from.ended || from.state.Step >= c.MaxSteps && j.finished(from))
		err = j.readReferences()
	}
	if err == nil {
		err = j.resolvePlan()
	}
	if err == nil {
		err = j.checkRoom("the run")
	}
	if err == nil && j.ref.pass != nil {
		err = j.referenceJob().checkRoom(j.passName())
	}
	if err == nil && !from.ended && o.team.first() {
		var note string
		if note, err = j.checkDisk(from); note != "" && j.plan.Away == nil { // else it is asked again when the states have their room
			j.note("%s", note)
		}
	}
	if err != nil {
		j.closeAfter(&err)
	}
	return j, from, err
}

// session is a run with its memory allocated.
type session struct {
	*job
	o       Options
	sampled bool      // the command line of mt generate says how tokens are chosen
	asked   LogitKeys // of the model's generation_config.json; mt generate alone reads them
	dev     device.Device
	pool    *parallel.Pool
	store   *host.Store
	line    *line
	log     *metricsLog
	kept    windows
	boards  boards
	meter   *meter
	trail   trail
	trace   trace
	stop    context.CancelCauseFunc // ends the run with an error after the step in progress
	halted  context.Context         // done when the run is to end before its last step
	saver   *saver
	staging *staging // nil: this process trains alone
	bests   bests

	samples samples

	from     string               // the checkpoint it goes on from
	resumed  int                  // the step of that checkpoint; 0: none
	products map[string][8]uint64 // how matrix products were computed, by shape
	before   map[string][8]uint64 // the same, before this process
	took     atomic.Int64         // nanoseconds, by the last step; 0: there was none yet
	lastStep int
	reached  actors.State // after lastStep
	lastEval actors.EvalReport
}

func (j *job) run(ctx context.Context, from resume, o Options) (err error) {
	c := j.c
	o.Timeline = j.team.first() && (o.Timeline || c.Dashboard != "")
	s := &session{job: j, o: o, line: &line{w: o.Stderr, interactive: o.Interactive}}
	s.saver = &saver{j: j, kept: &s.kept, last: from.state, finite: from.state.Step - from.state.NonFinite}
	defer func() { s.closeBoards(err) }()
	if err := s.prepare(from); err != nil {
		return err
	}
	c.Resume = "auto" // a run of the config.yaml below goes on from where this one stops
	yaml := c.YAML(configHeader)
	extra, err := s.begin(yaml)
	if err != nil {
		return err
	}
	if err := s.agreeOnOutput(); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop, s.halted = stop, running
	if s.team != nil {
		s.halted = s.team.halted
	}
	sv := s.saver
	err = s.steps(running)
	if gave := (*actors.NonFiniteError)(nil); s.team != nil && err != nil && !errors.As(err, &gave) {
		err = s.team.end(err) // while the memory is there that other ranks may still send to
	}
	if s.team.first() {
		if recording := s.recordAlgorithms(); err == nil {
			err = recording
		}
		s.endTrace()
		s.drawCurve()
	}
	s.tellNotes()
	s.line.end()
	var gave *actors.NonFiniteError
	if cause := context.Cause(running); err == nil && cause != nil && cause != context.Cause(ctx) {
		err = cause
	}
	switch {
	case errors.As(err, &gave) && s.team.first():
		return s.nonFinite(gave, err, sv.last.Step)
	case err != nil:
		return err
	case s.stopped(ctx) && (s.lastStep < c.MaxSteps && !s.endsEarly() || (s.evalOwed() || s.samplesOwed()) && s.resumable(sv.last)):
		return s.interrupted(from, sv.last)
	}
	if err := s.untrained(from); err != nil {
		return err
	}
	return s.finish(ctx, extra)
}

// stopped says whether the run is to end before its last step: ctx is done where it trains alone,
// and several ranks have agreed to.
func (j *job) stopped(ctx context.Context) bool {
	if j.team != nil {
		ctx = j.team.halted
	}
	return ctx.Err() != nil
}

// prepare opens what the run needs, and the output directory where this process writes there.
func (s *session) prepare(from resume) error {
	if !s.team.first() {
		if err := s.open(from); err != nil {
			return err
		}
		s.openRankMetrics(from)
		return nil
	}
	if err := checkpoint.MakeDirs(s.fs(), s.c.OutputDir); err != nil {
		return s.c.Errorf("output_dir", "output_dir: %w", err)
	}
	if err := s.lockOutput(); err != nil {
		return err
	}
	if err := s.openTrace(); err != nil {
		return err
	}
	if err := s.open(from); err != nil {
		return err
	}
	return s.openOutput(from)
}

// begin writes what a run leaves at its start, yaml as config.yaml, and returns what is saved
// beside weights.
func (s *session) begin(yaml []byte) (extra map[string][]byte, err error) {
	if !s.team.first() {
		return nil, nil
	}
	if err := s.markUnfinished(); err != nil {
		return nil, err
	}
	s.sweep()
	if err := s.writeWhole(configFile, yaml); err != nil {
		return nil, err
	}
	s.serve()
	if extra, err = s.companions(); err != nil {
		return nil, err
	}
	withConfig := map[string][]byte{configFile: yaml}
	for k, v := range extra {
		withConfig[k] = v
	}
	s.saver.log, s.saver.extra, s.saver.record = s.log, withConfig, s.recordAlgorithms
	return extra, nil
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
	if err = s.findReferences(s.pool); err != nil {
		return err
	}
	if err = s.openStore(from); err != nil {
		return err
	}
	if err = s.agreeOnTiles(s.fill(from)); err != nil {
		return err
	}
	s.from, s.resumed, s.lastStep, s.reached = from.dir, from.state.Step, from.state.Step, from.reached()
	s.bests.patience, s.bests.threshold = s.c.EarlyStoppingPatience, s.c.EarlyStoppingThreshold
	if err := s.resumeAlgorithms(from); err != nil {
		return err
	}
	s.meter = s.newMeter(from.state)
	s.meter.peakFLOPS, err = machine.MatMulRate(s.dev, s.act, s.rateSize())
	s.meter.peakFLOPS *= float64(len(s.devs) * s.team.size())
	return err
}

// fill fills the store with the weights that the run begins with.
func (s *session) fill(from resume) error {
	switch {
	case from.dir != "":
		if err := s.load(from); err != nil {
			return err
		}
		if from.reset {
			for i := range s.store.Layers {
				if err := s.store.Lend(i, true, func(l *host.LayerState) error {
					for _, p := range l.Planes {
						clear(p.Data)
					}
					return nil
				}); err != nil {
					return err
				}
			}
		}
		s.line.above(fmt.Sprintf("resuming from %s, step %d of %d", from.dir, from.state.Step, s.c.MaxSteps))
	case s.modelDir != "":
		if err := s.loadModel(s.store, s.pool, s.line); err != nil {
			return err
		}
	default:
		return initialise(s.store, s.model, s.c.Seed, s.pool)
	}
	return nil
}

// openOutput opens what the run goes on with in its output directory.
func (s *session) openOutput(from resume) (err error) {
	if s.log, s.lastEval, err = openMetrics(s.fs(), filepath.Join(s.c.OutputDir, metricsFile), from.state.Step, s.hooks.metrics); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.log.f.Close() })
	if err := s.openSamples(from); err != nil {
		return err
	}
	s.beginBests(from)
	return s.openBoards(from)
}

// loadModel reads the weights of modelDir, and gives tokens that are new their rows.
func (j *job) loadModel(store *host.Store, pool *parallel.Pool, l *line) error {
	unexpected, err := checkpoint.LoadModel(j.modelDir, checkpointLayers(store), j.opened.Stored.VocabSize, nil)
	if err != nil {
		return err
	}
	if err := startRows(store, j.opened.newRows(), j.opened.known, j.team != nil || j.upperMeans, pool); err != nil {
		return err
	}
	if len(unexpected) > 0 {
		l.above(fmt.Sprintf("note: %s has %d tensors that are not trained, such as %s: they are saved as they are", j.modelDir, len(unexpected), unexpected[0]))
	}
	return nil
}

// steps makes the steps that are left, and stops where samples are due. A cancelled ctx
// ends it after the step in progress, which is saved.
func (s *session) steps(ctx context.Context) error {
	for ran := false; ; ran = true {
		if s.samplesOwed() {
			if cut, err := s.sampleTogether(ctx); err != nil {
				return err
			} else if cut {
				return s.saveAsItIs()
			}
		}
		if ran && (s.lastStep >= s.c.MaxSteps || s.endsEarly()) {
			return nil
		}
		if s.team != nil && s.halted.Err() != nil { // the ranks have agreed to stop outside of steps
			return s.saveAsItIs()
		}
		opts := s.options()
		opts.Stop = ctx.Done()
		giveUp, end := s.impatient(ctx)
		opts.GiveUp = giveUp
		err := actors.Run(opts)
		if end(); err != nil || s.halted.Err() != nil {
			return s.gaveUp(err)
		}
	}
}

// leavePinned says whether the process ends with the run, which ended with err: then nothing is copied to or from a GPU any
// more. After an error everything is given back.
func (s *session) leavePinned(err error) bool {
	var gaveUp *actors.GivenUpError
	switch {
	case !s.o.ProcessEnds || machine.Emulated(): // an emulator wants everything back
		return false
	case err != nil:
		return errors.As(err, &gaveUp)
	}
	return s.halted.Err() != nil || (s.lastStep >= s.c.MaxSteps || s.endsEarly()) && !s.samplesOwed()
}

// options returns the options of the pipeline, from where the run stands.
func (s *session) options() actors.Options {
	c := s.c
	evalPasses := 0
	if s.eval != nil {
		evalPasses = s.eval.StepsPerEpoch()
	}
	every, last, optimizer := s.cadence(), c.MaxSteps, s.optimizer()
	if s.o.Watch != nil {
		optimizer = s.o.Watch(optimizer)
	}
	if s.endsEarly() {
		last = s.lastStep
	}
	return actors.Options{
		Devices: s.devs, Home: s.store, Pool: s.pool, Plan: s.plan,
		Schedule: actors.Schedule{FirstStep: s.lastStep + 1, LastStep: last, PauseAfter: s.pauseAfter(), SaveSteps: every.save, EvalSteps: every.eval,
			SaveEpochs: every.saveEpochs, SaveEvals: every.saveEvals, Enough: s.bests.enough, EvalEpochs: every.evalEpochs, EndsEpoch: s.endsEpoch,
			NoSave: c.SaveStrategy == "no", NoFinalSave: c.SaveOnlyModel || !c.KeepCheckpoints,
			EvalPasses: evalPasses, EvalAtStart: s.evalOwed(), EvalAtEnd: true, MaxNonFinite: c.MaxNonfiniteSteps, SynchronousUpdates: c.SynchronousUpdates,
			LR: c.Schedule, DataPos: s.train.Pos},
		Start:       s.reached,
		Preferences: s.preferences(),
		Optimizer:   optimizer,
		Matrices:    s.muon(),
		MaxGradNorm: c.MaxGradNorm, LayerNorms: c.Clip == "layerwise",
		ThroughHost: !c.PeerCopies,
		LeavePinned: s.leavePinned,
		World:       s.world(), Stopping: s.agreedToStop,
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if f := s.hooks.packing; f != nil {
				f(step, eval)
			}
			sampler := s.train
			if eval {
				sampler = s.eval
			}
			return sampler.RankBatch(step, c.Pipeline.MicroBatchTokens, s.team.number(), s.team.size())
		},
		Saver: s.saver, LinkStates: s.links != nil, OnStep: s.onStep, OnEval: s.onEval, Timeline: s.trace.recorder,
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
	s.took.Store(int64(r.Elapsed))
	s.lastStep, s.reached = r.Step, after(s.reached, r)
	s.trail.add(r.Loss)
	logged := r.Step%max(1, s.cadence().log) == 0 || r.Step == s.c.MaxSteps || r.Skipped
	if f := s.hooks.logging; f != nil {
		f(r.Step)
	}
	if logged {
		s.record(m)
		s.onBoards(m.Step, m.scalars()...)
		s.meter.logged()
	}
	s.kept.reported(r.Step, r.Saved, s.meter.window)
	s.saver.bests.reported(r.Step, r.Saved, s.bests.reported)
	if logged || s.o.Interactive {
		s.line.show(m.texts(s.o.Interactive, s.trail.spark())...)
	}
	if !r.Skipped {
		s.saver.stepped(r.Step)
	}
	s.showTimeline(timelineEvery)
	if f := s.hooks.stepped; f != nil {
		f(r.Step)
	}
}

// record writes v to metrics.jsonl. Where that fails the run ends, unless it is the file of a rank
// but the first, which is for those who look for what slows a run down.
func (s *session) record(v any) {
	if s.log == nil {
		return
	}
	err := s.log.write(v)
	switch {
	case err == nil:
	case s.team.first():
		s.stop(err)
	default:
		s.late.add(err.Error())
		s.log = nil
	}
}
