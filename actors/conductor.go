package actors

import (
	"fmt"
	"math"
	"slices"

	"mt/data"
	"mt/layers/schedule"
)

// The Conductor plans passes, closes steps, requests checkpoints, runs evaluations and ends the run. It plans one
// program at a time, and the next one when the losses of the current one have landed. That is early enough: the next
// program's first layers can begin as soon as they are updated.

// Schedule says which steps, evaluations and checkpoints a run makes.
type Schedule struct {
	FirstStep, LastStep int  // counted from 1; FirstStep > LastStep: no step
	SaveSteps           int  // a checkpoint every SaveSteps steps; 0: only at the end
	EvalSteps           int  // an evaluation every EvalSteps steps; 0: none
	SaveEpochs          bool // a checkpoint at the end of every epoch
	SaveEvals           bool // a checkpoint of every evaluated state
	EvalEpochs          bool // an evaluation at the end of every epoch
	EvalPasses          int  // batches of an evaluation; 0: no evaluations
	EvalAtEnd           bool // an evaluation after LastStep
	EvalAtStart         bool // an evaluation before the first step
	MaxNonFinite        int  // the run fails after this many skipped steps in a row
	SynchronousUpdates  bool // a step begins only after all updates of the previous step
	NoSave              bool // no checkpoints at all
	NoFinalSave         bool // no checkpoint of LastStep, because the model is written after the run
	// PauseAfter is a step after which the run ends early, without an extra checkpoint. The caller continues with
	// another run. 0: none.
	PauseAfter int
	// StopEarly, which may be nil, is called with every evaluation. If it returns true, the run stops with the
	// evaluated state.
	StopEarly func(EvalReport) bool
	// DataPos returns the position in the training data at which training continues after a step.
	// The step's checkpoint contains it.
	LR func(step int) float64
	// DataPos returns the place in the data at which training continues after a step; the step's checkpoint contains
	// it.
	DataPos func(step int) int64
	// EndsEpoch reports whether a step takes the last row of an epoch. It may be nil without SaveEpochs and EvalEpochs.
	EndsEpoch func(step int) bool
}

// due reports whether an action is due after step: after every `every`-th step (0: never) and, if epochs is true, after
// a step that ends an epoch.
func (s *Schedule) due(step, every int, epochs bool) bool {
	return every > 0 && step%every == 0 || epochs && s.EndsEpoch(step)
}

// saves reports whether the run may save a checkpoint after a step.
func (s *Schedule) saves(step int) bool {
	return !s.NoSave && !(s.NoFinalSave && step >= s.LastStep)
}

// conductorCore is the pure part of the Conductor.
type conductorCore struct {
	plan  Schedule
	ahead int // how many batches the Feeder packs in advance
	spec  schedule.Spec
	// stepTokens are the sizes of the last training step's micro-batches, and stepPrograms its programs.
	stepTokens   []int
	stepPrograms []*schedule.Program
	seq          int // number of the next pass
	planned      int // the last planned training step
	version      int // closed steps
	updated      int // steps whose updates are complete
	batches      map[BatchWanted]*data.Batch
	asked        int   // the last step whose batch was requested
	evalAsked    int   // the last evaluation pass whose batch was requested
	program      *Pass // in progress: its losses have not landed
	open         map[int]*stepInProgress
	eval         evalState
	// evaluated is the report of an evaluation that must wait until its step is reported. An evaluation's losses can
	// land before the message StepUpdated arrives.
	evaluated *EvalReport
	waited    Cause // what the planning of the next step waited for
	// pairs returns the number of (query, key) pairs that attention computes for a document, summed over all blocks.
	// again counts the pairs of blocks whose attention the backward recomputes. nil: pairs are not counted.
	pairs        func(length int) (all, again int64)
	adam         int64 // updates so far: Adam's step count
	nonFinite    int
	tokens       int64             // tokens of closed steps
	saving       int               // checkpoints requested and not complete
	lastSave     int               // step of the last requested checkpoint
	stop         bool              // no step begins after the current one
	stoppedEarly bool              // an evaluation stopped the run
	aborting     bool              // abort the step in progress if possible
	dropped      bool              // the step in progress has landed its losses and updates nothing
	abortErr     *StepAbortedError // the run's error once everything is reported; nil: not aborted
	closing      bool              // the last step is closed
	diagnosis    *diagnosis
	flushed      bool // the Reporter was asked to flush
	finished     bool // the run has ended; later messages are ignored
	statesOnDisk bool // some layers' states are on disks
	// distributed: there are several ranks, which must agree on what to do next (agreement.go).
	distributed  bool
	landed       *LossLanded // losses of program, before the ranks agree; nil: not landed
	agreeing     bool        // the ranks' agreement on program is in progress
	askedToStop  bool        // this rank was asked to stop
	dueDiagnosis *diagnosis  // a diagnosis that begins when all ranks know of it
	failing      error       // the run's error, once no checkpoint is in progress
	balance      balancing   // the load-balancing loss, if several ranks must sum the load of experts; otherwise zero
	routed       routing     // routings of program's layers, if the ranks sum the load of experts
	loading      bool        // the sum of the load over the ranks has begun
	// likelihood is the weight of the mean −log p of chosen answers in the loss of pairs (Preferences.Likelihood).
	likelihood float64
	// predictsAhead: multi-token prediction is trained.
	predictsAhead bool
}

// stepInProgress is a closed step with pending updates.
type stepInProgress struct {
	batch  *data.Batch
	report StepReport
}

// evalState is the progress of an evaluation. An evaluation is a sequence of passes, one batch each.
type evalState struct {
	running    bool
	pass       int       // the last planned pass, counted from 1
	sum        float64   // sum of losses, in nats
	pairs      *PairSums // nil: the run does not train on pairs
	supervised int64     // tokens in sum
	// ahead is the sum of the losses of multi-token prediction, and supervisedAhead the number of tokens in it.
	ahead           float64
	supervisedAhead int64
}

// diagnosis is the search for the cause after too many skipped steps. It repeats the forward of a batch and finds the
// first layer with a non-finite output, which the run's error names.
type diagnosis struct {
	step              int // the last skipped step
	finite            int // the last earlier step that was not skipped
	batch             *data.Batch
	layer, microBatch int // place of the first non-finite output; layer −1: none so far
	rank              int // the rank with that output
}

func newConductorCore(plan Schedule, start State, ahead int, spec schedule.Spec) *conductorCore {
	n := plan.FirstStep - 1
	c := &conductorCore{plan: plan, ahead: ahead, tokens: start.Tokens, nonFinite: start.NonFinite, spec: spec, planned: n, version: n, updated: n, asked: n, lastSave: n,
		batches: map[BatchWanted]*data.Batch{}, open: map[int]*stepInProgress{}, closing: plan.FirstStep > plan.LastStep}
	c.eval.running = plan.EvalAtStart && plan.EvalPasses > 0
	return c
}

// begin is the first message to the Conductor and to the Stager. They start to work when it comes.
type begin struct{}

// flushReports asks the Reporter to answer with reported after it has handled all earlier messages.
type flushReports struct{}

// reported is the Reporter's answer to flushReports: it has handled all reports that were sent
// before.
type reported struct{}

// runEnded ends the run with Err. nil: success.
type runEnded struct{ Err error }

func (c *conductorCore) step(msg message) []effect {
	if c.finished {
		return nil
	}
	if c.abortErr != nil {
		return c.awaitReports(msg)
	}
	var out []effect
	switch m := msg.(type) {
	case begin:
	case BatchReady:
		c.batches[BatchWanted{Step: m.Step, Eval: m.Eval}] = m.Batch
	case LossLanded:
		if c.distributed {
			c.landed = &m
		} else {
			out = c.lossLanded(m)
		}
	case RoutingLanded:
		c.routed[m.Layer] = m
	case passAgreed:
		out = c.agreed(m)
	case ActivationChecked:
		if d := c.diagnosis; d != nil && !m.Finite && (d.layer < 0 || m.Layer < d.layer) {
			d.layer, d.microBatch = m.Layer, m.MicroBatch
		}
	case StepUpdated:
		out = c.stepUpdated(m)
	case SaveDone:
		c.saving--
	case StopRequested:
		if c.distributed {
			c.askedToStop = true
		} else {
			c.stop = true
		}
	case AbortRequested:
		out = c.abortStep()
	case StepDropped:
		c.stepDropped(m)
	case reported:
		return c.finish(nil)
	case Failed:
		return c.finish(m.Err)
	default:
		panic(unexpected(conductorID, msg))
	}
	return append(out, c.advance()...)
}

// end returns the last step of this run: LastStep, or PauseAfter if the run pauses earlier.
func (c *conductorCore) end() int {
	if c.plan.PauseAfter > 0 {
		return min(c.plan.PauseAfter, c.plan.LastStep)
	}
	return c.plan.LastStep
}

// finish ends the run with err.
func (c *conductorCore) finish(err error) []effect {
	c.finished = true
	return []effect{work{do: runEnded{err}}}
}

func (c *conductorCore) advance() []effect {
	if c.finished {
		return nil
	}
	if c.stop && c.program == nil {
		c.eval, c.closing = evalState{}, true
	}
	if c.failing != nil {
		if c.saving > 0 {
			return nil
		}
		return c.finish(c.failing)
	}
	if out := c.endAborted(); out != nil || c.dropped {
		return out
	}
	if !c.passesLeft() {
		c.startDueDiagnosis()
	}
	out := append(c.saveAtRest(), c.wantBatches()...)
	switch {
	case c.program != nil:
		out = append(append(out, c.agreeLoad()...), c.agree()...)
	case c.diagnosis != nil:
		out = append(out, c.start(&Pass{Step: c.version, Eval: true, Check: true, Version: c.version, Batch: c.diagnosis.batch, hooks: []passHook{outputChecks{}}}, false)...)
	case c.eval.running:
		out = append(out, c.planEval()...)
	case !c.closing && c.planned < c.end():
		out = append(out, c.planStep()...)
	case c.updated == c.version && c.saving == 0 && !c.flushed:
		c.flushed = true
		out = append(out, send{reporterID, flushReports{}})
	}
	return out
}

// saveAtRest requests a checkpoint if the run was asked to stop while no step was in progress, for example in an
// evaluation. It returns nil if that state is already saved or may not be saved. A run that resumes from the checkpoint
// repeats the evaluation.
func (c *conductorCore) saveAtRest() []effect {
	if !c.stop || !c.closing || !c.plan.saves(c.version) || c.stoppedEarly && c.plan.NoFinalSave || c.diagnosis != nil || c.lastSave == c.version || c.updated < c.version {
		return nil
	}
	m := c.save(c.version)
	m.AtRest, m.AdamStep, m.NonFinite = true, c.adam, c.nonFinite
	out := []effect{send{checkpointerID, m}}
	if c.statesOnDisk {
		out = append(out, send{optimizerID, StatesWanted{}})
	}
	return out
}

// save returns the request for a checkpoint of the state after a step, and counts it as in progress.
func (c *conductorCore) save(step int) SaveRequested {
	c.saving++
	c.lastSave = step
	return SaveRequested{Step: step, DataPos: c.plan.DataPos(step), Tokens: c.tokens}
}

// wantBatches requests batches from the Feeder. Requested training batches reach `ahead` steps beyond the last planned
// step. During an evaluation, requested evaluation batches reach equally far beyond its last planned pass.
func (c *conductorCore) wantBatches() []effect {
	var out []effect
	for c.asked < min(c.planned+c.ahead, c.end()) && !c.closing && !c.stop {
		c.asked++
		out = append(out, send{feederID, BatchWanted{Step: c.asked}})
	}
	for c.eval.running && c.evalAsked < min(c.eval.pass+c.ahead, c.plan.EvalPasses) {
		c.evalAsked++
		out = append(out, send{feederID, BatchWanted{Step: c.evalAsked, Eval: true}})
	}
	return out
}

func (c *conductorCore) planStep() []effect {
	next := c.planned + 1
	b := c.batches[BatchWanted{Step: next}]
	switch {
	case b == nil:
		c.waited = StallData
		return nil
	case c.plan.SynchronousUpdates && c.updated < c.version:
		c.waited = StallUpdate
		return nil
	}
	delete(c.batches, BatchWanted{Step: next})
	c.planned = next
	p := &Pass{Step: next, Version: c.version, Batch: b, Waited: c.waited}
	c.waited = NoStall
	return append(c.start(p, false), c.wantBatches()...)
}

func (c *conductorCore) planEval() []effect {
	key := BatchWanted{Step: c.eval.pass + 1, Eval: true}
	b := c.batches[key]
	if b == nil {
		return nil
	}
	delete(c.batches, key)
	c.eval.pass++
	again := c.eval.pass < c.plan.EvalPasses
	return append(c.start(&Pass{Step: c.version, Eval: true, Version: c.version, Batch: b}, again), c.wantBatches()...)
}

// start plans the program of pass p for each lane and sends it to the lanes' actors. again: another pass of the same
// evaluation follows.
func (c *conductorCore) start(p *Pass, again bool) []effect {
	p.Seq = c.seq
	c.seq++
	tokens := make([]int, len(p.Batch.MicroBatches))
	for i := range tokens {
		tokens[i] = p.Batch.MicroBatches[i].Tokens
	}
	c.spec.Eval, c.spec.Again = p.Eval, again
	programs, err := c.programs(tokens)
	if err != nil {
		return c.finish(fmt.Errorf("plan %s: %w", p, err))
	}
	c.spec.Held = nil
	c.program, c.routed, c.loading = p, routing{}, false
	var out []effect
	for lane := range laneID(len(programs)) {
		its := *p
		its.Program = programs[lane]
		c.spec.Held = append(c.spec.Held, its.Held...)
		m := PassPlanned{&its}
		out = append(out, send{lane.offloader(), m}, send{lane.prefetcher(), m}, send{lane.compute(), m})
	}
	return out
}

// programs plans the programs of a pass with micro-batches of these sizes. A training step often has the sizes of the
// step before, and then its programs too.
func (c *conductorCore) programs(tokens []int) ([]*schedule.Program, error) {
	step := !c.spec.Eval && len(c.spec.Held) == 0
	if step && slices.Equal(tokens, c.stepTokens) {
		return c.stepPrograms, nil
	}
	programs, err := schedule.Programs(c.spec, tokens)
	if step && err == nil {
		c.stepTokens, c.stepPrograms = tokens, programs
	}
	return programs, err
}

func (c *conductorCore) lossLanded(m LossLanded) []effect {
	p := c.program
	c.program = nil
	switch {
	case p.Check:
		return c.diagnosed()
	case p.Eval:
		return c.evalLanded(p, m)
	case c.diagnosis != nil:
		// The run is about to fail, so this step updates nothing. The message to the Optimizer is needed all the same:
		// the Optimizer must free the slabs of the step's gradients.
		c.version = m.Step
		return []effect{send{optimizerID, StepClosed{Step: m.Step, Skip: true}}}
	case c.aborting: // the step is never closed
		c.dropped = true
		return nil
	}
	c.version = m.Step
	c.closing = c.closing || c.stop || m.Step >= c.plan.LastStep
	evalDue := c.plan.EvalPasses > 0 && (c.plan.due(m.Step, c.plan.EvalSteps, c.plan.EvalEpochs) || c.plan.EvalAtEnd && m.Step == c.plan.LastStep)
	save := c.savesAfter(m.Step, evalDue)
	lr := c.plan.LR(m.Step)
	c.tokens += p.Batch.AllTokens()
	pairs, again := c.attendedPairs(p.Batch)
	c.open[m.Step] = &stepInProgress{batch: p.Batch, report: StepReport{Step: m.Step, Prog: p.Seq, LR: lr, Saved: save,
		Loss: c.meanLoss(m.Sum, p.Batch.AllSupervised(), m.Pairs) + m.Aux, Ahead: c.meanAhead(m.Ahead, p.Batch.AllSupervisedAhead()), Pairs: m.Pairs, Tokens: p.Batch.AllTokens(), TotalTokens: c.tokens, Supervised: p.Batch.AllSupervised(), AttendedPairs: pairs, AttendedAgain: again}}
	out := []effect{send{optimizerID, StepClosed{Step: m.Step, LR: lr, Skip: math.IsNaN(m.Sum+m.Ahead+m.Aux) || math.IsInf(m.Sum+m.Ahead+m.Aux, 0), Save: save}}}
	if save {
		out = append(out, send{checkpointerID, c.save(m.Step)})
	}
	if evalDue && !c.stop {
		c.eval, c.evalAsked = evalState{running: true}, 0
	}
	return out
}

// savesAfter decides whether a checkpoint of the state after this step is written. Checkpoints are due at the
// schedule's intervals, after the last step of the run, and at evaluations with SaveEvals. evalDue: an evaluation
// follows this step.
func (c *conductorCore) savesAfter(step int, evalDue bool) bool {
	return c.plan.saves(step) && (c.plan.due(step, c.plan.SaveSteps, c.plan.SaveEpochs) || c.plan.SaveEvals && evalDue || c.closing)
}

// meanLoss returns the mean loss that a report shows. If pairs is nil, it is sum divided by the number of supervised
// tokens; otherwise it is the mean over the preference pairs.
func (c *conductorCore) meanLoss(sum float64, supervised int64, pairs *PairSums) float64 {
	if pairs != nil {
		return pairs.mean(c.likelihood)
	}
	return sum / float64(max(supervised, 1))
}

// meanAhead returns the mean loss of multi-token prediction that a report shows; nil: it is not trained.
func (c *conductorCore) meanAhead(sum float64, supervised int64) *float64 {
	if !c.predictsAhead {
		return nil
	}
	sum /= float64(max(supervised, 1))
	return &sum
}

// attendedPairs counts the (query, key) pairs of batch b that attention computes, over all blocks. again counts the
// pairs of blocks whose attention the backward recomputes. Both are 0 if the run does not count pairs.
func (c *conductorCore) attendedPairs(b *data.Batch) (pairs, again int64) {
	if c.pairs == nil {
		return 0, 0
	}
	for _, length := range b.AllDocs() {
		all, twice := c.pairs(int(length))
		pairs, again = pairs+all, again+twice
	}
	return pairs, again
}

func (c *conductorCore) evalLanded(p *Pass, m LossLanded) []effect {
	c.eval.sum, c.eval.ahead = c.eval.sum+m.Sum, c.eval.ahead+m.Ahead
	if m.Pairs != nil {
		if c.eval.pairs == nil {
			c.eval.pairs = &PairSums{}
		}
		c.eval.pairs.add(*m.Pairs)
	}
	c.eval.supervised += p.Batch.AllSupervised()
	c.eval.supervisedAhead += p.Batch.AllSupervisedAhead()
	if c.eval.pass < c.plan.EvalPasses {
		return nil
	}
	r := EvalReport{Step: c.version, Loss: c.meanLoss(c.eval.sum, c.eval.supervised, c.eval.pairs), Ahead: c.meanAhead(c.eval.ahead, c.eval.supervisedAhead), Tokens: c.eval.supervised, Pairs: c.eval.pairs}
	c.eval = evalState{}
	if c.plan.StopEarly != nil && c.plan.StopEarly(r) {
		c.stop, c.stoppedEarly = true, true
	}
	if c.updated < c.version {
		c.evaluated = &r
		return nil
	}
	return []effect{send{reporterID, r}}
}

func (c *conductorCore) stepUpdated(m StepUpdated) []effect {
	c.updated = m.Step
	s := c.open[m.Step]
	if s == nil {
		return nil // closed while a diagnosis ran, see lossLanded
	}
	delete(c.open, m.Step)
	s.report.GradNorm, s.report.Skipped = m.GradNorm, m.Skipped
	c.adam, c.nonFinite = m.AdamStep, m.NonFinite
	if m.NonFinite >= c.plan.MaxNonFinite && m.Skipped && c.diagnosis == nil && c.dueDiagnosis == nil {
		c.dueDiagnosis = &diagnosis{step: m.Step, finite: m.Step - m.NonFinite, layer: -1, batch: s.batch}
		if !c.distributed {
			c.startDueDiagnosis()
		}
	}
	out := []effect{send{reporterID, s.report}}
	if r := c.evaluated; r != nil && r.Step == m.Step {
		c.evaluated = nil
		out = append(out, send{reporterID, *r})
	}
	return out
}

// diagnosed ends the run after a diagnosis. The error names the first layer with a non-finite output, if the diagnosis
// has found one.
func (c *conductorCore) diagnosed() []effect {
	d := c.diagnosis
	err := fmt.Errorf("step %d: the loss or the gradient was not finite in %d steps in a row (max_nonfinite_steps: %d)",
		d.step, c.nonFinite, c.plan.MaxNonFinite)
	if d.layer < 0 {
		err = fmt.Errorf("%w: every layer's output is finite, so it arises in the loss or in the backward; try a lower learning_rate", err)
	} else {
		of := ""
		if c.distributed {
			of = fmt.Sprintf(" of rank %d", d.rank)
		}
		err = fmt.Errorf("%w: the first output that is not finite is that of %s, micro-batch %d%s; look at the weights and the data", err,
			c.spec.Layers[d.layer].Name, d.microBatch, of)
	}
	failed := &NonFiniteError{Step: d.step, Finite: d.finite, err: err}
	if c.distributed {
		c.failing = failed
		return nil
	}
	return c.finish(failed)
}

func (stopAgreed) start(r *lane, _ work) error {
	if r.o.Stopping != nil {
		r.o.Stopping()
	}
	return nil
}

func (e runEnded) start(r *lane, _ work) error {
	r.hub.ended <- e.Err
	return nil
}
