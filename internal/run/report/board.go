package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// boardDir is TensorBoard's folder in the output directory.
const boardDir = "runs"

// boardIDs is the content of settings.BoardsFile.
type boardIDs struct {
	MLflow string `json:"mlflow_run_id,omitempty"`
	Server string `json:"mlflow_server,omitempty"` // the server of the MLflow id
}

// CheckBoards returns an error if a server in report_to does not answer. It runs before anything slow.
func CheckBoards(c *config.Config) error {
	if !reportsTo(c, "mlflow") {
		return nil
	}
	if err := CheckMLflow(context.Background()); err != nil {
		return c.Errorf("report_to", "report_to: mlflow: %w; or leave mlflow out", err)
	}
	return nil
}

// boards is an observer that sends numbers to TensorBoard and MLflow.
type boards struct {
	noopObserver
	events *Events // nil: no TensorBoard
	queues []*Queue
	note   func(string)
}

// reportsTo reports whether the key report_to contains the destination name.
func reportsTo(c *config.Config, name string) bool { return slices.Contains(c.ReportTo, name) }

// OpenBoards starts the destinations in report_to. On an MLflow server it continues the run's earlier entry if step,
// the start of the run, is not 0 and the checkpoint is not from another run (other). events wraps TensorBoard's file;
// it may be nil. The caller must close b even after an error.
func OpenBoards(c *config.Config, dir settings.Dir, step int, other bool, events func(io.Writer) io.Writer, note func(string)) (b *boards, err error) {
	b = &boards{note: note}
	if reportsTo(c, "tensorboard") {
		if b.events, err = CreateEvents(filepath.Join(c.OutputDir, boardDir), time.Now(), events); err != nil {
			return b, err
		}
	}
	if !reportsTo(c, "mlflow") {
		return b, nil
	}
	var ids boardIDs
	if raw, err := os.ReadFile(filepath.Join(c.OutputDir, settings.BoardsFile)); err == nil && step > 0 && !other {
		_ = json.Unmarshal(raw, &ids) // without the id, the server shows the resumed run as a new one
	}
	if err := b.openMLflow(c, &ids); err != nil {
		return b, err
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		return b, err
	}
	return b, dir.WriteWhole(settings.BoardsFile, append(raw, '\n'))
}

func (b *boards) openMLflow(c *config.Config, ids *boardIDs) error {
	id := ids.MLflow
	if ids.Server != MLflowServer() {
		id = ""
	}
	sink, err := OpenMLflow(context.Background(), MLflowRun{Name: runName(c), ID: id, Config: c.Values()})
	if err != nil {
		return c.Errorf("report_to", "report_to: mlflow: %w", err)
	}
	for _, note := range sink.Notes {
		b.note(note)
	}
	ids.MLflow, ids.Server = sink.ID(), MLflowServer()
	b.queues = append(b.queues, StartQueue("mlflow", sink, b.note))
	return nil
}

// runName returns the run's display name.
func runName(c *config.Config) string {
	if c.RunName != "" {
		return c.RunName
	}
	dir, err := filepath.Abs(c.OutputDir)
	if err != nil {
		dir = c.OutputDir
	}
	return filepath.Base(dir)
}

// Step implements Observer.
func (b *boards) Step(of Step) {
	if of.Logged {
		b.show(of.Metrics.Step, of.Metrics.scalars()...)
	}
}

// Eval implements Observer.
func (b *boards) Eval(of Eval) {
	if of.Metrics != nil {
		b.show(of.Report.Step, of.Metrics.scalars(of.Report.Loss)...)
	}
}

// show sends the numbers of a logged step or an evaluation to all boards. If TensorBoard's event file cannot be
// written, no more goes into the file; a resumed run starts another.
func (b *boards) show(step int, values ...Scalar) {
	now := time.Now()
	for _, q := range b.queues {
		q.Add(Point{Time: now, Step: step, Values: values})
	}
	if b.events == nil {
		return
	}
	if err := b.events.Scalars(now, step, values); err != nil {
		b.note(fmt.Sprintf("%v; training goes on, and TensorBoard has no numbers from step %d on", err, step))
		_ = b.events.Close()
		b.events = nil
	}
}

// End implements Observer.
func (b *boards) End(err error) {
	status := EndFinished
	switch {
	case errors.Is(err, settings.ErrInterrupted):
		status = EndKilled
	case err != nil:
		status = EndFailed
	}
	for _, q := range b.queues {
		q.Close(status)
	}
	if b.events != nil {
		_ = b.events.Close()
	}
}

// scalars returns the numbers of a step that boards show. A number that Transformers' Trainer also reports has the
// Trainer's name.
func (m StepMetrics) scalars() []Scalar {
	out := []Scalar{{Name: "train/learning_rate", Value: m.LR}, {Name: "train/epoch", Value: m.Epoch},
		{Name: "train/tok_per_s", Value: m.TokPerS}, {Name: "train/tflops", Value: m.TFLOPS}}
	for _, name := range slices.Sorted(maps.Keys(m.GroupLR)) {
		out = append(out, Scalar{Name: "train/learning_rate/" + name, Value: m.GroupLR[name]})
	}
	for _, v := range []struct {
		name  string
		value any
	}{{"train/loss", m.Loss}, {"train/step_loss", m.StepLoss}, {"train/grad_norm", m.GradNorm}} {
		out = appendFinite(out, v.name, v.value)
	}
	if m.AheadLoss != nil {
		out = appendFinite(out, "train/mtp_loss", *m.AheadLoss)
	}
	if m.PairMetrics != nil {
		out = append(out, m.PairMetrics.scalars("train/")...)
	}
	return out
}

// appendFinite appends a number of a line of metrics.jsonl to list, unless it is nil because it is not finite.
func appendFinite(list []Scalar, name string, number any) []Scalar {
	if x, ok := number.(float64); ok {
		list = append(list, Scalar{Name: name, Value: x})
	}
	return list
}
