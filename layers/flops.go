package layers

// RecomputedFLOPs is what the backward of all blocks computes a second time with
// Keep, in floating point operations (a multiply-add is two).
//
//	tokens: of the micro-batch or batch; pairs: its (query, key) pairs in those blocks
//	whose attention is computed again, together (see PairsAgain)
//
// Matrix products and attention's forward count; norms and rotations do not, as
// they do not in model FLOPs. Nor do the scores that AttentionBackward forms
// again inside, on every level alike: they are how that operation works.
func (s Spec) RecomputedFLOPs(tokens, pairs int64) int64 {
	n := s.attentionFLOPs(pairs)
	for block := s.NoBackward; block < s.Config.NumLayers; block++ {
		n += tokens * s.productsAgain(block, s.Keep.Of(block))
	}
	return n
}

// PairsAgain is how many (query, key) pairs a document of so many tokens has in the blocks
// whose attention the backward computes again, together.
func (s Spec) PairsAgain(length int) (n int64) {
	for block := s.NoBackward; block < s.Config.NumLayers; block++ {
		if s.Keep.Of(block) < KeepAttention {
			n += s.Config.BlockPairs(block, length)
		}
	}
	return n
}

// BlockRecomputes is what the backward of one block computes a second time at a level, in
// FLOPs: products of so many tokens, and attention to so many pairs of that block.
func (s Spec) BlockRecomputes(block int, keep Keep, tokens, pairs int64) (products, attention int64) {
	if keep < KeepAttention {
		attention = s.attentionFLOPs(pairs)
	}
	return tokens * s.productsAgain(block, keep), attention
}

// attentionFLOPs is attention's forward: QKᵀ and PV.
func (s Spec) attentionFLOPs(pairs int64) int64 { return 4 * pairs * int64(newDims(s).q) }

// productsAgain is the products of a token, and its part in a recurrence, that the backward of a block computes again at a
// level, in FLOPs.
func (s Spec) productsAgain(block int, keep Keep) (n int64) {
	d, c := s.dims(s.Config.IsRecurrent(block)), s.Config
	product := func(in, out int) int64 { return 2 * int64(in) * int64(out) }
	moe := c.HasExperts(block)
	if keep < KeepQKV {
		n += 2 * c.QKVProducts(block)
	}
	if d.recurrent { // what the convolution makes is never kept
		n += d.gdn.ConvFLOPs()
		if keep < KeepAttention {
			n += d.gdn.StateFLOPs()
		}
	}
	if l := d.mla; l != nil { // the narrow vectors
		n += product(d.hidden, l.QRank+l.KVRank+l.RopeDim)
	}
	if s.OnHost && c.NormsQK(block) { // what q/k norm's backward reads waits nowhere
		n += 2 * c.QKVProducts(block)
	}
	if d.normOut || !moe && keep < KeepAll && !d.parallel { // before the norm of attention's output, or for x2
		n += product(d.out, d.hidden)
	}
	if moe { // its second half keeps nothing: the router and every expert's gate and up again
		width := c.NumExpertsPerTok*c.MoEIntermediateSize + c.SharedSize
		return n + product(d.hidden, s.routerLogits()) + product(d.hidden, 2*width)
	}
	if keep < KeepAll {
		n += product(d.hidden, d.up)
	}
	if d.normOut { // before the norm of the MLP's output
		n += product(d.ffn, d.hidden)
	}
	return n
}

// HeadRecomputedFLOPs is the work, in FLOPs, of computing the logits again, as the second
// sweep does over the parts of a cut head or over pairs (Preference); else it is 0.
func (s Spec) HeadRecomputedFLOPs(tokens int64) int64 {
	if s.Shards() == 1 && s.Preference.None() {
		return 0
	}
	return 2 * tokens * int64(s.Config.HiddenSize) * int64(s.Config.VocabSize)
}
