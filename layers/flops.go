package layers

// RecomputedFLOPs is what the backward of all blocks computes a second time with
// Keep, in floating point operations (a multiply-add is two).
//
//	tokens: of the micro-batch or batch; attendedPairs: its (query, key) pairs
//	in all blocks together
//
// Matrix products and attention's forward count; norms and rotations do not, as
// they do not in model FLOPs. Nor do the scores that AttentionBackward forms
// again inside, on every level alike: they are how that operation works.
func (s Spec) RecomputedFLOPs(tokens, attendedPairs int64) int64 {
	d, c := newDims(s), s.Config
	product := func(in, out int) int64 { return 2 * tokens * int64(in) * int64(out) }
	all, moe := int64(c.NumLayers), int64(c.ExpertBlocks())
	dense := all - moe
	var n int64
	if s.Keep < KeepAttention {
		n += 4 * attendedPairs * int64(d.q) // QKᵀ and PV
	}
	if s.Keep < KeepQKV {
		n += all * 2 * tokens * c.QKVProducts()
	}
	if s.Keep < KeepAll {
		n += dense * (product(c.OutputCols(), d.hidden) + product(d.hidden, 2*d.ffn))
	} else if d.sandwich {
		n += dense * product(c.OutputCols(), d.hidden)
	}
	if d.sandwich { // products before norms
		n += dense*product(d.ffn, d.hidden) + moe*product(c.OutputCols(), d.hidden)
	}
	// A MoE layer keeps nothing: its router and every expert's gate and up again.
	experts := c.NumExpertsPerTok + c.SharedExperts
	return n + moe*(product(d.hidden, c.NumExperts)+int64(experts)*product(d.hidden, 2*c.MoEIntermediateSize))
}

// HeadRecomputedFLOPs is the work, in FLOPs, of computing the logits again, as the second
// sweep over the parts of a cut head does; 0 for a whole head.
func (s Spec) HeadRecomputedFLOPs(tokens int64) int64 {
	if s.Shards() == 1 {
		return 0
	}
	return 2 * tokens * int64(s.Config.HiddenSize) * int64(s.Config.VocabSize)
}
