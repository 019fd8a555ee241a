package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"mt/device"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/settings"
	"mt/internal/run/trials"
	"mt/plan"
	"mt/plan/rates"
)

// Options configures Tune.
type Options struct {
	Config  *config.Config
	Stderr  io.Writer      // for notes
	Machine *rates.Machine // this machine's rates; nil: measured first
	Host    string         // name of the processor, for display
	Dir     string         // folder for measuring the disk
	NewBits bool           // may change the order of sums
	// Predictions is the largest number of predicted plans, Candidates the largest number of plans that run, Pairs
	// the number of pairs for the comparison with the start. Steps is the number of measured steps of a first short
	// run; 0: about a second's worth.
	Predictions, Candidates, Pairs, Steps int
	Seed                                  uint64
	// Progress, unless nil, is called with the current work and the remaining time; 0: unknown.
	Progress func(what string, done, of int, left time.Duration)
}

// searchTime is how long a search for fast plans may take. The descent from the first starting point always finishes.
const searchTime = time.Minute

// tuning is a tuning in progress.
type tuning struct {
	Options
	trials  *trials.Trials
	machine *rates.Machine
	space   space
	plan    *plan.Run // plan of the configuration as it is
	start   *contestant
	all     []*contestant // all contestants but the start
	steps   int
	runs    budget
	out     *Result
}

// Tune tunes o.Config without changing it. If ctx is cancelled, Tune returns the results so far with the cause. If o
// cannot run at all, it returns only an error.
func Tune(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Predictions < 1 || o.Candidates < 1 || o.Pairs < LeastPairs || o.Steps < 0 {
		return nil, config.Usagef("tune: --predictions and --candidates are at least 1, --pairs at least %d and --steps at least 0 (0: as many as take a second)", LeastPairs)
	}
	t := &tuning{Options: o}
	if t.trials, err = trials.OpenTrials(o.Config, settings.Options{Stderr: o.Stderr}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.trials.Close()) }()
	asked := t.trials.Asked()
	if err := t.trials.Check(asked); err != nil {
		return nil, err
	}
	t.trials.WriteNotes(o.Stderr)
	if t.plan, err = t.trials.Plan(asked); err != nil {
		return nil, err
	}
	if err := t.findRates(ctx); err != nil {
		return nil, err
	}
	t.out = newResult(t)
	if err := t.propose(ctx, asked); err != nil {
		return nil, err
	}
	err = t.decide(ctx)
	t.out.rank(t)
	if err == nil {
		err = t.curves(ctx)
	}
	return t.out, err
}

// findRates finds the machine's rates: those given, or measured ones.
func (t *tuning) findRates(ctx context.Context) (err error) {
	m := t.Machine
	if m == nil {
		if machine.Emulated() && !t.trials.OnCPU() {
			return config.Usagef("tune: in this build device: cuda is an emulator, whose rates mean nothing: give some with --rates, or --device cpu")
		}
		if m, err = t.calibrate(ctx); err != nil {
			return err
		}
	}
	if m, err = t.trials.Machine(m); err != nil {
		return err
	}
	dtype := t.plan.Spec.Act.String()
	if len(m.Device.Products[dtype]) == 0 || len(m.Device.Attention[dtype]) == 0 {
		return config.Usagef("the rates of %s have none for %s, in which this run computes; measure this machine with mt doctor --save FILE", m.Name, dtype)
	}
	t.machine = m
	return nil
}

// calibrate measures the machine. If other programs disturbed the measurement so that figures are impossible, it
// measures once more.
func (t *tuning) calibrate(ctx context.Context) (m *rates.Machine, err error) {
	measure := func(dev device.Device) (err error) {
		m, err = doctor.Calibrate(ctx, doctor.CalibrateOptions{Device: dev, Host: t.Host, Dir: t.Dir, Progress: func(what string, part, parts int) {
			t.progress("measuring "+what, part-1, parts, 0)
		}})
		return err
	}
	if err = t.trials.Calibrated(measure); err == nil || ctx.Err() != nil {
		return m, err
	}
	fmt.Fprintf(t.Stderr, "note: %v; measuring once more\n", err)
	if err = t.trials.Calibrated(measure); err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; mt doctor --save FILE at a quieter time, and --rates FILE", err)
	}
	return m, err
}

func (t *tuning) progress(what string, done, of int, left time.Duration) {
	if t.Progress != nil {
		t.Progress(what, done, of, left)
	}
}

// propose searches for fast plans in virtual time and fills t.all with the contestants, the plans that then run. asked
// has the knobs of the start.
func (t *tuning) propose(ctx context.Context, asked trials.Knobs) error {
	t.space.dims = spaceOf(t.plan, t.NewBits)
	t.space.predict, t.space.fits = predictor(t.trials, t.machine, t.plan, t.NewBits)
	start, err := t.space.predict(asked)
	if err != nil {
		return err
	}
	if start == nil {
		return fmt.Errorf("tune: the start has no plan any more: less memory is free than a moment ago")
	}
	t.start = &contestant{Point: start}
	s := search{space: t.space, ctx: ctx, most: t.Predictions, until: time.Now().Add(searchTime), progress: func(done, of int) {
		t.progress("predicting", done, of, 0)
	}}
	found, err := s.run(start, t.Seed)
	if err != nil {
		return err
	}
	t.out.Predictions = len(found)
	for _, p := range propose(found, start, t.Candidates) {
		t.all = append(t.all, &contestant{Point: p})
	}
	for _, n := range t.otherThreads(asked.Threads) {
		p := *found[0]
		p.Knobs.Threads = n
		t.all = append(t.all, &contestant{Point: &p})
	}
	return nil
}

// otherThreads returns the numbers of threads to try besides asked. On the CPU it tries one per core, one core less,
// and half of the cores: the rest of the pipeline needs cores too.
func (t *tuning) otherThreads(asked int) (out []int) {
	if !t.trials.OnCPU() {
		return nil
	}
	cores := runtime.GOMAXPROCS(0)
	if asked == 0 {
		asked = cores
	}
	taken := map[int]bool{asked: true, 0: true}
	for _, n := range []int{cores, cores - 1, cores / 2} {
		if !taken[n] {
			out, taken[n] = append(out, n), true
		}
	}
	return out
}

// decide lets the contestants run against each other, and then the winner against the start.
func (t *tuning) decide(ctx context.Context) error {
	if len(t.all) == 0 {
		return nil
	}
	if err := t.firstRun(ctx); err != nil {
		return err
	}
	last := rounds(len(t.all))
	paired := t.steps << max(0, last-1)
	t.runs = budget{began: time.Now(), steps: 2 * t.Pairs * (paired + idleSteps)}
	for n, round := len(t.all), 0; n > 1; n, round = (n+1)/2, round+1 {
		t.runs.steps += turns * n * (t.steps<<round + idleSteps)
	}
	t.runs.of = runsOf(len(t.all)) + 2*t.Pairs
	winner, err := halve(ctx, t.all, t.steps, t.run)
	if err != nil {
		return err
	}
	t.out.winner = winner
	faster, err := pair(ctx, t.start, winner, t.Pairs, paired, t.run, func() {
		t.runs.of += 2 * t.Pairs
		t.runs.steps += 2 * t.Pairs * (paired + idleSteps)
	})
	if err != nil {
		return err
	}
	t.out.Faster = &faster
	return nil
}

// idleSteps is the number of steps of a run that are not measured. Two at the start fill the pipeline. One at the end
// overlaps with the last measured step, as the next step does in a long run.
const idleSteps = 3

// budget counts the short runs and their steps, those planned and those done, to estimate the remaining time.
type budget struct {
	began     time.Time
	steps, of int
	done, ran int // steps and runs so far
}

func (b *budget) left() time.Duration {
	if b.done == 0 {
		return 0
	}
	return time.Duration(float64(time.Since(b.began)) / float64(b.done) * float64(b.steps-b.done))
}

// firstRun runs the start once, outside of any comparison. It allocates host memory, warms everything up and shows how
// many steps take a second.
func (t *tuning) firstRun(ctx context.Context) error {
	t.progress("the first run", 0, 1, 0)
	s, err := t.measure(ctx, t.start.Point, 2)
	if err != nil {
		return err
	}
	const most = 16
	if t.steps = t.Steps; t.steps == 0 {
		t.steps = max(2, min(most, int(1/s.step)))
	}
	return nil
}

// run runs the plan p for some steps, with progress, and returns the measurements. It is the runner of the
// comparisons.
func (t *tuning) run(ctx context.Context, p *Point, steps int) (sample, error) {
	t.progress("short runs", t.runs.ran, t.runs.of, t.runs.left())
	s, err := t.measure(ctx, p, steps)
	t.runs.done, t.runs.ran = t.runs.done+steps+idleSteps, t.runs.ran+1
	return s, err
}

// measure runs the plan p for idleSteps more steps than given and returns the measurements of the steps in the middle.
func (t *tuning) measure(ctx context.Context, p *Point, steps int) (s sample, err error) {
	reports, err := t.trials.Run(ctx, p.run, p.Knobs.Threads, steps+idleSteps)
	if err != nil {
		return s, err
	}
	for _, r := range reports[idleSteps-1 : idleSteps-1+steps] {
		s.step += r.Elapsed.Seconds() / float64(steps)
		s.compute += r.Compute.Seconds()
		for cause, d := range r.Stall {
			s.stall[cause] += d.Seconds()
		}
	}
	return s, nil
}
