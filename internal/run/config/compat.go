package config

import (
	"fmt"
	"maps"
	"slices"
)

// Difference is a key whose value differs between two configs.
type Difference struct {
	Key      string // canonical name, or rows_per_step for the rows of an optimizer step
	Part     Part   // empty: the difference does not matter when a run resumes
	Was, Now string // the two values as YAML
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
	// A model's path and a preset's name can print the same text although they are different models, so this case is
	// compared apart.
	if a, b := was.Model.Path != "", c.Model.Path != ""; a != b && was.Model.print() == c.Model.print() {
		out = append(out, Difference{modelKey, PartModel, was.Model.print(), c.Model.print()})
	}
	return out
}

// Changes lists the differences that matter when a run with config c resumes a checkpoint made with config saved.
// Both configs have every auto resolved. The caller decides which changes are allowed. per_device_train_batch_size
// and gradient_accumulation_steps are compared only by their product. A key that is still auto in c is no difference.
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

// KeepResolved replaces each "auto" in c by the value that saved had resolved, so that a resumed run keeps this value.
// The following keys stay auto:
//
//   - pipeline keys, if pipeline is false: the steps have changed, so the plan resolves these keys again
//   - keys that every start chooses again from the machine (key.anew)
//   - resume_from_checkpoint
//   - enable_thinking, which belongs to the chat template
//   - devices, which belongs to the machine
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
