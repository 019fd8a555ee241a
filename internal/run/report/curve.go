package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"mt/internal/chart"
	"mt/internal/run/settings"
)

// Curve draws loss.svg (settings.CurveFile) when the run ends.
type Curve struct {
	noopObserver
	Dir  settings.Dir
	Tell func(string)
}

// End implements Observer.
func (c *Curve) End(error) { DrawCurve(c.Dir, c.Tell) }

// DrawCurve draws CurveFile in dir, unless the file is already up to date. A failure is a note. The picture depends
// only on metrics.jsonl, so a resumed run has the same picture as an uninterrupted one.
func DrawCurve(dir settings.Dir, note func(string)) {
	name := filepath.Join(dir.Path, settings.CurveFile)
	raw, err := os.ReadFile(filepath.Join(dir.Path, settings.MetricsFile))
	c, ok := curve(raw)
	if err == nil && !ok || errors.Is(err, fs.ErrNotExist) {
		return
	}
	var svg bytes.Buffer
	if err == nil {
		err = c.WriteSVG(&svg)
	}
	if err == nil {
		if there, unread := os.ReadFile(name); unread == nil && bytes.Equal(there, svg.Bytes()) {
			return
		}
		err = dir.WriteWhole(settings.CurveFile, svg.Bytes())
	}
	if err != nil {
		note(fmt.Sprintf("%s is not drawn: %v", name, err))
	}
}

// smoothedFrom is a number of logged losses. A chart of at least as many gets a smoothed line, which has about as many
// bends.
const smoothedFrom = 50

// curve returns the chart of metrics.jsonl; ok is false if no step is logged.
func curve(metrics []byte) (c chart.Chart, ok bool) {
	var steps, losses, rates, evalSteps, evalLosses []float64
	for line := range bytes.Lines(metrics) {
		var m struct {
			Step float64
			Loss *float64
			LR   *float64 `json:"lr"`
			Eval *float64 `json:"eval_loss"`
		}
		if json.Unmarshal(line, &m) != nil {
			continue // a truncated line
		}
		if m.Eval != nil {
			evalSteps, evalLosses = append(evalSteps, m.Step), append(evalLosses, *m.Eval)
		}
		if m.LR == nil {
			continue
		}
		loss := math.NaN()
		if m.Loss != nil {
			loss = *m.Loss
		}
		steps, losses, rates = append(steps, m.Step), append(losses, loss), append(rates, *m.LR)
	}
	series := []chart.Series{{Label: "training", X: steps, Y: losses, Color: 1}}
	if n := len(losses); n >= smoothedFrom {
		share := 1 / (1 + float64(n)/smoothedFrom)
		series[0].Style = chart.Faint
		series = append(series, chart.Series{Label: "training, smoothed", X: steps, Y: smooth(losses, share), Color: 1})
	}
	if len(evalLosses) > 0 {
		series = append(series, chart.Series{Label: "held-out", X: evalSteps, Y: evalLosses, Color: 2})
	}
	return chart.Chart{Title: "Loss", X: chart.Axis{Title: "step"}, Panels: []chart.Panel{
		{Y: chart.Axis{Title: "nats per token"}, Series: series},
		{Y: chart.Axis{Title: "learning rate", Zero: true}, Height: 120, Series: []chart.Series{{Label: "learning rate", X: steps, Y: rates, Color: 3}}},
	}}, len(steps) > 0
}

// smooth returns the mean of two exponential moving averages of ys, one forward and one backward, so that the result
// does not lag behind ys. share is the weight of each new value in an average.
func smooth(ys []float64, share float64) []float64 {
	out := chart.Smooth(ys, share)
	back := slices.Clone(ys)
	slices.Reverse(back)
	for i, v := range chart.Smooth(back, share) {
		at := len(out) - 1 - i
		out[at] = (out[at] + v) / 2
	}
	return out
}

// lossHistory holds the finite losses of this process's steps for the sparkline, fewer than maxLossHistory values. When
// there are too many, a mean replaces each two neighbours, and each later value is a mean over as many steps.
type lossHistory struct {
	means []float64
	per   int     // steps per entry of means
	sum   float64 // of the steps not yet in means
	n     int
}

const (
	maxLossHistory = 256
	sparkWidth     = 12 // characters
)

func (t *lossHistory) add(loss float64) {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return
	}
	t.per = max(1, t.per)
	t.sum, t.n = t.sum+loss, t.n+1
	if t.n < t.per {
		return
	}
	t.means = append(t.means, t.sum/float64(t.n))
	t.sum, t.n = 0, 0
	if len(t.means) < maxLossHistory {
		return
	}
	for i := range maxLossHistory / 2 {
		t.means[i] = (t.means[2*i] + t.means[2*i+1]) / 2
	}
	t.means, t.per = t.means[:maxLossHistory/2], 2*t.per
}

// spark returns the losses so far as a line of small bars for a terminal; "" for fewer than two losses.
func (t *lossHistory) spark() string {
	if len(t.means) < 2 {
		return ""
	}
	return chart.Sparkline(t.means, sparkWidth)
}
