package optim

import (
	"math"

	"mt/model"
)

// SGD is stochastic gradient descent with momentum. With g the gradient times Clip, for every element
//
//	g = g + WeightDecay·w               where the parameter decays
//	m = m·Momentum + g                  0 once it is below the smallest normal number
//	w = w − LR·(g + Momentum·m)         with Nesterov, else LR·m
//
// in fp32, each operation rounded. Its plane is m. With Momentum 0 there is no plane, and m is g. Source:
// torch.optim.SGD.
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
func (o SGD) At(r Rate) Update { return elementUpdate{o.moments(), o.arithmetic(r), r.Step} }

func (o SGD) moments() []moment {
	if o.Momentum == 0 {
		return nil
	}
	return sgdMoments
}

func (o SGD) decaying(by float64) Elementwise {
	o.WeightDecay = by
	return o
}

// arithmetic returns SGD's update of an element, with these factors in order: clip, weight decay, momentum coefficient,
// lr, and a mask, whose bits are set for Nesterov momentum.
func (o SGD) arithmetic(r Rate) *arithmetic {
	c := coefs{r.Clip, 0, float32(o.Momentum), float32(r.LR), mask(o.Nesterov)}
	by := &arithmetic{rule: momentumRule, still: c, decays: c}
	if o.Momentum == 0 {
		by.rule = sgdRule
	}
	by.decays[1] = float32(o.WeightDecay)
	return by
}

// mask returns a float32 with all bits set (on) or all clear. Kernels get flags in this form, among
// their factors.
func mask(on bool) float32 {
	if on {
		return math.Float32frombits(math.MaxUint32)
	}
	return 0
}

// masked reports whether the bits of a factor from mask are set.
func masked(mask float32) bool { return math.Float32bits(mask) != 0 }

func sgdStrip(w, _, g []float32, c *coefs) {
	clip, decay, lr := c[0], c[1], c[3]
	for i, x := range w {
		w[i] = x - float32(lr*(float32(g[i]*clip)+float32(x*decay)))
	}
}

func momentumStrip(w, m, g []float32, c *coefs) {
	clip, decay, momentum, lr, nesterov := c[0], c[1], c[2], c[3], masked(c[4])
	m, g = m[:len(w)], g[:len(w)]
	for i, x := range w {
		e := float32(g[i]*clip) + float32(x*decay)
		next := normal(float32(m[i]*momentum) + e)
		m[i] = next
		if nesterov {
			next = e + float32(next*momentum)
		}
		w[i] = x - float32(lr*next)
	}
}
