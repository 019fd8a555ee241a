package train

import (
	"path/filepath"
	"slices"
	"time"

	"mt/internal/tensorboard"
)

// boardDir is the folder in a run's output directory that TensorBoard reads.
const boardDir = "runs"

// openBoard begins TensorBoard's event file where report_to asks for it.
func (s *session) openBoard() (err error) {
	if !slices.Contains(s.c.ReportTo, "tensorboard") {
		return nil
	}
	if s.board, err = tensorboard.Create(filepath.Join(s.c.OutputDir, boardDir), time.Now()); err == nil {
		s.closers = append(s.closers, func() { _ = s.board.Close() })
	}
	return err
}

// onBoard writes the numbers of a logged step or evaluation to TensorBoard's event
// file, if there is one. A failure ends the run.
func (s *session) onBoard(step int, values ...tensorboard.Scalar) {
	if s.board == nil {
		return
	}
	if err := s.board.Scalars(time.Now(), step, values); err != nil {
		s.stop(err)
	}
}

// scalars are the numbers that TensorBoard shows of a step. A number that the Trainer
// of Transformers shows too has the same tag as there.
func (m stepMetrics) scalars() []tensorboard.Scalar {
	out := []tensorboard.Scalar{{Tag: "train/learning_rate", Value: m.LR}, {Tag: "train/epoch", Value: m.Epoch},
		{Tag: "train/tok_per_s", Value: m.TokPerS}, {Tag: "train/tflops", Value: m.TFLOPS}}
	if v, ok := m.Loss.(float64); ok {
		out = append(out, tensorboard.Scalar{Tag: "train/loss", Value: v})
	}
	if v, ok := m.StepLoss.(float64); ok {
		out = append(out, tensorboard.Scalar{Tag: "train/step_loss", Value: v})
	}
	if v, ok := m.GradNorm.(float64); ok {
		out = append(out, tensorboard.Scalar{Tag: "train/grad_norm", Value: v})
	}
	return out
}
