package tune

import (
	"context"
	"fmt"
	"io"
	"strings"

	"mt/actors"
	"mt/internal/chart"
)

// CurvePoint is the prediction for one value of a key.
type CurvePoint struct {
	Value     int                `json:"value"`
	TokPerSec float64            `json:"tok_per_s"`
	Stalls    map[string]float64 `json:"stalls"` // share of the step by cause
}

// Curve is the predicted effect of one key. The other keys have the values of the winner, or of the configuration
// (start) if nothing is faster.
type Curve struct {
	Key    string       `json:"key"`
	At     int          `json:"at"` // the key's value in the plan that Of names
	Of     string       `json:"of"` // start or best: the source of the other keys
	Points []CurvePoint `json:"points"`
}

// curves predicts the plan with every value of every key, one key at a time, as far as plans fit into memory.
func (t *tuning) curves(ctx context.Context) error {
	at, of := t.start.Point, "start"
	if t.out.found() {
		at, of = t.out.winner.Point, "best"
	}
	for _, d := range t.space.dims {
		k := at.Knobs
		c := Curve{Key: d.key, At: *d.at(&k), Of: of, Points: []CurvePoint{}}
		for i, v := range d.values {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			t.progress("curves of "+d.key, i, len(d.values), 0)
			*d.at(&k) = v
			p, err := t.space.predict(k)
			if err != nil {
				return err
			}
			if p != nil {
				c.Points = append(c.Points, p.curve(v))
			}
		}
		t.out.Curves = append(t.out.Curves, c)
	}
	return nil
}

func (p *Point) curve(value int) CurvePoint {
	out := CurvePoint{Value: value, TokPerSec: float64(p.run.Limits.Tokens) / p.Step, Stalls: map[string]float64{}}
	for cause := actors.NoStall + 1; cause < actors.NumCauses; cause++ {
		out.Stalls[cause.String()] = p.Stall[cause] / p.Step
	}
	return out
}

// flat reports whether no value of the key changes the predicted tokens per second by more than a short run can
// measure.
func (c *Curve) flat() bool {
	for _, p := range c.Points {
		if first := c.Points[0].TokPerSec; p.TokPerSec > first*(1+alike) || p.TokPerSec < first*(1-alike) {
			return false
		}
	}
	return true
}

// Name returns the key without "pipeline.".
func (c *Curve) Name() string { return strings.TrimPrefix(c.Key, "pipeline.") }

// Chart plots throughput and stalls against the key.
func (c *Curve) Chart() chart.Chart {
	speed := chart.Series{Label: "predicted tok/s"}
	var stalls []chart.Series
	for _, p := range c.Points {
		speed.X, speed.Y = append(speed.X, float64(p.Value)), append(speed.Y, p.TokPerSec)
	}
	for cause := actors.NoStall + 1; cause < actors.NumCauses; cause++ {
		s, most := chart.Series{Label: "stall: " + cause.String(), X: speed.X}, 0.0
		for _, p := range c.Points {
			share := 100 * p.Stalls[cause.String()]
			s.Y, most = append(s.Y, share), max(most, share)
		}
		if most >= 0.5 {
			stalls = append(stalls, s)
		}
	}
	out := chart.Chart{Title: fmt.Sprintf("%s as predicted, all else as in the %s, which has %d", c.Key, c.Of, c.At), X: chart.Axis{Title: c.Name(), Log: true},
		Panels: []chart.Panel{{Y: chart.Axis{Title: "tok/s"}, Height: 240, Series: []chart.Series{speed}}}}
	if len(stalls) > 0 {
		out.Panels = append(out.Panels, chart.Panel{Y: chart.Axis{Title: "% of a step", Zero: true}, Height: 240, Series: stalls})
	}
	return out
}

// WriteCurves prints, for each key that has an effect, a line with the predictions for its values. One more line names
// the keys without an effect.
func (r *Result) WriteCurves(w io.Writer) error {
	var b strings.Builder
	var flat []string
	for _, c := range r.Curves {
		if c.flat() {
			flat = append(flat, c.Name())
			continue
		}
		if b.Len() == 0 {
			fmt.Fprintf(&b, "\npredicted tok/s by one key, all else as in the %s\n", c.Of)
		}
		var speeds []float64
		fmt.Fprintf(&b, "%s:", c.Name())
		for _, p := range c.Points {
			speeds = append(speeds, p.TokPerSec)
			fmt.Fprintf(&b, "  %d→%.0f", p.Value, p.TokPerSec)
		}
		fmt.Fprintf(&b, "  %s\n", chart.Sparkline(speeds, len(speeds)))
	}
	if len(flat) > 0 {
		fmt.Fprintf(&b, "\nof no effect, as predicted: %s\n", strings.Join(flat, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
