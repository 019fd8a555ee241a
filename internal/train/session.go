package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/internal/machine"
	"mt/internal/parallel"
	"mt/internal/timeline"
	"mt/plan"
)

// session is a run with its memory allocated.
type session struct {
	*Output
	o         Options
	devs      []device.Device // by lane
	pool      *parallel.Pool
	store     *host.Store
	closers   closers
	line      *line
	observers Observers
	news      *deviceNews
	log       *metricsLog // metrics.jsonl, or what another rank than the first has in its place; nil: there is none
	kept      windows
	meter     *meter
	trace     *trace
	stop      context.CancelCauseFunc // ends the run with an error after the step in progress
	halted    context.Context         // done when the run is to end before its last step
	saver     *saver
	staging   *staging
	bests     bests
	samples   samples
	pairs     reference // of the run, with what the pass has found

	products map[string][8]uint64 // how matrix products were computed, by shape
	before   map[string][8]uint64 // the same, before this process
	took     atomic.Int64         // nanoseconds, by the last step; 0: there was none yet
	lastStep int
	reached  actors.State // after lastStep
	lastEval actors.EvalReport
}

// run allocates the memory of the run r and trains. news are the notes of its devices.
func run(ctx context.Context, r *Output, news *deviceNews, o Options) (err error) {
	o.Timeline = r.team.first() && (o.Timeline || r.c.Dashboard != "")
	s := &session{Output: r, o: o, news: news, pairs: r.ref, line: &line{w: o.Stderr, interactive: o.Interactive}}
	s.observers = Observers{&progress{line: s.line, maxSteps: r.c.MaxSteps}}
	s.saver = &saver{j: r, kept: &s.kept, last: r.from.state, finite: r.from.state.Step - r.from.state.NonFinite}
	defer closeAfter(s, &err)
	defer func() {
		s.observers.End(err)
		s.tellNotes()
	}()
	if err := s.prepare(); err != nil {
		return err
	}
	c := r.c.Clone()
	c.Resume = "auto" // a run of the config.yaml below goes on from where this one stops
	extra, err := s.begin(c.YAML(configHeader))
	if err != nil {
		return err
	}
	if err := s.agreeOnOutput(); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop, s.halted = stop, running
	if s.team.Size() > 1 {
		s.halted = s.team.halted
	}
	sv := s.saver
	err = s.steps(running)
	if gave := (*actors.NonFiniteError)(nil); err != nil && !errors.As(err, &gave) {
		err = s.team.end(err) // while the memory is there that other ranks may still send to
	}
	if s.team.first() {
		if recording := s.recordAlgorithms(); err == nil {
			err = recording
		}
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
	case s.team.stopped(ctx) && (s.lastStep < c.MaxSteps && !s.endsEarly() || (s.evalOwed() || s.samplesOwed()) && s.resumable(sv.last)):
		return s.interrupted(sv.last)
	}
	if err := s.untrained(); err != nil {
		return err
	}
	return s.finish(ctx, extra)
}

// Close gives the memory of the run back.
func (s *session) Close() error { return s.closers.close() }

// prepare opens what the run needs, and the output directory where this process writes there.
func (s *session) prepare() (err error) {
	if !s.team.first() {
		if err := s.open(); err != nil {
			return err
		}
		s.openRankMetrics()
		return nil
	}
	if err := checkpoint.MakeDirs(s.fs(), s.c.OutputDir); err != nil {
		return s.c.Errorf("output_dir", "output_dir: %w", err)
	}
	unlock, err := s.lockOutput()
	if err != nil {
		return err
	}
	if unlock != nil {
		s.closers.add(unlock)
	}
	if s.trace, err = openTrace(s.c, s.dir(), s.o.Timeline, s.hooks.trace, s.late.add); err != nil {
		return err
	}
	s.observers = append(s.observers, s.trace)
	if err := s.open(); err != nil {
		return err
	}
	return s.openOutput()
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
	if s.page != nil {
		d := serve(s.c.OutputDir, s.page, s.pageAt, s.late.add)
		s.observers = append(s.observers, d)
		s.line.above("dashboard: " + d.server.URL())
		if f := s.hooks.serving; f != nil {
			f(d.server.URL(), s.page)
		}
	}
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
func (s *session) open() (err error) {
	if f := s.hooks.allocating; f != nil {
		f()
	}
	hw, err := s.start()
	if err != nil {
		return err
	}
	s.closers.addErr(hw.Close)
	s.devs, s.pool = hw.devs, hw.pool
	if err = s.findReferences(s.pool); err != nil {
		return err
	}
	if err = s.openStore(); err != nil {
		return err
	}
	if err = s.agreeOnTiles(s.fill(s.from)); err != nil {
		return err
	}
	s.lastStep, s.reached = s.from.state.Step, s.from.reached()
	s.bests.patience, s.bests.threshold = s.c.EarlyStoppingPatience, s.c.EarlyStoppingThreshold
	if err := s.resumeAlgorithms(); err != nil {
		return err
	}
	s.meter = newMeter(s.Start, s.plan, s.devs)
	s.meter.peakFLOPS, err = machine.MatMulRate(s.devs[0], s.act, s.rateSize())
	s.meter.peakFLOPS *= float64(len(s.devs) * s.team.Size())
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
		if err := s.loadModel(s.store, s.team.Size() > 1, s.pool, s.line); err != nil {
			return err
		}
	default:
		return initialise(s.store, s.model, s.c.Seed, s.pool)
	}
	return nil
}

// openStore takes the memory for the weights and what is kept beside them.
func (s *session) openStore() (err error) {
	tier, err := s.openTier(s.plan, true, s.closers.addErr)
	if err != nil {
		return err
	}
	if tier.Away != nil && s.team.first() {
		note, err := s.checkDisk() // once more: states may be on the disk of output_dir
		if err != nil {
			return err
		}
		if note != "" {
			s.late.add(note)
		}
	}
	var shares []optim.Share
	if s.team.Size() > 1 {
		shares = s.plan.OwnShares()
	}
	if s.store, err = host.NewTieredStore(s.plan.Layouts, s.plan.Planes, shares, tier, s.pool); err != nil {
		return err
	}
	s.closers.add(func() { _ = s.store.Close() })
	for _, note := range nodeNotes(host.Nodes()) {
		s.late.add(note)
	}
	s.store.Draw(uint64(s.c.Seed))
	s.store.Average(average(s.c))
	if s.staging, err = openStaging(s.team, s.plan, s.pool); err != nil {
		return err
	}
	s.saver.staging = s.staging
	s.closers.add(func() { _ = s.staging.Close() })
	return nil
}

// openOutput opens what the run goes on with in its output directory.
func (s *session) openOutput() (err error) {
	step := s.from.state.Step
	if s.log, s.lastEval, err = openMetrics(s.fs(), filepath.Join(s.c.OutputDir, metricsFile), step, s.hooks.metrics); err != nil {
		return err
	}
	s.closers.add(func() { _ = s.log.f.Close() })
	s.observers = append(s.observers, &metricsFor{log: s.log, failed: func(err error) { s.stop(err) }}, &curver{dir: s.dir(), note: s.late.add})
	if err := s.openSamples(); err != nil {
		return err
	}
	s.beginBests()
	b, err := openBoards(s.c, s.dir(), step, s.from.other, s.hooks.events, s.late.add)
	s.observers = append(s.observers, b)
	return err
}

// openSamples opens what the run's samples are written to, if it makes some.
func (s *session) openSamples() error {
	if len(s.prompts) == 0 {
		if s.from.state.Step == 0 { // what is there is of a run that this one replaces
			return removeSamples(s.dir())
		}
		return nil
	}
	s.samples = samples{every: s.c.SampleSteps.Of(s.c.MaxSteps), prompts: s.prompts}
	o, last, err := openSamples(s.dir(), s.from.state.Step, len(s.prompts), s.late.add)
	if err != nil {
		return err
	}
	s.samples.last, s.observers = last, append(s.observers, o)
	return nil
}

// openRankMetrics opens the file for what metrics.jsonl has, as a rank but the first sees it: what
// it waits for, its memory and its copies. Where that fails, the rank has none.
func (s *session) openRankMetrics() {
	log, _, err := openMetrics(s.fs(), filepath.Join(s.c.OutputDir, fmt.Sprintf(rankMetricsFile, s.team.Rank())), s.from.state.Step, s.hooks.metrics)
	if err != nil {
		s.late.add(err.Error())
		return
	}
	s.closers.add(func() { _ = log.f.Close() })
	s.observers = append(s.observers, &metricsFor{log: log, failed: func(err error) { s.late.add(err.Error()) }})
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
		if s.team.Size() > 1 && s.halted.Err() != nil { // the ranks have agreed to stop outside of steps
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

// options returns the options of the pipeline, from where the run stands.
func (s *session) options() actors.Options {
	c := s.c
	evalPasses := 0
	if s.eval != nil {
		evalPasses = s.eval.StepsPerEpoch()
	}
	every, last, optimizer := cadenceOf(c), c.MaxSteps, s.optimizer()
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
		Matrices:    muon(c),
		MaxGradNorm: c.MaxGradNorm, LayerNorms: c.Clip == "layerwise",
		ThroughHost: !c.PeerCopies,
		World:       s.team.world(), Stopping: func() { s.team.halt(ErrInterrupted) },
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if f := s.hooks.packing; f != nil {
				f(step, eval)
			}
			sampler := s.train
			if eval {
				sampler = s.eval
			}
			return sampler.RankBatch(step, c.Pipeline.MicroBatchTokens, s.team.Rank(), s.team.Size())
		},
		Saver: s.saver, LinkStates: s.links != nil, OnStep: s.onStep, OnEval: s.onEval, Timeline: s.recorder(),
	}
}

// recorder is what the pipeline tells its timeline to; nil: nobody asks for one.
func (s *session) recorder() *timeline.Recorder {
	if s.trace == nil {
		return nil
	}
	return s.trace.recorder
}

// tellNotes tells the notes of the device and of the run that came up since it was
// called last.
func (s *session) tellNotes() {
	for _, n := range append(s.news.take(), s.late.take()...) {
		s.observers.Note(n)
	}
}

func (s *session) onStep(r actors.StepReport) {
	s.tellNotes()
	m := s.meter.step(r)
	s.took.Store(int64(r.Elapsed))
	s.lastStep, s.reached = r.Step, after(s.reached, r)
	if f := s.hooks.logging; f != nil {
		f(r.Step)
	}
	logged := r.Step%max(1, cadenceOf(s.c).log) == 0 || r.Step == s.c.MaxSteps || r.Skipped
	s.observers.Step(seenStep{Report: r, Metrics: m, Logged: logged})
	if logged {
		s.meter.logged()
	}
	s.kept.reported(r.Step, r.Saved, s.meter.window)
	s.saver.bests.reported(r.Step, r.Saved, s.bests.reported)
	if !r.Skipped {
		s.saver.stepped(r.Step)
	}
	if f := s.hooks.stepped; f != nil {
		f(r.Step)
	}
}

// onEval reports an evaluation.
func (s *session) onEval(r actors.EvalReport) {
	s.lastEval = r
	s.bests.report(r)
	s.saver.isBest(s.bests.reported.Step)
	s.observers.Eval(seenEval{Report: r, Metrics: evalMetricsOf(r)})
}

// evalOwed says whether an evaluation is due after the last step done (at the start,
// the step that the run goes on from) and metrics.jsonl does not have it.
func (s *session) evalOwed() bool {
	step, every := s.lastStep, cadenceOf(s.c)
	due := s.eval != nil && step > 0 && (every.eval > 0 && step%every.eval == 0 || every.evalEpochs && s.endsEpoch(step) || step == s.c.MaxSteps)
	return due && s.lastEval.Step != step
}

// newMeter returns the meter of a run of p on devs that begins at s.
func newMeter(j *Start, p *plan.Run, devs []device.Device) *meter {
	system := &glance{look: host.MachineMemory, clock: time.Now}
	return &meter{maxSteps: j.c.MaxSteps, groups: j.c.GroupRates, window: j.from.state.Log,
		flops: flopsOf(p),
		epoch: func(step int) float64 { return float64(j.train.Pos(step)) / float64(j.set.Train().Rows()) },
		memory: func() memoryUse {
			return takenMemory(usage(devs), host.Usage(), int64(j.c.HostMemory), system.now())
		}, products: func() int64 { return ownProducts(devs) }}
}
