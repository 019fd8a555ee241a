package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mt/internal/chart"
)

// curves draws the training losses of runs into the picture FILE.svg, with one line for each NAME: the mean over the
// runs DIR. It also prints the last held-out losses. A DIR is an output_dir with metrics.jsonl. All runs of a NAME must
// have logged the same steps.
func curves(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: curves FILE.svg NAME=DIR,DIR,… …")
	}
	panel := chart.Panel{Y: chart.Axis{Title: "training loss, nats per token"}}
	for _, arg := range args[1:] {
		name, dirs, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: want NAME=DIR,DIR,…", arg)
		}
		line := chart.Series{Label: name}
		all := strings.Split(dirs, ",")
		for i, dir := range all {
			steps, losses, held, err := readCurve(dir)
			if err != nil {
				return err
			}
			if i == 0 {
				line.X, line.Y = steps, make([]float64, len(steps))
			}
			if len(losses) != len(line.Y) {
				return fmt.Errorf("%s has logged %d times, %s %d times", dir, len(losses), all[0], len(line.Y))
			}
			for k, v := range losses {
				line.Y[k] += v / float64(len(all))
			}
			fmt.Printf("%s\t%s\t%.4f\n", name, dir, held)
		}
		panel.Series = append(panel.Series, line)
	}
	var svg bytes.Buffer
	if err := (chart.Chart{X: chart.Axis{Title: "step"}, Panels: []chart.Panel{panel}}).WriteSVG(&svg); err != nil {
		return err
	}
	return os.WriteFile(args[0], svg.Bytes(), 0o644)
}

// readCurve returns the logged steps and losses of the run in dir, and its last held-out loss.
func readCurve(dir string) (steps, losses []float64, held float64, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		return nil, nil, 0, err
	}
	for line := range bytes.Lines(b) {
		var m struct {
			Step float64
			Loss *float64
			Held float64 `json:"eval_loss"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, nil, 0, fmt.Errorf("%s/metrics.jsonl: %w", dir, err)
		}
		if m.Loss != nil {
			steps, losses = append(steps, m.Step), append(losses, *m.Loss)
		}
		if m.Held > 0 {
			held = m.Held
		}
	}
	return steps, losses, held, nil
}
