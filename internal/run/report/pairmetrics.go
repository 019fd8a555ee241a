package report

import (
	"fmt"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/board"
)

// PairMetrics are means over pairs, as metrics.jsonl has them of steps, by TRL's names.
type PairMetrics struct {
	Chosen      float64 `json:"rewards/chosen"`
	Rejected    float64 `json:"rewards/rejected"`
	Accuracies  float64 `json:"rewards/accuracies"`
	Margins     float64 `json:"rewards/margins"`
	LogChosen   float64 `json:"logps/chosen"`
	LogRejected float64 `json:"logps/rejected"`
}

// EvalPairMetrics are those of an evaluation.
type EvalPairMetrics struct {
	Chosen      float64 `json:"eval_rewards/chosen"`
	Rejected    float64 `json:"eval_rewards/rejected"`
	Accuracies  float64 `json:"eval_rewards/accuracies"`
	Margins     float64 `json:"eval_rewards/margins"`
	LogChosen   float64 `json:"eval_logps/chosen"`
	LogRejected float64 `json:"eval_logps/rejected"`
}

// pairLog is what the log takes of a report's pairs.
func pairLog(s *actors.PairSums) checkpoint.PairLog {
	return checkpoint.PairLog{Pairs: float64(s.Pairs), Chosen: s.Chosen, Rejected: s.Rejected, Right: s.Right, LogChosen: s.LogChosen, LogRejected: s.LogReject}
}

// pairMetricsOf are the means of l; nil where it has no pairs.
func pairMetricsOf(l checkpoint.PairLog) *PairMetrics {
	n := l.Pairs
	if n == 0 {
		return nil
	}
	return &PairMetrics{Chosen: l.Chosen / n, Rejected: l.Rejected / n, Accuracies: l.Right / n, Margins: (l.Chosen - l.Rejected) / n,
		LogChosen: l.LogChosen / n, LogRejected: l.LogRejected / n}
}

// text is what the progress line has of it.
func (m *PairMetrics) text() string {
	return fmt.Sprintf("margin %.4f  accuracy %.3f", m.Margins, m.Accuracies)
}

// scalars are what boards get of it.
func (m *PairMetrics) scalars(under string) []board.Scalar {
	return []board.Scalar{{Name: under + "rewards/chosen", Value: m.Chosen}, {Name: under + "rewards/rejected", Value: m.Rejected},
		{Name: under + "rewards/accuracies", Value: m.Accuracies}, {Name: under + "rewards/margins", Value: m.Margins},
		{Name: under + "logps/chosen", Value: m.LogChosen}, {Name: under + "logps/rejected", Value: m.LogRejected}}
}
