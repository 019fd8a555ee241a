package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Files of an output directory.
const (
	metricsFile  = "metrics.jsonl"
	configFile   = "config.yaml"
	endFile      = "trainer_state.json" // exists in a finished run
	timelineFile = "timeline.json"
	samplesFile  = "samples.jsonl"
)

const (
	maxLines = 3000 // maximum number of past lines sent to a viewer
	batch    = 200  // lines per event
)

// CheckRun returns an error unless dir looks like the output directory of a run.
func CheckRun(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("%s: there is no such directory", dir)
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is a file; give the output_dir of a run", dir)
	}
	for _, name := range []string{metricsFile, configFile} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			return nil
		}
	}
	return fmt.Errorf("%s holds no %s; give the output_dir of a run", dir, metricsFile)
}

// names returns a short name for each directory, no two alike. It is the last element of the path, or the whole path
// if another directory has the same last element.
func names(dirs []string) []string {
	count := map[string]int{}
	for _, dir := range dirs {
		count[last(dir)]++
	}
	out := make([]string, len(dirs))
	for i, dir := range dirs {
		if out[i] = last(dir); count[out[i]] > 1 {
			out[i] = filepath.Clean(dir)
		}
	}
	return out
}

// last returns the last element of the absolute path of dir, since dir itself may be ".".
func last(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

// state is the event that tells the viewer how far a run is. The metrics are sent in separate
// events.
type state struct {
	Run  int     `json:"run"`
	Done bool    `json:"done"`  // the model is written
	AgeS float64 `json:"age_s"` // seconds since the last change of metrics.jsonl; -1: no such file
}

// run follows the files of one run for one viewer.
type run struct {
	index            int
	dir              string
	metrics, samples lines
	config, timeline whole
	told             bool // a state has been sent
	state            state
	changed          time.Time // modification time of metrics.jsonl in the sent state
}

func newRun(index int, dir string) *run {
	at := func(name string) string { return filepath.Join(dir, name) }
	return &run{index: index, dir: dir,
		metrics: lines{path: at(metricsFile), most: maxLines, keep: always},
		samples: lines{path: at(samplesFile), most: maxLines},
		config:  whole{path: at(configFile)}, timeline: whole{path: at(timelineFile)}}
}

// always reports whether a viewer gets this line of metrics.jsonl even if the viewer gets only a sample of all lines.
// These are evaluations, which are few, and skipped steps.
func always(line []byte) bool {
	return bytes.Contains(line, []byte(`"eval_loss":`)) || bytes.Contains(line, []byte(`"skipped":true`))
}

// linesEvent carries new lines of a run to a viewer. Again says that the viewer must forget the lines sent before.
type linesEvent struct {
	Run   int               `json:"run"`
	Again bool              `json:"again,omitempty"`
	Lines []json.RawMessage `json:"lines"`
}

// newConfig sends the configuration to the viewer if config.yaml has changed. It returns only errors of send.
func (r *run) newConfig(send func(event string, v any) error) error {
	text, changed := r.config.read()
	if !changed {
		return nil
	}
	return send("config", map[string]any{"run": r.index, "text": string(text)})
}

// news sends all that has changed in the run's files since the last call to the viewer. It returns only errors of
// send.
func (r *run) news(now time.Time, send func(event string, v any) error) error {
	if err := r.newConfig(send); err != nil {
		return err
	}
	if err := r.newLines("metrics", &r.metrics, send); err != nil {
		return err
	}
	if err := r.newLines("samples", &r.samples, send); err != nil {
		return err
	}
	if text, changed := r.timeline.read(); changed {
		if c := compact(text); c != nil {
			if err := send("timeline", map[string]any{"run": r.index, "timeline": c}); err != nil {
				return err
			}
		}
	}
	return r.newState(now, send)
}

// newLines sends the new lines of l to the viewer as events with the name event, each with at most batch lines. It
// returns only errors of send.
func (r *run) newLines(event string, l *lines, send func(string, any) error) error {
	events := []linesEvent{{Run: r.index}}
	again := l.read(func(line json.RawMessage) {
		at := &events[len(events)-1]
		if at.Lines = append(at.Lines, line); len(at.Lines) == batch {
			events = append(events, linesEvent{Run: r.index})
		}
	})
	events[0].Again = again
	for i, e := range events {
		if len(e.Lines) == 0 && (!again || i > 0) {
			continue
		}
		if err := send(event, e); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) newState(now time.Time, send func(string, any) error) error {
	s := state{Run: r.index, AgeS: -1}
	var changed time.Time
	if st, err := os.Stat(r.metrics.path); err == nil {
		changed = st.ModTime()
		s.AgeS = max(0, now.Sub(changed).Seconds())
	}
	_, err := os.Stat(filepath.Join(r.dir, endFile))
	s.Done = err == nil
	if r.told && s.Done == r.state.Done && changed.Equal(r.changed) {
		return nil
	}
	r.told, r.state, r.changed = true, s, changed
	return send("state", s)
}
