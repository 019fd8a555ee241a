package op

import "mt/device"

// CrossEntropyShard is CrossEntropy for a vocabulary in shards (ranges of its columns). There are two sweeps over all
// shards: the first computes the losses, the second the gradient. One operation is one shard, columns From … From+V−1,
// in one of the sweeps.
//
//	Logits (T, V) act; Targets (T) i32, of the whole vocabulary
//	LSE (T) f32: log-sum-exp of the logits so far; Losses (T) f32
//	Softcap, Terms and Weights as for CrossEntropy; with Terms, Vocab is the size of the whole vocabulary
//
// The sweep without Gradient only reads Logits. It merges the shard's log-sum-exp into LSE. With First, the first shard
// of the sweep, it sets LSE instead. The shard with a row's target stores the target's logit in Losses. With Last, the
// last shard of the sweep, Losses become −log p(target), unscaled, and 0 for IgnoreIndex. With Terms, Losses also sum
// each shard's share of the Terms.
//
// The sweep with Gradient reads the complete LSE and changes neither LSE nor Losses. It overwrites Logits by (softmax −
// onehot)·Scale, or by 0 in rows whose target is IgnoreIndex.
type CrossEntropyShard struct {
	Logits, Targets, LSE, Losses, Weights device.Tensor
	T, V, From                            int
	Scale, Softcap                        float32
	Terms                                 LossTerms
	Vocab                                 int
	First, Last, Gradient                 bool
}

// Name implements device.Op.
func (a *CrossEntropyShard) Name() string { return "CrossEntropyShard" }

// Check implements device.Op. The sweep with Gradient needs no Losses. The values
// of Targets are not checked.
func (a *CrossEntropyShard) Check() error {
	var c checker
	c.sizes(a.T, a.V, a.From, a.Vocab)
	c.softcap(a.Softcap)
	c.lossTerms(a.Terms)
	if !a.Terms.None() && a.From+a.V > a.Vocab {
		c.fail("columns %d to %d of a vocabulary of %d", a.From, a.From+a.V, a.Vocab)
	}
	c.act("Logits", a.Logits, a.T*a.V)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("LSE", a.LSE, a.T, device.F32)
	if !a.Gradient {
		c.tensor("Losses", a.Losses, a.T, device.F32)
	}
	c.optional("Weights", a.Weights, a.T, device.F32)
	if a.V <= 0 && a.T > 0 {
		c.fail("a shard has no columns")
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *CrossEntropyShard) Bytes() int64 {
	passes := int64(1)
	if a.Gradient {
		passes = 2 // the logits are read and overwritten
	}
	return passes*int64(a.T*a.V)*a.Logits.DType.Size() + 12*int64(a.T)
}
