package vec

import "math"

// Strip describes a strip of attention scores: Rows rows, one for each query, Stride elements apart. Row r attends to
// its first N+r columns, clamped to 0 … Most, where Most ≤ Width. The other scores among the first Width columns count
// as −Inf. Up to 15 elements after those columns may be overwritten.
type Strip struct {
	Stride, Rows, N, Most, Width int
	Scale                        float32
}

// check panics if x is too short for the strip and the elements after it that may be overwritten. It also panics if a
// slice of perRow has fewer elements than the strip has rows.
func (s Strip) check(x []float32, perRow ...[]float32) {
	const lanes = 16
	_ = x[(s.Rows-1)*s.Stride+(s.Width+lanes-1)&^(lanes-1)-1]
	for _, p := range perRow {
		_ = p[s.Rows-1]
	}
	if s.Most > s.Width {
		panic("vec: a strip sees more columns than it has")
	}
}

// factor returns the factor that turns scores into exponents of 2.
func (s Strip) factor() float32 { return s.Scale * math.Log2E }

// SoftmaxStrip computes one step of an online softmax. With factor = Scale·log₂e, it raises each row's element of top to
// the row's largest factor·score, if that is larger. It replaces the scores by 2^(factor·score − top), 0 for masked
// scores, and sets sum to the sum of the row. If a row attends to nothing, its top may be −Inf.
//
// The relative error of a power is at most 2e-7, in addition to the effect of its exponent's error. Powers below 2^-126
// may be 0.
func SoftmaxStrip(x []float32, s Strip, top, sum []float32) {
	if s.Rows == 0 {
		return
	}
	s.check(x, top, sum)
	chosen.softmaxStrip(first(x), 4*s.Stride, s.Rows, s.N, s.Most, s.Width, s.factor(), first(top), first(sum))
}

// GradStrip replaces the scores x by probabilities p = 2^(factor·x − lse), with the factor and the precision of
// SoftmaxStrip. It replaces dx, the gradients of the probabilities, by the gradients of the scores, Scale·p·(dx − delta).
// Both are 0 for masked scores.
func GradStrip(x, dx []float32, s Strip, lse, delta []float32) {
	if s.Rows == 0 {
		return
	}
	s.check(x, lse, delta)
	s.check(dx)
	chosen.gradStrip(first(x), first(dx), 4*s.Stride, s.Rows, s.N, s.Most, s.Width, s.factor(), s.Scale, first(lse), first(delta))
}
