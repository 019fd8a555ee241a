package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"mt/actors"
	"mt/device"
	"mt/device/wrap"
	"mt/internal/doctor/measure"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/run/trials"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// This file corrects rates with a short training run. When an operation is timed alone, many times in a row, its
// operands are in the caches and it has the machine to itself. In a run neither is true. Therefore a small model is
// trained with every operation timed, and the same run is predicted. The rate of each kind of operation is divided by
// the ratio measured time / predicted time.

// trained is the shape of the training run that corrects rates. Its matrix products have shapes that no other part of
// the calibration measures.
type trained struct {
	layers, hidden, ffn, heads, vocab int
	rows, length, micro               int
	rounds                            int // rounds of predict.PredictedSteps steps each
}

// trainedFor returns the shape of the training run on a device of the given kind. small asks for a tiny one, for
// tests.
func trainedFor(kind string, small bool) trained {
	switch {
	case small:
		return trained{layers: 2, hidden: 32, ffn: 48, heads: 2, vocab: 64, rows: 2, length: 16, micro: 16, rounds: 1}
	case kind == "cuda":
		return trained{layers: 3, hidden: 2048, ffn: 5632, heads: 16, vocab: 16384, rows: 12, length: 1536, micro: 4608, rounds: 3}
	}
	return trained{layers: 3, hidden: 320, ffn: 880, heads: 5, vocab: 3000, rows: 5, length: 192, micro: 480, rounds: 7}
}

// model returns the small model that the training run trains.
func (t trained) model() (*model.Config, error) {
	return model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(t.hidden), "intermediate_size": int64(t.ffn), "num_hidden_layers": int64(t.layers),
		"num_attention_heads": int64(t.heads), "num_key_value_heads": int64(t.heads), "vocab_size": int64(t.vocab), "max_position_embeddings": int64(t.length),
		"tie_word_embeddings": false}, "the run that corrects rates")
}

// options returns the options of the run with activations of type act.
func (t trained) options(act device.DType) (trials.SyntheticOptions, error) {
	cfg, err := t.model()
	return trials.SyntheticOptions{Model: cfg, Rows: t.rows, SeqLen: t.length, MicroTokens: t.micro, Act: act, Recompute: "auto"}, err
}

// reportsOf makes a training run of the given number of steps over random tokens. It returns the
// run's plan and the report of each step; nil, nil and nil if memory does not suffice.
func reportsOf(ctx context.Context, o trials.SyntheticOptions, steps int) (p *plan.Run, reports []actors.StepReport, err error) {
	s, err := trials.StartSynthetic(o)
	if lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	reports, err = s.Run(steps)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, nil, err
	}
	return s.Plan, reports, nil
}

// corrections is how often rates are corrected by comparing predicted and measured times. One time is not enough,
// since a corrected rate changes which work runs beside each operation.
const corrections = 2

// inRun corrects the rates of operations by a training run. Then it measures the time of a message between actors, and
// the cost of restarting idle cores. If memory does not suffice for the run, the rates stay unchanged and Sources says
// so.
func (r *calibration) inRun(ctx context.Context) error {
	for _, dtype := range dtypes {
		name := dtype.String()
		if len(r.out.Device.Products[name]) == 0 || len(r.out.Device.Attention[name]) == 0 {
			continue
		}
		err := r.correct(ctx, dtype)
		said := "corrected by a short training run"
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			said = fmt.Sprintf("of operations by themselves: a training run was not possible: %v", err)
		}
		r.out.Device.Sources["products."+name], r.out.Device.Sources["attention."+name] = said, said
		if dtype == r.operands() {
			r.out.Device.Sources["ops"] = said
		}
	}
	return errors.Join(r.messages(ctx), r.restart(ctx))
}

// correct corrects the rates of operations in dtype. It makes a training run of its own for each
// dtype, with every operation timed.
func (r *calibration) correct(ctx context.Context, dtype device.DType) (err error) {
	t := trainedFor(r.o.Device.Kind(), r.o.Small)
	o, err := t.options(dtype)
	if err != nil {
		return err
	}
	o.On, o.Profile = r.o.Device, true
	s, err := trials.StartSynthetic(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := s.Run(1); err != nil { // the first step touches memory for the first time
		return err
	}
	if _, err := s.Times(); err != nil {
		return err
	}
	rounds := map[string][]float64{}
	for range t.rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := s.Run(predict.PredictedSteps); err != nil {
			return err
		}
		times, err := s.Times()
		if err != nil {
			return err
		}
		for op, seconds := range byOp(times) {
			rounds[op] = append(rounds[op], seconds)
		}
	}
	took := map[string]float64{}
	for op, seconds := range rounds {
		took[op] = measure.Sum(seconds).Median
	}
	return r.match(s.Plan, took, dtype)
}

// match corrects rates until the predicted time of each operation in the plan p equals its measured time in took, in
// seconds. dtype is the compute dtype of the run.
func (r *calibration) match(p *plan.Run, took map[string]float64, dtype device.DType) error {
	for range corrections {
		times, err := predict.PredictTimes(p, r.out)
		if err != nil {
			return fmt.Errorf("predict what was measured: %w", err)
		}
		for op, seconds := range byOp(times) {
			if took[op] > 0 && seconds > 0 && !math.IsInf(seconds, 0) {
				r.slower(op, dtype, took[op]/seconds)
			}
		}
	}
	return nil
}

// byOp returns the sum of the times of each operation, in seconds, by the operation's name.
func byOp(times []wrap.OpTime) map[string]float64 {
	out := map[string]float64{}
	for _, t := range times {
		out[t.Op] += t.Total.Seconds()
	}
	return out
}

// slower changes the rate of the operation op in dtype so that the predicted time gets times as long.
func (r *calibration) slower(op string, dtype device.DType, times float64) {
	d, name := &r.out.Device, dtype.String()
	switch op {
	case "MatMul":
		for i := range d.Products[name] {
			d.Products[name][i].Rate = rates.Round(d.Products[name][i].Rate / times)
		}
	case "Attention":
		for i := range d.Attention[name] {
			d.Attention[name][i].Forward = rates.Round(d.Attention[name][i].Forward / times)
		}
	case "AttentionBackward":
		for i := range d.Attention[name] {
			d.Attention[name][i].Backward = rates.Round(d.Attention[name][i].Backward / times)
		}
	default:
		if o, ok := d.Ops[op]; ok && dtype == r.operands() {
			d.Ops[op] = rates.Op{Fixed: rates.Round(o.Fixed * times), Rate: rates.Round(o.Rate / times), Cores: o.Cores}
		}
	}
}

// This file measures the time of a message between two actors in a run. Between idle actors a message is faster: in a
// run the receiver may have to wait for a core. The run trains a small model with minimal pipeline depths, so that each
// copy of a tile waits for messages about the slot of the previous tile. The result is the message time for which the
// predicted stalls equal the measured ones.

// handing is the shape of the run that measures message time. Its layers and tiles are so small that messages take a
// large part of a step.
var handing = trained{layers: 6, hidden: 96, ffn: 256, heads: 3, vocab: 400, rows: 4, length: 64, micro: 128}

const (
	handingSteps   = 12
	handingUntimed = 2     // steps left out at the start and at the end, while the pipeline fills and drains
	mostMessage    = 1000. // µs: the largest message time that is accepted
)

// messages measures the message time, after all other rates.
func (r *calibration) messages(ctx context.Context) error {
	t := handing
	if r.o.Small {
		t.layers, t.rows = 2, 1
	}
	o, err := t.options(r.operands())
	if err != nil {
		return err
	}
	o.NoClip, o.Depths, o.On = true, plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1}, r.o.Device
	p, reports, err := reportsOf(ctx, o, handingSteps)
	if reports == nil { // keep the default
		return err
	}
	var stalls []float64
	for _, report := range reports[handingUntimed : len(reports)-handingUntimed] {
		stalls = append(stalls, stalled(report).Seconds())
	}
	if r.out.Host.Message, err = messageFor(p, *r.out, measure.Sum(stalls).Median); err != nil {
		return err
	}
	r.out.Host.Sources["message_us"] = "of a short training run with the least depths"
	return nil
}

// stalled returns how long the compute stream was idle in the step of r, over all causes.
func stalled(r actors.StepReport) (sum time.Duration) {
	for _, d := range r.Stall {
		sum += d
	}
	return sum
}

// messageFor returns the message time in µs with which the compute stream is predicted to stall for the given seconds
// in a step of p on m.
func messageFor(p *plan.Run, m rates.Machine, seconds float64) (float64, error) {
	return fitting(p, &m, &m.Host.Message, mostMessage, stalled, seconds)
}

// fitting returns a value between 0 and most for the rate *field of m. With this value, a
// prediction agrees with a measurement. The parameter of takes the compared time, such as the
// stalls, from the predicted step of the plan p. The time must grow with *field. seconds is the
// measured time.
func fitting(p *plan.Run, m *rates.Machine, field *float64, most float64, of func(actors.StepReport) time.Duration, seconds float64) (float64, error) {
	least := 0.0
	for range 20 {
		*field = (least + most) / 2
		predicted, err := predict.Predict(p, m)
		if err != nil {
			return 0, fmt.Errorf("predict what was measured: %w", err)
		}
		if of(predicted.Report).Seconds() < seconds {
			least = *field
		} else {
			most = *field
		}
	}
	return rates.Round((least + most) / 2), nil
}

// This file measures the restart cost of a CPU: after an idle period, operations take up to twice as long until all
// cores work again. The measured run slows its copies down, so that it waits longer than it computes. Without waiting,
// the same work takes less compute time; the difference is the restart cost. Copies of a GPU cannot be slowed down, so
// GPUs have no measured restart cost.

// waiting is the shape of the run that measures the restart cost. Its launches take some milliseconds each.
var waiting = trained{layers: 4, hidden: 192, ffn: 512, heads: 3, vocab: 1000, rows: 4, length: 256, micro: 512}

const (
	waitingSteps   = 6
	waitingUntimed = 2   // steps left out at the start, while the pipeline fills
	standsStill    = 2   // copy time of a step, relative to the step without waiting
	mostRestart    = 5e4 // µs: the largest restart cost that is accepted
)

// restart measures rates.Device.Restart, the delay until all cores of a CPU work again after an idle time. It measures
// no GPU, because copies of a GPU cannot be slowed down. All other rates must be known before: restart predicts a run
// from them, and chooses the delay with which the predicted compute time is the measured one.
func (r *calibration) restart(ctx context.Context) error {
	if r.o.Device.Kind() != "cpu" {
		return nil
	}
	t := waiting
	if r.o.Small {
		t = handing
		t.layers, t.rows = 2, 1
	}
	o, err := t.options(device.F32)
	if err != nil {
		return err
	}
	p, err := trials.PlanSynthetic(o)
	if err != nil {
		return err
	}
	step, err := predict.Predict(p, r.out)
	if err != nil {
		return err
	}
	o.Throttle = settings.Throttle{Link: float64(max(step.Report.H2D, step.Report.D2H)) / (standsStill * step.Step().Seconds())}
	p, reports, err := reportsOf(ctx, o, waitingSteps)
	if reports == nil { // keep the default
		return err
	}
	var took []float64
	for _, report := range reports[waitingUntimed:] {
		took = append(took, computing(report).Seconds())
	}
	r.out.Device.Restart, err = restartFor(p, *o.Throttle.Machine(r.out), measure.Sum(took).Median)
	r.out.Device.Sources["restart_us"] = "of a short training run that stands still most of the time"
	return err
}

// restartFor returns the restart cost in µs with which the compute stream is predicted to work for the given seconds
// in a step of p on m.
func restartFor(p *plan.Run, m rates.Machine, seconds float64) (float64, error) {
	return fitting(p, &m, &m.Device.Restart, mostRestart, computing, seconds)
}

// computing returns how long the compute stream was busy in the step of r.
func computing(r actors.StepReport) time.Duration { return r.Compute - stalled(r) }
