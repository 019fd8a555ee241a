package train

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/internal/board"
)

// onEval reports an evaluation.
func (s *session) onEval(r actors.EvalReport) {
	s.lastEval = r
	s.bests.report(r)
	s.saver.isBest(s.bests.reported.Step)
	m := evalMetrics{Step: r.Step, Loss: number(r.Loss), Perplexity: number(math.Exp(r.Loss)), Tokens: r.Tokens}
	text := fmt.Sprintf("perplexity %.3f  (%s tokens)", math.Exp(r.Loss), humanize.Comma(r.Tokens))
	scalars := []board.Scalar{{Name: "eval/loss", Value: r.Loss}}
	if r.Pairs != nil {
		pairs := pairMetricsOf(pairLog(r.Pairs))
		m.Perplexity, m.EvalPairMetrics = nil, (*EvalPairMetrics)(pairs)
		text = fmt.Sprintf("%s  (%s pairs)", pairs.text(), humanize.Comma(r.Pairs.Pairs))
		scalars = append(scalars, pairs.scalars("eval/")...)
	}
	s.line.above(fmt.Sprintf("step %d/%d  eval_loss %.4f  %s", r.Step, s.c.MaxSteps, r.Loss, text))
	s.onBoards(r.Step, scalars...)
	s.record(m)
}

// evalOwed says whether an evaluation is due after the last step done (at the start,
// the step that the run goes on from) and metrics.jsonl does not have it.
func (s *session) evalOwed() bool {
	step, every := s.lastStep, s.cadence()
	due := s.eval != nil && step > 0 && (every.eval > 0 && step%every.eval == 0 || every.evalEpochs && s.endsEpoch(step) || step == s.c.MaxSteps)
	return due && s.lastEval.Step != step
}
