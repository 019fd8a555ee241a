package optim

import "mt/model"

// Group has the settings for a group of tensors, which a parameter's stored tensors belong to by number
// (model.Stored.Group).
type Group struct {
	Scale       float64 // factor of the run's learning rate
	WeightDecay float64 // replaces the optimizer's weight decay
}

// Grouped is an optimizer that updates like the one in field By, with settings by group: tensors of a group use the
// group's learning rate and weight decay. All other tensors are updated as By would update them.
type Grouped struct {
	By     Elementwise
	Groups *Groups
}

// Groups lists all groups; group number i, from 1 on, is Groups[i−1]. Grouped holds a pointer to Groups so that
// optimizers can be compared with ==.
type Groups []Group

// Planes implements Optimizer.
func (g Grouped) Planes(p Piece) []Plane { return g.By.Planes(p) }

// Units implements Optimizer.
func (g Grouped) Units(l model.Layout) []Unit { return g.By.Units(l) }

// At implements Optimizer.
func (g Grouped) At(r Rate) Update { return elementUpdate{g.moments(), g.arithmetic(r), r.Step} }

func (g Grouped) moments() []moment { return g.By.moments() }

func (g Grouped) decaying(by float64) Elementwise { return Grouped{g.By.decaying(by), g.Groups} }

func (g Grouped) arithmetic(r Rate) *arithmetic {
	by := g.By.arithmetic(r)
	for _, x := range *g.Groups {
		of := r
		of.LR *= x.Scale
		by.groups = append(by.groups, g.By.decaying(x.WeightDecay).arithmetic(of))
	}
	return by
}

// of returns the arithmetic of the group to which element at of parameter p belongs. n is the number of elements from
// at to the end of the element's stored tensor; they all have this arithmetic.
func (a *arithmetic) of(p model.Param, at int64) (by *arithmetic, n int64) {
	s, end := storedAt(p, at)
	if s.Group == 0 {
		return a, end - at
	}
	return a.groups[s.Group-1], end - at
}

// storedAt returns the stored tensor of parameter p in which element at lies. end is the first element after this
// tensor. One parameter may hold several tensors of a checkpoint, such as q, k and v. A parameter without stored
// tensors counts as one tensor without a name.
func storedAt(p model.Param, at int64) (s model.Stored, end int64) {
	s.Rows = p.Rows
	for _, t := range p.Stored {
		if int64(t.Row)*int64(p.Cols) <= at {
			s = t
		}
	}
	return s, int64(s.Row+s.Rows) * int64(p.Cols)
}
