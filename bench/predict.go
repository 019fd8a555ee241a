package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"mt/actors"
	"mt/internal/run/predict"
	"mt/internal/run/trials"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// PredictOptions configures Predict.
type PredictOptions struct {
	// Rates measures the rates of this machine, for a device to which tiles are copied. Predict calls it before each
	// round. For each run it then scales the rates to the machine's speed at that time, as a gauge reads it.
	Rates          func(ctx context.Context) (*rates.Machine, error)
	Configurations int
	Rounds         int // number of rounds; each round runs every configuration once
	Steps          int // steps of a run that count
	Seed           uint64
	Only           int // index of the only configuration to run; −1: all
	// Progress, unless nil, is called when a run begins, with the number of completed runs and the number of all runs.
	Progress func(done, of int)
}

// Prediction is one configuration: its step time and its stalls, predicted and measured.
type Prediction struct {
	Configuration string  `json:"configuration"`
	Throttled     bool    `json:"throttled"`
	Predicted     Sample  `json:"predicted_s"` // seconds of a step
	Measured      Sample  `json:"measured_s"`
	Error         float64 `json:"error"` // predicted / measured − 1, the median of the rounds
	// Fraction of the compute stream's time that was spent in stalls, and the cause with the most time. The cause is
	// "none" if no cause takes a twentieth of the time.
	PredictedStall float64 `json:"predicted_stall_share"`
	MeasuredStall  float64 `json:"measured_stall_share"`
	PredictedCause string  `json:"predicted_cause"`
	MeasuredCause  string  `json:"measured_cause"`
}

// Predictions has the results of all configurations.
type Predictions struct {
	Machine   string       `json:"machine"`
	Seed      uint64       `json:"seed"`
	Rows      []Prediction `json:"configurations"`
	Median    float64      `json:"median_error"` // median of the absolute values of Rows' errors
	Worst     float64      `json:"worst_error"`
	CausesHit int          `json:"causes_right"` // of the CausesOf configurations with a measured cause: those whose cause was predicted
	CausesOf  int          `json:"causes_of"`
	Load      float64      `json:"load"`
}

// configuration is one random configuration with its predictions and measurements.
type configuration struct {
	o     trials.SyntheticOptions
	plan  *plan.Run
	row   Prediction
	said  []float64 // by round: predicted seconds
	took  []float64 // by round: measured seconds
	stall [actors.NumCauses]float64
	busy  float64 // seconds of the compute stream over all rounds, stalls included
}

// stallWanted is the fraction of the time that a throttled configuration must stall by the prediction, so that the
// cause of the stall matters.
const stallWanted = 0.25

// Predict draws random configurations, predicts each, runs them in turns, and compares predicted with measured step
// times.
func Predict(ctx context.Context, o PredictOptions) (_ *Predictions, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bench predict: %w", err)
		}
	}()
	g, err := newGauge()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	var m *rates.Machine
	var then float64 // gauge reading, in seconds, when m was measured
	measure := func() error {
		then, err = timed(g.read, 2, func() (err error) {
			m, err = o.Rates(ctx)
			return err
		})
		return err
	}
	if err := measure(); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.Seed, 12))
	var all []*configuration
	for i := range o.Configurations {
		c, err := draw(random, m, i%2 == 1)
		if err != nil {
			return nil, fmt.Errorf("configuration %d: %w", i, err)
		}
		if o.Only < 0 || o.Only == i {
			all = append(all, c)
		}
	}
	for round := range o.Rounds {
		if round > 0 {
			if err := measure(); err != nil {
				return nil, err
			}
		}
		for i, c := range all {
			if o.Progress != nil {
				o.Progress(round*len(all)+i, o.Rounds*len(all))
			}
			if err := c.compare(ctx, g, m, then, o.Steps); err != nil {
				return nil, fmt.Errorf("%s: %w", c.row.Configuration, err)
			}
		}
	}
	return summary(m.Name, o, all), nil
}

// compare runs c once and predicts the run from the machine rates m. `then` is the gauge's step time
// when m was measured. If the gauge now reads another time, compare scales m by the ratio before it
// predicts.
func (c *configuration) compare(ctx context.Context, g *gauge, m *rates.Machine, then float64, steps int) error {
	var ran measurement
	now, err := timed(g.read, 3, func() (err error) {
		ran, err = c.measure(ctx, steps)
		return err
	})
	if err != nil {
		return err
	}
	report, err := c.predict(m.Slower(now / then))
	if err != nil {
		return err
	}
	c.note(report)
	c.took = append(c.took, ran.step)
	c.busy += ran.busy
	for cause := range ran.stall {
		c.stall[cause] += ran.stall[cause]
	}
	return nil
}

// pick returns one of the choices at random.
func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// draw makes a random configuration whose step takes a fraction of a second on m, by the prediction. throttled: the
// link, the updates or both are slowed down.
func draw(r *rand.Rand, m *rates.Machine, throttled bool) (*configuration, error) {
	for {
		dim, heads := pick(r, 32, 64), pick(r, 2, 4, 6, 8)
		hidden := dim * heads
		o := trials.SyntheticOptions{Rows: pick(r, 2, 3, 5, 8, 12, 16), SeqLen: pick(r, 48, 96, 160, 256, 400, 640), Recompute: pick(r, "auto", "full"), NoClip: r.IntN(3) == 0,
			Unified: !throttled && r.IntN(2) == 0, MicroTokens: pick(r, 0, 256, 512, 1024)}
		o.Depths = plan.Depths{WeightSlots: pick(r, 1, 1, 2, 3), GradBuffers: pick(r, 1, 1, 2), ActivationSlots: pick(r, 0, 3, 4, 6)}
		if o.NoClip {
			o.Depths.GradSlabs = pick(r, 1, 2, 3)
		}
		ffn, layers, vocab := hidden*pick(r, 2, 3, 4), pick(r, 2, 3, 4, 6, 8), pick(r, 512, 2000, 6000)
		var err error
		o.Model, err = model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(hidden), "intermediate_size": int64(ffn), "num_hidden_layers": int64(layers),
			"num_attention_heads": int64(heads), "num_key_value_heads": int64(pick(r, heads, heads/2)), "head_dim": int64(dim), "vocab_size": int64(vocab),
			"max_position_embeddings": int64(o.SeqLen), "tie_word_embeddings": false}, "configuration")
		if err != nil {
			return nil, err
		}
		c := &configuration{o: o}
		if c.plan, err = trials.PlanSynthetic(o); err != nil {
			return nil, err
		}
		report, err := c.predict(m)
		if err != nil {
			return nil, err
		}
		if step := report.Elapsed.Seconds(); step < 0.03 || step > 0.5 {
			continue // the step is too short to time, or too long to wait for
		}
		if throttled {
			if report, err = c.slow(r, m, report); err != nil {
				return nil, err
			}
		}
		c.describe(hidden, ffn, layers, heads, vocab)
		c.row.Throttled = throttled
		return c, nil
	}
}

// note adds the prediction r of one round to the results of c.
func (c *configuration) note(r actors.StepReport) {
	c.said = append(c.said, r.Elapsed.Seconds())
	var stall [actors.NumCauses]float64
	for cause, d := range r.Stall {
		stall[cause] = d.Seconds()
	}
	c.row.PredictedStall, c.row.PredictedCause = largest(stall, r.Compute.Seconds())
}

// predict predicts a step of c on the machine m, slowed down by c's throttle.
func (c *configuration) predict(m *rates.Machine) (actors.StepReport, error) {
	p, err := predict.Predict(c.plan, c.o.Throttle.Machine(m))
	if err != nil {
		return actors.StepReport{}, err
	}
	return p.Report, nil
}

// slow draws limits of the link's rate, of the updates' rate or of both. It lowers the limits until the predicted
// stalls take stallWanted of the time. The argument report is the prediction without limits, the result the prediction
// with limits.
func (c *configuration) slow(r *rand.Rand, m *rates.Machine, report actors.StepReport) (actors.StepReport, error) {
	step := report.Elapsed.Seconds()
	var updates float64
	for l, g := range c.plan.Gradients() {
		updates += c.plan.UpdateBytes(l, g)
	}
	which := r.IntN(3)
	if which != 1 {
		c.o.Throttle.Link = float64(max(report.H2D, report.D2H)) / step / (0.5 + r.Float64())
	}
	if which != 0 {
		c.o.Throttle.Updates = updates / step / (0.5 + r.Float64())
	}
	for {
		report, err := c.predict(m)
		if err != nil {
			return report, err
		}
		var still float64
		for _, d := range report.Stall {
			still += d.Seconds()
		}
		if still >= stallWanted*report.Compute.Seconds() {
			return report, nil
		}
		c.o.Throttle.Link *= 0.8
		c.o.Throttle.Updates *= 0.8
	}
}

func (c *configuration) describe(hidden, ffn, layers, heads, vocab int) {
	o, d := c.o, c.plan.Depths
	words := []string{fmt.Sprintf("%d×%d/%d h%d v%d, %d×%d in %d", layers, hidden, ffn, heads, vocab, o.Rows, o.SeqLen, c.plan.Limits.MicroBatchTokens),
		fmt.Sprintf("slots %d buffers %d activations %d", d.WeightSlots, d.GradBuffers, d.ActivationSlots)}
	if o.Unified {
		words = append(words, "in place")
	}
	if o.NoClip {
		words = append(words, fmt.Sprintf("slabs %d", d.GradSlabs))
	}
	if o.Throttle.Link > 0 {
		words = append(words, fmt.Sprintf("link %.2f GB/s", o.Throttle.Link/1e9))
	}
	if o.Throttle.Updates > 0 {
		words = append(words, fmt.Sprintf("updates %.2f GB/s", o.Throttle.Updates/1e9))
	}
	c.row.Configuration = strings.Join(words, ", ")
}

// measurement has the times of a run's counted steps, in seconds.
type measurement struct {
	step  float64 // mean time of a step
	busy  float64 // time of the compute stream in all steps, stalls included
	stall [actors.NumCauses]float64
}

// measure runs the configuration once. Two steps before the counted steps fill the pipeline, and one step after them
// keeps it full.
func (c *configuration) measure(ctx context.Context, steps int) (m measurement, err error) {
	if err := ctx.Err(); err != nil {
		return m, err
	}
	run, err := trials.StartSynthetic(c.o)
	if err != nil {
		return m, err
	}
	reports, err := run.Run(steps + 3)
	if closed := run.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return m, err
	}
	for _, r := range reports[2 : steps+2] {
		m.step += r.Elapsed.Seconds() / float64(steps)
		m.busy += r.Compute.Seconds()
		for cause, d := range r.Stall {
			m.stall[cause] += d.Seconds()
		}
	}
	return m, nil
}

// largest returns the fraction of time that the stalls took together, and the cause of the longest stall; "none" if it
// took less than a twentieth of time.
func largest(stall [actors.NumCauses]float64, time float64) (share float64, cause string) {
	most := actors.NoStall
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		share += stall[c] / time
		if stall[c] > stall[most] || most == actors.NoStall {
			most = c
		}
	}
	if stall[most] < time/20 {
		return share, "none"
	}
	return share, most.String()
}

func summary(machine string, o PredictOptions, all []*configuration) *Predictions {
	out := &Predictions{Machine: machine, Seed: o.Seed, Load: loadNow()}
	var errs []float64
	for _, c := range all {
		c.row.Predicted, c.row.Measured = Summarize(c.said), Summarize(c.took)
		c.row.Error = Median(Ratios(c.said, c.took)) - 1
		c.row.MeasuredStall, c.row.MeasuredCause = largest(c.stall, c.busy)
		errs = append(errs, math.Abs(c.row.Error))
		if c.row.MeasuredCause != "none" {
			out.CausesOf++
			if c.row.PredictedCause == c.row.MeasuredCause {
				out.CausesHit++
			}
		}
		out.Rows = append(out.Rows, c.row)
	}
	slices.SortStableFunc(out.Rows, func(a, b Prediction) int {
		return cmp.Compare(fmt.Sprint(a.Throttled), fmt.Sprint(b.Throttled))
	})
	out.Median, out.Worst = Median(errs), slices.Max(errs)
	return out
}

// WriteTable prints the predictions as a table.
func (p *Predictions) WriteTable(w io.Writer) error {
	rows := [][]string{{"predicted ms", "measured ms", "error", "stall", "measured", "cause", "measured", "configuration"}}
	for _, r := range p.Rows {
		rows = append(rows, []string{fmt.Sprintf("%.1f [%.1f–%.1f]", r.Predicted.Median*1e3, r.Predicted.Min*1e3, r.Predicted.Max*1e3), fmt.Sprintf("%.1f [%.1f–%.1f]", r.Measured.Median*1e3, r.Measured.Min*1e3, r.Measured.Max*1e3),
			fmt.Sprintf("%+.0f %%", 100*r.Error), fmt.Sprintf("%.0f %%", 100*r.PredictedStall), fmt.Sprintf("%.0f %%", 100*r.MeasuredStall), r.PredictedCause, r.MeasuredCause, r.Configuration})
	}
	if err := writeTable(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "median error %.1f %%, worst %.1f %%; the largest stall is the right one in %d of %d with stalls\n%s", 100*p.Median, 100*p.Worst, p.CausesHit, p.CausesOf, busy(p.Load))
	return err
}
