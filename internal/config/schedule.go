package config

import "math"

// Schedule is the learning rate of the 1-based step: what transformers'
// get_*_schedule_with_warmup gives after step-1 scheduler steps, so with
// warm-up the first step's rate is 0. MaxSteps must be known, except with a
// constant rate and warmup_steps. Differences: a constant rate warms up too
// where warm-up is given, and a linear one ends at min_lr_ratio.
//
// Source: transformers.optimization (get_scheduler); the decay of wsd is a
// half cosine, and its warm-up starts at min_lr_ratio, as there.
func (c *Config) Schedule(step int) float64 {
	warm := c.warmup()
	s := step - 1
	if s < warm {
		rise := float64(s) / float64(warm)
		if c.LRScheduler == "wsd" {
			rise = c.floor(rise)
		}
		return c.LearningRate * rise
	}
	return c.LearningRate * c.factor(s, warm)
}

// warmup is the number of warm-up steps.
func (c *Config) warmup() int {
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int(math.Ceil(float64(c.MaxSteps) * c.WarmupRatio))
}

// decay is the number of steps in which wsd falls.
func (c *Config) decay() int {
	if c.NumDecaySteps > 0 {
		return c.NumDecaySteps
	}
	return int(math.Ceil(float64(c.MaxSteps) * c.DecayRatio))
}

// floor raises a factor from [0, 1] to [min_lr_ratio, 1].
func (c *Config) floor(x float64) float64 { return x*(1-c.MinLRRatio) + c.MinLRRatio }

// factor is the rate over learning_rate s steps into the run, after warm-up.
func (c *Config) factor(s, warm int) float64 {
	progress := float64(s-warm) / float64(max(1, c.MaxSteps-warm))
	switch c.LRScheduler {
	case "linear":
		left := float64(c.MaxSteps-s) / float64(max(1, c.MaxSteps-warm))
		return c.floor(max(0, left))
	case "cosine":
		return max(0, c.floor(0.5*(1+math.Cos(math.Pi*progress))))
	case "wsd":
		return c.stableThenDecay(s)
	}
	return 1
}

// stableThenDecay is wsd after warm-up: 1 until the last decay() steps.
func (c *Config) stableThenDecay(s int) float64 {
	n := c.decay()
	start := c.MaxSteps - n
	switch {
	case s < start:
		return 1
	case s < start+n:
		progress := float64(s-start) / float64(max(1, n))
		return max(0, c.floor(0.5*(1+math.Cos(math.Pi*progress))))
	}
	return c.MinLRRatio
}
