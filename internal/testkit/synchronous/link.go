package synchronous

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/data"
	"mt/device"
	"mt/device/op"
	"mt/host/optim"
	"mt/layers"
	"mt/model"
)

// This file has the copies between host and device. Weights and a batch go to the device. Losses, gradients and the
// ranges of the experts' (token, choice) pairs go to the host.

// load enqueues the copies of all weights and of batch b to the device, and makes the tensors that the step uses.
func (t *Trainer) load(b *data.Batch) {
	c := t.spec.Config
	for _, at := range t.layers[1:] { // the embedding is not copied whole, only the batch's rows
		for k, tile := range at.tiles {
			for _, x := range tile.Copies {
				t.stream.CopyH2D(at.slots[k].Slice(x.To, x.Bytes), t.store.Layers[x.Layer].Tile[x.From:x.From+x.Bytes])
			}
		}
	}
	t.batch, t.scale = b, float32(1/float64(max(b.Supervised, 1)))
	if !t.spec.Preference.None() {
		t.scale = float32(1 / float64(max(b.Pairs, 1)))
	}
	n := int64(len(b.UniqueIDs)) * int64(c.HiddenSize)
	rows := make([]byte, n*t.spec.Act.Size())
	t.store.Layers[0].GatherRows(rows, 0, b.UniqueIDs)
	t.rows = t.rowMem.Tensor(t.spec.Act, 0, n)
	t.stream.CopyH2D(t.rows.Mem(), rows)

	embedding, head := &t.layers[0], &t.layers[len(t.layers)-1]
	embedding.grads[0] = embedding.tiles[0].BindGrads(embedding.buffers[0], len(b.UniqueIDs))
	for l := range t.layers {
		t.layers[l].grad = t.layers[l].slab
	}
	embedding.grad = elements(embedding.slab, 0, n)
	lmHead := head.Tensor(model.RoleLMHead)
	head.table = elements(head.slab, lmHead.Elem, lmHead.Elems())

	t.loadMicroBatches(b)
	t.balances = c.ExpertBlocks() > 0 && c.OutputRouterLogits
	if c.ExpertBlocks() > 0 {
		t.experts = t.ops.BindMoE(t.expertMem, int(b.Tokens), true)
		t.stream.Zero(t.experts.Counts.Mem())
		t.probabilities = make([]float64, c.NumExperts)
	}
	if t.balances { // arXiv:2101.03961: experts · mean count · mean probability, where the means are over all layers
		routed := float64(c.ExpertBlocks()) * float64(b.Tokens)
		t.aux = c.RouterAuxLossCoef * float64(c.NumExperts) / (routed * routed)
		t.auxScale = float32(t.aux)
	}
}

// loadMicroBatches enqueues the copies of all micro-batches' ids and positions to the device. It also assigns to each
// micro-batch the tensors for its hidden states and their gradient; later steps compute their values.
func (t *Trainer) loadMicroBatches(b *data.Batch) {
	var off int64
	put := func(v []int32) device.Tensor {
		if len(v) == 0 {
			return device.Tensor{}
		}
		at := t.ints.Tensor(device.I32, off, int64(len(v)))
		t.stream.CopyH2D(at.Mem(), bytesOf(v))
		off = (off + at.Mem().Bytes + device.Align - 1) / device.Align * device.Align
		return at
	}
	t.micro = nil
	first := 0
	for i, from := range b.MicroBatches {
		positions := make([]int32, from.Tokens)
		t.spec.RopePositions(positions, from.Positions, from.CuSeqlens)
		n, width := int64(from.Tokens), int64(t.spec.HiddenWidth())
		m := micro{x: make([]device.Tensor, 1), MicroBatch: layers.MicroBatch{Tokens: from.Tokens, Seqs: len(from.CuSeqlens) - 1, MaxSeqlen: from.MaxSeqlen,
			Index: put(from.Index), Targets: put(from.Targets), Pos: put(positions), Cu: put(from.CuSeqlens),
			RowStart: put(from.RowStart), RowPos: put(from.RowPos), ChunkBounds: put(t.spec.ChunkBounds(from.CuSeqlens)),
			UniqueRows: len(b.UniqueIDs), First: b.FirstToken() + first},
			at: first, dx: t.dx[i].Tensor(t.spec.Act, 0, n*width)}
		if c := t.spec.Config; c.Ahead > 0 {
			next, previous := layers.AheadRows(from.CuSeqlens)
			m.Next, m.Previous, m.HeadTargets = put(next), put(previous), put(append(from.AheadTargets(), from.Targets...))
			factor := t.spec.AheadWeight * float64(max(b.Supervised, 1)) / float64(max(b.SupervisedAhead, 1))
			weights := slices.Concat(slices.Repeat([]int32{int32(math.Float32bits(float32(factor)))}, from.Tokens), slices.Repeat([]int32{int32(math.Float32bits(1))}, from.Tokens))
			m.HeadWeights = put(weights)
			m.HeadWeights.DType = device.F32
		}
		if t.spec.Config.PerLayerSize > 0 {
			m.IDs, m.UniqueIDs = put(b.IDs(i)), put(b.UniqueIDs)
		}
		if !t.spec.Preference.None() {
			m.Reference, m.Likelihood = put(t.references(from)), float32(t.Likelihood*float64(b.Pairs)/float64(max(b.Chosen, 1)))
			m.Reference.DType = device.F32
		}
		for l := range t.layers[1:] {
			m.x = append(m.x, t.x[l+1][i].Tensor(t.spec.Act, 0, n*width))
		}
		for _, saved := range t.saved {
			m.saved = append(m.saved, device.Mem{})
			if saved != nil {
				m.saved[len(m.saved)-1] = saved[i]
			}
		}
		t.micro = append(t.micro, m)
		first += from.Tokens
	}
}

// pairs is the range of (token, choice) pairs of one expert: n pairs from index from in the list sorted by expert.
type pairs struct{ from, n int }

// pairsByExpert waits until the device has sorted the (token, choice) pairs of all tokens by expert, and returns each
// expert's range. If count is set, it also adds the layer's router probabilities to t.probabilities, for the
// load-balancing loss. After a device error no expert has pairs; land then reports the error.
func (t *Trainer) pairsByExpert(count bool) []pairs {
	offsets, sums := t.fetch(t.experts.Offsets.Mem()), t.fetch(t.experts.ProbSum.Mem())
	_ = t.stream.Sync()
	for k := range t.probabilities {
		if count {
			t.probabilities[k] += float64(math.Float32frombits(word(sums, k)))
		}
	}
	out := make([]pairs, t.spec.Config.AllExperts())
	for k := range out {
		from := int(word(offsets, k))
		out[k] = pairs{from, int(word(offsets, k+1)) - from}
	}
	return out
}

// land copies losses and gradients to the host, waits for them and returns the batch's loss. This is the mean over
// supervised tokens, summed in their order in float64. If the step trains on preference pairs, it is the mean over the
// pairs.
func (t *Trainer) land() (float64, error) {
	for _, at := range t.layers {
		for k, tile := range at.tiles {
			for _, x := range tile.Ranges(len(t.batch.UniqueIDs)) {
				src := at.buffers[k].Tensor(device.F32, 4*x.From, x.Elems)
				if at.slab.BF16 {
					dst := t.narrow.Tensor(device.BF16, 0, x.Elems)
					op.Do(t.dev, t.stream, op.Convert{Dst: dst, Src: src, N: x.Elems})
					src = dst
				}
				t.stream.CopyD2H(elements(at.slab, x.To, x.Elems).Data, src.Mem())
			}
		}
	}
	streams := int64(t.spec.Config.Streams())
	losses := t.fetch(t.losses.Slice(0, 4*streams*t.batch.Tokens))
	counts := t.fetch(t.experts.Counts.Mem())
	if err := t.stream.Sync(); err != nil {
		return 0, fmt.Errorf("synchronous step: %w", err)
	}
	var sum, balance float64
	at := 0
	for _, m := range t.micro {
		at += (int(streams) - 1) * m.Tokens // losses of tokens after the next
		for i := range m.Tokens {
			sum += float64(math.Float32frombits(word(losses, at+i)))
		}
		at += m.Tokens
	}
	for i := 0; t.balances && i < t.spec.Config.NumExperts; i++ {
		balance += float64(word(counts, i)) * t.probabilities[i]
	}
	mean := sum / float64(max(t.batch.Supervised, 1))
	if !t.spec.Preference.None() {
		mean = t.pairsLoss(losses)
	}
	return mean + t.aux*balance, nil
}

// fetch enqueues the copy of m to the host and returns the host memory, which is filled once the stream is
// synchronized.
func (t *Trainer) fetch(m device.Mem) []byte {
	out := make([]byte, m.Bytes)
	if m.Bytes > 0 {
		t.stream.CopyD2H(out, m)
	}
	return out
}

// word returns the i-th little-endian 32-bit word of b.
func word(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

// sumSquares returns the sum of squares of the layer's gradient. Each tensor is summed on its own, which fixes the
// order of sums.
func (at layer) sumSquares() float64 {
	if at.Kind == model.Embedding {
		return optim.SumSquares(nil, at.grad)
	}
	var sum float64
	for _, x := range at.Tensors {
		sum += optim.SumSquares(nil, elements(at.grad, x.Elem, x.Elems()))
	}
	return sum
}

// elements returns the elements [at, at+n) of g.
func elements(g optim.Grad, at, n int64) optim.Grad {
	size := int64(len(g.Data)) / max(g.Elems, 1)
	return optim.Grad{Data: g.Data[at*size : (at+n)*size], BF16: g.BF16, Elems: n}
}

// bytesOf returns v in a device's byte order, little-endian.
func bytesOf[T int32 | float32](v []T) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(fmt.Sprintf("synchronous: %v", err)) // fixed-size numbers cannot fail
	}
	return out
}
