package op

import "mt/device"

// The most experts that a router can choose from, and the most that it can choose
// for a token.
const (
	MaxExperts = 1024
	MaxChosen  = 32
)

// Router chooses the experts of every token: those with the K largest logits (of
// equal ones, the lower index first), weighted by the softmax over all logits.
// Source: arXiv:2101.03961, arXiv:2505.09388.
//
//	Logits (T, E) f32, E ≤ MaxExperts; 1 ≤ K ≤ min(E, MaxChosen)
//	IDs (T, K) i32, Weights (T, K) f32, the greatest probability first: of the
//	softmax over E, with Normalize divided by the sum of those chosen. IDs are
//	less than E and differ, whatever the logits hold
//	ProbSum (E) f32 accumulates Σ_t softmax; none: not wanted
type Router struct {
	Logits, IDs, Weights, ProbSum device.Tensor
	T, E, K                       int
	Normalize                     bool
}

// Name implements device.Op.
func (a *Router) Name() string { return "Router" }

// Check implements device.Op.
func (a *Router) Check() error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K)
	c.tensor("Weights", a.Weights, a.T*a.K, device.F32)
	c.optional("ProbSum", a.ProbSum, a.E, device.F32)
	return c.err
}

// RouterBackward overwrites DLogits. The choice of experts counts as fixed.
//
//	DLogits (T, E) f32 overwritten, may be Logits; DWeights (T, K) f32
//	Logits, IDs, Normalize as in the forward
//	Counts (E) i32: the probability of expert e has, for every token, the
//	additional gradient AuxScale·Counts[e]; none: no such term
type RouterBackward struct {
	DLogits, Logits, IDs, DWeights, Counts device.Tensor
	T, E, K                                int
	Normalize                              bool
	AuxScale                               float32
}

// Name implements device.Op.
func (a *RouterBackward) Name() string { return "RouterBackward" }

// Check implements device.Op. The values of IDs are not checked.
func (a *RouterBackward) Check() error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K)
	c.tensor("DLogits", a.DLogits, a.T*a.E, device.F32)
	c.tensor("DWeights", a.DWeights, a.T*a.K, device.F32)
	c.optional("Counts", a.Counts, a.E, device.I32)
	return c.err
}

// router checks what the forward and the backward of a router both need: that each
// of T tokens chooses K of E experts.
func (c *checker) router(logits, ids device.Tensor, T, E, K int) {
	c.sizes(T, E, K)
	c.experts(T, E)
	most := min(E, MaxChosen)
	if T > 0 && (K <= 0 || K > most) {
		c.fail("%d of %d experts are chosen: want 1 to %d", K, E, most)
	}
	c.tensor("Logits", logits, T*E, device.F32)
	c.tensor("IDs", ids, T*K, device.I32)
}

// experts checks that there are at most MaxExperts experts, and at least one where
// n, the number of tokens, is above 0.
func (c *checker) experts(n, experts int) {
	if n > 0 && experts <= 0 {
		c.fail("there are no experts")
	}
	if experts > MaxExperts {
		c.fail("%d experts: at most %d", experts, MaxExperts)
	}
}

// Bytes implements Mover.
func (a *Router) Bytes() int64 {
	return 4 * int64(a.T*(a.E+2*a.K))
}

// Bytes implements Mover.
func (a *RouterBackward) Bytes() int64 {
	return 8 * int64(a.T*(a.E+a.K))
}
