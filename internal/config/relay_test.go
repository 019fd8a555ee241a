package config

import (
	"math"
	"strings"
	"testing"
)

// TestRelay: what the rates are after step 10 of a run of 20 that goes on with
// other keys, and what is said about it. s counts steps done.
func TestRelay(t *testing.T) {
	const base = "learning_rate: 1\nmax_steps: 20\nwarmup_steps: 4\nlr_scheduler_type: "
	line := func(s, from, to float64) float64 { return (to - s) / (to - from) }
	wave := func(s, from, to float64) float64 { return 0.5 + 0.5*math.Cos(math.Pi*(s-from)/(to-from)) }
	for _, tc := range []struct {
		was, now string
		step     int
		rate     func(s float64) float64
		says     string
	}{
		{"linear", "linear", 10, func(s float64) float64 { return line(s, 4, 20) }, ""},
		{"linear", "linear\nnum_decay_steps: 7\ndecay_ratio: 0.3", 10, func(s float64) float64 { return line(s, 4, 20) }, ""},
		{"linear", "linear\nmax_steps: 30", 10, func(s float64) float64 { return line(s, 10, 30) },
			"the learning rate was 0.6875 at step 10 and is 1 at step 11; linear is laid anew over the steps from 11 on, without a second warm-up, and ends at 0.05 at step 30"},
		{"linear", "linear\nmax_steps: 30", 20, func(s float64) float64 { return line(s, 20, 30) }, "was 0.0625 at step 20 and is 1 at step 21"},
		{"cosine", "cosine\nmax_steps: 30", 10, func(s float64) float64 { return wave(s, 10, 30) }, "; cosine is laid anew"},
		{"cosine", "cosine\nmax_steps: 12", 10, func(s float64) float64 { return wave(s, 10, 12) }, "ends at 0.5 at step 12"},
		{"cosine", "cosine\nlearning_rate: 0.5\nmin_lr_ratio: 0.1", 10, func(s float64) float64 { return 0.5 * (0.1 + 0.9*wave(s, 10, 20)) }, "and is 0.5 at step 11"},
		{"cosine", "linear", 10, func(s float64) float64 { return line(s, 10, 20) }, "; linear is laid anew"},
		// Warm-up that is over is over, whatever is asked for; one in progress goes on to its end.
		{"linear", "linear\nwarmup_steps: 15", 10, func(s float64) float64 { return line(s, 10, 20) }, "without a second warm-up"},
		{"linear", "linear\nmax_steps: 30", 2, func(s float64) float64 { return min(s/4, line(s, 4, 30)) }, ", warm-up goes on until step 4; linear is laid anew over the steps after it and ends"},
		{"linear", "linear\nwarmup_steps: 8", 2, func(s float64) float64 { return min(s/8, line(s, 8, 20)) }, "until step 8"},
		{"linear", "linear\nwarmup_steps: 1", 2, func(s float64) float64 { return line(s, 2, 20) }, "without a second warm-up"},
		{"linear\nwarmup_steps: 0\nwarmup_ratio: 0.2", "linear\nwarmup_steps: 0\nwarmup_ratio: 0.2\nmax_steps: 200", 2, func(s float64) float64 { return min(s/4, line(s, 4, 200)) }, "until step 4"},
		// Constant and wsd are as if they had been so from the start.
		{"constant", "constant\nmax_steps: 30", 10, func(float64) float64 { return 1 }, "the learning rate was 1 at step 10 and is 1 at step 11; it stays"},
		{"cosine", "constant\nlearning_rate: 0.5", 10, func(float64) float64 { return 0.5 }, "is 0.5 at step 11; it stays"},
		{"wsd\nnum_decay_steps: 5", "wsd\nnum_decay_steps: 5\nmax_steps: 30", 10, func(s float64) float64 { return wave(max(s, 25), 25, 30) },
			"; wsd goes on as if it had been so from the start, decays after step 25 and ends at 0.09549 at step 30"},
		{"wsd\nnum_decay_steps: 5", "wsd\nnum_decay_steps: 5\nmax_steps: 30", 18, func(s float64) float64 { return wave(max(s, 25), 25, 30) }, "was 0.6545 at step 18 and is 1 at step 19"},
		{"wsd\nnum_decay_steps: 5", "wsd\nnum_decay_steps: 5\nlearning_rate: 0.5", 18, func(s float64) float64 { return 0.5 * wave(s, 15, 20) }, "was 0.6545 at step 18 and is 0.1727 at step 19"},
	} {
		parse := func(text string) *Config {
			var keys []string
			for line := range strings.Lines(base + text) { // the last of a name counts
				name, _, _ := strings.Cut(line, ":")
				for i, k := range keys {
					if strings.HasPrefix(k, name+":") {
						keys[i] = ""
					}
				}
				keys = append(keys, strings.TrimSpace(line)+"\n")
			}
			return mustParse(t, strings.Join(keys, ""))
		}
		saved, c := parse(tc.was), parse(tc.now)
		says := c.Relay(saved, tc.step)
		if !strings.Contains(says, tc.says) || tc.says == "" && says != "" {
			t.Errorf("%q to %q after step %d: %q", tc.was, tc.now, tc.step, says)
		}
		for step := tc.step + 1; step <= c.MaxSteps; step++ {
			if got, want := c.Schedule(step), tc.rate(float64(step-1)); math.Abs(got-want) > 1e-15 {
				t.Errorf("%q to %q after step %d: %g in step %d, want %g", tc.was, tc.now, tc.step, got, step, want)
			}
		}
		// A later run without changes goes on as this one does.
		same := parse(tc.now)
		if says := same.Relay(c, c.MaxSteps-1); says != "" || same.Schedule(c.MaxSteps) != c.Schedule(c.MaxSteps) {
			t.Errorf("%q to %q: an unchanged run says %q", tc.was, tc.now, says)
		}
	}
}

// TestRestart: a schedule that begins again has its warm-up, and shares are of
// the steps that are left.
func TestRestart(t *testing.T) {
	for text, want := range map[string]string{
		"lr_scheduler_type: linear\nwarmup_ratio: 0.2": "a new schedule begins: linear over steps 11 to 20 with warm-up until step 12, from 0 to 0.125",
		"lr_scheduler_type: cosine":                    "a new schedule begins: cosine over steps 11 to 20, from 1 to 0.02447",
		"lr_scheduler_type: wsd\ndecay_ratio: 0.5":     "a new schedule begins: wsd over steps 11 to 20, from 1 to 0.09549",
	} {
		c, fresh := mustParse(t, text+"\nlearning_rate: 1\nmax_steps: 20"), mustParse(t, text+"\nlearning_rate: 1\nmax_steps: 10")
		if got := c.Restart(10); got != want {
			t.Errorf("%q: %q", text, got)
		}
		for step := 1; step <= 10; step++ {
			if got, want := c.Schedule(10+step), fresh.Schedule(step); got != want {
				t.Errorf("%q: %g in step %d, want %g", text, got, 10+step, want)
			}
		}
		again := mustParse(t, text+"\nlearning_rate: 1\nmax_steps: 20")
		if says := again.Relay(c, 15); says != "" || again.Schedule(18) != c.Schedule(18) {
			t.Errorf("%q: an unchanged run says %q", text, says)
		}
	}
}
