package actors

import (
	"fmt"
	"time"
)

// The Reporter tells the caller of every step and every evaluation, in order, and adds what
// the streams' clocks and counters have measured.

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
		now := r.hub.now()
		m.Elapsed = now - r.lastStep
		r.lastStep = now
		h2d, d2h := r.linkBytes()
		m.H2D, m.D2H = h2d-r.lastH2D, d2h-r.lastD2H
		r.lastH2D, r.lastD2H = h2d, d2h
		for _, l := range r.lanes {
			busy, stall := l.stalls.read(m.Prog)
			m.Compute = max(m.Compute, busy)
			for cause, d := range stall {
				m.Stall[cause] += d / time.Duration(len(r.lanes))
			}
			experts := l.travelled.read(m.Prog)
			m.Experts, m.ExpertBytes = m.Experts+experts.tiles, m.ExpertBytes+experts.bytes
		}
		if r.o.OnStep != nil {
			r.o.OnStep(m)
		}
	case EvalReport:
		r.lastStep = r.hub.now()
		r.lastH2D, r.lastD2H = r.linkBytes()
		if r.o.OnEval != nil {
			r.o.OnEval(m)
		}
	default:
		panic(fmt.Sprintf("reporter: work %T", m))
	}
	r.hub.done(w, nil)
	return nil
}

// linkBytes is how many bytes have crossed the links of all lanes so far.
func (r *run) linkBytes() (h2d, d2h int64) {
	for _, l := range r.lanes {
		h2d += l.h2d.bytes.Load()
		d2h += l.d2h.bytes.Load()
	}
	return h2d, d2h
}
