package measure

import "time"

// Times is Options.times.
func Times(o Options, run func(repeats int) (time.Duration, error)) (Seconds, error) {
	return o.times(run)
}
