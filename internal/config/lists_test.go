package config

import (
	"fmt"
	"slices"
	"testing"
)

// TestLists: every list is a YAML list or has commas between its items, in the file and as a flag.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		yaml, flag string // one of them is given
		get        func(*Config) []string
		want       []string
	}{
		{"", "--freeze=a,b", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"", "--freeze=[a, b]", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"freeze: a, b", "", func(c *Config) []string { return c.Freeze }, []string{"a", "b"}},
		{"freeze: [a, 'b,c']", "", func(c *Config) []string { return c.Freeze }, []string{"a", "b,c"}},
		{"", `--freeze=x{1,2},[a,b],(c,d),\(e,f\)`, func(c *Config) []string { return c.Freeze }, []string{"x{1,2}", "[a,b]", "(c,d)", `\(e`, `f\)`}},
		{"", "--unfrozen-parameters=[lm_head]", func(c *Config) []string { return c.Unfrozen }, []string{"lm_head"}},
		{"", `--unfrozen-parameters=[0-3]\.mlp`, func(c *Config) []string { return c.Unfrozen }, []string{`[0-3]\.mlp`}},
		{"", "--dataset=a.jsonl,{b,c}.jsonl", func(c *Config) []string { return c.Dataset }, []string{"a.jsonl", "{b,c}.jsonl"}},
		{"", "--dataset=[a.jsonl, b.jsonl]", func(c *Config) []string { return c.Dataset }, []string{"a.jsonl", "b.jsonl"}},
		{"", "--add-tokens=[<a>, '<b,c>']", func(c *Config) []string { return c.AddTokens }, []string{"<a>", "<b,c>"}},
		{"", "--sample-prompts=Well, then", func(c *Config) []string { return c.SamplePrompts }, []string{"Well, then"}},
		{"", "--sample-prompts=['Well, then', 'Or']", func(c *Config) []string { return c.SamplePrompts }, []string{"Well, then", "Or"}},
		{"", "--sample-prompts=[INST] hi [/INST]", func(c *Config) []string { return c.SamplePrompts }, []string{"[INST] hi [/INST]"}},
		{"interleave_probs: [0.25, 0.75]\ndataset: [a, b]\nmix_strategy: interleave_under", "", probs, []string{"0.25", "0.75"}},
		{"dataset: [a, b]\nmix_strategy: interleave_under", "--interleave-probs=[0.25, 0.75]", probs, []string{"0.25", "0.75"}},
	} {
		var flags []string
		if c.flag != "" {
			flags = append(flags, c.flag)
		}
		got, err := parse(t, c.yaml, flags...)
		if err != nil {
			t.Errorf("%s%s: %v", c.yaml, c.flag, err)
		} else if l := c.get(got); !slices.Equal(l, c.want) {
			t.Errorf("%s%s: %q, want %q", c.yaml, c.flag, l, c.want)
		}
	}
}

func probs(c *Config) (out []string) {
	for _, x := range c.InterleaveProbs {
		out = append(out, fmt.Sprint(x))
	}
	return out
}
