package optim

import "mt/model"

// SGD is stochastic gradient descent with momentum. With g the gradient times Clip, for every element
//
//	g = g + WeightDecay·w               where the parameter decays
//	m = m·Momentum + g                  0 once it is below the smallest normal number
//	w = w − LR·(g + Momentum·m)         with Nesterov, else LR·m
//
// in fp32, each operation rounded. Its plane is m, which is not kept where Momentum is 0: then m is g.
// Source: torch.optim.SGD.
type SGD struct {
	Momentum, WeightDecay float64
	Nesterov              bool
}

var (
	sgdMoments = []moment{{Plane{Name: "m", DType: F32, Kind: "moments", Of: "SGD"}, true}}
	sgdPlanes  = []Plane{sgdMoments[0].Plane}
)

// Planes implements Optimizer.
func (o SGD) Planes(Piece) []Plane {
	if o.Momentum == 0 {
		return nil
	}
	return sgdPlanes
}

// Units implements Optimizer.
func (SGD) Units(l model.Layout) []Unit { return elementUnits(l) }

// At implements Optimizer.
func (o SGD) At(r Rate) Update { return elementUpdate{o.moments(), o.arithmetic(r)} }

func (o SGD) moments() []moment {
	if o.Momentum == 0 {
		return nil
	}
	return sgdMoments
}

func (o SGD) arithmetic(r Rate) arithmetic {
	return &stripped{clip: r.Clip, by: &sgdUpdate{float32(o.Momentum), float32(r.LR), float32(o.WeightDecay), o.Nesterov}}
}

// sgdUpdate has the factors of an update.
type sgdUpdate struct {
	momentum, lr, decay float32
	nesterov            bool
}

func (u *sgdUpdate) step(w, m, g []float32, decays bool) {
	decay := float32(0)
	if decays {
		decay = u.decay
	}
	for i, x := range w {
		e := g[i] + float32(x*decay)
		if m != nil {
			next := normal(float32(m[i]*u.momentum) + e)
			m[i] = next
			if u.nesterov {
				next = e + float32(next*u.momentum)
			}
			e = next
		}
		w[i] = x - float32(u.lr*e)
	}
}
