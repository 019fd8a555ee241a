package actors

import (
	"fmt"
	"time"
)

// The Reporter says what there is to say of a step or an evaluation, in order, with
// what the streams' clocks and counters have seen.

// reporterCore is the pure part of the Reporter.
type reporterCore struct{}

func (reporterCore) step(msg any) []effect {
	switch m := msg.(type) {
	case flushReports:
		return []effect{send{conductorID, reported{}}}
	case StepReport:
		return []effect{work{do: m, done: []send{{checkpointerID, StepReported{m.Step}}}}}
	case EvalReport:
		return []effect{work{do: m}}
	}
	panic(unexpected(reporterID, msg))
}

func (r *run) execReporter(w work) error {
	switch m := w.do.(type) {
	case StepReport:
		now := time.Now()
		m.Elapsed = now.Sub(r.lastStep)
		r.lastStep = now
		m.Compute, m.Stall = r.res.clock.read(m.Prog)
		h2d, d2h := r.res.h2d.bytes.Load(), r.res.d2h.bytes.Load()
		m.H2D, m.D2H = h2d-r.lastH2D, d2h-r.lastD2H
		r.lastH2D, r.lastD2H = h2d, d2h
		experts := r.res.travelled.read(m.Prog)
		m.Experts, m.ExpertBytes = experts.tiles, experts.bytes
		if r.o.OnStep != nil {
			r.o.OnStep(m)
		}
	case EvalReport:
		r.lastStep = time.Now()
		r.lastH2D, r.lastD2H = r.res.h2d.bytes.Load(), r.res.d2h.bytes.Load()
		if r.o.OnEval != nil {
			r.o.OnEval(m)
		}
	default:
		panic(fmt.Sprintf("reporter: work %T", m))
	}
	r.hub.done(w, nil)
	return nil
}
