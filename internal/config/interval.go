package config

import (
	"math"
	"strconv"
)

// Interval is how often something is done: every so many steps from 1 on, or,
// below 1, that share of all steps. 0 is never, or what the key says.
type Interval float64

// Of is how many steps i is in a run of maxSteps; a share is rounded up. Source:
// transformers.TrainerState.compute_steps.
func (i Interval) Of(maxSteps int) int {
	if i > 0 && i < 1 {
		return max(1, int(math.Ceil(float64(maxSteps)*float64(i))))
	}
	return int(i)
}

// text is i as a config file says it: 500 or 0.1.
func (i Interval) text() string {
	if i == Interval(math.Trunc(float64(i))) {
		return strconv.FormatInt(int64(i), 10)
	}
	return number(float64(i))
}

// interval sets *p from a whole number or a share.
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
		return e.fail("a smaller number")
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
