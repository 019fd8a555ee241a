package op

import "mt/device"

// CrossEntropyShard is CrossEntropy where the vocabulary comes in shards, one after
// the other, in two sweeps: here the columns From … From+V of it.
//
//	Logits (T, V) act; Targets (T) i32, of the whole vocabulary
//	LSE (T) f32: log-sum-exp of the logits so far; Losses (T) f32
//	Softcap as for CrossEntropy
//
// In the sweep without Gradient logits are only read: LSE takes in the shard
// (First: starts from it alone), Losses keeps the logit of the target once its
// shard has come and with Last becomes −log p(target), unscaled, 0 for
// IgnoreIndex. The sweep with Gradient reads the complete LSE, leaves it and
// Losses alone, and overwrites Logits by (softmax − onehot)·Scale, rows whose
// target is IgnoreIndex by 0.
type CrossEntropyShard struct {
	Logits, Targets, LSE, Losses device.Tensor
	T, V, From                   int
	Scale, Softcap               float32
	First, Last, Gradient        bool
}

// Name implements device.Op.
func (a *CrossEntropyShard) Name() string { return "CrossEntropyShard" }

// Check implements device.Op. The sweep with Gradient needs no Losses. What Targets
// hold is not looked at.
func (a *CrossEntropyShard) Check() error {
	var c checker
	c.sizes(a.T, a.V, a.From)
	c.softcap(a.Softcap)
	c.act("Logits", a.Logits, a.T*a.V)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("LSE", a.LSE, a.T, device.F32)
	if !a.Gradient {
		c.tensor("Losses", a.Losses, a.T, device.F32)
	}
	if a.V <= 0 && a.T > 0 {
		c.fail("a shard has no columns")
	}
	return c.err
}
