package layers

import "mt/model"

// RecomputedFLOPs returns the FLOPs that the backward of all blocks computes a second time, because
// Spec.Keep does not keep the results of the forward. A multiply-add is two.
//
//	tokens: of the micro-batch or batch; pairs: its (query, key) pairs, summed over the blocks
//	whose attention is computed again (see PairsAgain)
//
// Matrix products and attention's forward count. Norms and rotations do not, as in model FLOPs. The
// attention scores that AttentionBackward always computes again do not count either: they belong to
// the operation.
func (s Spec) RecomputedFLOPs(tokens, pairs int64) int64 {
	n := s.attentionFLOPs(pairs)
	for block := s.NoBackward; block < s.Config.Blocks(); block++ {
		kept := int64(s.KeptShare(block) * float64(tokens))
		n += kept*s.productsAgain(block, s.Keep.Of(block)) + (tokens-kept)*s.productsAgain(block, KeepNothing)
	}
	return n
}

// PairsAgain returns how many (query, key) pairs a document of length tokens has in all blocks whose attention the
// backward computes again.
func (s Spec) PairsAgain(length int) (n int64) {
	for block := s.NoBackward; block < s.Config.Blocks(); block++ {
		pairs := s.Config.BlockPairs(block, length)
		if s.Keep.Of(block) >= KeepAttention {
			pairs -= int64(s.KeptShare(block) * float64(pairs))
		}
		n += pairs
	}
	return n
}

// BlockRecomputes returns the FLOPs that one block's backward computes a second time if the forward
// keeps the results that keep names. Result products has the FLOPs of the given tokens' matrix
// products, result attention the FLOPs of the block's (query, key) pairs.
func (s Spec) BlockRecomputes(block int, keep Keep, tokens, pairs int64) (products, attention int64) {
	if keep < KeepAttention {
		attention = s.attentionFLOPs(pairs)
	}
	return tokens * s.productsAgain(block, keep), attention
}

// PassBytesSpared returns the bytes per token that elementwise passes of a block's backward need not read and write,
// because the forward keeps the inputs of products. It is 0 below KeepInputs: what lower levels spare is little beside
// their FLOPs.
func (s Spec) PassBytesSpared(block int, keep Keep) (n int64) {
	if keep < KeepInputs {
		return 0
	}
	d, c := s.dims(block), s.Config
	norm := 0
	if d.normIn {
		norm = 2 * d.hidden // read and written
	}
	if c.Mixes(block) {
		n += int64(norm)
	}
	if d.beside {
		n += int64(norm)
	}
	if c.HasMLP(block) {
		if n += int64(norm); c.Activation != model.XIELU {
			if n += int64(d.ffn); d.normOut { // written again, from gate and up
				n += int64(d.up)
			}
			if m := c.Multipliers; m != nil && m.Down != 1 && !c.Ungated { // scaled again
				n += 2 * int64(d.ffn)
			}
		}
	}
	return n * s.Act.Size()
}

// attentionFLOPs returns the FLOPs of attention's forward for the given (query, key) pairs: the products QKᵀ and PV.
func (s Spec) attentionFLOPs(pairs int64) int64 { return 2 * pairs * int64(newDims(s).q+newDims(s).o) }

// productsAgain returns the FLOPs per token that a block's backward computes a second time if the
// forward keeps the results that keep names. It counts matrix products and, in a recurrence, the
// convolution and the state.
func (s Spec) productsAgain(block int, keep Keep) (n int64) {
	d, c := s.dims(block), s.Config
	product := func(in, out int) int64 { return 2 * int64(in) * int64(out) }
	if c.Mixes(block) {
		n += s.inputsAgain(block, keep, d)
		if d.normOut || c.HasMLP(block) && keep < KeepAll && !d.parallel { // the input of the norm of attention's output, or x2
			if n += product(d.out, d.hidden) + 2*int64(d.valueProducts); d.beside {
				n += product(c.Mamba2.Inner(), d.hidden)
			}
		}
	}
	if c.HasExperts(block) { // its second half keeps nothing: router and every expert's gate and up are computed again
		width := c.NumExpertsPerTok*c.MoEIntermediateSize + c.SharedSize
		n += product(d.hidden, s.routerLogits()) + product(d.hidden, s.upWidth(width))
		if c.DenseBesideExperts { // at both of the router's visits
			n += 2 * (product(d.hidden, d.up) + product(d.ffn, d.hidden))
		}
	}
	if !c.HasMLP(block) {
		return n
	}
	if keep < KeepAll {
		n += product(d.hidden, d.up)
	}
	if d.normOut { // the input of the norm of the MLP's output
		n += product(d.ffn, d.hidden)
	}
	return n
}

// inputsAgain returns the part of productsAgain that precedes the output projection: the inputs of attention or of the
// recurrence.
func (s Spec) inputsAgain(block int, keep Keep, d dims) (n int64) {
	c := s.Config
	if keep < KeepQKV {
		n += 2 * (c.QKVProducts(block) - int64(d.valueProducts))
	}
	if d.recurrent || d.beside {
		r := c.Recurrence()
		if keep < KeepAttention {
			n += r.ConvFLOPs() + r.StateFLOPs()
		} else if d.recurrence.convolves() { // the convolution's output is never kept
			n += r.ConvFLOPs()
		}
	}
	if x := d.indexer; x != nil {
		if n += 2 * int64(d.mla.QRank*d.heads*d.keyDim); keep < KeepAttention { // the queries
			n += 2 * int64(d.mla.QRank*x.Heads*x.HeadDim+d.hidden*(x.HeadDim+x.Heads))
		}
	}
	if l := d.mla; l != nil { // the latent vectors and, absorbed, the output projection's input
		n += 2*int64(d.valueProducts) + 2*int64(d.hidden)*int64(l.QRank+l.KVRank+l.RopeDim)
	}
	if d.groups && d.qkNorm { // the inputs of q/k norm's backward are not kept
		n += 2 * c.QKVProducts(block)
	}
	return n
}

// HeadRecomputedFLOPs returns the FLOPs of computing the logits again. A head in parts and a loss over pairs
// (Preference) go through the tokens twice: for the losses and, with the logits computed again, for the gradients. For
// any other head it is 0.
func (s Spec) HeadRecomputedFLOPs(tokens int64) int64 {
	if s.Shards() == 1 && s.Preference.None() {
		return 0
	}
	return 2 * tokens * int64(s.Config.Streams()) * int64(s.Config.HiddenSize) * int64(s.Config.VocabSize)
}
