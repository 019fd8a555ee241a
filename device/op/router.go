package op

import "mt/device"

// Limits of a router: experts, experts chosen for a token (the shared expert included), and groups of experts.
const (
	MaxExperts = 1024
	MaxChosen  = 32
	MaxGroups  = 32
)

// RouterRule selects variants of Router. The zero value is the plain router.
type RouterRule struct {
	Sigmoid bool // an expert's score is the sigmoid of its logit; otherwise the softmax over all E logits

	// Groups divides the experts, in their order, into groups of equal size. A token chooses its experts from the
	// OpenGroups best groups only. A group's rank is its largest key (GroupBest 1), or the sum of its two largest
	// (GroupBest 2); for a softmax without Bias, the sum of the two experts' scores. 0: no groups.
	Groups, OpenGroups, GroupBest int

	// Near > 0 weights each chosen expert by a softmax over the chosen expert and the experts near it. Experts chosen
	// earlier do not take part. An expert with logit s is near the chosen logit top if (top − s) / max(|s|, top) ≤
	// 2·Near. Near excludes sigmoids, groups and Bias. 0: no such weights. Source: SparseMixer-v2, arXiv:2409.12136,
	// in evaluation mode as in Transformers' Phi-3.5-MoE.
	Near float32

	Scale float32 // multiplies the weights of the chosen experts; 0: no factor

	// Shared gives every token the additional expert number E, after its chosen experts, with weight 1. With Gated
	// the weight is the sigmoid of one more logit, the row's last.
	Shared, Gated bool
}

// Router chooses for every token the K experts with the largest keys (for equal keys, the lower index first). Scores
// weight the chosen experts. An expert's key is its score + Bias; for a softmax without Bias, the logit. Source:
// arXiv:2101.03961, arXiv:2505.09388; with sigmoids, groups and Bias arXiv:2412.19437; the shared expert's gate:
// Qwen2-MoE in Transformers.
//
//	Logits (T, E) f32, with Gated (T, E+1); E ≤ MaxExperts; 1 ≤ K ≤ min(E, MaxChosen)
//	Bias (E) f32, or none
//	IDs (T, K) i32, Weights (T, K) f32, with Shared (T, K+1); the largest key first. Weights are Scale times scores.
//	Normalize divides the scores by the sum of the chosen (with Sigmoid, the sum + 1e-20, as in Transformers). The IDs
//	of a token differ, whatever the logits are
//	ProbSum (E) f32 accumulates Σ_t scores; none: not wanted
type Router struct {
	Logits, Bias, IDs, Weights, ProbSum device.Tensor
	T, E, K                             int
	Normalize                           bool
	Rule                                RouterRule
}

// Name implements device.Op.
func (a *Router) Name() string { return "Router" }

// Check implements device.Op.
func (a *Router) Check() error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K, a.Rule)
	c.tensor("Weights", a.Weights, a.T*a.Rule.Chosen(a.K), device.F32)
	c.optional("Bias", a.Bias, a.E, device.F32)
	if a.Rule.Near > 0 && (a.Normalize || !a.Bias.None()) {
		c.fail("Near does not go with Normalize or a Bias")
	}
	c.optional("ProbSum", a.ProbSum, a.E, device.F32)
	return c.err
}

// RouterBackward overwrites DLogits. The choice of experts is treated as constant, so Bias has no gradient.
//
//	DLogits like Logits, overwritten, may be Logits; DWeights like the forward's Weights
//	Logits, IDs, Normalize, Rule as in the forward
//	Counts (E) i32: for every token, AuxScale·Counts[e] is added to the gradient of expert e's score; none: no such term
type RouterBackward struct {
	DLogits, Logits, IDs, DWeights, Counts device.Tensor
	T, E, K                                int
	Normalize                              bool
	Rule                                   RouterRule
	AuxScale                               float32
}

// Name implements device.Op.
func (a *RouterBackward) Name() string { return "RouterBackward" }

// Check implements device.Op. The values of IDs are not checked.
func (a *RouterBackward) Check() error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K, a.Rule)
	c.tensor("DLogits", a.DLogits, a.T*a.Rule.Logits(a.E), device.F32)
	c.tensor("DWeights", a.DWeights, a.T*a.Rule.Chosen(a.K), device.F32)
	c.optional("Counts", a.Counts, a.E, device.I32)
	return c.err
}

// Logits returns how many logits a token has, for a router with this number of experts. A shared expert with a gate
// adds one.
func (r RouterRule) Logits(experts int) int {
	if r.Gated {
		return experts + 1
	}
	return experts
}

// Chosen returns how many experts a token goes to, if the router chooses k. A shared expert adds one.
func (r RouterRule) Chosen(k int) int {
	if r.Shared {
		return k + 1
	}
	return k
}

// router checks the arguments that a router's forward and backward share: each of T tokens chooses K of E experts.
func (c *checker) router(logits, ids device.Tensor, T, E, K int, r RouterRule) {
	c.sizes(T, E, K)
	c.experts(T, r.Chosen(E))
	c.groups(E, r)
	if r.Near < 0 || r.Near > 0 && (r.Sigmoid || r.Groups > 0) {
		c.fail("Near is %g: want at least 0, and 0 with sigmoids or groups", r.Near)
	}
	most, own := min(E, MaxChosen), r.Chosen(0)
	if r.Groups > 0 {
		most = min(most, E/r.Groups*r.OpenGroups)
	}
	most = min(most, MaxChosen-own)
	if T > 0 && (K <= 0 || K > most) {
		c.fail("%d of %d experts are chosen: want 1 to %d", K, E, most)
	}
	if r.Gated && !r.Shared {
		c.fail("there is a gate and no shared expert")
	}
	c.tensor("Logits", logits, T*r.Logits(E), device.F32)
	c.tensor("IDs", ids, T*r.Chosen(K), device.I32)
}

// groups checks that r divides E experts into at most MaxGroups groups of equal size, and that
// OpenGroups and GroupBest fit the groups.
func (c *checker) groups(E int, r RouterRule) {
	switch {
	case r.Groups == 0:
	case r.Groups < 0 || r.Groups > MaxGroups || E%r.Groups != 0:
		c.fail("%d experts in %d groups: want groups of equal size, at most %d", E, r.Groups, MaxGroups)
	case r.OpenGroups < 1 || r.OpenGroups > r.Groups:
		c.fail("%d of %d groups are open: want 1 to %d", r.OpenGroups, r.Groups, r.Groups)
	case r.GroupBest != 1 && r.GroupBest != 2 || E > 0 && r.GroupBest > E/r.Groups:
		c.fail("a group of %d experts is worth %d keys: want 1 or 2, and no more than it has", E/r.Groups, r.GroupBest)
	}
}

// experts checks that there are at most MaxExperts experts, and at least one if there are tokens (n > 0).
func (c *checker) experts(n, experts int) {
	if n > 0 && experts <= 0 {
		c.fail("there are no experts")
	}
	if experts > MaxExperts {
		c.fail("%d experts: at most %d", experts, MaxExperts)
	}
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Router) Bytes() int64 {
	return 4 * int64(a.T*(a.Rule.Logits(a.E)+2*a.Rule.Chosen(a.K)))
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *RouterBackward) Bytes() int64 {
	return 8 * int64(a.T*(a.Rule.Logits(a.E)+a.Rule.Chosen(a.K)))
}
