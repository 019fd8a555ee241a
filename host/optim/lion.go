package optim

import (
	"math"

	"mt/model"
)

// Lion moves every weight by the rate, up or down. With g the gradient times Clip, for every
// element
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
func (o Lion) At(r Rate) Update { return elementUpdate{lionMoments, o.arithmetic(r)} }

func (Lion) moments() []moment { return lionMoments }

func (o Lion) arithmetic(r Rate) arithmetic {
	return &stripped{clip: r.Clip, by: &lionUpdate{beta1: float32(o.Beta1), beta1c: float32(1 - o.Beta1),
		beta2: float32(o.Beta2), beta2c: float32(1 - o.Beta2), lr: float32(r.LR), decay: float32(1 - r.LR*o.WeightDecay)}}
}

// lionUpdate has the factors of an update.
type lionUpdate struct{ beta1, beta1c, beta2, beta2c, lr, decay float32 }

func (u *lionUpdate) step(w, m, g []float32, decays bool) {
	m, g = m[:len(w)], g[:len(w)]
	decay := float32(1)
	if decays {
		decay = u.decay
	}
	for i, x := range w {
		x = float32(x * decay)
		if c := float32(m[i]*u.beta1) + float32(u.beta1c*g[i]); c != 0 {
			x -= math.Float32frombits(math.Float32bits(u.lr) | math.Float32bits(c)&(1<<31)) // no branch on a sign, which none predicts
		}
		w[i], m[i] = x, normal(float32(m[i]*u.beta2)+float32(u.beta2c*g[i]))
	}
}

// normal is x, or 0 where that is below the smallest normal number. See expMask.
func normal(x float32) float32 {
	if math.Float32bits(x)&expMask == 0 {
		return 0
	}
	return x
}
