package train

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

// metricsLog appends to metrics.jsonl. It may be used from several goroutines.
type metricsLog struct {
	name   string
	f      checkpoint.Log
	out    io.Writer // f, or what a test puts in front of it
	mu     sync.Mutex
	failed error // the first failure; nothing is written after it
}

// openMetrics opens the log called name and removes the lines of the steps after step,
// which a resumed run writes again. It returns the evaluation of step, or the zero
// EvalReport where the log has none. A test may put a writer of its own in front of the
// file with through, which may be nil.
func openMetrics(disk checkpoint.FS, name string, step int, through func(io.Writer) io.Writer) (*metricsLog, actors.EvalReport, error) {
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
	l := &metricsLog{name: name, f: f, out: f}
	if through != nil {
		l.out = through(f)
	}
	return l, eval, nil
}

// metricsFor is the observer that writes metrics to a log. Where that fails it calls failed, once: a run ends then, since a
// checkpoint must not be ahead of its metrics.
type metricsFor struct {
	deaf
	log    *metricsLog
	failed func(error)
}

// Step implements Observer.
func (m *metricsFor) Step(s seenStep) {
	if s.Logged {
		m.write(s.Metrics)
	}
}

// Eval implements Observer.
func (m *metricsFor) Eval(e seenEval) {
	if e.Metrics != nil {
		m.write(e.Metrics)
	}
}

func (m *metricsFor) write(v any) {
	if m.failed == nil {
		return
	}
	if err := m.log.write(v); err != nil {
		m.failed(err)
		m.failed = nil
	}
}

// keepUntil returns the lines of the log called name up to and including those of step,
// and the evaluation of step. A line that a crash cut off is left out.
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

// write appends v as one line of JSON.
func (l *metricsLog) write(v any) error {
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

// sync puts on disk what was written. It fails if anything failed before.
func (l *metricsLog) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	return l.note("sync", l.f.Sync())
}

// note keeps the first failure. l.mu is held.
func (l *metricsLog) note(op string, err error) error {
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
