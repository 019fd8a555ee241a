package optim

import "mt/model"

// Group is what is other about the updates of the tensors of one group (model.Stored.Group).
type Group struct {
	Scale       float64 // of the rate: the run's times this
	WeightDecay float64 // in place of the optimizer's
}

// Grouped moves the tensors of each group as By does, at the group's rate and with its decay, and those in none as By.
type Grouped struct {
	By     Elementwise
	Groups *Groups
}

// Groups are all groups, from 1 on. (They are pointed to so that optimizers can be compared.)
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

// of is how element at of parameter p moves, and how many elements from it on move so.
func (a *arithmetic) of(p model.Param, at int64) (by *arithmetic, n int64) {
	s, end := storedAt(p, at)
	if s.Group == 0 {
		return a, end - at
	}
	return a.groups[s.Group-1], end - at
}

// storedAt is the tensor of parameter p that element at is in, and the element behind its last. Of a parameter that is in no
// checkpoint it is one tensor without a name.
func storedAt(p model.Param, at int64) (s model.Stored, end int64) {
	s.Rows = p.Rows
	for _, t := range p.Stored {
		if int64(t.Row)*int64(p.Cols) <= at {
			s = t
		}
	}
	return s, int64(s.Row+s.Rows) * int64(p.Cols)
}
