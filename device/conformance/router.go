package conformance

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("Router", routerCases)
	row("RouterBackward", routerBackwardCases)
}

// routerShapes are shapes of the router: tokens, experts, and how many experts each token chooses.
var routerShapes = [][3]int{{1, 1, 1}, {3, 5, 2}, {70, 8, 8}, {9, 60, 4}, {33, 128, 8}, {5, 256, 6}, {2, 1024, 32}, {40, 33, 32}, {0, 4, 2}}

// routerRules are variants of the router. Each is tested with every shape that allows it.
var routerRules = []struct {
	name string
	bias bool
	rule op.RouterRule
}{
	{"plain", false, op.RouterRule{}},
	{"bias", true, op.RouterRule{Scale: 2}},
	{"shared", false, op.RouterRule{Shared: true}},
	{"gated", false, op.RouterRule{Shared: true, Gated: true}},
	{"sigmoid", false, op.RouterRule{Sigmoid: true, Scale: 1.5}},
	{"sigmoid, bias, groups", true, op.RouterRule{Sigmoid: true, Groups: 4, OpenGroups: 2, GroupBest: 2, Shared: true, Scale: 2.5}},
	{"groups of one", true, op.RouterRule{Sigmoid: true, Groups: 3, OpenGroups: 2, GroupBest: 1, Shared: true, Gated: true}},
	{"near", false, op.RouterRule{Near: 0.13, Scale: 1.5}},
	{"near, gated", false, op.RouterRule{Near: 0.4, Shared: true, Gated: true}},
	{"many groups", false, op.RouterRule{Groups: 32, OpenGroups: 9, GroupBest: 1}},
	{"softmax, groups", false, op.RouterRule{Groups: 4, OpenGroups: 2, GroupBest: 2, Scale: 2.5}},
	{"softmax, bias, groups", true, op.RouterRule{Groups: 4, OpenGroups: 2, GroupBest: 2, Shared: true}},
}

// routerForms calls f with every test case of the router and its name. A case is a combination of a
// shape, a rule and a form of logits that fit together.
func routerForms(f func(name string, z routing)) {
	for _, sh := range routerShapes {
		for _, of := range routerRules {
			g := max(1, of.rule.Groups)
			most := sh[1]
			if of.rule.Groups > 0 {
				most = sh[1] / g * of.rule.OpenGroups
			}
			if sh[1]%g != 0 || sh[1]/g < of.rule.GroupBest || sh[2] > most || of.rule.Chosen(sh[2]) > op.MaxChosen || of.rule.Chosen(sh[1]) > op.MaxExperts {
				continue
			}
			forms := []string{"spread", "ties"}
			if of.rule == (op.RouterRule{}) {
				forms = append(forms, "far apart") // sigmoids of these logits would be too close to 0 and 1 to choose between
			}
			for _, normalize := range []bool{false, true} {
				if normalize && of.rule.Near > 0 {
					continue
				}
				for _, form := range forms {
					f(fmt.Sprintf("%v,normalize %v,%s,%s", sh, normalize, form, of.name), routing{sh[0], sh[1], sh[2], normalize, form, of.bias, of.rule})
				}
			}
		}
	}
}

// routing describes a case of the router's operations.
type routing struct {
	T, E, K   int
	normalize bool
	form      string // of the logits
	bias      bool
	rule      op.RouterRule
}

func (z routing) logits() int { return z.T * z.rule.Logits(z.E) }
func (z routing) chosen() int { return z.T * z.rule.Chosen(z.K) }

func routerCases(add func(string, func(*rig))) {
	routerForms(func(name string, z routing) { add(name, func(r *rig) { router(r, z) }) })
}

func routerBackwardCases(add func(string, func(*rig))) {
	routerForms(func(name string, z routing) { add(name, func(r *rig) { routerBackward(r, z) }) })
}

// routerLogits returns n random logits, some of them equal if form says so. They are rounded to fp32 before the oracle,
// the float64 reference, gets them. So oracle and device choose the same experts. Differences of two logits are at most
// a few times size.
func (r *rig) routerLogits(n int, form string) (v []float64, size float64) {
	v, size = r.normal(n), 1
	switch form {
	case "ties":
		for i := range v {
			v[i] = float64(int(2*v[i])) / 2
		}
	case "far apart":
		v, size = scaled(v, 30), 30
	}
	return v, size
}

// routerBias returns a bias for every expert. The biases differ by more than any rounding error, so rounding changes no
// choice. If the case has no bias, the array is empty.
func (r *rig) routerBias(z routing) *array {
	if !z.bias {
		return &array{}
	}
	v := make([]float64, z.E)
	for e := range v {
		v[e] = float64(r.rng.IntN(5)) / 16
	}
	return r.values("Bias", device.F32, v)
}

// router checks the forward of a case. With sigmoids a score is an exponential of one logit. Its error is below the
// bound for a softmax, so the same bound serves both.
func router(r *rig, z routing) {
	v, size := r.routerLogits(z.logits(), z.form)
	logits, bias, ids := r.values("Logits", device.F32, v), r.routerBias(z), r.i32("IDs", make([]int32, z.chosen()))
	weights, sums := r.f32("Weights", z.chosen()), r.f32("ProbSum", z.E)
	chosen, wantW, wantS := make([]int32, z.chosen()), weights.copy(), sums.copy()
	oracle.Router(logits.v, bias.v, chosen, wantW, wantS, z.E, z.K, z.normalize, oracle.RouterRule(z.rule))
	ids.expect(floats(chosen), 0, 0)
	weights.expect(wantW, exponents(z.E, size, 0), 0)
	a := op.Router{Logits: logits.t, Bias: bias.t, IDs: ids.t, Weights: weights.t, T: z.T, E: z.E, K: z.K, Normalize: z.normalize, Rule: z.rule}
	if z.form != "ties" {
		a.ProbSum = sums.t
		sums.expect(wantS, exponents(z.E, size, 0)+summing(z.T), 0)
	}
	enqueue(r, a)
}

// routerBackward checks the backward. A logit's gradient is a probability times a difference of gradients, and such a
// difference is at most a few units. The allowed errors follow from that.
func routerBackward(r *rig, z routing) {
	v, size := r.routerLogits(z.logits(), z.form)
	logits := r.values("Logits", device.F32, v)
	chosen, counted := make([]int32, z.chosen()), make([]int32, z.E)
	rule := oracle.RouterRule(z.rule)
	oracle.Router(logits.v, nil, chosen, make([]float64, z.chosen()), make([]float64, z.E), z.E, z.K, z.normalize, rule)
	for e := range counted {
		counted[e] = int32(r.rng.IntN(20))
	}
	ids, dw, counts := r.i32("IDs", chosen), r.f32("DWeights", z.chosen()), r.i32("Counts", counted)
	out := logits
	if z.form == "spread" {
		out = r.f32("DLogits", z.logits())
	}
	const aux = 0.0625
	a := op.RouterBackward{DLogits: out.t, Logits: logits.t, IDs: ids.t, DWeights: dw.t, T: z.T, E: z.E, K: z.K, Normalize: z.normalize, Rule: z.rule, AuxScale: aux}
	if z.form == "ties" {
		counted = nil
	} else {
		a.Counts = counts.t
	}
	want := make([]float64, z.logits())
	oracle.RouterBackward(want, logits.v, chosen, dw.v, counted, z.E, z.K, z.normalize, rule, aux)
	out.least = 1
	out.expect(want, 4*exponents(z.E, size, 0), 0)
	enqueue(r, a)
}
