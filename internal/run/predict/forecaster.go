package predict

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"mt/base/human"
	"mt/base/parallel"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/plan"
	"mt/plan/rates"
)

// forecaster predicts the plans of one forecast. Plans that are alike are predicted once.
type forecaster struct {
	ctx     context.Context
	machine *rates.Machine
	made    []made

	mu       sync.Mutex
	line     *report.Line
	done, of int       // predictions
	begun    time.Time // of the forecast
	shown    time.Time // when the line was last shown
	now      func() time.Time
}

// made is a prediction made earlier in the forecast.
type made struct {
	run       *plan.Run
	machine   *rates.Machine
	predicted *Predicted
}

// slowForecast is how long a forecast must take before its progress is shown.
const slowForecast = 2 * time.Second

// newForecaster returns a forecaster for machine m that shows its progress on o.Stderr.
func newForecaster(ctx context.Context, m *rates.Machine, o settings.Options) *forecaster {
	f := &forecaster{ctx: ctx, machine: m, line: &report.Line{Out: o.Stderr, Interactive: o.Interactive}, now: time.Now}
	f.begun = f.now()
	f.shown = f.begun
	return f
}

// expected returns about how many predictions a forecast for q takes. `what` is what a sweep varies.
func expected(q plan.Request, what string) int {
	n := 1 + len(batches(q)) + len(depths(q, recommendedFor...)) + len(sweep(what, q))
	if q.Devices > 1 {
		n += 3*bits.Len(uint(q.Devices)) + 2
	}
	if q.Ranks > 1 {
		n += 2 * (bits.Len(uint(q.Ranks)) + 2*mostSwept)
	}
	return n
}

// tell counts n more predictions as done. From time to time it shows how many are done, if the forecast is slow.
func (f *forecaster) tell(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done += n
	if f.ctx.Err() != nil {
		return // the last word is the error
	}
	now, every := f.now(), time.Second
	if !f.line.Interactive {
		every = 30 * time.Second
	}
	if now.Sub(f.begun) < slowForecast || now.Sub(f.shown) < every || f.done >= f.of {
		return
	}
	f.shown = now
	left := time.Duration(float64(now.Sub(f.begun)) / float64(f.done) * float64(f.of-f.done))
	f.line.Show(fmt.Sprintf("predicting: %d of %d plans  ETA %s", f.done, f.of, human.Duration(left)))
}

// attempt is a variant with its line of the table and its plan; nil: it has none.
type attempt struct {
	Swept
	run *plan.Run
	as  *attempt // an earlier one with the same plan; nil: none
	err error
}

// planned plans variant v. If it has no plan, the line says why in Problem.
func planned(v variant) (a attempt) {
	a.Swept = Swept{What: v.what, Rows: v.q.Rows, RowTokens: v.q.RowTokens}
	r, err := plan.Resolve(v.q)
	lack, depth := (*plan.NotFitting)(nil), (*plan.BadDepth)(nil)
	switch {
	case errors.As(err, &lack):
		a.Problem = fmt.Sprintf("needs %s of %s memory", human.Bytes(lack.Need), lack.Where)
	case errors.As(err, &depth):
		a.Problem = depth.Why
	case err != nil:
		a.err = err
	default:
		t := r.Table()
		a.run, a.Device, a.Host = r, t.Device, t.Host
	}
	return a
}

// tryAll plans all variants and predicts them on m, several at the same time, and returns the results in the order of
// variants. With enough > 0 it predicts a variant to the end only if the variant is fast: at least enough times as fast
// as the fastest variant, or as a plan with `best` tokens per second. Slower variants may have no prediction.
func (f *forecaster) tryAll(variants []variant, m *rates.Machine, enough, best float64) ([]Swept, error) {
	all := make([]attempt, len(variants))
	pool := parallel.New(0)
	defer pool.Close()
	pool.Run(len(variants), func(i int) {
		if all[i].err = f.ctx.Err(); all[i].err == nil {
			all[i] = planned(variants[i])
		}
	})
	x := &fastest{rate: best, enough: enough}
	distinct := f.distinct(all, m, x)
	f.tell(len(all) - len(distinct))
	pool.Run(len(distinct), func(i int) {
		f.attempt(distinct[i], m, x)
		f.tell(1)
	})
	out, errs := make([]Swept, len(all)), make([]error, len(all))
	for i, a := range all {
		out[i], errs[i] = a.Swept, a.err
		if a.as != nil {
			out[i].Predicted = a.as.Predicted
		}
	}
	for _, a := range distinct {
		if a.Predicted != nil {
			f.made = append(f.made, made{a.run, m, a.Predicted})
		}
	}
	return out, errors.Join(errs...)
}

// distinct returns the attempts to predict on m. An attempt is left out if its plan is known or stands earlier in
// `all`. The order is reversed, because the last batches of a table have the largest steps and are the fastest. distinct
// tells x the known rates.
func (f *forecaster) distinct(all []attempt, m *rates.Machine, x *fastest) (out []*attempt) {
next:
	for i := range all {
		a := &all[i]
		if a.run == nil {
			continue
		}
		for _, k := range f.made {
			if k.machine == m && k.run.Same(a.run) {
				a.Predicted = k.predicted
				x.add(k.predicted.TokensPerSecond)
				continue next
			}
		}
		for k := range all[:i] {
			if all[k].run != nil && all[k].as == nil && all[k].run.Same(a.run) {
				a.as = &all[k]
				continue next
			}
		}
		out = append(out, a)
	}
	slices.Reverse(out)
	return out
}

// fastest has the highest rate of the plans predicted so far, in tokens per second. Plans that do not reach enough
// times this rate do not count; enough 0: all count.
type fastest struct {
	mu           sync.Mutex
	rate, enough float64
}

// limit returns the seconds in which a step with this many tokens must end to count; 0: no limit.
func (x *fastest) limit(tokens int) float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.enough*x.rate == 0 {
		return 0
	}
	return float64(tokens)/(x.enough*x.rate)*(1+1e-6) + 1e-6
}

func (x *fastest) add(rate float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rate = max(x.rate, rate)
}

// surely is the part of the bound of plan.Time that a predicted step certainly takes. The bound is for a step that
// overlaps with no other.
const surely = 0.5

// attempt predicts a on m, unless it is too slow to count.
func (f *forecaster) attempt(a *attempt, m *rates.Machine, x *fastest) {
	if a.err = f.ctx.Err(); a.err != nil {
		return
	}
	limit := x.limit(a.Rows * a.RowTokens)
	if limit > 0 && x.enough < 1 { // the bound is too low to exclude plans nearly as fast
		if b, err := plan.Time(a.run, paces(a.run, m)); err == nil && surely*b.Step > limit {
			return
		}
	}
	p, err := Predicting{Batch: FullBatch(a.run), limit: limit}.Predict(f.ctx, a.run, m)
	if a.err = err; err == nil && p.Report.Step == countedStep {
		a.Predicted = describe(m, p)
		x.add(a.Predicted.TokensPerSecond)
	}
}
