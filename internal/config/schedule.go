package config

import "math"

// Laid says over which steps a schedule lies where a run went on with another schedule,
// other data or other moments than it began with. The zero value is the schedule of a
// run that changed none of them.
type Laid struct {
	// Base steps were done when a schedule began from its start, warm-up and all.
	// Shares of all steps are shares of the steps after them.
	Base int
	// From steps were done when linear and cosine began to fall anew, from
	// learning_rate and without a second warm-up; 0: they did not.
	From int
	// Warmup is the number of steps after Base that warm-up takes or took, where
	// From is above 0.
	Warmup int
}

// Schedule is the learning rate of the 1-based step: what transformers'
// get_*_schedule_with_warmup gives after step-1 scheduler steps, so with
// warm-up the first step's rate is 0. MaxSteps must be known, except with a
// constant rate and warmup_steps. Differences: a constant rate warms up too
// where warm-up is given, a linear one ends at min_lr_ratio, and Laid.
//
// Source: transformers.optimization (get_scheduler), of release 5.23; the decay of
// wsd is a half cosine, and its warm-up starts at min_lr_ratio, as there.
func (c *Config) Schedule(step int) float64 {
	warm := c.warmup()
	s := step - 1 - c.Laid.Base
	if s < warm {
		return c.LearningRate * c.rise(s, warm)
	}
	return c.LearningRate * c.factor(s, warm)
}

// rise is the rate over learning_rate s steps into a warm-up of warm steps.
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

// length is the number of steps that the schedule lies over.
func (c *Config) length() int { return c.MaxSteps - c.Laid.Base }

// warmup is the number of warm-up steps.
func (c *Config) warmup() int {
	if c.Laid.From > 0 {
		return c.Laid.Warmup
	}
	return c.askedWarmup()
}

// askedWarmup is what warmup_steps and warmup_ratio ask for.
func (c *Config) askedWarmup() int {
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int(math.Ceil(float64(c.length()) * c.WarmupRatio))
}

// decay is the number of steps in which wsd falls.
func (c *Config) decay() int {
	if c.NumDecaySteps > 0 {
		return c.NumDecaySteps
	}
	return int(math.Ceil(float64(c.length()) * c.DecayRatio))
}

// floor maps a factor from [0, 1] to [lowest, 1].
func (c *Config) floor(x float64) float64 { return x*(1-c.lowest()) + c.lowest() }

// fallFrom is the number of steps of the schedule after which those that end with the run
// begin to fall.
func (c *Config) fallFrom(warm int) int { return max(warm, c.Laid.From-c.Laid.Base) }

// factor is the rate over learning_rate s steps into the schedule, after
// warm-up.
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

// cosine falls by num_cycles waves to the lowest rate.
func (c *Config) cosine(progress float64) float64 {
	waves := 2 * c.schedulerArg("num_cycles", 0.5)
	return max(0, c.floor(0.5*(1+math.Cos(math.Pi*waves*progress))))
}

// stableThenDecay is wsd after warm-up: 1 until the last decay() steps.
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

// restarting is cosine_with_restarts at a share of its fall: num_cycles half cosines from 1
// to 0.
func (c *Config) restarting(progress float64) float64 {
	if progress >= 1 {
		return 0
	}
	return max(0, 0.5*(1+math.Cos(math.Pi*math.Mod(c.schedulerArg("num_cycles", 1)*progress, 1))))
}

// polynomial falls to lr_end by a power of the share that is left.
func (c *Config) polynomial(progress float64) float64 {
	end := c.schedulerArg("lr_end", defaultLREnd)
	if progress > 1 {
		return end / c.LearningRate
	}
	return ((c.LearningRate-end)*math.Pow(1-progress, c.schedulerArg("power", 1)) + end) / c.LearningRate
}

// inverseSqrt is one over the root of the steps, in units of timescale, which is the
// length of the warm-up where it is not given.
func (c *Config) inverseSqrt(s, warm int) float64 {
	scale := float64(warm)
	if warm == 0 {
		scale = 10_000
	}
	scale = c.schedulerArg("timescale", scale)
	return 1 / math.Sqrt((float64(s)+scale-float64(warm))/scale)
}
