package config

import (
	"fmt"
	"slices"
	"strings"

	"mt/model"
)

const groupsKey = "lr_groups"

// LRGroup is an item of lr_groups: tensors with their own learning rate.
type LRGroup struct {
	Name        string
	Modules     []string // regular expressions; see model.Group
	LR          float64  // peak learning rate
	WeightDecay *float64 // nil: weight_decay
}

// groupKeys lists the keys of an item of lr_groups in printing order.
var groupKeys = []string{"name", "modules", "lr", "weight_decay"}

// written returns the value of e. A flag's text that is a list or a mapping in YAML's flow style, such as [a, b], is
// parsed first.
func (e *setter) written() (value, error) {
	v := e.v
	if text := strings.TrimSpace(v.text); v.kind == plain && v.pos.Flag != "" && (strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{")) {
		doc, err := parseYAML(v.pos.Flag, []byte("flag: "+text))
		if err != nil {
			return v, err
		}
		return doc.fields[0].val.at(v.pos), nil
	}
	return v, nil
}

// groups parses the list in e's value as groups of lr_groups and stores it in *p.
func (e *setter) groups(p *[]LRGroup) error {
	v, err := e.written()
	if err != nil {
		return err
	}
	if v.kind != list && v.kind != null {
		return e.fail("a list of groups such as [{name: embed, modules: [embed_tokens], lr: 1e-5}]")
	}
	*p = nil
	for i, item := range v.items {
		name := fmt.Sprintf("%s[%d]", e.spelled, i)
		g, err := e.group(name, item)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*p, func(other LRGroup) bool { return other.Name == g.Name }) {
			return item.pos.errorf("%s: another group has the name %s: choose another name", name, g.Name)
		}
		*p = append(*p, g)
	}
	return nil
}

// group parses v as one group of lr_groups. name stands for the group in errors, such as "lr_groups[0]".
func (e *setter) group(name string, v value) (g LRGroup, err error) {
	if v.kind != mapping {
		return g, (&setter{key: e.key, spelled: name, v: v}).fail("a mapping such as {name: embed, modules: [embed_tokens], lr: 1e-5}")
	}
	for _, f := range v.fields {
		spelled := name + "." + f.name
		s := &setter{key: &key{name: spelled, limit: positive, patterns: true, field: func(*Config) any { return new(float64) }}, spelled: spelled, v: f.val}
		switch f.name {
		case "name":
			err = s.text(&g.Name)
		case "modules":
			err = s.list(&g.Modules)
		case "lr":
			err = s.float(&g.LR)
		case "weight_decay":
			g.WeightDecay, s.limit = new(float64), atLeast(0, "")
			err = s.float(g.WeightDecay)
		default:
			err = f.pos.errorf("%s has an unknown key %q%s", name, f.name, suggest(f.name, groupKeys))
		}
		if err != nil {
			return g, err
		}
	}
	switch {
	case g.Name == "":
		return g, v.pos.errorf("%s has no name: give one, under which metrics.jsonl reports the group's learning rate", name)
	case len(g.Modules) == 0:
		return g, v.pos.errorf("%s has no modules: give regular expressions for the names of its tensors", name)
	case g.LR == 0:
		return g, v.pos.errorf("%s has no lr: give its peak learning rate", name)
	}
	return g, nil
}

// groupsText formats groups as YAML on one line.
func groupsText(groups []LRGroup) string {
	items := make([]string, len(groups))
	for i, g := range groups {
		items[i] = fmt.Sprintf("{name: %s, modules: %s, lr: %s", flow(g.Name), flow(anys(g.Modules)), number(g.LR))
		if g.WeightDecay != nil {
			items[i] += ", weight_decay: " + number(*g.WeightDecay)
		}
		items[i] += "}"
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// checkGroups rejects lr_groups if learning_rate is 0, since the groups' rates follow learning_rate's schedule.
func (c *Config) checkGroups(fail func(key, format string, args ...any)) {
	if len(c.LRGroups) > 0 && c.LearningRate == 0 {
		fail("learning_rate", "learning_rate is 0, but %s follow its schedule: give a learning_rate above 0, and freeze tensors that should not train", groupsKey)
	}
}

// ModelGroups returns lr_groups in the form of package model, which assigns tensors to groups.
func (c *Config) ModelGroups() []model.Group {
	var out []model.Group
	for _, g := range c.LRGroups {
		out = append(out, model.Group{Name: g.Name, Modules: g.Modules})
	}
	return out
}

// Decay returns the weight decay of the group g: its own, or else weight_decay.
func (c *Config) Decay(g LRGroup) float64 {
	if g.WeightDecay != nil {
		return *g.WeightDecay
	}
	return c.WeightDecay
}

// GroupRates returns each group's learning rate, by group name, at a step where the other tensors have the rate lr.
// It returns nil without groups.
func (c *Config) GroupRates(lr float64) map[string]float64 {
	if len(c.LRGroups) == 0 {
		return nil
	}
	out := map[string]float64{}
	for _, g := range c.LRGroups {
		out[g.Name] = lr * (g.LR / c.LearningRate)
	}
	return out
}
