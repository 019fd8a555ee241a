package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestSchedulerArgs: schedules with settings in lr_scheduler_kwargs have the learning rates of
// transformers.optimization, to nine digits. The run has 12 steps and a peak learning rate of 1.
func TestSchedulerArgs(t *testing.T) {
	for text, want := range map[string]string{
		"cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 3}":                                                              "1 0.853553391 0.5 0.146446609 1 0.853553391 0.5 0.146446609 1 0.853553391 0.5 0.146446609",
		"cosine_with_restarts\nwarmup_steps: 4":                                                                                   "0 0.25 0.5 0.75 1 0.961939766 0.853553391 0.691341716 0.5 0.308658284 0.146446609 0.0380602337",
		"cosine\nlr_scheduler_kwargs: {num_cycles: 1}":                                                                            "1 0.933012702 0.75 0.5 0.25 0.0669872981 0 0.0669872981 0.25 0.5 0.75 0.933012702",
		"cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0.2}":                                                                  "1 0.986370331 0.946410162 0.882842712 0.8 0.703527618 0.6 0.496472382 0.4 0.317157288 0.253589838 0.213629669",
		"cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.2, min_lr: }":                                                               "1 0.986370331 0.946410162 0.882842712 0.8 0.703527618 0.6 0.496472382 0.4 0.317157288 0.253589838 0.213629669",
		"cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0.2}":                                                           "0.986370331 0.946410162 0.882842712 0.8 0.703527618 0.6 0.496472382 0.4 0.317157288 0.253589838 0.213629669 0.2",
		"cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\nwarmup_steps: 4":                                     "0.25 0.5 0.75 1 0.96574579 0.868198052 0.722207545 0.55 0.377792455 0.231801948 0.13425421 0.1",
		"cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1, warmup_lr_rate: 0.4, num_cycles: 1}\nwarmup_steps: 5": "0.4 0.55 0.7 0.85 1 0.830570411 0.44986558 0.144564009 0.144564009 0.44986558 0.830570411 1",
		"cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0, warmup_lr_rate: 0.4}\nwarmup_steps: 1":                       "0.4 0.979746487 0.920626766 0.827430367 0.707707507 0.571157419 0.428842581 0.292292493 0.172569633 0.0793732336 0.0202535132 0",
		"polynomial\nlr_scheduler_kwargs: {power: 2, lr_end: 0.25}":                                                               "1 0.880208333 0.770833333 0.671875 0.583333333 0.505208333 0.4375 0.380208333 0.333333333 0.296875 0.270833333 0.255208333",
		"polynomial\nwarmup_steps: 10":                                                                                            "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 0.50000005",
		"inverse_sqrt\nlr_scheduler_kwargs: {timescale: 2}":                                                                       "1 0.816496581 0.707106781 0.632455532 0.577350269 0.534522484 0.5 0.471404521 0.447213595 0.426401433 0.40824829 0.39223227",
		"inverse_sqrt\nwarmup_steps: 4":                                                                                           "0 0.25 0.5 0.75 1 0.894427191 0.816496581 0.755928946 0.707106781 0.666666667 0.632455532 0.603022689",
		"inverse_sqrt":                                                                                                            "1 0.999950004 0.999900015 0.999850034 0.99980006 0.999750094 0.999700135 0.999650184 0.99960024 0.999550304 0.999500375 0.999450453",
	} {
		c := mustParse(t, "learning_rate: 1\nmax_steps: 12\nlr_scheduler_type: "+text)
		var got []string
		for step := 1; step <= 12; step++ {
			got = append(got, fmt.Sprintf("%.9g", c.Schedule(step)))
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%q:\n%s, want\n%s", text, all, want)
		}
		if again := mustParse(t, string(c.YAML(""))); len(again.Differences(c)) > 0 {
			t.Errorf("%q: printed and read again: %v", text, again.Differences(c))
		}
	}
	if got := mustParse(t, "learning_rate: 2\nmax_steps: 12\nlr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 1}").Schedule(20); got != 1 {
		t.Errorf("polynomial after its end: %v", got)
	}
	if got := mustParse(t, "learning_rate: 2\nmax_steps: 12\nlr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr: 1}").Schedule(13); got != 1 {
		t.Errorf("cosine at its end: %v", got)
	}
}

// TestSchedulesOfTransformers: every step of randomly drawn schedules has the learning rate that
// Transformers computes from the same settings.
func TestSchedulesOfTransformers(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers")
	type scheduler struct {
		Type   string             `json:"type"`
		Kwargs map[string]float64 `json:"kwargs"`
		LR     float64            `json:"lr"`
		Warmup int                `json:"warmup"`
		Steps  int                `json:"steps"`
	}
	r := rand.New(rand.NewPCG(7, 0))
	var cases []scheduler
	for range 40 {
		for _, kind := range []string{"cosine", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "cosine_with_restarts", "polynomial", "inverse_sqrt", "linear"} {
			s := scheduler{Type: kind, Kwargs: map[string]float64{}, LR: math.Pow(10, -1-4*r.Float64()), Warmup: r.IntN(3) * r.IntN(20), Steps: 20 + r.IntN(60)}
			switch kind {
			case "cosine":
				s.Kwargs["num_cycles"] = 0.25 * float64(1+r.IntN(8))
			case "cosine_with_min_lr", "cosine_warmup_with_min_lr":
				if kind != "cosine_with_min_lr" && r.IntN(2) == 0 {
					s.Kwargs["warmup_lr_rate"] = r.Float64()
				}
				if r.IntN(2) == 0 {
					s.Kwargs["min_lr"] = s.LR * r.Float64()
				} else {
					s.Kwargs["min_lr_rate"] = r.Float64()
				}
			case "cosine_with_restarts":
				s.Kwargs["num_cycles"] = float64(1 + r.IntN(5))
			case "polynomial":
				s.Kwargs["power"], s.Kwargs["lr_end"] = 3*r.Float64(), s.LR*r.Float64()
			case "inverse_sqrt":
				if r.IntN(2) == 0 {
					s.Kwargs["timescale"] = float64(1 + r.IntN(1000))
				}
			}
			if s.Warmup >= s.Steps {
				s.Warmup = s.Steps / 2
			}
			cases = append(cases, s)
		}
	}
	in := testkit.Must(json.Marshal(cases))(t)
	cmd := exec.Command(python, "testdata/schedules.py")
	cmd.Stdin = bytes.NewReader(in)
	out := testkit.Must(cmd.Output())(t)
	var want [][]float64
	testkit.NoError(t, json.Unmarshal(out, &want))
	for i, s := range cases {
		args := map[string]any{}
		for k, v := range s.Kwargs {
			if args[k] = v; v == math.Trunc(v) {
				args[k] = int64(v)
			}
		}
		c := mustParse(t, fmt.Sprintf("lr_scheduler_type: %s\nlr_scheduler_kwargs: %s\nlearning_rate: %s\nwarmup_steps: %d\nmax_steps: %d",
			s.Type, flow(args), number(s.LR), s.Warmup, s.Steps))
		for step, w := range want[i] { // sums of a few roundings, of numbers up to LR
			if got := c.Schedule(step + 1); !(math.Abs(got-w) <= 1e-14*s.LR) {
				t.Errorf("%+v step %d: %v, want %v", s, step+1, got, w)
				break
			}
		}
	}
}

// TestSchedulerArgsAreChecked: settings that a schedule does not have, or values outside their
// range, are errors.
func TestSchedulerArgsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"lr_scheduler_kwargs: {num_cycles: 2}":                                                             `t.yaml:1:35: lr_scheduler_kwargs.num_cycles is not a setting of lr_scheduler_type linear, which takes none: remove it`,
		"lr_scheduler_type: polynomial\nlr_scheduler_kwargs:\n  powr: 2":                                   `t.yaml:3:9: lr_scheduler_kwargs.powr is not a setting of lr_scheduler_type polynomial, which takes power, lr_end: remove it`,
		"lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: x}":                                   `t.yaml:2:30: lr_scheduler_kwargs.power must be a number, not x`,
		"lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: -1}":                                  `must be at least 0, not -1`,
		"lr_scheduler_type: cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 1.5}":                  `must be a whole number, not 1.5`,
		"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 0}":                                  `must be more than 0, not 0`,
		"lr_scheduler_type: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.5, min_lr: 0}": `lr_scheduler_kwargs: min_lr and min_lr_rate both set the final learning rate: give one of them`,
		"lr_scheduler_type: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {warmup_lr_rate: -0.5}":        `must be at least 0, not -0.5`,
		"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {warmup_lr_rate: 0.5}":                            `lr_scheduler_kwargs.warmup_lr_rate is not a setting of lr_scheduler_type cosine, which takes num_cycles, min_lr, min_lr_rate: remove it`,
		"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 1.5}":                               `must be at most 1, not 1.5`,
		"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.5, min_lr: 0}":                    `t.yaml:2:23: lr_scheduler_kwargs: min_lr and min_lr_rate both set the final learning rate: give one of them`,
		"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.5}\nmin_lr_ratio: 0.1":            `lr_scheduler_kwargs: min_lr_rate and min_lr_ratio both set the final learning rate: give one of them`,
		"lr_scheduler_type: polynomial\nlearning_rate: 1e-8":                                               `t.yaml:2:16: learning_rate is 1e-08, but polynomial falls from it to lr_end, which is 1e-07: raise learning_rate, or set lr_scheduler_kwargs: {lr_end: 0}`,
		"lr_scheduler_kwargs: 3": `lr_scheduler_kwargs must be a mapping`,
		"lr_scheduler_type: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 0}":                     `must be at least 1, not 0`,
		"lr_scheduler_type: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 10, shift: 1, power: }": `lr_scheduler_kwargs.shift is not a setting of lr_scheduler_type inverse_sqrt, which takes timescale: remove it`,
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestRelayOfOtherSchedules: a run that resumes with other settings in lr_scheduler_kwargs has the
// expected rates in its remaining steps.
func TestRelayOfOtherSchedules(t *testing.T) {
	const base = "learning_rate: 1\nmax_steps: 20\nlr_scheduler_type: "
	for _, tc := range []struct {
		was, now string
		rate     func(s float64) float64
		says     string
	}{
		{"polynomial", "polynomial\nlr_scheduler_kwargs: {power: 1.0}", func(s float64) float64 { return 1 - s/20*(1-1e-7) }, ""},
		{"polynomial\nlr_scheduler_kwargs: {lr_end: 0}", "polynomial\nlr_scheduler_kwargs: {lr_end: 0, power: 2}", func(s float64) float64 { return (20 - s) * (20 - s) / 100 }, "; polynomial is laid anew"},
		{"cosine", "cosine\nlr_scheduler_kwargs: {min_lr: 0}", func(s float64) float64 { return 0.5 + 0.5*math.Cos(math.Pi*s/20) }, ""},
		{"cosine\nmin_lr_ratio: 0.1", "cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.1}", func(s float64) float64 { return 0.55 + 0.45*math.Cos(math.Pi*s/20) }, ""},
		{"linear", "cosine_with_restarts\nlr_scheduler_kwargs: {num_cycles: 2}", func(s float64) float64 { return 0.5 + 0.5*math.Cos(math.Pi*math.Mod((s-10)/5, 1)) }, "; cosine_with_restarts is laid anew"},
		{"inverse_sqrt", "inverse_sqrt\nlr_scheduler_kwargs: {timescale: 4}", func(s float64) float64 { return 1 / math.Sqrt((s+4)/4) }, "; inverse_sqrt goes on as if it had been so from the start and ends at 0.417"},
	} {
		saved, c := mustParse(t, base+tc.was), mustParse(t, base+tc.now)
		if says := c.Relay(saved, 10); !strings.Contains(says, tc.says) || tc.says == "" && says != "" {
			t.Errorf("%q to %q: %q", tc.was, tc.now, says)
		}
		for step := 11; step <= 20; step++ {
			if got, want := c.Schedule(step), tc.rate(float64(step-1)); math.Abs(got-want) > 1e-14 {
				t.Errorf("%q to %q: %g in step %d, want %g", tc.was, tc.now, got, step, want)
			}
		}
	}
	c := mustParse(t, base+"polynomial\nlr_scheduler_kwargs: {power: 2}")
	c.Clone().LRSchedulerKwargs["power"] = int64(3)
	if c.LRSchedulerKwargs["power"] != int64(2) {
		t.Error("a clone shares lr_scheduler_kwargs")
	}
}

// TestRelay: a run of 20 steps resumes with other keys. Its remaining steps have the expected
// learning rates, and the message about them is as expected. s counts steps done.
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
		// A finished warm-up is not repeated, whatever the new keys say. An unfinished warm-up
		// continues to its end.
		{"linear", "linear\nwarmup_steps: 15", 10, func(s float64) float64 { return line(s, 10, 20) }, "without a second warm-up"},
		{"linear", "linear\nmax_steps: 30", 2, func(s float64) float64 { return min(s/4, line(s, 4, 30)) }, ", warm-up goes on until step 4; linear is laid anew over the steps after it and ends"},
		{"linear", "linear\nwarmup_steps: 8", 2, func(s float64) float64 { return min(s/8, line(s, 8, 20)) }, "until step 8"},
		{"linear", "linear\nwarmup_steps: 1", 2, func(s float64) float64 { return line(s, 2, 20) }, "without a second warm-up"},
		{"linear\nwarmup_steps: 0\nwarmup_ratio: 0.2", "linear\nwarmup_steps: 0\nwarmup_ratio: 0.2\nmax_steps: 200", 2, func(s float64) float64 { return min(s/4, line(s, 4, 200)) }, "until step 4"},
		// constant and wsd continue as if they had been set from the start.
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
		// A run that later resumes with the same keys has the same schedule and no message.
		same := parse(tc.now)
		if says := same.Relay(c, c.MaxSteps-1); says != "" || same.Schedule(c.MaxSteps) != c.Schedule(c.MaxSteps) {
			t.Errorf("%q to %q: an unchanged run says %q", tc.was, tc.now, says)
		}
	}
}

// TestRestart: a schedule that starts anew has its own warm-up, and its fractions refer to the
// remaining steps.
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

// TestIntervals: an interval below 1 is a fraction of all steps, rounded up as in Transformers.
// From 1 on it is a number of steps.
func TestIntervals(t *testing.T) {
	for _, tc := range []struct {
		text        string
		steps, want int
	}{
		{"500", 1000, 500}, {"500.0", 1000, 500}, {"5e2", 1000, 500}, {"0", 1000, 0}, {"", 1000, 0}, {"1", 1000, 1}, {"1.0", 7, 1},
		{"0.1", 1000, 100}, {"0.1", 7, 1}, {"0.3", 7, 3}, {"0.001", 7, 1}, {"0.999", 1000, 999}, {"0.29", 100, 29}, {"0.07", 100, 8}, // as a float, 0.07 · 100 is above 7
	} {
		c := mustParse(t, "save_steps: "+tc.text)
		if got := c.SaveSteps.Of(tc.steps); got != tc.want {
			t.Errorf("save_steps: %s is every %d of %d steps, not %d", tc.text, got, tc.steps, tc.want)
		}
		again, err := Parse("again.yaml", c.YAML(""), Args{})
		if err != nil || again.SaveSteps != c.SaveSteps {
			t.Errorf("save_steps: %s comes back as %v, %v", tc.text, again.SaveSteps, err)
		}
	}
}

// TestEvalStrategy: eval_strategy: steps without eval_steps evaluates every logging_steps, as in
// transformers.TrainingArguments. The printed config parses to the same interval.
func TestEvalStrategy(t *testing.T) {
	for text, want := range map[string]Interval{
		"logging_steps: 7": 0, "eval_strategy: steps\nlogging_steps: 7": 7, "evaluation_strategy: steps\nlogging_steps: 7": 7,
		"eval_strategy: steps\neval_steps: 0\nlogging_steps: 7": 0, "eval_strategy: steps\neval_steps: 3": 3, "eval_strategy: epoch": 0,
	} {
		c := mustParse(t, "val_size: 2\n"+text)
		again, err := Parse("again.yaml", c.YAML(""), Args{})
		if err != nil || c.EvalSteps != want || again.EvalSteps != want {
			t.Errorf("%q: eval_steps is %v, and written %v, not %v; %v", text, c.EvalSteps, again.EvalSteps, want, err)
		}
	}
}

// TestSavingWithoutEffect: a warning names each key about checkpoints that has no effect because no
// checkpoints are saved.
func TestSavingWithoutEffect(t *testing.T) {
	for text, want := range map[string]string{
		"save_strategy: no\nsave_steps: 5":                      "save_steps has no effect: save_strategy is no",
		"save_strategy: no\nsave_total_limit: 5":                "save_total_limit has no effect: save_strategy is no: there are no checkpoints",
		"save_strategy: no\nsave_only_model: true":              "save_only_model has no effect: save_strategy is no: there are no checkpoints",
		"save_strategy: epoch\nsave_steps: 5":                   "save_steps has no effect: save_strategy is epoch",
		"save_only_model: true\noptimizer_zstd: true":           "optimizer_zstd has no effect: the optimizer's state is not saved",
		"val_size: 2\neval_strategy: epoch\neval_steps: 5":      "eval_steps has no effect: eval_strategy is epoch",
		"eval_strategy: epoch":                                  "eval_strategy has no effect: there is neither eval_dataset nor val_size",
		"save_strategy: steps\nsave_steps: 5\neval_steps: 0":    "",
		"save_strategy: false\nsave_steps: 500":                 "",
		"save_strategy: \"no\"\nval_size: 2\neval_strategy: no": "",
	} {
		if got := strings.Join(mustParse(t, text).Warnings, "; "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if out := string(mustParse(t, "save_strategy: no").YAML("")); !strings.Contains(out, "save_strategy: \"no\"\n") {
		t.Errorf("no is written as other readers of YAML take for false:\n%s", out)
	}
}
