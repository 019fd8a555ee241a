package actors

import (
	"fmt"
	"math"

	"mt/data"
	"mt/schedule"
)

// The Conductor plans passes, closes steps, asks for checkpoints and
// evaluations, and ends the run. One program is planned at a time: the next
// when the loss of the one before has landed, which is early enough for its
// first layers to start behind the updates.

// Schedule is what a run does, and when.
type Schedule struct {
	FirstStep, LastStep int // 1-based; nothing is done where First > Last
	SaveSteps           int // 0: only at the end
	EvalSteps           int // 0: never
	SaveEpochs          bool
	EvalEpochs          bool
	EvalPasses          int // batches of an evaluation
	EvalAtEnd           bool
	EvalAtStart         bool
	MaxNonFinite        int
	SynchronousUpdates  bool
	NoSave              bool // no checkpoints at all
	NoFinalSave         bool // none of LastStep: its model is written after the run
	LR                  func(step int) float64
	// DataPos is the data position after a step.
	DataPos func(step int) int64
	// EndsEpoch says whether a step takes the last row of an epoch; for SaveEpochs
	// and EvalEpochs.
	EndsEpoch func(step int) bool
}

// due says whether something is done after a step that is done every so many
// steps, and with epochs at the end of each.
func (s *Schedule) due(step, every int, epochs bool) bool {
	return every > 0 && step%every == 0 || epochs && s.EndsEpoch(step)
}

// saves says whether a step may be saved.
func (s *Schedule) saves(step int) bool {
	return !s.NoSave && !(s.NoFinalSave && step >= s.LastStep)
}

// conductorCore is the pure part of the Conductor.
type conductorCore struct {
	plan      Schedule
	lanes     int
	ahead     int // batches packed ahead
	spec      schedule.Spec
	seq       int
	step0     int // the training step last planned
	version   int // steps closed
	updated   int // steps whose updates are complete
	batches   map[BatchWanted]*data.Batch
	asked     int // training batches asked for, as a step number
	evalAsked int
	program   *Pass // in progress: its loss has not landed
	open      map[int]*stepInProgress
	eval      evalState
	// evaluated waits for the report of its step: the word of the last update can
	// be overtaken by the forward behind it.
	evaluated *EvalReport
	waited    Cause // what the next step's planning has waited for
	// pairs is how many (query, key) pairs a document of so many tokens has in all
	// blocks together; nil: they are not counted.
	pairs     func(length int) int64
	adam      int64 // updates made
	nonFinite int
	tokens    int64 // consumed by closed steps
	saving    int   // saves requested and not done
	lastSave  int   // the step of the last one
	stop      bool  // no step after the one in progress
	closing   bool  // the last step is closed
	diagnosis *diagnosis
	flushed   bool // the Reporter has been asked for its last word
	finished  bool
}

// stepInProgress is a step from the closing to the last update.
type stepInProgress struct {
	batch  *data.Batch
	report StepReport
}

type evalState struct {
	running    bool
	pass       int
	sum        float64
	supervised int64
}

// diagnosis is the forward that is run once more to name what is not finite.
type diagnosis struct {
	step              int // the last that was skipped
	finite            int // the last before that was not
	batch             *data.Batch
	layer, microBatch int
}

func newConductorCore(plan Schedule, start State, lanes, ahead int, spec schedule.Spec) *conductorCore {
	n := plan.FirstStep - 1
	c := &conductorCore{plan: plan, lanes: lanes, ahead: ahead, tokens: start.Tokens, nonFinite: start.NonFinite, spec: spec, step0: n, version: n, updated: n, asked: n, lastSave: n,
		batches: map[BatchWanted]*data.Batch{}, open: map[int]*stepInProgress{}, closing: plan.FirstStep > plan.LastStep}
	c.eval.running = plan.EvalAtStart && plan.EvalPasses > 0
	return c
}

// begin starts the run.
type begin struct{}

// flushReports asks the Reporter to answer, when all before it is reported.
type flushReports struct{}

// reported is the answer.
type reported struct{}

// runEnded ends the run, with err or well.
type runEnded struct{ Err error }

func (c *conductorCore) step(msg any) []effect {
	if c.finished {
		return nil
	}
	var out []effect
	switch m := msg.(type) {
	case begin:
	case BatchReady:
		c.batches[BatchWanted{Step: m.Step, Eval: m.Eval}] = m.Batch
	case LossLanded:
		out = c.lossLanded(m)
	case ActivationChecked:
		if d := c.diagnosis; d != nil && !m.Finite && (d.layer < 0 || m.Layer < d.layer) {
			d.layer, d.microBatch = m.Layer, m.MicroBatch
		}
	case StepUpdated:
		out = c.stepUpdated(m)
	case SaveDone:
		c.saving--
	case StopRequested:
		c.stop = true
	case reported:
		return c.end(nil)
	case Failed:
		return c.end(m.Err)
	default:
		panic(unexpected(conductorID, msg))
	}
	return append(out, c.advance()...)
}

// end ends the run.
func (c *conductorCore) end(err error) []effect {
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
	out := append(c.saveAtRest(), c.wantBatches()...)
	switch {
	case c.program != nil:
	case c.diagnosis != nil:
		out = append(out, c.start(&Pass{Step: c.version, Eval: true, Check: true, Version: c.version, Batch: c.diagnosis.batch}, false)...)
	case c.eval.running:
		out = append(out, c.planEval()...)
	case !c.closing:
		out = append(out, c.planStep()...)
	case c.updated == c.version && c.saving == 0 && !c.flushed:
		c.flushed = true
		out = append(out, send{reporterID, flushReports{}})
	}
	return out
}

// saveAtRest saves where a run was asked to stop with no step in progress, such as
// in an evaluation: a run that goes on from there owes that evaluation still.
func (c *conductorCore) saveAtRest() []effect {
	if !c.stop || !c.closing || !c.plan.saves(c.version) || c.diagnosis != nil || c.lastSave == c.version || c.updated < c.version {
		return nil
	}
	m := c.save(c.version)
	m.AtRest, m.AdamStep, m.NonFinite = true, c.adam, c.nonFinite
	return []effect{send{checkpointerID, m}}
}

// save books the save of the state after a step.
func (c *conductorCore) save(step int) SaveRequested {
	c.saving++
	c.lastSave = step
	return SaveRequested{Step: step, DataPos: c.plan.DataPos(step), Tokens: c.tokens}
}

// wantBatches keeps BatchesAhead training batches under way besides the one in
// progress, and as many of an evaluation.
func (c *conductorCore) wantBatches() []effect {
	var out []effect
	for c.asked < min(c.step0+c.ahead, c.plan.LastStep) && !c.closing && !c.stop {
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
	next := c.step0 + 1
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
	c.step0 = next
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

// start plans p and hands it out. Again: another pass of its evaluation follows.
func (c *conductorCore) start(p *Pass, again bool) []effect {
	p.Seq = c.seq
	c.seq++
	tokens := make([]int, len(p.Batch.MicroBatches))
	for i := range tokens {
		tokens[i] = p.Batch.MicroBatches[i].Tokens
	}
	c.spec.Eval, c.spec.Again = p.Eval, again
	program, err := schedule.New(c.spec, tokens)
	if err != nil {
		return c.end(fmt.Errorf("plan %s: %w", p, err))
	}
	p.Program = program
	c.spec.Held = p.Held
	c.program = p
	m := PassPlanned{p}
	var out []effect
	for lane := range laneID(c.lanes) {
		out = append(out, send{lane.offloader(), m}, send{lane.prefetcher(), m}, send{lane.compute(), m})
	}
	return out
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
		// The run is about to fail: this step changes nothing, but its gradients
		// must make room.
		c.version = m.Step
		return []effect{send{optimizerID, StepClosed{Step: m.Step, Skip: true}}}
	}
	c.version = m.Step
	c.closing = c.closing || c.stop || m.Step >= c.plan.LastStep
	save := c.plan.saves(m.Step) && (c.plan.due(m.Step, c.plan.SaveSteps, c.plan.SaveEpochs) || c.closing)
	lr := c.plan.LR(m.Step)
	c.tokens += p.Batch.Tokens
	c.open[m.Step] = &stepInProgress{batch: p.Batch, report: StepReport{Step: m.Step, Prog: p.Seq, LR: lr, Saved: save,
		Loss: m.Sum/float64(max(p.Batch.Supervised, 1)) + m.Aux, Tokens: p.Batch.Tokens, TotalTokens: c.tokens, Supervised: p.Batch.Supervised, AttendedPairs: c.attendedPairs(p.Batch)}}
	out := []effect{send{optimizerID, StepClosed{Step: m.Step, LR: lr, Skip: math.IsNaN(m.Sum+m.Aux) || math.IsInf(m.Sum+m.Aux, 0), Save: save}}}
	if save {
		out = append(out, send{checkpointerID, c.save(m.Step)})
	}
	evalDue := c.plan.due(m.Step, c.plan.EvalSteps, c.plan.EvalEpochs) || c.plan.EvalAtEnd && m.Step == c.plan.LastStep
	if c.plan.EvalPasses > 0 && evalDue && !c.stop {
		c.eval, c.evalAsked = evalState{running: true}, 0
	}
	return out
}

func (c *conductorCore) attendedPairs(b *data.Batch) int64 {
	if c.pairs == nil {
		return 0
	}
	var n int64
	for _, m := range b.MicroBatches {
		for i, first := range m.CuSeqlens[:len(m.CuSeqlens)-1] {
			n += c.pairs(int(m.CuSeqlens[i+1] - first))
		}
	}
	return n
}

func (c *conductorCore) evalLanded(p *Pass, m LossLanded) []effect {
	c.eval.sum += m.Sum
	c.eval.supervised += p.Batch.Supervised
	if c.eval.pass < c.plan.EvalPasses {
		return nil
	}
	loss := c.eval.sum / float64(max(c.eval.supervised, 1))
	r := EvalReport{Step: c.version, Loss: loss, Tokens: c.eval.supervised}
	c.eval = evalState{}
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
		return nil // closed after the run had failed
	}
	delete(c.open, m.Step)
	s.report.GradNorm, s.report.Skipped = m.GradNorm, m.Skipped
	c.adam, c.nonFinite = m.AdamStep, m.NonFinite
	if m.NonFinite >= c.plan.MaxNonFinite && m.Skipped && c.diagnosis == nil {
		c.diagnosis = &diagnosis{step: m.Step, finite: m.Step - m.NonFinite, layer: -1, batch: s.batch}
	}
	out := []effect{send{reporterID, s.report}}
	if r := c.evaluated; r != nil && r.Step == m.Step {
		c.evaluated = nil
		out = append(out, send{reporterID, *r})
	}
	return out
}

// diagnosed ends the run with the name of the layer that is not finite.
func (c *conductorCore) diagnosed() []effect {
	d := c.diagnosis
	err := fmt.Errorf("step %d: the loss or the gradient was not finite in %d steps in a row (max_nonfinite_steps: %d)",
		d.step, c.nonFinite, c.plan.MaxNonFinite)
	if d.layer < 0 {
		err = fmt.Errorf("%w: every layer's output is finite, so it arises in the loss or in the backward; try a lower learning_rate", err)
	} else {
		err = fmt.Errorf("%w: the first output that is not finite is that of %s, micro-batch %d; look at the weights and the data", err,
			c.spec.Layers[d.layer].Name, d.microBatch)
	}
	return c.end(&NonFiniteError{Step: d.step, Finite: d.finite, err: err})
}

func (r *run) execConductor(w work) error {
	r.hub.ended <- w.do.(runEnded).Err
	return nil
}
