package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SchedulePosition says at which steps the learning-rate schedule started. It is needed when a resumed run changes
// the schedule, the data or the optimizer's state. The zero value: the schedule started with the run.
type SchedulePosition struct {
	// Base is the number of steps done before the schedule, which includes its warm-up, started. A share of all steps
	// is then a share of the steps after Base.
	Base int
	// From is the step after which linear, cosine and the like restarted from the peak learning rate, without another
	// warm-up. 0: no restart.
	From int
	// Warmup is the number of warm-up steps after Base. It is used only if From is above 0.
	Warmup int
}

// Schedule returns the learning rate of step, counted from 1. It equals transformers' get_*_schedule_with_warmup
// after step−1 scheduler steps, so with warm-up the first step's rate is 0. MaxSteps must be known unless the rate is
// constant with warmup_steps. Differences to transformers: constant also warms up, linear ends at min_lr_ratio, and
// SchedulePosition.
//
// Source: transformers.optimization (get_scheduler), release 5.23. As there, the decay of wsd is a half cosine and
// its warm-up starts at min_lr_ratio.
func (c *Config) Schedule(step int) float64 {
	warm := c.warmup()
	s := step - 1 - c.SchedulePosition.Base
	if s < warm {
		return c.LearningRate * c.rise(s, warm)
	}
	return c.LearningRate * c.factor(s, warm)
}

// rise returns learning rate / peak learning rate after s steps of a warm-up that has warm steps.
func (c *Config) rise(s, warm int) float64 {
	rise := float64(s) / float64(warm)
	switch c.LRScheduler {
	case "wsd":
		return c.floor(rise)
	case cosineWarmup:
		if from, ok := asNumber(c.LRSchedulerKwargs["warmup_lr_rate"]); ok {
			return from + (1-from)*float64(s)/float64(max(1, warm-1))
		}
		return float64(s+1) / float64(warm)
	}
	return rise
}

// length returns the number of steps that the schedule covers: those after SchedulePosition.Base.
func (c *Config) length() int { return c.MaxSteps - c.SchedulePosition.Base }

// warmup returns the number of warm-up steps of the schedule, with SchedulePosition taken into account.
func (c *Config) warmup() int {
	if c.SchedulePosition.From > 0 {
		return c.SchedulePosition.Warmup
	}
	return c.askedWarmup()
}

// askedWarmup returns the number of warm-up steps from warmup_steps and warmup_ratio.
func (c *Config) askedWarmup() int {
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int(math.Ceil(float64(c.length()) * c.WarmupRatio))
}

// decay returns the number of wsd's decay steps.
func (c *Config) decay() int {
	if c.NumDecaySteps > 0 {
		return c.NumDecaySteps
	}
	return int(math.Ceil(float64(c.length()) * c.DecayRatio))
}

// floor maps x, a factor of the learning rate, linearly from [0, 1] to [lowest, 1]. A schedule that
// would end at 0 then ends at the lowest rate. lowest is lowest rate / peak rate.
func (c *Config) floor(x float64) float64 { return x*(1-c.lowest()) + c.lowest() }

// fallFrom returns after how many steps, counted from Base, the decay begins. That is the end of the warm-up (warm) or
// the restart. It serves schedules that decay until the run's end.
func (c *Config) fallFrom(warm int) int {
	return max(warm, c.SchedulePosition.From-c.SchedulePosition.Base)
}

// factor returns learning rate / peak learning rate after s steps of the schedule. s is beyond the warm-up, which has
// warm steps.
func (c *Config) factor(s, warm int) float64 {
	first := c.fallFrom(warm)
	steps := float64(max(1, c.length()-first))
	switch c.LRScheduler {
	case "linear":
		return c.floor(max(0, float64(c.length()-s)/steps))
	case "cosine":
		return c.cosine(float64(s-first) / steps)
	case cosineWarmup:
		return c.cosine(float64(s-first+1) / steps)
	case "cosine_with_restarts":
		return c.restarting(float64(s-first) / steps)
	case "polynomial":
		return c.polynomial(float64(s-first) / steps)
	case "inverse_sqrt":
		return c.inverseSqrt(s, warm)
	case "wsd":
		return c.stableThenDecay(s)
	}
	return 1
}

// cosine returns rate / peak rate of a cosine with num_cycles waves that ends at the lowest rate. progress is the part
// of the decay that is over: 0 at its start, 1 at its end.
func (c *Config) cosine(progress float64) float64 {
	waves := 2 * c.schedulerArg("num_cycles", 0.5)
	return max(0, c.floor(0.5*(1+math.Cos(math.Pi*waves*progress))))
}

// stableThenDecay returns rate / peak rate of the schedule wsd at step s after the warm-up: 1 until the last decay()
// steps, then a fall.
func (c *Config) stableThenDecay(s int) float64 {
	n := c.decay()
	start := c.length() - n
	switch {
	case s < start:
		return 1
	case s < start+n:
		progress := float64(s-start) / float64(max(1, n))
		return max(0, c.floor(0.5*(1+math.Cos(math.Pi*progress))))
	}
	return c.lowest()
}

// restarting returns rate / peak rate of cosine_with_restarts: num_cycles half cosines, each from 1 to 0. progress is
// the part of the decay that is over, from 0 to 1.
func (c *Config) restarting(progress float64) float64 {
	if progress >= 1 {
		return 0
	}
	return max(0, 0.5*(1+math.Cos(math.Pi*math.Mod(c.schedulerArg("num_cycles", 1)*progress, 1))))
}

// polynomial returns rate / peak rate of the schedule polynomial. It falls to lr_end / peak rate with a power of 1 −
// progress, where progress is the part of the decay that is over.
func (c *Config) polynomial(progress float64) float64 {
	end := c.schedulerArg("lr_end", defaultLREnd)
	if progress > 1 {
		return end / c.LearningRate
	}
	return ((c.LearningRate-end)*math.Pow(1-progress, c.schedulerArg("power", 1)) + end) / c.LearningRate
}

// inverseSqrt returns rate / peak rate after s steps: 1/√(steps/timescale). timescale defaults to warm, the steps of
// the warm-up, or to 10000 without warm-up.
func (c *Config) inverseSqrt(s, warm int) float64 {
	scale := float64(warm)
	if warm == 0 {
		scale = 10_000
	}
	scale = c.schedulerArg("timescale", scale)
	return 1 / math.Sqrt((float64(s)+scale-float64(warm))/scale)
}

const kwargsKey = "lr_scheduler_kwargs"

// schedulers lists the values of lr_scheduler_type.
var schedulers = []string{"constant", "linear", "cosine", cosineWarmup, "cosine_with_restarts", "polynomial", "inverse_sqrt", "wsd"}

// cosineWarmup names a cosine schedule that is one step ahead of the schedule cosine: the last warm-up step already
// has the peak learning rate, and the first step's rate may be above 0.
const cosineWarmup = "cosine_warmup_with_min_lr"

// defaultLREnd is the default final learning rate of polynomial.
const defaultLREnd = 1e-7

// schedulerArg describes one numeric key of lr_scheduler_kwargs.
type schedulerArg struct {
	name   string
	usual  float64 // default; 0: depends on the schedule
	limit  limit
	lowest bool // the key is another name for min_lr_ratio
	whole  bool
}

// schedulerArgs lists the numbers of lr_scheduler_kwargs that each schedule takes. Source: transformers.optimization.
var schedulerArgs = map[string][]schedulerArg{
	"cosine":               cosineArgs,
	cosineWarmup:           append(slices.Clone(cosineArgs), schedulerArg{name: "warmup_lr_rate", limit: between(0, 1, "")}),
	"cosine_with_restarts": {{name: "num_cycles", usual: 1, limit: atLeast(1, ""), whole: true}},
	"polynomial":           {{name: "power", usual: 1, limit: atLeast(0, "")}, {name: "lr_end", usual: defaultLREnd, limit: atLeast(0, "")}},
	"inverse_sqrt":         {{name: "timescale", limit: atLeast(1, ""), whole: true}},
}

// cosineArgs lists the numbers of schedules that fall along a cosine to a lowest rate.
var cosineArgs = []schedulerArg{{name: "num_cycles", usual: 0.5, limit: positive},
	{name: "min_lr", limit: atLeast(0, ""), lowest: true}, {name: "min_lr_rate", limit: between(0, 1, ""), lowest: true}}

// schedulerArg returns a number of lr_scheduler_kwargs, or usual if it is not given.
func (c *Config) schedulerArg(name string, usual float64) float64 {
	if x, ok := asNumber(c.LRSchedulerKwargs[name]); ok {
		return x
	}
	return usual
}

// asNumber returns x as a float64. The bool is false if x is no number.
func asNumber(x any) (float64, bool) {
	switch x := x.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// lowest returns lowest learning rate / peak learning rate, taken from min_lr_ratio or from lr_scheduler_kwargs.
func (c *Config) lowest() float64 {
	if c.LRScheduler != "cosine" && c.LRScheduler != cosineWarmup {
		return c.MinLRRatio
	}
	if end, ok := asNumber(c.LRSchedulerKwargs["min_lr"]); ok && c.LearningRate > 0 {
		return end / c.LearningRate
	}
	return c.schedulerArg("min_lr_rate", c.MinLRRatio)
}

// checkScheduler rejects entries of lr_scheduler_kwargs that the schedule does not take or that contradict other
// keys.
func (c *Config) checkScheduler(fail func(key, format string, args ...any)) {
	takes := schedulerArgs[c.LRScheduler]
	for _, name := range slices.Sorted(maps.Keys(c.LRSchedulerKwargs)) {
		key, v := kwargsKey+"."+name, c.LRSchedulerKwargs[name]
		i := slices.IndexFunc(takes, func(a schedulerArg) bool { return a.name == name })
		switch {
		case v == nil: // left empty, as Transformers has it
		case i < 0:
			fail(key, "%s is not a setting of lr_scheduler_type %s, which takes %s: remove it", key, c.LRScheduler, c.schedulerTakes())
		default:
			if want := takes[i].wants(v); want != "" {
				fail(key, "%s must be %s, not %s", key, want, flow(v))
			}
		}
	}
	lows := slices.DeleteFunc([]string{"min_lr", "min_lr_rate"}, func(name string) bool { return c.LRSchedulerKwargs[name] == nil })
	if c.MinLRRatio > 0 {
		lows = append(lows, "min_lr_ratio")
	}
	if slices.Contains([]string{"cosine", cosineWarmup}, c.LRScheduler) && len(lows) > 1 {
		fail(kwargsKey, "%s and %s both set the final learning rate: give one of them", lows[0], lows[1])
	}
	if end := c.schedulerArg("lr_end", defaultLREnd); c.LRScheduler == "polynomial" && c.LearningRate <= end {
		fail("learning_rate", "learning_rate is %v, but polynomial falls from it to lr_end, which is %v: raise learning_rate, or set %s: {lr_end: 0}", c.LearningRate, end, kwargsKey)
	}
}

// wants describes the numbers that the argument a accepts, such as "at least 0", if a does not accept v. It returns ""
// if v is valid.
func (a schedulerArg) wants(v any) string {
	x, isNumber := asNumber(v)
	switch l := a.limit; {
	case !isNumber:
		return "a number"
	case a.whole && x != math.Trunc(x):
		return "a whole number"
	case l.open && x <= l.min:
		return fmt.Sprintf("more than %v", l.min)
	case x < l.min:
		return fmt.Sprintf("at least %v", l.min)
	case x > l.max:
		return fmt.Sprintf("at most %v", l.max)
	}
	return ""
}

// schedulerTakes lists the names of the numbers that lr_scheduler_kwargs may have for the chosen schedule, as text for
// an error.
func (c *Config) schedulerTakes() string {
	var names []string
	for _, a := range schedulerArgs[c.LRScheduler] {
		names = append(names, a.name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// shape holds everything that decides the learning rate of every step. Two configs with equal shapes have the same
// schedule.
type shape struct {
	kind             string
	rate, min        float64
	warm, decay, end int
	args             string
}

func (c *Config) shape() shape {
	s := shape{kind: c.LRScheduler, rate: c.LearningRate, min: c.lowest(), warm: c.askedWarmup(), end: c.MaxSteps}
	for _, a := range schedulerArgs[c.LRScheduler] {
		if a.lowest { // min holds it
			continue
		}
		s.args += fmt.Sprintf("%s %v;", a.name, c.schedulerArg(a.name, a.usual))
	}
	switch c.LRScheduler {
	case "constant", "cosine_with_restarts", "polynomial", "inverse_sqrt":
		s.min = 0
	case "wsd":
		s.decay = c.decay()
	}
	return s
}

// Relay fits c's schedule to a run that resumes after the given step of a run with the config saved, whose
// SchedulePosition is set. It returns a message about the new learning rate, or "" if the schedule is unchanged.
// constant, wsd and inverse_sqrt continue as if they had been set from the start. The other schedules fall again from
// the peak learning rate, from step to the end. A finished warm-up is not repeated. An unfinished warm-up keeps its
// end, unless c changed the warm-up's keys.
func (c *Config) Relay(saved *Config, step int) (meaning string) {
	c.SchedulePosition = saved.SchedulePosition
	if c.shape() == saved.shape() {
		return ""
	}
	warm := saved.warmup()
	given := c.WarmupSteps != saved.WarmupSteps || c.WarmupRatio != saved.WarmupRatio
	if given && step-c.SchedulePosition.Base < warm {
		warm = c.askedWarmup()
	}
	c.SchedulePosition.From, c.SchedulePosition.Warmup = step, warm
	return c.meaning(saved.Schedule(step), step)
}

// Restart starts c's schedule anew for the steps after step. It returns a message about the new schedule, or "" if no
// step is left.
func (c *Config) Restart(step int) (meaning string) {
	c.SchedulePosition = SchedulePosition{Base: step}
	if step >= c.MaxSteps {
		return ""
	}
	text := fmt.Sprintf("a new schedule begins: %s over steps %d to %d", c.LRScheduler, step+1, c.MaxSteps)
	if warm := c.warmup(); warm > 0 {
		text += fmt.Sprintf(" with warm-up until step %d", min(step+warm, c.MaxSteps))
	}
	return fmt.Sprintf("%s, from %s to %s", text, rate(c.Schedule(step+1)), rate(c.Schedule(c.MaxSteps)))
}

// meaning describes for the user how the learning rate changes after step. `was` is the learning rate that the old
// schedule had at step. It returns "" if no step is left.
func (c *Config) meaning(was float64, step int) string {
	if step >= c.MaxSteps {
		return ""
	}
	text := fmt.Sprintf("the learning rate was %s at step %d and is %s at step %d", rate(was), step, rate(c.Schedule(step+1)), step+1)
	warmEnd := c.SchedulePosition.Base + c.SchedulePosition.Warmup
	if step < warmEnd {
		text += fmt.Sprintf(", warm-up goes on until step %d", min(warmEnd, c.MaxSteps))
	}
	end := fmt.Sprintf("ends at %s at step %d", rate(c.Schedule(c.MaxSteps)), c.MaxSteps)
	switch c.LRScheduler {
	case "linear", "cosine", cosineWarmup, "cosine_with_restarts", "polynomial":
		if step >= warmEnd {
			text += fmt.Sprintf("; %s is laid anew over the steps from %d on, without a second warm-up,", c.LRScheduler, step+1)
		} else {
			text += fmt.Sprintf("; %s is laid anew over the steps after it", c.LRScheduler)
		}
		return text + " and " + end
	case "wsd":
		return fmt.Sprintf("%s; wsd goes on as if it had been so from the start, decays after step %d and %s", text, c.SchedulePosition.Base+c.length()-c.decay(), end)
	case "inverse_sqrt":
		return fmt.Sprintf("%s; inverse_sqrt goes on as if it had been so from the start and %s", text, end)
	}
	return text + "; it stays"
}

// rate formats a learning rate for messages.
func rate(x float64) string { return fmt.Sprintf("%.4g", x) }

// perEpoch turns evals_per_epoch into eval_steps and saves_per_epoch into save_steps, both as shares of all steps.
// Then it sets the keys per epoch to 0. If the file gives one key of a pair and a flag the other, the flag wins.
func (c *Config) perEpoch(fail func(key, format string, args ...any)) {
	for _, k := range []struct {
		n                    *int
		key, steps, strategy string
		interval             *Interval
		when                 *string
	}{{&c.EvalsPerEpoch, "evals_per_epoch", "eval_steps", "eval_strategy", &c.EvalSteps, &c.EvalStrategy},
		{&c.SavesPerEpoch, "saves_per_epoch", "save_steps", "save_strategy", &c.SaveSteps, &c.SaveStrategy}} {
		n := *k.n
		*k.n = 0
		switch isFlag := func(key string) bool { return c.sources[key].pos.Flag != "" }; {
		case n == 0, isFlag(k.steps) && !isFlag(k.key):
			continue
		case c.Given(k.steps) && isFlag(k.steps) == isFlag(k.key):
			fail(k.key, "%s and %s are both given: give one of them", k.key, k.steps)
		case c.Given(k.strategy) && *k.when != "steps":
			fail(k.key, "%s needs %s: steps, but %[2]s is %[3]s: remove one of them", k.key, k.strategy, *k.when)
		case c.MaxSteps > 0:
			fail(k.key, "%s counts per epoch of num_train_epochs, but max_steps is given: give %s instead", k.key, k.steps)
		}
		*k.when = "steps"
		if *k.interval = 0; float64(n)*c.NumTrainEpochs > 1 { // at most once: at the end
			*k.interval = Interval(1 / (float64(n) * c.NumTrainEpochs))
		}
		c.sources[k.steps] = c.sources[k.key]
	}
}

// Interval is how often something happens. From 1 on it is a number of steps, below 1 a share of all steps. 0 means
// never, unless the key says otherwise.
type Interval float64

// Of returns the interval in steps for a run of maxSteps. A share is rounded up. Source:
// transformers.TrainerState.compute_steps.
func (i Interval) Of(maxSteps int) int {
	if i > 0 && i < 1 {
		return max(1, int(math.Ceil(float64(maxSteps)*float64(i))))
	}
	return int(i)
}

// text formats i for a config file: 500 or 0.1.
func (i Interval) text() string {
	if i == Interval(math.Trunc(float64(i))) {
		return strconv.FormatInt(int64(i), 10)
	}
	return number(float64(i))
}

// interval parses a whole number or a share into *p.
func (e *setter) interval(p *Interval) error {
	if e.v.kind == null && e.limit.min == 0 && !e.limit.open {
		*p = 0
		return nil
	}
	const want = "a whole number, or a share of all steps below 1"
	if e.v.kind != plain || !floatText.MatchString(e.v.text) {
		return e.fail(want)
	}
	x, err := strconv.ParseFloat(e.v.text, 64)
	if err != nil || x >= 1<<53 {
		return e.fail("a number below 2^53")
	}
	if err := e.inRange(x); err != nil {
		return err
	}
	if x > 1 && x != math.Trunc(x) {
		return e.fail(want)
	}
	*p = Interval(x)
	return nil
}
