package config

import (
	"strings"
	"testing"
)

// TestIntervals: counts and shares of the steps, as transformers has them.
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

// TestEvalStrategy: eval_strategy alone evaluates when it logs, as
// transformers.TrainingArguments has it; what is written of that says the same.
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

// TestSavingWithoutEffect: keys that go with checkpoints say so where there are
// none.
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
