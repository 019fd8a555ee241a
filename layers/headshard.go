package layers

import (
	"fmt"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// Shard is part number Index of the head: Rows entries of the vocabulary from entry From on, that is, these rows of
// lm_head.
type Shard struct{ Index, From, Rows int }

// Shards returns the number of parts of the head; 1: a whole head.
func (s Spec) Shards() int { return max(1, s.HeadShards) }

// shardAlign: every part of the head, except perhaps the last, has a multiple of shardAlign rows,
// with which matrix products reach their full rate. Vocabularies with fewer than shardAlign rows
// for each part are divided without this rounding.
const shardAlign = 128

// Shard returns part k of the head. The parts are about equal, and depend only on the vocabulary and their number. It
// panics on an empty part, which occurs if there are more parts than rows.
func (s Spec) Shard(k int) Shard {
	V, n, unit := s.Config.VocabSize, s.Shards(), 1
	if V >= n*shardAlign {
		unit = shardAlign
	}
	units := (V + unit - 1) / unit
	from, to := min(V, units*k/n*unit), min(V, units*(k+1)/n*unit)
	if from >= to {
		panic(fmt.Sprintf("layers: part %d of %d of a vocabulary of %d is empty", k, n, V))
	}
	return Shard{Index: k, From: from, Rows: to - from}
}

// LargestShard returns the index of a part with the most rows.
func (s Spec) LargestShard() int {
	best := 0
	for k := range s.Shards() {
		if s.Shard(k).Rows > s.Shard(best).Rows {
			best = k
		}
	}
	return best
}

// ShardRows returns the largest number of rows of a part of the head.
func (s Spec) ShardRows() int { return s.Shard(s.LargestShard()).Rows }

// LSEBytes returns the bytes of one log-sum-exp per token. A head in parts computes all losses first and all gradients
// then, and keeps the log-sum-exps in between. A whole head keeps none: 0.
func (s Spec) LSEBytes(tokens int) int64 {
	if s.Shards() == 1 {
		return 0
	}
	return 4 * int64(tokens)
}

// sumBytes are the bytes per token of the sums that parts of the head pass to a part on another lane: log-sum-exp and loss,
// f32. They lie behind a hidden state and its passengers, all log-sum-exps first.
const sumBytes = 8

// apart reports whether part j of the head is on another lane than part k; false: there is no part j.
func (s Spec) apart(j, k int) bool {
	return j >= 0 && j < len(s.HeadLanes) && s.HeadLanes[j] != s.HeadLanes[k]
}

// carried returns the memory of the sums behind a hidden state of the given number of tokens: log-sum-exps and losses.
func (t *Templates) carried(x Hidden, tokens int) [2]device.Mem {
	n := int64(tokens)
	all := x.Dev.Mem().Slice(n*int64(t.spec.HiddenWidth())*t.spec.Act.Size()-n*sumBytes, n*sumBytes)
	return [2]device.Mem{all.Slice(0, 4*n), all.Slice(4*n, 4*n)}
}

// ShardLayout returns the layout of part k of the head in a weight slot and in a gradient buffer. It has the final
// norm, as every part, and the part's rows of lm_head.
func (s Spec) ShardLayout(head model.Layout, k int) model.Layout {
	l := head.Layer
	l.Params, l.Tied = nil, false
	bf16 := false
	for _, t := range head.Tensors {
		p := t.Param
		if ofVocabulary(p.Role) {
			p.Rows, p.Stored, bf16 = s.Shard(k).Rows, nil, bf16 || t.BF16
		}
		l.Params = append(l.Params, p)
	}
	return model.NewLayout(l, bf16, model.Param{})
}

// ofVocabulary reports whether a parameter of the head has one row for each entry of the
// vocabulary. Such a parameter is divided among the head's parts.
func ofVocabulary(r model.Role) bool { return r == model.RoleLMHead || r == model.RoleLMHeadBias }

// HeadShardForward is HeadForward for one part of the head. Parts may come in any order that is the same for every
// micro-batch.
//
//	w: with the layout of Spec.ShardLayout; x (T, h) act
//	losses, lse (T) f32: the losses are complete after the last part; lse is the log-sum-exp
//	of the logits of all parts so far
//	terms: Spec.Terms in training, none in an evaluation
//	first, last: p is the first or the last part of the sweep over the parts
func (t *Templates) HeadShardForward(s device.Stream, w Weights, x Hidden, losses, lse device.Tensor, mb MicroBatch, ws device.Mem, p Shard, terms op.LossTerms, first, last bool) {
	t.spec.fitsHead(mb.Tokens)
	b := t.spec.headBuffers(t.dims, p.Rows, mb.Tokens, &allotter{mem: ws})
	in := t.hidden(x, b.in)
	for c := range spans(mb.Tokens, chunkOf(t.spec.HeadChunk, mb.Tokens)) {
		fetch(s, c, in)
		logits := b.logits.of(c)
		t.logits(s, w, logits, b.n.of(c), device.Tensor{}, in.of(c), c.n, p.Rows)
		op.Do(t.dev, s, op.CrossEntropyShard{Logits: logits, Targets: whole(mb.Targets, 1).of(c), LSE: whole(lse, 1).of(c),
			Losses: whole(losses, 1).of(c), T: c.n, V: p.Rows, From: p.From, First: first, Last: last, Softcap: t.logitCap(),
			Terms: terms, Vocab: t.dims.vocab})
	}
}

// HeadShardBackward adds one part's share to the gradient of the head's input, and computes the part's gradient. It
// computes the norm and the logits again.
//
//	w, g: with the layout of Spec.ShardLayout; only the last part writes the final norm's
//	gradient; overwritten if firstBatch is set, else accumulated
//	dx (T, h) act, not x: overwritten by the first part. Until the last part it is the gradient
//	of lm_head's input, rounded to act after each part
//	x (T, h) act; losses, lse (T) f32 of all parts, written by HeadShardForward
//	scale: as for HeadForwardBackward
//	first, last: p is the first or the last part of the sweep over the parts; firstBatch: mb
//	is the step's first micro-batch
func (t *Templates) HeadShardBackward(s device.Stream, w Weights, g Grads, dx, x Hidden, losses, lse device.Tensor, mb MicroBatch, ws device.Mem, scale float32, p Shard, firstBatch, first, last bool) {
	t.spec.fitsHead(mb.Tokens)
	d := t.dims
	b := t.spec.headBuffers(d, p.Rows, mb.Tokens, &allotter{mem: ws})
	out, in := t.hidden(dx, b.out), t.hidden(x, b.in)
	if firstBatch && last {
		zeroVectors(s, g)
	} else if db, ok := g[model.RoleLMHeadBias]; ok && firstBatch {
		s.Zero(db.Mem())
	}
	factors := t.weigh(s, b, losses, mb)
	for c := range spans(mb.Tokens, chunkOf(t.spec.HeadChunk, mb.Tokens)) {
		fetch(s, c, in)
		if !first {
			fetch(s, c, out)
		}
		xc, n, logits, dxc := in.of(c), b.n.of(c), b.logits.of(c), out.of(c)
		t.logits(s, w, logits, n, b.rstd.of(c), xc, c.n, p.Rows)
		op.Do(t.dev, s, op.CrossEntropyShard{Logits: logits, Targets: whole(mb.Targets, 1).of(c), LSE: whole(lse, 1).of(c),
			Weights: whole(factors, 1).of(c), T: c.n, V: p.Rows, From: p.From, Scale: scale, First: first, Last: last, Gradient: true,
			Softcap: t.logitCap(), Terms: t.spec.Terms, Vocab: d.vocab})
		t.weightGrad(s, g[model.RoleLMHead], logits, n, c.n, p.Rows, d.hidden, firstBatch && c.at == 0)
		t.addBiasGrad(s, g, model.RoleLMHeadBias, logits, c.n, p.Rows)
		sum := dxc
		if first {
			sum = device.Tensor{}
		}
		op.Do(t.dev, s, op.MatMul{M: c.n, N: d.hidden, K: p.Rows, A: logits, B: w[model.RoleLMHead], C: sum, D: dxc})
		if last {
			t.finalNormBackward(s, w, g, dxc, xc, dxc, b.rstd.of(c), c.n)
		}
		store(s, c, out)
	}
}
