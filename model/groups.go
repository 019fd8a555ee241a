package model

import (
	"fmt"
	"regexp"
	"slices"
)

// Group is a set of tensors that the optimizer updates with their own settings, such as another
// learning rate.
type Group struct {
	Name    string   // for people
	Modules []string // a tensor is in the group if its name matches one of these expressions, as in Freeze
}

// SetGroups puts tensors into groups and sets Stored.Group. The error names an expression that is wrong or matches no
// tensor, or a tensor that is frozen or in two groups. SetFreeze must come first. Tensors that are never trained are
// in no group.
func (c *Config) SetGroups(groups []Group) error {
	var by [][]*regexp.Regexp
	for _, g := range groups {
		exprs, err := compile(g.Modules)
		if err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
		by = append(by, exprs)
	}
	var tensors []Stored
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				if !p.Frozen || c.freezing.has(s) {
					tensors = append(tensors, s)
				}
			}
		}
	}
	for i, g := range groups {
		for _, p := range by[i] {
			if err := checkMatched(p, tensors); err != nil {
				return fmt.Errorf("group %s: %w", g.Name, err)
			}
		}
	}
	for _, s := range tensors {
		switch in := groupsOf(by, s); {
		case len(in) > 1:
			return fmt.Errorf("%s is in two groups, %s and %s: make their modules narrower", s.Name, groups[in[0]].Name, groups[in[1]].Name)
		case len(in) == 1 && c.freezing.has(s):
			return fmt.Errorf("group %s: %s is frozen, so it has no rate: make modules narrower, or freeze less", groups[in[0]].Name, s.Name)
		}
	}
	c.grouping = by
	return nil
}

// groupsOf returns the numbers of the groups that tensor s is in; `by` has each group's expressions.
func groupsOf(by [][]*regexp.Regexp, s Stored) (in []int) {
	for i, exprs := range by {
		if slices.ContainsFunc(exprs, s.matched) {
			in = append(in, i)
		}
	}
	return in
}

// grouped sets Stored.Group of each tensor of params, by the groups that SetGroups was given.
func (c *Config) grouped(params []Param) {
	if len(c.grouping) == 0 {
		return
	}
	for _, p := range params {
		for i := range p.Stored {
			for _, g := range groupsOf(c.grouping, p.Stored[i]) { // at most one, as SetGroups has checked
				p.Stored[i].Group = g + 1
			}
		}
	}
}

// GroupParams returns the number of trained parameters in each group, from index 1; index 0 counts those in no group.
func (c *Config) GroupParams() []int64 {
	out := make([]int64, len(c.grouping)+1)
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				if !p.Frozen {
					out[s.Group] += int64(s.Rows) * int64(p.Cols)
				}
			}
		}
	}
	return out
}
