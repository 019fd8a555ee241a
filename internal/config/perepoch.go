package config

// perEpoch makes eval_steps and save_steps of evals_per_epoch and saves_per_epoch, as a share of all
// steps, and sets these to 0. Of a key in the file and one that a flag gives, the flag counts.
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
		switch isFlag := func(key string) bool { return c.origin[key].pos.Flag != "" }; {
		case n == 0, isFlag(k.steps) && !isFlag(k.key):
			continue
		case c.Given(k.steps) && isFlag(k.steps) == isFlag(k.key):
			fail(k.key, "%s is %d and %s is given too: give one of them", k.key, n, k.steps)
		case c.Given(k.strategy) && *k.when != "steps":
			fail(k.key, "%s is %d and %s is %s: leave one of them out", k.key, n, k.strategy, *k.when)
		case c.MaxSteps > 0:
			fail(k.key, "%s is %d, which counts in num_train_epochs, and max_steps is given: give %s", k.key, n, k.steps)
		}
		*k.when = "steps"
		if *k.interval = 0; float64(n)*c.NumTrainEpochs > 1 { // once or less: at the end
			*k.interval = Interval(1 / (float64(n) * c.NumTrainEpochs))
		}
		c.origin[k.steps] = c.origin[k.key]
	}
}
