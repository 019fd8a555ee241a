package config

import "fmt"

// shape is what decides the learning rate of every step, and nothing else: two
// configs of one shape have one schedule, whatever their keys say.
type shape struct {
	kind             string
	rate, min        float64
	warm, decay, end int
	args             string
}

func (c *Config) shape() shape {
	s := shape{kind: c.LRScheduler, rate: c.LearningRate, min: c.lowest(), warm: c.askedWarmup(), end: c.MaxSteps}
	for _, a := range schedulerArgs[c.LRScheduler] {
		if a.lowest { // it is in min
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

// Relay lays out c's schedule for a run that goes on after step steps of a run with
// saved, whose Laid is set. meaning says what becomes of the learning rate; it is empty
// where the schedule is the same. Constant, wsd and inverse_sqrt become what they would have
// been from the start. The others fall anew, from learning_rate after that step to the end. A warm-up that is over does not come again. One that is not over goes on to
// the end it had, or to the one that other keys of warm-up give it.
func (c *Config) Relay(saved *Config, step int) (meaning string) {
	c.Laid = saved.Laid
	if c.shape() == saved.shape() {
		return ""
	}
	warm := saved.warmup()
	given := c.WarmupSteps != saved.WarmupSteps || c.WarmupRatio != saved.WarmupRatio
	if given && step-c.Laid.Base < warm {
		warm = c.askedWarmup()
	}
	c.Laid.From, c.Laid.Warmup = step, warm
	return c.meaning(saved.Schedule(step), step)
}

// Restart lays out c's schedule from its start over the steps after step, and says so
// in meaning, which is empty where no step is left.
func (c *Config) Restart(step int) (meaning string) {
	c.Laid = Laid{Base: step}
	if step >= c.MaxSteps {
		return ""
	}
	text := fmt.Sprintf("a new schedule begins: %s over steps %d to %d", c.LRScheduler, step+1, c.MaxSteps)
	if warm := c.warmup(); warm > 0 {
		text += fmt.Sprintf(" with warm-up until step %d", min(step+warm, c.MaxSteps))
	}
	return fmt.Sprintf("%s, from %s to %s", text, rate(c.Schedule(step+1)), rate(c.Schedule(c.MaxSteps)))
}

// meaning says in words what becomes of the learning rate where a schedule is laid out
// anew after step; was is the rate of that step.
func (c *Config) meaning(was float64, step int) string {
	if step >= c.MaxSteps {
		return ""
	}
	text := fmt.Sprintf("the learning rate was %s at step %d and is %s at step %d", rate(was), step, rate(c.Schedule(step+1)), step+1)
	warmEnd := c.Laid.Base + c.Laid.Warmup
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
		return fmt.Sprintf("%s; wsd goes on as if it had been so from the start, decays after step %d and %s", text, c.Laid.Base+c.length()-c.decay(), end)
	case "inverse_sqrt":
		return fmt.Sprintf("%s; inverse_sqrt goes on as if it had been so from the start and %s", text, end)
	}
	return text + "; it stays"
}

// rate is a learning rate for people.
func rate(x float64) string { return fmt.Sprintf("%.4g", x) }
