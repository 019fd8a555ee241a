package config

import (
	"fmt"
	"maps"
	"slices"
)

// Difference is a key whose value differs between two configs.
type Difference struct {
	Key      string // canonical name; rows_per_step for the rows of a step
	Part     Part   // empty: the difference never matters to a resumed run
	Was, Now string // printed values
}

func (d Difference) String() string { return fmt.Sprintf("%s was %s, is %s", d.Key, d.Was, d.Now) }

// Differences lists the keys whose values differ between was and c.
func (c *Config) Differences(was *Config) []Difference {
	var out []Difference
	eachKey(func(k *key) {
		if a, b := k.print(was), k.print(c); a != b {
			out = append(out, Difference{k.name, k.part, a, b})
		}
	})
	// A path and a preset can print alike.
	if a, b := was.Model.Path != "", c.Model.Path != ""; a != b && was.Model.print() == c.Model.print() {
		out = append(out, Difference{modelKey, PartModel, was.Model.print(), c.Model.print()})
	}
	return out
}

// Changes lists the differences that matter when a run with c resumes a checkpoint made with saved. Both configs are
// resolved; the caller decides which changes are allowed. The two keys behind the rows of a step count only as their
// product. A key that c leaves to mt is no difference.
func (c *Config) Changes(saved *Config) []Difference {
	var out []Difference
	for _, d := range c.Differences(saved) {
		if d.Part != "" && d.Part != PartRows && d.Now != "auto" {
			out = append(out, d)
		}
	}
	if a, b := saved.RowsPerStep(), c.RowsPerStep(); a != b {
		out = append(out, Difference{"rows_per_step", PartRows, fmt.Sprint(a), fmt.Sprint(b)})
	}
	return out
}

// KeepResolved replaces "auto" in c by the value that saved resolved, so a resumed run keeps it. If pipeline is
// false, the keys of the pipeline stay auto and the plan resolves them, because the steps have changed. Keys that
// every start chooses again also stay auto. enable_thinking belongs to the chat template and devices to the machine,
// so both stay.
func (c *Config) KeepResolved(saved *Config, pipeline bool) {
	eachKey(func(k *key) {
		if k.print(c) != "auto" || k.name == "resume_from_checkpoint" || k.name == thinkingKey || k.name == devicesKey || k.anew || k.isPipeline() && !pipeline {
			return
		}
		switch p := k.field(c).(type) {
		case *int:
			*p = *k.field(saved).(*int)
		case *string:
			*p = *k.field(saved).(*string)
		case *Toggle:
			*p = *k.field(saved).(*Toggle)
		case *Bytes:
			*p = *k.field(saved).(*Bytes)
		}
	})
}

// Clone returns a deep copy of c's mutable parts.
func (c *Config) Clone() *Config {
	out := *c
	out.Warnings = slices.Clone(c.Warnings)
	out.sources = maps.Clone(c.sources)
	out.Model.Inline = maps.Clone(c.Model.Inline)
	out.ChatTemplateKwargs = maps.Clone(c.ChatTemplateKwargs)
	out.SpecialTokens = maps.Clone(c.SpecialTokens)
	out.LRSchedulerKwargs = maps.Clone(c.LRSchedulerKwargs)
	out.DPO = maps.Clone(c.DPO)
	return &out
}
