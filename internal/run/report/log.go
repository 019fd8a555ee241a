package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"

	"mt/actors"
	"mt/checkpoint"
)

// Log appends to metrics.jsonl. It is safe for concurrent use.
type Log struct {
	name   string
	File   checkpoint.Log
	out    io.Writer // File, or a test's wrapper of it
	mu     sync.Mutex
	failed error // the first failure; later writes return it
}

// OpenMetrics opens the log called name and removes the lines after step, which a resumed run writes again. It
// returns the evaluation at step, or the zero EvalReport if the log has none. through, which may be nil, wraps the
// file for tests.
func OpenMetrics(disk checkpoint.FS, name string, step int, through func(io.Writer) io.Writer) (*Log, actors.EvalReport, error) {
	kept, eval, err := keepUntil(name, step)
	if err == nil {
		err = checkpoint.WriteFile(disk, name, kept)
	}
	if err != nil {
		return nil, eval, err
	}
	f, err := disk.Append(name)
	if err != nil {
		return nil, eval, err
	}
	l := &Log{name: name, File: f, out: f}
	if through != nil {
		l.out = through(f)
	}
	return l, eval, nil
}

// Metrics is the observer that writes metrics to a log. On the first failure it calls Failed, and the run ends: a
// checkpoint must not be ahead of its metrics.
type Metrics struct {
	noopObserver
	Log    *Log
	Failed func(error)
}

// Step implements Observer.
func (m *Metrics) Step(s Step) {
	if s.Logged {
		m.write(s.Metrics)
	}
}

// Eval implements Observer.
func (m *Metrics) Eval(e Eval) {
	if e.Metrics != nil {
		m.write(e.Metrics)
	}
}

func (m *Metrics) write(v any) {
	if m.Failed == nil {
		return
	}
	if err := m.Log.Write(v); err != nil {
		m.Failed(err)
		m.Failed = nil
	}
}

// keepUntil returns the lines of the log called name up to and including step, and the evaluation at step. It drops a
// line that a crash truncated.
func keepUntil(name string, step int) (kept []byte, eval actors.EvalReport, err error) {
	if step == 0 {
		return nil, eval, nil
	}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, eval, nil
	}
	if err != nil {
		return nil, eval, err
	}
	for line := range bytes.Lines(raw) {
		var at struct {
			Step   int
			Loss   *float64 `json:"eval_loss"`
			Tokens *int64   `json:"eval_tokens"`
		}
		if json.Unmarshal(line, &at) != nil || at.Step > step {
			continue
		}
		kept = append(append(kept, bytes.TrimSuffix(line, []byte("\n"))...), '\n')
		if at.Tokens != nil && at.Step == step {
			eval = actors.EvalReport{Step: step, Loss: math.NaN(), Tokens: *at.Tokens}
			if at.Loss != nil {
				eval.Loss = *at.Loss
			}
		}
	}
	return kept, eval, nil
}

// Write appends v as one line of JSON.
func (l *Log) Write(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.out.Write(append(b, '\n'))
	}
	return l.note("write", err)
}

// Sync flushes the log to disk. It fails if anything failed before.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	return l.note("sync", l.File.Sync())
}

// note remembers err as the log's failure and returns it with the operation op and the file's name in its text; nil if
// err is nil. The caller holds l.mu.
func (l *Log) note(op string, err error) error {
	if err == nil {
		return nil
	}
	var onPath *fs.PathError
	if errors.As(err, &onPath) {
		err = onPath.Err
	}
	l.failed = fmt.Errorf("%s %s: %w", op, l.name, err)
	return l.failed
}

// Close closes the file.
func (l *Log) Close() { _ = l.File.Close() }

// Windows keeps, for each coming checkpoint, the window of metrics: the sums over the steps since the last logged one.
type Windows = Awaited[checkpoint.LogWindow]

// Awaited is a value that changes with every step and that each checkpoint must contain. A checkpoint is committed
// when later steps have already been reported. Awaited therefore keeps the value of the checkpoint's own step until
// then. It is safe for concurrent use.
type Awaited[T any] struct {
	mu     sync.Mutex
	last   T         // after the last reported step
	awaits map[int]T // values for coming checkpoints, by step
}

// Reported records the value `now` after a step. saved says that the state after this step goes into a checkpoint, so
// that Take will ask for the value.
func (w *Awaited[T]) Reported(step int, saved bool, now T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = now
	if !saved {
		return
	}
	if w.awaits == nil {
		w.awaits = map[int]T{}
	}
	w.awaits[step] = now
}

// Take returns the value after a step that is being saved. If Reported was not called with saved for this step, it
// returns the value after the last reported step.
func (w *Awaited[T]) Take(step int) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, ok := w.awaits[step]
	if !ok {
		return w.last
	}
	delete(w.awaits, step)
	return now
}
