package op

import (
	"math"

	"mt/device"
)

// PreferenceLoss is the loss of a pair of a chosen and a rejected document. It compares their log-probabilities under
// the model and under a reference model. The zero value is none.
//
//	c, r = log p(document) − log p(document by the reference), of the chosen and the rejected; δ = c − r
//	Sigmoid: −(1−Smoothing)·log σ(Beta·δ) − Smoothing·log σ(−Beta·δ)
//	Hinge:   max(0, 1 − Beta·δ)
//	IPO:     (c/tokens − r/tokens − 1/(2·Beta))², by each document's targets
//
// Source: arXiv:2305.18290, its note on label smoothing (cDPO), arXiv:2305.10425, arXiv:2310.12036 as TRL's
// DPOTrainer has it.
type PreferenceLoss struct {
	Kind            PreferenceKind
	Beta, Smoothing float32
}

// PreferenceKind selects one of the formulas of PreferenceLoss.
type PreferenceKind uint8

// The values of PreferenceKind.
const (
	NoPreference PreferenceKind = iota
	Sigmoid
	Hinge
	IPO
)

// None reports whether training is not on preference pairs.
func (l PreferenceLoss) None() bool { return l.Kind == NoPreference }

// Of returns the loss of a pair with log-ratios c and r, and its derivatives by c and by r. chosen and rejected are
// the documents' numbers of targets.
func (l PreferenceLoss) Of(c, r float64, chosen, rejected int) (loss, byC, byR float64) {
	beta, smoothing := float64(l.Beta), float64(l.Smoothing)
	perC, perR := 1.0, 1.0
	if l.Kind == IPO {
		perC, perR = 1/float64(max(chosen, 1)), 1/float64(max(rejected, 1))
	}
	delta := c*perC - r*perR
	var slope float64
	switch l.Kind {
	case Sigmoid:
		loss = (1-smoothing)*softplus(-beta*delta) + smoothing*softplus(beta*delta)
		slope = -beta * ((1-smoothing)*sigmoid(-beta*delta) - smoothing*sigmoid(beta*delta))
	case Hinge:
		loss = max(0, 1-beta*delta)
		if loss > 0 {
			slope = -beta
		}
	case IPO:
		off := delta - 1/(2*beta)
		loss, slope = off*off, 2*off
	}
	return loss, slope * perC, -slope * perR
}

// softplus returns log(1 + e^x), which is −log σ(−x), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// LogP returns a document's log-probability p and how many of its tokens have a target. Arguments
// losses and targets have an element for each of the document's tokens. The sum is made in float64
// and rounded to fp32, because the reference model's log-probability is stored in fp32 too.
func LogP(losses []float32, targets []int32) (p float32, n int) {
	var sum float64
	for t, target := range targets {
		if target != IgnoreIndex {
			sum, n = sum+float64(losses[t]), n+1
		}
	}
	return float32(-sum), n
}

// SameDocuments is stored instead of a pair's two reference log-probabilities if the pair's chosen
// and rejected documents are identical.
var SameDocuments = [2]float32{float32(math.NaN()), float32(math.NaN())}

// PreferenceWeights turns token losses into factors for each token's gradient. With these factors, the backward pass
// computes the gradient of the pairs' losses. Documents follow each other in pairs, the chosen before the rejected
// one.
//
//	Losses (T) f32: −log p(target), 0 for tokens without a target; Targets (T) i32
//	Cu (2·Pairs+1) i32: the documents' bounds, from 0 to T
//	Reference (Pairs, 2) f32: log p of the chosen and of the rejected document by the reference
//	Weights (T) f32 overwritten: the derivative of the pair's loss by the token's, plus Likelihood in chosen documents
//
// LogP defines a document's log p. A pair with the reference SameDocuments has identical documents. The derivatives
// of its loss cancel, and are set to 0 so that no rounding error remains.
type PreferenceWeights struct {
	Weights, Losses, Targets, Cu, Reference device.Tensor
	T, Pairs                                int
	Loss                                    PreferenceLoss
	Likelihood                              float32
}

// Name implements device.Op.
func (a *PreferenceWeights) Name() string { return "PreferenceWeights" }

// Check implements device.Op. The values of Cu are not checked.
func (a *PreferenceWeights) Check() error {
	var c checker
	c.sizes(a.T, a.Pairs)
	c.tensor("Weights", a.Weights, a.T, device.F32)
	c.tensor("Losses", a.Losses, a.T, device.F32)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("Cu", a.Cu, 2*a.Pairs+1, device.I32)
	c.tensor("Reference", a.Reference, 2*a.Pairs, device.F32)
	if a.Loss.None() || a.Loss.Kind > IPO || !(a.Loss.Beta > 0) || !(a.Loss.Smoothing >= 0 && a.Loss.Smoothing < 1) {
		c.fail("Loss is %+v: want a kind, a positive Beta, and a share of 1", a.Loss)
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *PreferenceWeights) Bytes() int64 { return 12*int64(a.T) + 16*int64(a.Pairs) }
