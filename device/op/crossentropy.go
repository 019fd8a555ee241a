package op

import "mt/device"

// IgnoreIndex is the target of a row that does not count in the loss.
const IgnoreIndex = -100

// LossTerms are additions to the loss −log p(target). The zero value adds nothing.
//
//	loss = lse − (1−Smoothing)·x(target) − Smoothing·mean x + Z·lse²
//
// x are the logits of the whole vocabulary, after a softcap if there is one, and lse is their log-sum-exp. Source:
// arXiv:1512.00567 (label smoothing, as torch.nn.CrossEntropyLoss has it), arXiv:2204.02311 (z-loss).
type LossTerms struct{ Smoothing, Z float32 }

// None reports whether there are no additions.
func (t LossTerms) None() bool { return t == LossTerms{} }

// CrossEntropy computes losses and, unless ForwardOnly, turns logits into their gradient in place.
//
//	Logits (T, V) act, overwritten by (softmax − onehot)·Scale unless
//	ForwardOnly (rows whose target is IgnoreIndex become 0)
//	Targets (T) i32; Losses (T) f32 overwritten: −log p(target), unscaled,
//	0 for IgnoreIndex
//	Weights (T) f32, or none: a factor on each row's gradient, beside Scale
//	Terms: additions to the losses and their gradient
//	Softcap: 0, or the logits become Softcap·tanh(logit/Softcap) first; the
//	gradient is that of the original logits
type CrossEntropy struct {
	Logits, Targets, Losses, Weights device.Tensor
	T, V                             int
	Scale, Softcap                   float32
	Terms                            LossTerms
	ForwardOnly                      bool
}

// Name implements device.Op.
func (a *CrossEntropy) Name() string { return "CrossEntropy" }

// Check implements device.Op. The values of Targets are not checked.
func (a *CrossEntropy) Check() error {
	var c checker
	c.sizes(a.T, a.V)
	c.softcap(a.Softcap)
	c.lossTerms(a.Terms)
	c.act("Logits", a.Logits, a.T*a.V)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("Losses", a.Losses, a.T, device.F32)
	c.optional("Weights", a.Weights, a.T, device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *CrossEntropy) Bytes() int64 {
	passes := int64(2) // the logits are read and overwritten
	if a.ForwardOnly {
		passes = 1
	}
	return passes*int64(a.T*a.V)*a.Logits.DType.Size() + 8*int64(a.T)
}
