package save

import (
	"mt/actors"
	"mt/checkpoint"
)

// Bests follows the evaluations of a run, for save_best and early stopping. The pipeline
// asks whether an evaluation was the last (enough) before it is reported (report), and on
// another goroutine, so each has an account of its own; both see the same evaluations in
// the same order.
type Bests struct {
	Patience  int // 0: no early stopping
	Threshold float64
	asked     checkpoint.Best
	Reported  checkpoint.Best
}

// Begin takes up the accounts where a run goes on from.
func (b *Bests) Begin(from checkpoint.Best) { b.asked, b.Reported = from, from }

// Enough says whether a run ends with an evaluation.
func (b *Bests) Enough(r actors.EvalReport) bool {
	b.asked.Add(r.Step, r.Loss, b.Threshold)
	return b.Over(b.asked)
}

// Report notes an evaluation that is reported.
func (b *Bests) Report(r actors.EvalReport) { b.Reported.Add(r.Step, r.Loss, b.Threshold) }

// Over says whether early stopping ends a run that stands so.
func (b *Bests) Over(at checkpoint.Best) bool { return b.Patience > 0 && at.Since >= b.Patience }
