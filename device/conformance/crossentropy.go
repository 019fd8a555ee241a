package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("CrossEntropy", lossCases) }

func lossCases(add func(string, func(*rig))) {
	for _, sh := range [][2]int{{1, 1}, {3, 5}, {70, 17}, {9, 256}, {4, 1003}, {0, 6}} {
		for _, form := range lossForms {
			for _, forwardOnly := range []bool{false, true} {
				name := fmt.Sprintf("%dx%d,forward only %v,%v", sh[0], sh[1], forwardOnly, form)
				add(name, func(r *rig) { lossCase(r, sh[0], sh[1], form, forwardOnly) })
			}
		}
	}
}

// lossForm describes the logits and the loss of a case. size is the standard deviation of the logits, and limit their
// softcap (0: none). smoothing and z are op.LossTerms. weighted: rows of the gradient have weights.
type lossForm struct {
	size, limit, smoothing, z float64
	weighted                  bool
}

var lossForms = []lossForm{{size: 3}, {size: 40}, {size: 3, limit: 2}, {size: 40, limit: 30}, {size: 3, smoothing: 0.125}, {size: 40, z: 0.015625},
	{size: 3, smoothing: 0.5, z: 0.25}, {size: 40, limit: 30, smoothing: 0.25, z: 0.0078125},
	{size: 3, weighted: true}, {size: 40, limit: 30, smoothing: 0.25, z: 0.0078125, weighted: true}}

func (f lossForm) String() string {
	s := fmt.Sprintf("size %v", f.size)
	for _, x := range []struct {
		name  string
		value float64
	}{{"softcap", f.limit}, {"smoothing", f.smoothing}, {"z", f.z}} {
		if x.value > 0 {
			s += fmt.Sprintf(",%s %v", x.name, x.value)
		}
	}
	if f.weighted {
		s += ",weights"
	}
	return s
}

func (f lossForm) terms() op.LossTerms {
	return op.LossTerms{Smoothing: float32(f.smoothing), Z: float32(f.z)}
}

// weights returns a tensor of T random weights, one for each row, and multiplies the rows of grad by them. grad is the
// expected gradient, with V columns. If the form is not weighted, weights returns no tensor and changes nothing.
func (f lossForm) weights(r *rig, T, V int, grad []float64) device.Tensor {
	if !f.weighted {
		return device.Tensor{}
	}
	w := r.f32("Weights", T)
	for t := range T {
		scaled(grad[t*V:(t+1)*V], w.v[t])
	}
	return w.t
}

// more returns a bound for the factor by which the terms smoothing and z enlarge a loss and its
// error.
func (f lossForm) more(V int) float64 {
	lse := 5*f.size + math.Log(float64(V))
	return 1 + 2*f.z*lse
}

// exponents bounds the error of exp(x − log Σ exp x) for V numbers x with standard deviation size,
// relative to 1. limit is their softcap; 0: none. The argument is up to 8·size, and half an ulp of
// it becomes the exponential's relative error. A softcapped logit has three more operations of one
// ulp each: a division, a tanh and a product.
func exponents(V int, size, limit float64) float64 {
	if limit > 0 {
		size += 4 * min(size, limit)
	}
	return summing(V) + 8*size*uF32
}

func lossCase(r *rig, T, V int, f lossForm, forwardOnly bool) {
	size, limit := f.size, f.limit
	targets := make([]int32, T)
	for i := range targets {
		targets[i] = int32(r.rng.IntN(V))
		if i%4 == 3 {
			targets[i] = op.IgnoreIndex
		}
	}
	logits, ids, losses := r.values("Logits", r.dt, scaled(r.normal(T*V), size)), r.i32("Targets", targets), r.f32("Losses", T)
	want, wantL := logits.copy(), losses.copy()
	const scale = 0.125
	oracle.CrossEntropy(want, targets, wantL, V, scale, limit, f.smoothing, f.z, forwardOnly)
	var weights device.Tensor
	if !forwardOnly {
		weights = f.weights(r, T, V, want)
	}
	if !forwardOnly {
		logits.expect(want, exponents(V, size, limit), 1)
		if limit > 0 { // the error of 1 − tanh² is that of a number near 1
			logits.least = scale
		}
	}
	losses.expect(wantL, exponents(V, size, limit), 0)
	switch {
	case !f.terms().None(): // differences of numbers of this size
		logits.least, losses.least = scale*f.more(V), f.more(V)
	case V == 1: // the loss is exactly 0
		losses.expect(wantL, 0, 0)
	}
	enqueue(r, op.CrossEntropy{Logits: logits.t, Targets: ids.t, Losses: losses.t, Weights: weights, T: T, V: V,
		Scale: scale, Softcap: float32(limit), Terms: f.terms(), ForwardOnly: forwardOnly})
}
