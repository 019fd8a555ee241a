package config

import (
	"fmt"
	"maps"
	"slices"
)

// Difference is a key whose values differ between two configs.
type Difference struct {
	Key      string // canonical; rows_per_step for the product of its factors
	Part     Part   // empty: it never matters to a resumed run
	Was, Now string // as printed
}

func (d Difference) String() string { return fmt.Sprintf("%s was %s, is %s", d.Key, d.Was, d.Now) }

// Differences are the keys whose values in c are not those in was.
func (c *Config) Differences(was *Config) []Difference {
	var out []Difference
	eachKey(func(k *key) {
		if a, b := k.print(was), k.print(c); a != b {
			out = append(out, Difference{k.name, k.part, a, b})
		}
	})
	// A path and a preset may have the same name.
	if a, b := was.Model.Path != "", c.Model.Path != ""; a != b && was.Model.print() == c.Model.print() {
		out = append(out, Difference{modelKey, PartModel, was.Model.print(), c.Model.print()})
	}
	return out
}

// Changes are the differences that matter to a run with c that goes on from a
// checkpoint made with saved, both resolved; the caller says which of them are allowed.
// Two keys have the rows of a step as their product: only that counts. A key that c
// leaves to mt is no difference.
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

// KeepResolved gives every key that c leaves to mt ("auto") the value it was resolved
// to in saved: a resumed run keeps them. Where pipeline is false the keys of the
// pipeline stay auto for the plan to resolve, since steps are not what they were.
// What is chosen anew by every start stays auto too. enable_thinking is left to the chat
// template, and devices to the machine, not to mt.
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

// Clone is a copy of c that shares nothing with it that changes.
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
