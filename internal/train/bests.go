package train

import (
	"mt/actors"
	"mt/checkpoint"
)

// bests follows the evaluations of a run, for save_best and early stopping. The pipeline
// asks whether an evaluation was the last (enough) before it is reported (report), and on
// another goroutine, so each has an account of its own; both see the same evaluations in
// the same order.
type bests struct {
	patience  int // 0: no early stopping
	threshold float64
	asked     checkpoint.Best
	reported  checkpoint.Best
}

// begin takes up the accounts where a run goes on from.
func (b *bests) begin(from checkpoint.Best) { b.asked, b.reported = from, from }

// enough says whether a run ends with an evaluation.
func (b *bests) enough(r actors.EvalReport) bool {
	b.asked.Add(r.Step, r.Loss, b.threshold)
	return b.over(b.asked)
}

func (b *bests) report(r actors.EvalReport) { b.reported.Add(r.Step, r.Loss, b.threshold) }

// over says whether early stopping ends a run that stands so.
func (b *bests) over(at checkpoint.Best) bool { return b.patience > 0 && at.Since >= b.patience }
