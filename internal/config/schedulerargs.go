package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

const kwargsKey = "lr_scheduler_kwargs"

// schedulers are the values of lr_scheduler_type.
var schedulers = []string{"constant", "linear", "cosine", cosineWarmup, "cosine_with_restarts", "polynomial", "inverse_sqrt", "wsd"}

// cosineWarmup is cosine one step ahead, with a warm-up that ends at the peak learning rate and may begin above 0.
const cosineWarmup = "cosine_warmup_with_min_lr"

// defaultLREnd is where polynomial ends.
const defaultLREnd = 1e-7

// schedulerArg is a number of a schedule.
type schedulerArg struct {
	name   string
	usual  float64 // what it is where it is not given; 0: it depends
	limit  limit
	lowest bool // it is another way to say min_lr_ratio
	whole  bool
}

// schedulerArgs are the numbers of lr_scheduler_kwargs that each schedule takes. Source:
// transformers.optimization.
var schedulerArgs = map[string][]schedulerArg{
	"cosine":               cosineArgs,
	cosineWarmup:           append(slices.Clone(cosineArgs), schedulerArg{name: "warmup_lr_rate", limit: between(0, 1, "")}),
	"cosine_with_restarts": {{name: "num_cycles", usual: 1, limit: atLeast(1, ""), whole: true}},
	"polynomial":           {{name: "power", usual: 1, limit: atLeast(0, "")}, {name: "lr_end", usual: defaultLREnd, limit: atLeast(0, "")}},
	"inverse_sqrt":         {{name: "timescale", limit: atLeast(1, ""), whole: true}},
}

// cosineArgs are those of the schedules that fall by a cosine to a lowest rate.
var cosineArgs = []schedulerArg{{name: "num_cycles", usual: 0.5, limit: positive},
	{name: "min_lr", limit: atLeast(0, ""), lowest: true}, {name: "min_lr_rate", limit: between(0, 1, ""), lowest: true}}

// schedulerArg is a number of lr_scheduler_kwargs; usual where it is not given.
func (c *Config) schedulerArg(name string, usual float64) float64 {
	if x, ok := asNumber(c.LRSchedulerKwargs[name]); ok {
		return x
	}
	return usual
}

// asNumber is x as a number, if it is one.
func asNumber(x any) (float64, bool) {
	switch x := x.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// lowest is the lowest rate over learning_rate: min_lr_ratio, or what lr_scheduler_kwargs say.
func (c *Config) lowest() float64 {
	if c.LRScheduler != "cosine" && c.LRScheduler != cosineWarmup {
		return c.MinLRRatio
	}
	if end, ok := asNumber(c.LRSchedulerKwargs["min_lr"]); ok && c.LearningRate > 0 {
		return end / c.LearningRate
	}
	return c.schedulerArg("min_lr_rate", c.MinLRRatio)
}

// checkScheduler refuses numbers in lr_scheduler_kwargs that the schedule does not take or
// that contradict others.
func (c *Config) checkScheduler(fail func(key, format string, args ...any)) {
	takes := schedulerArgs[c.LRScheduler]
	for _, name := range slices.Sorted(maps.Keys(c.LRSchedulerKwargs)) {
		key, v := kwargsKey+"."+name, c.LRSchedulerKwargs[name]
		i := slices.IndexFunc(takes, func(a schedulerArg) bool { return a.name == name })
		switch {
		case v == nil: // left empty, as Transformers has it
		case i < 0:
			fail(key, "%s: %v has no place with lr_scheduler_type %s, which takes %s: remove it", key, v, c.LRScheduler, c.schedulerTakes())
		default:
			if want := takes[i].wants(v); want != "" {
				fail(key, "%s: wants %s, is %v", key, want, v)
			}
		}
	}
	lows := slices.DeleteFunc([]string{"min_lr", "min_lr_rate"}, func(name string) bool { return c.LRSchedulerKwargs[name] == nil })
	if c.MinLRRatio > 0 {
		lows = append(lows, "min_lr_ratio")
	}
	if slices.Contains([]string{"cosine", cosineWarmup}, c.LRScheduler) && len(lows) > 1 {
		fail(kwargsKey, "%s and %s both say where the rate ends: give one of them", lows[0], lows[1])
	}
	if end := c.schedulerArg("lr_end", defaultLREnd); c.LRScheduler == "polynomial" && c.LearningRate <= end {
		fail("learning_rate", "learning_rate is %v, and polynomial falls from it to lr_end, which is %v: give a larger rate, or %s: {lr_end: 0}", c.LearningRate, end, kwargsKey)
	}
}

// wants says what a number must be that v is not; "" where v is fine.
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

// schedulerTakes lists the numbers that the schedule takes.
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
