package actors

import (
	"encoding/binary"
	"fmt"
	"math"

	"mt/data"
	"mt/device"
	"mt/device/op"
	"mt/layers"
)

// This file has the parts of a run that trains on preference pairs (a chosen and a rejected answer). It computes the
// inputs of the head's gradient, and the sums of the pairs' losses and rewards. The host computes these sums from the
// losses of tokens.

// Preferences configure training on preference pairs, in a run whose plan has a preference loss.
type Preferences struct {
	// Likelihood is the weight of a second loss that is added to the pairs' losses: the mean −log p over the supervised
	// tokens of chosen answers.
	Likelihood float64
	// Reference returns the reference model's log p of a pair's chosen and rejected answer. Several goroutines call it.
	// nil, in runs without steps: the model is its own reference.
	Reference func(eval bool, id int64) [2]float32
	// OnLogProbs, which may be nil, receives the model's log p of each pair in an evaluation.
	OnLogProbs func(id int64, logp [2]float32)
}

// PairSums has sums over preference pairs, for example those of a step.
type PairSums struct {
	Pairs, Targets       int64   // number of pairs, and of supervised tokens in their chosen answers
	Loss, Nats           float64 // sums of the pairs' losses, and of −log p over the supervised tokens of chosen answers
	Chosen, Rejected     float64 // sums of rewards: Beta·(log p − the reference model's log p)
	Right                float64 // pairs whose chosen answer has the larger reward
	LogChosen, LogReject float64 // sums of log p of chosen and of rejected answers
}

// numbers lists pointers to the float64 fields of s, so that add, append and decodePairs can loop
// over them.
func (s *PairSums) numbers() []*float64 {
	return []*float64{&s.Loss, &s.Nats, &s.Chosen, &s.Rejected, &s.Right, &s.LogChosen, &s.LogReject}
}

// add adds the sums in o to those in s.
func (s *PairSums) add(o PairSums) {
	s.Pairs, s.Targets = s.Pairs+o.Pairs, s.Targets+o.Targets
	for i, x := range o.numbers() {
		*s.numbers()[i] += *x
	}
}

// mean returns the mean loss of the pairs, plus likelihood (Preferences.Likelihood) times the mean −log p of chosen
// answers.
func (s *PairSums) mean(likelihood float64) float64 {
	return s.Loss/float64(max(s.Pairs, 1)) + likelihood*s.Nats/float64(max(s.Targets, 1))
}

// append appends the sums to b, 8 bytes each. Ranks exchange them in this form.
func (s PairSums) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(s.Pairs)), uint64(s.Targets))
	for _, x := range s.numbers() {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*x))
	}
	return b
}

// decodePairs reads the sums that PairSums.append has written to v.
func decodePairs(v []byte) (s PairSums) {
	s.Pairs, s.Targets = int64(readInt(v)), int64(readInt(v[8:]))
	for i, x := range s.numbers() {
		*x = math.Float64frombits(binary.LittleEndian.Uint64(v[16+8*i:]))
	}
	return s
}

// onPairs reports whether the run trains on preference pairs.
func (r *run) onPairs() bool { return !r.plan.Spec.Preference.None() }

// fillReferences adds inputs for training on preference pairs to `to`, the micro-batch m as
// launches see it. The inputs are the reference model's log p of each document, and the weight of
// the likelihood loss. Function place puts a list into the batch's staging buffer and returns its
// tensor on the device.
//
// A rank without rows computes a stand-in batch, which has documents but no pairs. These documents
// have no targets, so their reference values do not matter.
func (r *lane) fillReferences(p *Pass, m *data.MicroBatch, to *layers.MicroBatch, place func([]int32) device.Tensor) {
	if !r.onPairs() || p.Eval {
		return
	}
	if r.o.predicted != nil { // a prediction knows no documents and computes nothing
		to.Reference = place(make([]int32, to.Seqs))
		to.Reference.DType = device.F32
		return
	}
	bits := make([]int32, to.Seqs)
	for _, pair := range m.Pairs {
		ref := r.o.Preferences.Reference(false, pair.ID)
		if m.Same(pair) {
			ref = op.SameDocuments
		}
		bits[pair.Chosen], bits[pair.Rejected] = int32(math.Float32bits(ref[0])), int32(math.Float32bits(ref[1]))
	}
	to.Reference = place(bits)
	to.Reference.DType = device.F32
	to.Likelihood = float32(r.o.Preferences.Likelihood * float64(p.Batch.AllPairs()) / float64(max(p.Batch.AllChosen(), 1)))
}

// landedPairs computes the sums over the pairs of a pass from the losses of its tokens, which have landed on the host.
// nil: the run does not train on pairs.
func (r *lane) landedPairs(p *Pass, losses []byte) *PairSums {
	if !r.onPairs() || r.o.predicted != nil || p.Check {
		return nil
	}
	sums, o, loss := &PairSums{}, r.o.Preferences, r.plan.Spec.Preference
	for i := range p.Batch.MicroBatches {
		m := &p.Batch.MicroBatches[i]
		all := readFloats(losses, m.Tokens)
		losses = losses[4*m.Tokens:]
		for _, pair := range m.Pairs {
			logP := func(doc int32) (float32, int) {
				from, to := m.CuSeqlens[doc], m.CuSeqlens[doc+1]
				return op.LogP(all[from:to], m.Targets[from:to])
			}
			chosen, n := logP(pair.Chosen)
			rejected, k := logP(pair.Rejected)
			if p.Eval && o.OnLogProbs != nil {
				o.OnLogProbs(pair.ID, [2]float32{chosen, rejected})
			}
			ref := [2]float32{chosen, rejected}
			if o.Reference != nil {
				ref = o.Reference(p.Eval, pair.ID)
			}
			sums.add(pairSums(loss, [2]float32{chosen, rejected}, ref, n, k))
		}
	}
	return sums
}

// pairSums returns the sums of one pair. logp is the model's log p of the chosen and the rejected answer, and ref that
// of the reference model. n and k are the numbers of supervised tokens of the two answers.
func pairSums(loss op.PreferenceLoss, logp, ref [2]float32, n, k int) PairSums {
	c, r := float64(logp[0])-float64(ref[0]), float64(logp[1])-float64(ref[1])
	of, _, _ := loss.Of(c, r, n, k)
	s := PairSums{Pairs: 1, Targets: int64(n), Loss: of, Nats: -float64(logp[0]), Chosen: float64(loss.Beta) * c, Rejected: float64(loss.Beta) * r,
		LogChosen: float64(logp[0]), LogReject: float64(logp[1])}
	if c > r {
		s.Right = 1
	}
	return s
}

// readFloats reads n little-endian float32 values from b.
func readFloats(b []byte, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// checkPairs returns an error for a batch whose documents are not pairs of a chosen and a rejected answer, in this
// order.
func (r *run) checkPairs(b *data.Batch) error {
	if !r.onPairs() || r.o.predicted != nil || isStandIn(b) {
		return nil
	}
	for i, m := range b.MicroBatches {
		if docs := len(m.CuSeqlens) - 1; docs != 2*len(m.Pairs) {
			return fmt.Errorf("micro-batch %d has %d documents and %d pairs: training on pairs (dpo) needs data of pairs alone", i, docs, len(m.Pairs))
		}
		for k, p := range m.Pairs {
			if int(p.Chosen) != 2*k || int(p.Rejected) != 2*k+1 {
				return fmt.Errorf("micro-batch %d: pair %d is documents %d and %d, want %d and %d", i, k, p.Chosen, p.Rejected, 2*k, 2*k+1)
			}
		}
	}
	return nil
}
