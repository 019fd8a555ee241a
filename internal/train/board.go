package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mt/internal/board"
)

// boardDir is the folder in a run's output directory that TensorBoard reads.
const boardDir = "runs"

// boardsFile names a run where it is shown, so that a resumed run goes on there.
const boardsFile = "boards.json"

// boardIDs is its content.
type boardIDs struct {
	MLflow string `json:"mlflow_run_id,omitempty"`
	Server string `json:"mlflow_server,omitempty"` // that MLflow is the id of
}

// boards are where the numbers of a run are shown.
type boards struct {
	events *board.Events // nil: not asked for
	queues []*board.Queue
}

// reportsTo says whether report_to has a name.
func (j *job) reportsTo(name string) bool { return slices.Contains(j.c.ReportTo, name) }

// checkBoards refuses a report_to that nothing can come of: a server that does not answer. It
// comes before anything that takes time.
func (j *job) checkBoards() error {
	if !j.reportsTo("mlflow") {
		return nil
	}
	if err := board.CheckMLflow(context.Background()); err != nil {
		return j.c.Errorf("report_to", "report_to: mlflow: %w; or leave mlflow out", err)
	}
	return nil
}

// openBoards begins what report_to asks for, or goes on with it where the run is resumed.
func (s *session) openBoards(from resume) (err error) {
	if s.reportsTo("tensorboard") {
		if s.boards.events, err = board.CreateEvents(filepath.Join(s.c.OutputDir, boardDir), time.Now(), s.hooks.events); err != nil {
			return err
		}
		events := s.boards.events
		s.closers = append(s.closers, func() { _ = events.Close() })
	}
	if !s.reportsTo("mlflow") {
		return nil
	}
	var ids boardIDs
	if raw, err := os.ReadFile(filepath.Join(s.c.OutputDir, boardsFile)); err == nil && from.state.Step > 0 && !from.other {
		_ = json.Unmarshal(raw, &ids) // without it the run is shown as a new one
	}
	if err := s.openMLflow(&ids); err != nil {
		return err
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	return s.writeWhole(boardsFile, append(raw, '\n'))
}

func (s *session) openMLflow(ids *boardIDs) error {
	id := ids.MLflow
	if ids.Server != board.MLflowServer() {
		id = ""
	}
	sink, err := board.OpenMLflow(context.Background(), board.MLflowRun{Name: s.runName(), ID: id, Config: s.c.Values()})
	if err != nil {
		return s.c.Errorf("report_to", "report_to: mlflow: %w", err)
	}
	for _, note := range sink.Notes {
		s.late.add(note)
	}
	ids.MLflow, ids.Server = sink.ID(), board.MLflowServer()
	s.boards.queues = append(s.boards.queues, board.Start("mlflow", sink, s.late.add))
	return nil
}

// runName is what the run is called where it is shown.
func (j *job) runName() string {
	if j.c.RunName != "" {
		return j.c.RunName
	}
	dir, err := filepath.Abs(j.c.OutputDir)
	if err != nil {
		dir = j.c.OutputDir
	}
	return filepath.Base(dir)
}

// onBoards hands the numbers of a logged step or evaluation to all boards. Where TensorBoard's
// event file cannot be written, it ends there; a resumed run begins another.
func (s *session) onBoards(step int, values ...board.Scalar) {
	now := time.Now()
	for _, q := range s.boards.queues {
		q.Add(board.Point{Time: now, Step: step, Values: values})
	}
	if s.boards.events == nil {
		return
	}
	if err := s.boards.events.Scalars(now, step, values); err != nil {
		s.late.add(fmt.Sprintf("%v; training goes on, and TensorBoard has no numbers from step %d on", err, step))
		s.boards.events = nil
	}
}

// closeBoards tells the boards how the run ended; err is its error.
func (s *session) closeBoards(err error) {
	status := board.Finished
	switch {
	case errors.Is(err, ErrInterrupted):
		status = board.Killed
	case err != nil:
		status = board.Failed
	}
	for _, q := range s.boards.queues {
		q.Close(status)
	}
	if len(s.boards.queues) > 0 {
		s.tellNotes()
	}
}

// scalars are the numbers that boards show of a step. A number that the Trainer of
// Transformers shows too has the same name as there.
func (m stepMetrics) scalars() []board.Scalar {
	out := []board.Scalar{{Name: "train/learning_rate", Value: m.LR}, {Name: "train/epoch", Value: m.Epoch},
		{Name: "train/tok_per_s", Value: m.TokPerS}, {Name: "train/tflops", Value: m.TFLOPS}}
	for _, name := range slices.Sorted(maps.Keys(m.GroupLR)) {
		out = append(out, board.Scalar{Name: "train/learning_rate/" + name, Value: m.GroupLR[name]})
	}
	for _, v := range []struct {
		name  string
		value any
	}{{"train/loss", m.Loss}, {"train/step_loss", m.StepLoss}, {"train/grad_norm", m.GradNorm}} {
		if x, ok := v.value.(float64); ok {
			out = append(out, board.Scalar{Name: v.name, Value: x})
		}
	}
	if m.PairMetrics != nil {
		out = append(out, m.PairMetrics.scalars("train/")...)
	}
	return out
}
