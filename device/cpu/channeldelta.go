package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

// This file has the part of the gated delta rule that depends on a decay for each channel. An element of scores or near
// is a sum over channels of q or k of token i, k of token e, and the decay e^(γi−γe). Factors e^γi and e^(−γe) of a
// whole chunk may overflow. The chunk is therefore divided into blocks. Within a block the code follows the decay from
// token to token. For earlier tokens it splits the decay at the block's first token into two factors, which are at most
// 1, and the rest is a matrix product. Source: arXiv:2312.06635, section 4.3.

// channelBlock is the number of tokens in a block.
const channelBlock = 16

// byChannel computes what the head's decays determine, in a head with a decay for each channel.
func (j *deltaJob) byChannel(h *deltaHead, head int) {
	rows := op.DeltaChunk * j.keys
	v := j.sc.f32(dChannels, 4*rows)
	h.g, h.from, h.to, h.local, h.decay = v[:rows], v[rows:][:rows], v[2*rows:][:rows], v[3*rows:], j.sc.f32(dDecays, max(rows, chunkSquare))
	rate := math.Exp(float64(j.aLog[head]))
	for i := range j.n {
		for c, a := range j.rateRow(i, head) {
			at, step := i*j.keys+c, -rate*softplus(float64(a)+float64(j.dtBias[head*j.KeyDim+c]))
			by := float32(math.Exp(step))
			h.g[at], h.decay[at], h.local[at], h.from[at] = float32(step), by, by, by
			if i%channelBlock > 0 {
				h.local[at] *= h.local[at-j.keys]
			}
			if i > 0 {
				h.from[at] *= h.from[at-j.keys]
			}
		}
	}
	for at := 0; at < j.n; at += channelBlock {
		end := min(at+channelBlock, j.n)
		j.between(h, at, end)
		j.within(h, at, end)
		j.extend(h, at, end)
	}
	copy(h.keep, h.from[(j.n-1)*j.keys:])
	for i := range j.n {
		row := func(x []float32) []float32 { return x[i*j.keys:][:j.KeyDim] }
		vec.ScaleMul(row(h.qFrom), row(j.q), row(h.from), 1)
		vec.ScaleMul(row(h.kFrom), row(j.k), row(h.from), 1)
		vec.ScaleMul(row(h.kTo), row(j.k), row(h.to), 1)
	}
}

// rateRow returns the inputs a of the head's channels for the chunk's i-th token.
func (j *deltaJob) rateRow(i, head int) []float32 {
	return j.rates.load(j.sc, dWide, ((j.at+i)*j.Heads+head)*j.KeyDim, j.KeyDim)
}

// block returns factors of products between the tokens at … end−1 and those before them: q and k of the block, decayed
// since the block's start, and the earlier k, decayed up to the block's start.
func (j *deltaJob) block(h *deltaHead, at, end int) (q, k, earlier []float32) {
	v := j.sc.f32(dBlock, (2*channelBlock+op.DeltaChunk)*j.keys)
	q, k, earlier = v[:channelBlock*j.keys], v[channelBlock*j.keys:][:channelBlock*j.keys], v[2*channelBlock*j.keys:]
	n, m := (end-at-1)*j.keys+j.KeyDim, (at-1)*j.keys+j.KeyDim
	vec.ScaleMul(q[:n], j.q[at*j.keys:][:n], h.local[at*j.keys:][:n], 1)
	vec.ScaleMul(k[:n], j.k[at*j.keys:][:n], h.local[at*j.keys:][:n], 1)
	vec.ScaleMul(earlier[:m], j.k[:m], h.to[:m], 1)
	return q, k, earlier
}

// between computes the elements of scores and near whose rows are the tokens at … end−1 and whose columns are earlier
// tokens. h.to holds the decay of earlier tokens up to token at−1.
func (j *deltaJob) between(h *deltaHead, at, end int) {
	if at == 0 {
		return
	}
	q, k, earlier := j.block(h, at, end)
	j.sc.product(h.scores[at*op.DeltaChunk:], op.DeltaChunk, q, j.keys, false, earlier, j.keys, true, end-at, at, j.KeyDim, false)
	j.sc.product(h.near[at*op.DeltaChunk:], op.DeltaChunk, k, j.keys, false, earlier, j.keys, true, end-at, at, j.KeyDim, false)
	for i := at; i < end; i++ { // what padding has left
		clear(h.scores[i*op.DeltaChunk+at : (i+1)*op.DeltaChunk])
		clear(h.near[i*op.DeltaChunk+at : (i+1)*op.DeltaChunk])
	}
}

// within computes the elements of scores and near whose rows and columns are the tokens at … end−1.
func (j *deltaJob) within(h *deltaHead, at, end int) {
	row := func(x []float32, i int) []float32 { return x[i*j.keys:][:j.KeyDim] }
	decayed := j.sc.f32(dWide, j.KeyDim)
	for e := at; e < end; e++ {
		copy(decayed, row(j.k, e))
		h.scores[e*op.DeltaChunk+e] = vec.Dot(row(j.q, e), decayed)
		for i := e + 1; i < end; i++ {
			vec.ScaleMul(decayed, decayed, row(h.decay, i), 1)
			h.scores[i*op.DeltaChunk+e] = vec.Dot(row(j.q, i), decayed)
			h.near[i*op.DeltaChunk+e] = vec.Dot(row(j.k, i), decayed)
		}
	}
}

// extend makes h.to the decay up to token end−1, for all tokens before end. It was the decay up to token at−1.
func (j *deltaJob) extend(h *deltaHead, at, end int) {
	row := func(x []float32, i int) []float32 { return x[i*j.keys:][:j.KeyDim] }
	for e := range at {
		vec.ScaleMul(row(h.to, e), row(h.to, e), row(h.local, end-1), 1)
	}
	for c := range j.KeyDim {
		h.to[(end-1)*j.keys+c] = 1
	}
	for e := end - 2; e >= at; e-- {
		vec.ScaleMul(row(h.to, e), row(h.to, e+1), row(h.decay, e+1), 1)
	}
}

// throughChannels adds to the gradients of q, k and γ in a head with a decay for each channel. They come from the
// gradients that the deltaBackward holds.
func (b *deltaBackward) throughChannels(h deltaHead) {
	for at := 0; at < b.n; at += channelBlock {
		end := min(at+channelBlock, b.n)
		b.betweenBackward(&h, at, end)
		b.withinBackward(&h, at, end)
		b.extend(&h, at, end)
	}
	last := (b.n - 1) * b.keys
	for i := range b.n {
		for c := range b.KeyDim {
			at := i*b.keys + c
			b.dq[at] += h.from[at] * b.dqf[at]
			b.dk[at] += h.from[at]*b.dkf[at] + h.to[at]*b.dkt[at]
			b.dof[at] += h.qFrom[at]*b.dqf[at] + h.kFrom[at]*b.dkf[at]
			if at < last {
				left := h.kTo[at] * b.dkt[at]
				b.dof[at] -= left
				b.dof[last+c] += left
			}
		}
	}
	for c, d := range b.dkeep {
		b.dof[last+c] += h.keep[c] * d
	}
}

// betweenBackward is the backward of between.
func (b *deltaBackward) betweenBackward(h *deltaHead, at, end int) {
	if at == 0 {
		return
	}
	q, k, earlier := b.block(h, at, end)
	ds, dl, term := b.ds[at*op.DeltaChunk:], b.dl[at*op.DeltaChunk:], b.sc.f32(dTerm, op.DeltaChunk*b.keys)
	for _, x := range [...]struct{ dscores, dx, x []float32 }{{ds, b.dq, q}, {dl, b.dk, k}} {
		b.sc.product(term, b.keys, x.dscores, op.DeltaChunk, false, earlier, b.keys, false, end-at, b.KeyDim, at, false)
		for i := range end - at {
			for c := range b.KeyDim {
				from, to := i*b.keys+c, (at+i)*b.keys+c
				x.dx[to] += term[from] * h.local[to]
				b.dof[to] += term[from] * x.x[from]
			}
		}
	}
	b.sc.product(term, b.keys, ds, op.DeltaChunk, true, q, b.keys, false, at, b.KeyDim, end-at, false)
	b.sc.product(term, b.keys, dl, op.DeltaChunk, true, k, b.keys, false, at, b.KeyDim, end-at, true)
	for e := range at {
		for c := range b.KeyDim {
			i := e*b.keys + c
			b.dk[i] += term[i] * h.to[i]
			b.dof[i] -= term[i] * earlier[i]
		}
	}
}

// withinBackward is the backward of within.
func (b *deltaBackward) withinBackward(h *deltaHead, at, end int) {
	decay := b.sc.f32(dWide, b.KeyDim)
	for e := at; e < end; e++ {
		own := b.ds[e*op.DeltaChunk+e]
		for c := range decay {
			decay[c] = 1
			b.dq[e*b.keys+c] += own * b.k[e*b.keys+c]
			b.dk[e*b.keys+c] += own * b.q[e*b.keys+c]
		}
		for i := e + 1; i < end; i++ {
			ds, dl := b.ds[i*op.DeltaChunk+e], b.dl[i*op.DeltaChunk+e]
			for c := range decay {
				to, from := i*b.keys+c, e*b.keys+c
				decay[c] *= h.decay[to]
				k, through := decay[c]*b.k[from], decay[c]*(ds*b.q[to]+dl*b.k[to])
				b.dq[to] += ds * k
				b.dk[to] += dl * k
				b.dk[from] += through
				b.dof[to] += b.k[from] * through
				b.dof[from] -= b.k[from] * through
			}
		}
	}
}

// storeRates turns the gradient of γ into the gradient of the inputs a, and adds to the gradients of ALog and DtBias. A
// token's g is part of γ of this and every later token, so its gradient is the sum of theirs.
func (b *deltaBackward) storeRates(head int, h deltaHead) {
	var dg [op.MostDeltaDim]float64
	to, rate, biases := actOf(b.a.DA), math.Exp(float64(b.aLog[head])), b.sums[b.Heads+head*b.KeyDim:]
	das := b.sc.f32(dTerm, b.KeyDim)
	for i := b.n - 1; i >= 0; i-- {
		sum := 0.0
		for c, a := range b.rateRow(i, head) {
			dg[c] += float64(b.dof[i*b.keys+c])
			das[c] = float32(-dg[c] * rate / (1 + math.Exp(-float64(a)-float64(b.dtBias[head*b.KeyDim+c]))))
			biases[c] += das[c]
			sum += dg[c] * float64(h.g[i*b.keys+c])
		}
		b.sums[head] += float32(sum)
		to.put(((b.at+i)*b.Heads+head)*b.KeyDim, das)
	}
}
