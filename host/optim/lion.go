package optim

import (
	"math"

	"mt/model"
)

// Lion moves every weight by the learning rate, up or down. With g the gradient times Clip, for every element
//
//	w = w·(1 − LR·WeightDecay)          where the parameter decays
//	w = w − LR·sign(Beta1·m + (1 − Beta1)·g)
//	m = m·Beta2 + (1 − Beta2)·g         0 once it is below the smallest normal number
//
// in fp32, each operation rounded. Its plane is m. Sources: arXiv:2302.06675; bitsandbytes' Lion.
type Lion struct {
	Beta1, Beta2, WeightDecay float64
}

var (
	lionMoments = []moment{{Plane{Name: "m", DType: F32, Kind: "moments", Of: "Lion"}, true}}
	lionPlanes  = []Plane{lionMoments[0].Plane}
)

// Planes implements Optimizer.
func (Lion) Planes(Piece) []Plane { return lionPlanes }

// Units implements Optimizer.
func (Lion) Units(l model.Layout) []Unit { return elementUnits(l) }

// At implements Optimizer.
func (o Lion) At(r Rate) Update { return elementUpdate{lionMoments, o.arithmetic(r), r.Step} }

func (Lion) moments() []moment { return lionMoments }

func (o Lion) decaying(by float64) Elementwise {
	o.WeightDecay = by
	return o
}

// arithmetic returns Lion's update of an element, with these factors in order: clip, decay, β1, 1−β1, β2, 1−β2, lr.
func (o Lion) arithmetic(r Rate) *arithmetic {
	c := coefs{r.Clip, 1, float32(o.Beta1), float32(1 - o.Beta1), float32(o.Beta2), float32(1 - o.Beta2), float32(r.LR)}
	by := &arithmetic{rule: lionRule, still: c, decays: c}
	by.decays[1] = float32(1 - r.LR*o.WeightDecay)
	return by
}

func lionStrip(w, m, g []float32, c *coefs) {
	clip, decay, beta1, beta1c, beta2, beta2c, lr := c[0], c[1], c[2], c[3], c[4], c[5], c[6]
	m, g = m[:len(w)], g[:len(w)]
	for i, x := range w {
		x, e := float32(x*decay), float32(g[i]*clip)
		if c := float32(m[i]*beta1) + float32(beta1c*e); c != 0 {
			x -= math.Float32frombits(math.Float32bits(lr) | math.Float32bits(c)&(1<<31)) // without a branch, because the sign is unpredictable
		}
		w[i], m[i] = x, normal(float32(m[i]*beta2)+float32(beta2c*e))
	}
}

// normal returns x, but 0 if x is subnormal. Arithmetic with subnormal numbers is slow (see expMask).
func normal(x float32) float32 {
	if math.Float32bits(x)&expMask == 0 {
		return 0
	}
	return x
}
