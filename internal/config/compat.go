package config

import (
	"fmt"
	"maps"
	"strings"
)

// Difference is a key whose values differ between two configs.
type Difference struct {
	Key      string // canonical; rows_per_step for the product of its factors
	Part     Part   // empty: the key may differ in a resumed run
	Was, Now string // as printed
}

func (d Difference) String() string { return fmt.Sprintf("%s was %s, is %s", d.Key, d.Was, d.Now) }

// Differences are the keys whose values are others in c than in was.
func (c *Config) Differences(was *Config) []Difference {
	var out []Difference
	eachKey(func(k *key) {
		if a, b := k.print(was), k.print(c); a != b {
			out = append(out, Difference{k.name, k.part, a, b})
		}
	})
	if a, b := was.Model.Path != "", c.Model.Path != ""; a != b && was.Model.print() == c.Model.print() {
		out = append(out, Difference{modelKey, PartModel, was.Model.print(), c.Model.print()})
	}
	return out
}

// Incompatible are the differences that keep c from going on from a checkpoint
// that was made with saved, both resolved. Only the rows of a step count, not
// the two keys they are the product of.
func (c *Config) Incompatible(saved *Config) []Difference {
	var out []Difference
	if a, b := saved.RowsPerStep(), c.RowsPerStep(); a != b {
		out = append(out, Difference{"rows_per_step", PartDataset, fmt.Sprint(a), fmt.Sprint(b)})
	}
	for _, d := range c.Differences(saved) {
		if d.Part != "" && !isRowsFactor(d.Key) {
			out = append(out, d)
		}
	}
	return out
}

func isRowsFactor(key string) bool {
	return key == "per_device_train_batch_size" || key == "gradient_accumulation_steps"
}

// Digest is what c says about a part of the run, one "key: value" a line, in a
// fixed order: equal for two runs if and only if the part is the same.
func (c *Config) Digest(p Part) string {
	var b strings.Builder
	if p == PartDataset {
		fmt.Fprintf(&b, "rows_per_step: %d\n", c.RowsPerStep())
	}
	eachKey(func(k *key) {
		if k.part == p && !isRowsFactor(k.name) {
			fmt.Fprintf(&b, "%s: %s\n", k.name, k.print(c))
		}
	})
	return b.String()
}

// KeepResolved gives every key that c leaves to mt ("auto") the value it was
// resolved to in saved: a resumed run keeps them.
func (c *Config) KeepResolved(saved *Config) {
	eachKey(func(k *key) {
		if k.print(c) != "auto" || k.name == "resume_from_checkpoint" {
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
	out.Warnings = append([]string(nil), c.Warnings...)
	out.origin = maps.Clone(c.origin)
	out.Model.Inline = maps.Clone(c.Model.Inline)
	return &out
}
