package train

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/internal/board"
)

// evalMetricsOf are the metrics of an evaluation.
func evalMetricsOf(r actors.EvalReport) *evalMetrics {
	m := evalMetrics{Step: r.Step, Loss: number(r.Loss), Perplexity: number(math.Exp(r.Loss)), Tokens: r.Tokens}
	if r.Pairs != nil {
		m.Perplexity, m.EvalPairMetrics = nil, (*EvalPairMetrics)(pairMetricsOf(pairLog(r.Pairs)))
	}
	return &m
}

// text is what the progress line has of an evaluation of so many steps.
func (e *seenEval) text(maxSteps int) string {
	r := e.Report
	text := fmt.Sprintf("perplexity %.3f  (%s tokens)", math.Exp(r.Loss), humanize.Comma(r.Tokens))
	if pairs := (*PairMetrics)(e.Metrics.EvalPairMetrics); r.Pairs != nil {
		text = fmt.Sprintf("%s  (%s pairs)", pairs.text(), humanize.Comma(r.Pairs.Pairs))
	}
	return fmt.Sprintf("step %d/%d  eval_loss %.4f  %s", r.Step, maxSteps, r.Loss, text)
}

// scalars are what boards get of an evaluation of that loss.
func (m *evalMetrics) scalars(loss float64) []board.Scalar {
	out := []board.Scalar{{Name: "eval/loss", Value: loss}}
	if m.EvalPairMetrics != nil {
		out = append(out, (*PairMetrics)(m.EvalPairMetrics).scalars("eval/")...)
	}
	return out
}
