package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"mt/actors"
	"mt/base/timeline"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/internal/run/machine"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/save"
	"mt/internal/run/settings"
)

// session is a run with its memory allocated.
type session struct {
	*save.Weights
	closers     open.Closers
	o           settings.Options
	devs        []device.Device // by lane
	line        *report.Line
	observers   report.Observers
	news        *report.DeviceNotes
	log         *report.Log // metrics.jsonl; on ranks other than 0, rank-N.jsonl; nil: none
	kept        report.Windows
	meter       *report.Meter
	trace       *report.Trace
	stop        context.CancelCauseFunc // ends the run with an error after the current step
	halted      context.Context         // done when the run must end before its last step
	saver       *save.Saver
	bestTracker save.BestTracker
	samples     samples
	pairs       resolve.Reference // the reference model's log-probabilities of all pairs

	products *save.Products // algorithms of matrix products
	took     atomic.Int64   // duration of the last step in nanoseconds; 0: none yet
	lastStep int
	reached  actors.State // state after lastStep
	lastEval actors.EvalReport
}

// Run allocates the memory of the run r and trains. news holds the notes of its devices.
func Run(ctx context.Context, r *save.Output, news *report.DeviceNotes, o settings.Options) (err error) {
	o.Timeline = r.Ranks.First() && (o.Timeline || r.Config.Dashboard != "")
	s := &session{Weights: &save.Weights{Output: r}, o: o, news: news, pairs: r.Ref, line: &report.Line{Out: o.Stderr, Interactive: o.Interactive}}
	s.observers = report.Observers{&report.Progress{Line: s.line, MaxSteps: r.Config.MaxSteps}}
	s.saver = &save.Saver{Weights: s.Weights, Kept: &s.kept, Last: r.From.State, Finite: r.From.State.Step - r.From.State.NonFinite}
	defer open.CloseAfter(s, &err)
	defer func() {
		s.observers.End(err)
		s.tellNotes()
	}()
	if err := s.prepare(); err != nil {
		return err
	}
	c := r.Config.Clone()
	c.Resume = "auto" // a run of the written config.yaml resumes where this one stops
	extra, err := s.begin(c.YAML(open.ConfigHeader))
	if err != nil {
		return err
	}
	if err := s.agreeOnOutput(); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop, s.halted = stop, running
	if s.Ranks.Size() > 1 {
		s.halted = s.Ranks.Halted
	}
	if s.Ranks.First() {
		s.observers = append(s.observers, &report.Curve{Dir: s.Dir(), Tell: s.DeferredNotes.Add})
	}
	sv := s.saver
	err = s.steps(running)
	if gave := (*actors.NonFiniteError)(nil); err != nil && !errors.As(err, &gave) {
		err = s.Ranks.End(err) // before freeing memory that other ranks may still send to
	}
	if s.Ranks.First() {
		if recording := s.products.Record(); err == nil {
			err = recording
		}
	}
	s.tellNotes()
	s.line.End()
	var gave *actors.NonFiniteError
	if cause := context.Cause(running); err == nil && cause != nil && cause != context.Cause(ctx) {
		err = cause
	}
	switch {
	case errors.As(err, &gave) && s.Ranks.First():
		return s.NonFinite(gave, err, sv.Last.Step)
	case err != nil:
		return err
	case s.Ranks.Stopped(ctx) && (s.lastStep < c.MaxSteps && !s.endsEarly() || (s.evalOwed() || s.samplesOwed()) && s.resumable(sv.Last)):
		return s.interrupted(sv.Last)
	}
	if err := s.CheckTrained(s.reached, sv.Last.Step); err != nil {
		return err
	}
	return s.finish(ctx, extra)
}

// Close frees the run's memory.
func (s *session) Close() error { return s.closers.Close() }

// prepare opens what the run needs and, on rank 0, the output directory.
func (s *session) prepare() (err error) {
	if !s.Ranks.First() {
		if err := s.open(); err != nil {
			return err
		}
		s.openRankMetrics()
		return nil
	}
	if err := checkpoint.MakeDirs(s.FS(), s.Config.OutputDir); err != nil {
		return s.Config.Errorf("output_dir", "output_dir: %w", err)
	}
	unlock, err := s.LockOutput()
	if err != nil {
		return err
	}
	if unlock != nil {
		s.closers.Add(unlock)
	}
	if s.trace, err = report.OpenTrace(s.Config, s.Dir(), s.o.Timeline, s.Hooks.Trace, s.DeferredNotes.Add); err != nil {
		return err
	}
	s.observers = append(s.observers, s.trace)
	if err := s.open(); err != nil {
		return err
	}
	return s.openOutput()
}

// begin writes the run's first files, yaml as config.yaml, and returns the files to save beside weights.
func (s *session) begin(yaml []byte) (extra map[string][]byte, err error) {
	if !s.Ranks.First() {
		return nil, nil
	}
	if err := s.MarkUnfinished(); err != nil {
		return nil, err
	}
	s.Sweep()
	if err := s.WriteWhole(settings.ConfigFile, yaml); err != nil {
		return nil, err
	}
	if s.Page != nil {
		d := report.Serve(s.Config.OutputDir, s.Page, s.PageAt, s.DeferredNotes.Add)
		s.observers = append(s.observers, d)
		s.line.Above("dashboard: " + d.Server.URL())
		if f := s.Hooks.Serving; f != nil {
			f(d.Server.URL(), s.Page)
		}
	}
	extra = s.Beside()
	withConfig := map[string][]byte{settings.ConfigFile: yaml}
	for k, v := range extra {
		withConfig[k] = v
	}
	s.saver.Log, s.saver.Extra, s.saver.Record = s.log, withConfig, s.products.Record
	return extra, nil
}

// open allocates memory and fills it: from the checkpoint, from the model's directory, or at random.
func (s *session) open() (err error) {
	if f := s.Hooks.Allocating; f != nil {
		f()
	}
	hw, err := s.OpenHardware()
	if err != nil {
		return err
	}
	s.closers.AddErr(hw.Close)
	s.closers.AddErr(s.Weights.Close)
	s.devs = hw.Devs
	if s.pairs, err = resolve.FindReferences(s.Resolved, s.devs, hw.Pool, s.line); err != nil {
		return err
	}
	if err = s.Open(hw.Pool); err != nil {
		return err
	}
	if err = s.AgreeOnTiles(s.Fill(s.line)); err != nil {
		return err
	}
	s.lastStep, s.reached = s.From.State.Step, s.From.Reached()
	s.bestTracker.Patience, s.bestTracker.Threshold = s.Config.EarlyStoppingPatience, s.Config.EarlyStoppingThreshold
	if s.products, err = save.ResumeProducts(s.Output, s.devs); err != nil {
		return err
	}
	s.meter = report.NewMeter(s.Config, s.Plan, s.devs, s.From.State.Log, s.epoch)
	s.meter.PeakFLOPS, err = machine.MatMulRate(s.devs[0], s.Act, s.RateSize())
	s.meter.PeakFLOPS *= float64(len(s.devs) * s.Ranks.Size())
	return err
}

// openOutput opens the files in the output directory that the run appends to.
func (s *session) openOutput() (err error) {
	step := s.From.State.Step
	if s.log, s.lastEval, err = report.OpenMetrics(s.FS(), filepath.Join(s.Config.OutputDir, settings.MetricsFile), step, s.Hooks.Metrics); err != nil {
		return err
	}
	s.closers.Add(s.log.Close)
	s.observers = append(s.observers, &report.Metrics{Log: s.log, Failed: func(err error) { s.stop(err) }})
	written, last, err := report.OpenSamples(s.Dir(), step, len(s.Prompts), s.DeferredNotes.Add)
	if err != nil {
		return err
	}
	s.samples = samples{every: s.Config.SampleSteps.Of(s.Config.MaxSteps), prompts: s.Prompts, last: last}
	s.observers = append(s.observers, written)
	s.restoreBest()
	b, err := report.OpenBoards(s.Config, s.Dir(), step, s.From.Other, s.Hooks.Events, s.DeferredNotes.Add)
	s.observers = append(s.observers, b)
	return err
}

// openRankMetrics opens rank-N.jsonl on a rank other than 0. It has the same lines as metrics.jsonl, with this rank's
// own stalls, memory and copies. If that fails, the rank has no metrics.
func (s *session) openRankMetrics() {
	log, _, err := report.OpenMetrics(s.FS(), filepath.Join(s.Config.OutputDir, fmt.Sprintf(settings.RankMetricsFile, s.Ranks.Rank())), s.From.State.Step, s.Hooks.Metrics)
	if err != nil {
		s.DeferredNotes.Add(err.Error())
		return
	}
	s.closers.Add(log.Close)
	s.observers = append(s.observers, &report.Metrics{Log: log, Failed: func(err error) { s.DeferredNotes.Add(err.Error()) }})
}

// steps runs the remaining steps and pauses for samples. If ctx is cancelled, it ends after the current step, which
// is saved.
func (s *session) steps(ctx context.Context) error {
	for ran := false; ; ran = true {
		if s.samplesOwed() {
			if cut, err := s.sampleOnRank0(ctx); err != nil {
				return err
			} else if cut {
				return s.saveAsItIs()
			}
		}
		if ran && (s.lastStep >= s.Config.MaxSteps || s.endsEarly()) {
			return nil
		}
		if s.Ranks.Size() > 1 && s.halted.Err() != nil { // the ranks have agreed to stop between steps
			return s.saveAsItIs()
		}
		opts := s.options()
		opts.Stop = ctx.Done()
		giveUp, end := s.abortSignal(ctx)
		opts.AbortStep = giveUp
		err := actors.Run(opts)
		if end(); err != nil || s.halted.Err() != nil {
			return s.gaveUp(err)
		}
	}
}

// options returns the pipeline's options for the rest of the run.
func (s *session) options() actors.Options {
	c := s.Config
	evalPasses := 0
	if s.Eval != nil {
		evalPasses = s.Eval.StepsPerEpoch()
	}
	every, last, optimizer := settings.CadenceOf(c), c.MaxSteps, s.Optimizer()
	if s.endsEarly() {
		last = s.lastStep
	}
	return actors.Options{
		Devices: s.devs, Home: s.Store, Pool: s.Pool, Plan: s.Plan,
		Schedule: actors.Schedule{FirstStep: s.lastStep + 1, LastStep: last, PauseAfter: s.pauseAfter(), SaveSteps: every.Save, EvalSteps: every.Eval,
			SaveEpochs: every.SaveEpochs, SaveEvals: every.SaveEvals, StopEarly: s.bestTracker.Enough, EvalEpochs: every.EvalEpochs, EndsEpoch: s.EndsEpoch,
			NoSave: c.SaveStrategy == "no", NoFinalSave: c.SaveOnlyModel || !c.KeepCheckpoints,
			EvalPasses: evalPasses, EvalAtStart: s.evalOwed(), EvalAtEnd: true, MaxNonFinite: c.MaxNonfiniteSteps, SynchronousUpdates: c.SynchronousUpdates,
			LR: c.Schedule, DataPos: s.Train.Pos},
		Start:       s.reached,
		Preferences: resolve.PreferencesOf(s.Resolved, s.pairs),
		Optimizer:   optimizer,
		Matrices:    settings.Muon(c),
		MaxGradNorm: c.MaxGradNorm, LayerNorms: c.Clip == "layerwise",
		LeavePinned: s.leavePinned,
		ThroughHost: !c.PeerCopies,
		World:       s.Ranks.Exchange(), Stopping: func() { s.Ranks.Halt(settings.ErrInterrupted) },
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if f := s.Hooks.Packing; f != nil {
				f(step, eval)
			}
			sampler := s.Train
			if eval {
				sampler = s.Eval
			}
			return sampler.RankBatch(step, c.Pipeline.MicroBatchTokens, s.Ranks.Rank(), s.Ranks.Size())
		},
		Saver: s.saver, LinkStates: s.LinksStates(), OnStep: s.onStep, OnEval: s.onEval, Timeline: s.recorder(),
	}
}

// recorder returns the pipeline's timeline recorder; nil: none.
func (s *session) recorder() *timeline.Recorder {
	if s.trace == nil {
		return nil
	}
	return s.trace.Recorder
}

// tellNotes passes notes of the devices and of the run that are new since the last call to the observers.
func (s *session) tellNotes() {
	for _, n := range append(s.news.Take(), s.DeferredNotes.Take()...) {
		s.observers.Note(n)
	}
}

func (s *session) onStep(r actors.StepReport) {
	s.tellNotes()
	m := s.meter.Step(r)
	s.took.Store(int64(r.Elapsed))
	s.lastStep, s.reached = r.Step, after(s.reached, r)
	if f := s.Hooks.Logging; f != nil {
		f(r.Step)
	}
	logged := r.Step%max(1, settings.CadenceOf(s.Config).Log) == 0 || r.Step == s.Config.MaxSteps || r.Skipped
	s.observers.Step(report.Step{Report: r, Metrics: m, Logged: logged})
	if logged {
		s.meter.Logged()
	}
	s.kept.Reported(r.Step, r.Saved, s.meter.Window)
	s.saver.Bests.Reported(r.Step, r.Saved, s.bestTracker.Reported)
	if !r.Skipped {
		s.saver.Stepped(r.Step)
	}
	if f := s.Hooks.Stepped; f != nil {
		f(r.Step)
	}
}

// onEval records an evaluation as the last one and reports it to the observers.
func (s *session) onEval(r actors.EvalReport) {
	s.lastEval = r
	s.bestTracker.Report(r)
	s.saver.IsBest(s.bestTracker.Reported.Step)
	s.observers.Eval(report.Eval{Report: r, Metrics: report.EvalMetricsOf(r)})
}

// evalOwed reports whether an evaluation after the last step is due but not in metrics.jsonl. At the start, the last
// step is the step from which the run resumes.
func (s *session) evalOwed() bool {
	step, every := s.lastStep, settings.CadenceOf(s.Config)
	due := s.Eval != nil && step > 0 && (every.Eval > 0 && step%every.Eval == 0 || every.EvalEpochs && s.EndsEpoch(step) || step == s.Config.MaxSteps)
	return due && s.lastEval.Step != step
}

// epoch returns the number of epochs done after a step.
func (s *session) epoch(step int) float64 {
	return float64(s.Train.Pos(step)) / float64(s.Data.Train().Rows())
}

// abortPatience is how long a run that was asked to stop continues its step. A step that is predicted to take longer is
// aborted at once.
const abortPatience = 2 * time.Minute

// abortSignal returns a channel that closes when the current step must be aborted. That is abortPatience after ctx is
// done, or at once if the step is predicted to take longer. end stops the waiting. With several ranks giveUp is nil,
// and every rank finishes the step.
func (s *session) abortSignal(ctx context.Context) (giveUp <-chan struct{}, end func()) {
	waits := abortPatience
	if p := s.Hooks.Patience; p > 0 {
		waits = p
	}
	up, over := make(chan struct{}), make(chan struct{})
	if s.Ranks.Size() > 1 {
		return nil, func() {}
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		left := waits
		if s.stepTakes() > waits {
			left = 0
		}
		select {
		case <-time.After(left):
			close(up)
		case <-over:
		}
	}()
	return up, func() { close(over) }
}

// stepTakes estimates how long a step takes. It is the duration of the last step. Before the first step it is the time
// of the step's products and attention at the device's peak rate.
func (s *session) stepTakes() time.Duration {
	if took := s.took.Load(); took > 0 {
		return time.Duration(took)
	}
	if !(s.meter.PeakFLOPS > 0) {
		return 0
	}
	p := s.Plan
	rows := int64(p.Limits.Tokens) / int64(p.RowTokens)
	_, executed := report.FLOPs(p)(int64(p.Limits.Tokens), rows*p.Spec.Config.AttendedPairs(p.RowTokens), rows*p.Spec.PairsAgain(p.RowTokens))
	return time.Duration(executed / s.meter.PeakFLOPS * float64(time.Second))
}

// gaveUp saves the state of the run if err says that it has aborted a step (a StepAbortedError). It returns any other
// err unchanged.
func (s *session) gaveUp(err error) error {
	var up *actors.StepAbortedError
	if !errors.As(err, &up) {
		return save.DamagedState(err)
	}
	s.line.Above(fmt.Sprintf("%v, since it takes long; nothing before it is lost", up))
	return s.saveAsItIs()
}
