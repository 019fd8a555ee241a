package optim

import (
	"fmt"
	"math"

	"mt/model"
)

// AdamW is AdamW as in PyTorch, with decoupled weight decay and bias-corrected moments m and v. The moments are its
// planes. With g the gradient times Clip, for every element
//
//	w = w·(1 − LR·WeightDecay)          where the parameter decays
//	m = m + (g − m)·(1 − Beta1)         0 once it is below the smallest normal number
//	v = v·Beta2 + (1 − Beta2)·g·g
//	w = w − (LR/bc1)·m / (√v/√bc2 + Eps),    bcᵢ = 1 − Betaᵢ^Step
//
// in fp32, each operation rounded. The factors are computed in float64 and rounded once. Source: arXiv:1711.05101. The
// order of operations is the order of torch.optim.AdamW (lerp, addcmul, addcdiv).
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
}

// Planes of AdamW.
var (
	firstMoment  = Plane{Name: "m", DType: F32, Kind: "moments", Of: "AdamW"}
	secondMoment = Plane{Name: "v", DType: F32, Kind: "moments", Of: "AdamW"}
	adamMoments  = []moment{{firstMoment, true}, {secondMoment, false}}
	adamPlanes   = []Plane{firstMoment, secondMoment}
)

// Planes implements Optimizer.
func (AdamW) Planes(Piece) []Plane { return adamPlanes }

func (AdamW) moments() []moment { return adamMoments }

// At implements Optimizer.
func (a AdamW) At(r Rate) Update { return elementUpdate{adamMoments, a.arithmetic(r), r.Step} }

func (a AdamW) decaying(by float64) Elementwise {
	a.WeightDecay = by
	return a
}

// arithmetic returns AdamW's update of an element, with these factors in order: clip, decay, 1−β1, β2, 1−β2, lr/bc1,
// √bc2, eps.
func (a AdamW) arithmetic(r Rate) *arithmetic {
	if r.Step < 1 {
		panic(fmt.Sprintf("optim: AdamW step %d: the first is 1", r.Step))
	}
	bc1 := 1 - math.Pow(a.Beta1, float64(r.Step))
	bc2 := 1 - math.Pow(a.Beta2, float64(r.Step))
	c := coefs{r.Clip, 1, float32(1 - a.Beta1), float32(a.Beta2), float32(1 - a.Beta2),
		float32(r.LR / bc1), float32(math.Sqrt(bc2)), float32(a.Eps)}
	by := &arithmetic{rule: adamRule, still: c, decays: c}
	by.decays[1] = float32(1 - r.LR*a.WeightDecay)
	return by
}

// Units implements Optimizer.
func (AdamW) Units(l model.Layout) []Unit { return elementUnits(l) }
