package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, gatedDelta) }

// Buffers of the gated delta rule, which works on chunks of at most op.DeltaChunk tokens. Matrices of a chunk have a
// row for each token, and rows are padded to whole panels.
const (
	_         = iota // scratch.product
	dQ               // normalized q of the chunk (n, KeyDim)
	dK               // normalized k of the chunk (n, KeyDim)
	dStates          // the state of each head of the group (KeyDim, ValueDim)
	dV               // v (n, ValueDim)
	dRest            // v − K·S, K decayed to the chunk's start
	dNew             // the chunk's new values, as panels of rows
	dPairs           // K·Kᵀ
	dReads           // Q·Kᵀ
	dDecays          // deltaHead.decay
	dLower           // −β·near
	dNear            // deltaHead.near
	dScores          // deltaHead.scores
	dOut             // o, or its gradient
	dScaled          // deltaHead.qFrom, kFrom and kTo
	dGates           // numbers of tokens or of channels, see deltaHead
	dNewRows         // the new values as rows
	dNorms           // reciprocal lengths of q and k
	dWide            // a temporary row
	dChannels        // with ByChannel: deltaHead.g, from, to and local
	dBlock           // with ByChannel: see deltaJob.block
	// Buffers that only the backward uses:
	dGrad     // gradient of the new values, then of the right-hand side, as rows
	dGradPack // dGrad as panels of rows
	dDScores  // gradients of scores, then of near
	dDStates  // gradients of the states after the chunk
	dDQ       // gradient of the normalized q
	dDK       // gradient of the normalized k
	dDScaled  // gradients of dScaled
	dDGates   // gradients of β and γ
	dTerm     // a product before it is added to a sum
)

// deltaJob is the work of one thread: one key head of one sequence, with the value heads that share this key head. It
// goes from chunk to chunk of the sequence.
type deltaJob struct {
	*op.DeltaShape
	sc           *scratch
	qkv, gates   act
	rates        act // with ByChannel: a
	aLog, dtBias []float32
	group, kh    int
	keys, values int // KeyDim and ValueDim rounded up to whole panels
	first, end   int // tokens of the sequence
	at, n        int // the chunk: its first token and its length
	q, k, norms  []float32
}

// deltaHead holds numbers for each token of one value head in a chunk. beta and g are the token's
// gates. Let γ be the sum of the gates g from the chunk's first token on. Then from is e^γ, and to
// is e^(γ of the last token − γ). For e ≤ i, decay[i·DeltaChunk + e] is e^(γ of token i − γ of
// token e).
type deltaHead struct {
	beta, g, from, to, decay, local, qFrom, kFrom, kTo, keep, near, scores []float32
}

// runDelta calls f on all cores, once for every pair of a sequence and a key head. Each call gets its own copy of job.
// seq is the sequence's index.
func (s *stream) runDelta(a *op.DeltaShape, job deltaJob, f func(seq int, j *deltaJob)) error {
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 {
		return err
	}
	s.pool.Run(a.Seqs*a.KeyHeads, func(i int) {
		j := job
		seq := i / a.KeyHeads
		j.DeltaShape, j.sc, j.kh, j.group = a, s.scratch.get(), i%a.KeyHeads, a.Heads/a.KeyHeads
		j.keys, j.values = panels(a.KeyDim)*vec.Panel, panels(a.ValueDim)*vec.Panel
		j.first, j.end = int(cu[seq]), int(cu[seq+1])
		f(seq, &j)
		s.scratch.put(j.sc)
	})
	return nil
}

// gatedDelta computes the outputs of a sequence chunk by chunk, in order, because each chunk needs
// the state that the previous one leaves. Source: arXiv:2412.06464, section 3.3.
func gatedDelta(s *stream, a *op.GatedDelta) error {
	announceDelta(&a.DeltaShape, a.QKV, a.Gates)
	announceRates(&a.DeltaShape, a.A, a.ALog, a.DtBias)
	writes(a.O, 1, 0, a.T*a.Heads*a.ValueDim)
	writes(a.States, 1, 0, a.StatesLen())
	writes(a.Last, 1, 0, a.Heads*a.KeyDim*a.ValueDim)
	states, last := f32s(a.States, a.StatesLen()), f32s(a.Last, a.Heads*a.KeyDim*a.ValueDim)
	job := deltaJob{qkv: actOf(a.QKV), gates: actOf(a.Gates), rates: actOf(a.A), aLog: f32s(a.ALog, a.Heads), dtBias: f32s(a.DtBias, a.Decays())}
	return s.runDelta(&a.DeltaShape, job, func(_ int, j *deltaJob) {
		j.begin(last)
		for j.at = j.first; j.at < j.end; j.at += op.DeltaChunk {
			j.load()
			for g := range j.group {
				if states != nil && j.at > j.first {
					copyPadded(states[j.place(g):], j.state(dStates, g), j.KeyDim, j.ValueDim, j.values, false)
				}
				h := j.head(g)
				j.solve(g, h)
				j.output(g, h, actOf(a.O))
				j.carry(g, h)
			}
		}
		for g := 0; last != nil && g < j.group; g++ {
			copyPadded(last[(j.kh*j.group+g)*a.KeyDim*a.ValueDim:], j.state(dStates, g), j.KeyDim, j.ValueDim, j.values, false)
		}
	})
}

// state returns the state matrix (KeyDim rows, padded) of the group's g-th value head, in buffer buf of the job's
// scratch memory.
func (j *deltaJob) state(buf, g int) []float32 {
	return j.sc.f32(buf, j.group*j.KeyDim*j.values)[g*j.KeyDim*j.values:][:j.KeyDim*j.values]
}

// place returns the offset in the tensor States of the state before the current chunk, for the
// group's g-th value head.
func (j *deltaJob) place(g int) int {
	return (j.at/op.DeltaChunk*j.Heads + j.kh*j.group + g) * j.KeyDim * j.ValueDim
}

// begin sets the states with which a sequence begins: to those in last, or to 0 if last is nil.
func (j *deltaJob) begin(last []float32) {
	for g := range j.group {
		s := j.state(dStates, g)
		clear(s)
		if last != nil {
			copyPadded(last[(j.kh*j.group+g)*j.KeyDim*j.ValueDim:], s, j.KeyDim, j.ValueDim, j.values, true)
		}
	}
}

// load reads q and k of the chunk and normalizes their rows. Without ByChannel it then computes the products Q·Kᵀ and
// K·Kᵀ, because all value heads of the group use them.
func (j *deltaJob) load() {
	j.n = min(op.DeltaChunk, j.end-j.at)
	j.q, j.k = j.sc.f32(dQ, op.DeltaChunk*j.keys), j.sc.f32(dK, op.DeltaChunk*j.keys)
	j.norms = j.sc.f32(dNorms, 2*op.DeltaChunk)
	width, scale := j.Width(), float32(1/math.Sqrt(float64(j.KeyDim)))
	for i := range j.n {
		at := (j.at+i)*width + j.kh*j.KeyDim
		j.norms[2*i] = j.unit(j.q[i*j.keys:][:j.KeyDim], at, scale)
		j.norms[2*i+1] = j.unit(j.k[i*j.keys:][:j.KeyDim], at+j.KeyHeads*j.KeyDim, 1)
	}
	if !j.ByChannel {
		j.sc.product(j.sc.f32(dPairs, chunkSquare), op.DeltaChunk, j.k, j.keys, false, j.k, j.keys, true, j.n, j.n, j.KeyDim, false)
		j.sc.product(j.sc.f32(dReads, chunkSquare), op.DeltaChunk, j.q, j.keys, false, j.k, j.keys, true, j.n, j.n, j.KeyDim, false)
	}
}

// unit reads the row of QKV that begins at element at and writes it to y, scaled to the length scale. It returns 1 /
// the length that the row had.
func (j *deltaJob) unit(y []float32, at int, scale float32) float32 {
	x := j.qkv.load(j.sc, dWide, at, j.KeyDim)
	r := float32(1 / math.Sqrt(float64(vec.Dot(x, x))+1e-6))
	vec.Scale(y, x, r*scale)
	return r
}

// head computes the deltaHead of the group's g-th value head for the chunk.
func (j *deltaJob) head(g int) deltaHead {
	v, rows, head := j.sc.f32(dGates, 4*op.DeltaChunk+op.MostDeltaDim), op.DeltaChunk*j.keys, j.kh*j.group+g
	at := func(i int) []float32 { return v[i*op.DeltaChunk:][:j.n] }
	scaled := j.sc.f32(dScaled, 3*rows)
	h := deltaHead{beta: at(0), g: at(1), from: at(2), to: at(3), keep: v[4*op.DeltaChunk:][:j.KeyDim], qFrom: scaled[:rows], kFrom: scaled[rows:][:rows],
		kTo: scaled[2*rows:], near: j.sc.f32(dNear, chunkSquare), scores: j.sc.f32(dScores, chunkSquare)}
	clear(h.near)
	clear(h.scores)
	for i := range j.n {
		b := float64(j.gates.load(j.sc, dWide, (j.at+i)*j.GateStride+head, 1)[0])
		h.beta[i] = float32(1 / (1 + math.Exp(-b)))
	}
	if j.ByChannel {
		j.byChannel(&h, head)
	} else {
		j.byHead(&h, head)
	}
	return h
}

// byHead computes what the head's decays determine, in a head with one decay for all channels.
func (j *deltaJob) byHead(h *deltaHead, head int) {
	h.decay = j.sc.f32(dDecays, chunkSquare)
	pairs, reads := j.sc.f32(dPairs, chunkSquare), j.sc.f32(dReads, chunkSquare)
	rate, sum := math.Exp(float64(j.aLog[head])), 0.0
	var sums [op.DeltaChunk]float64 // γ, in fp64, because its differences matter
	for i := range j.n {
		step := -rate * softplus(j.rate(i, head))
		sum += step
		h.g[i], sums[i], h.from[i] = float32(step), sum, float32(math.Exp(sum))
		for e := range i + 1 {
			at := i*op.DeltaChunk + e
			h.decay[at] = float32(math.Exp(sum - sums[e]))
			h.scores[at] = h.decay[at] * reads[at]
			if e < i {
				h.near[at] = h.decay[at] * pairs[at]
			}
		}
	}
	for c := range h.keep {
		h.keep[c] = h.from[j.n-1]
	}
	for i := range j.n {
		h.to[i] = h.decay[(j.n-1)*op.DeltaChunk+i]
		row := func(x []float32) []float32 { return x[i*j.keys:][:j.KeyDim] }
		vec.Scale(row(h.qFrom), row(j.q), h.from[i])
		vec.Scale(row(h.kFrom), row(j.k), h.from[i])
		vec.Scale(row(h.kTo), row(j.k), h.to[i])
	}
}

// rate returns a with DtBias added, for a head with one decay and the chunk's i-th token.
func (j *deltaJob) rate(i, head int) float64 {
	return float64(j.gates.load(j.sc, dWide, (j.at+i)*j.GateStride+j.Heads+head, 1)[0]) + float64(j.dtBias[head])
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

const chunkPanel = op.DeltaChunk * vec.Panel // a panel of a chunk's rows

// solve computes what the chunk's tokens write into the state, called the new values. They solve (I
// + L)·new = β·(v − e^γ·K·S). Here S is the state before the chunk, K the chunk's keys, γ as in
// deltaHead, and L = β·K·Kᵀ·decay below the diagonal. The result is stored in dNew as panels and in
// dNewRows as rows.
func (j *deltaJob) solve(g int, h deltaHead) {
	rest, v := j.sc.f32(dRest, op.DeltaChunk*j.values), j.sc.f32(dV, op.DeltaChunk*j.values)
	j.sc.product(rest, j.values, h.kFrom, j.keys, false, j.state(dStates, g), j.values, false, j.n, j.ValueDim, j.KeyDim, false)
	lower := j.sc.f32(dLower, chunkSquare)
	rows := j.sc.f32(dNewRows, op.DeltaChunk*j.values)
	off := 2*j.KeyHeads*j.KeyDim + (j.kh*j.group+g)*j.ValueDim
	for i := range j.n {
		row := v[i*j.values:][:j.ValueDim]
		copy(row, j.qkv.load(j.sc, dWide, (j.at+i)*j.Width()+off, j.ValueDim))
		r := rest[i*j.values:][:j.ValueDim]
		vec.Scale(r, r, -1)
		vec.Add(r, row)
		vec.Scale(rows[i*j.values:][:j.ValueDim], r, h.beta[i])
		vec.Scale(lower[i*op.DeltaChunk:][:i], h.near[i*op.DeltaChunk:][:i], -h.beta[i])
	}
	solved := j.sc.f32(dNew, panels(j.ValueDim)*chunkPanel)
	j.toPanels(solved, rows)
	for p := range panels(j.ValueDim) {
		x := solved[p*chunkPanel:]
		for i := 1; i < j.n; i++ {
			vec.Tile(1, i, lower[i*op.DeltaChunk:], op.DeltaChunk, false, x, chunkPanel, x[i*vec.Panel:], vec.Panel, 1, true)
		}
	}
	j.toRows(rows, solved)
}

const chunkSquare = op.DeltaChunk * op.DeltaChunk

// toPanels copies a chunk's rows of values into panels and zeroes the padding of the last panel;
// toRows copies them back.
func (j *deltaJob) toPanels(dst, src []float32) {
	for i := range j.n {
		for p := range panels(j.ValueDim) {
			to, from := dst[p*chunkPanel+i*vec.Panel:][:vec.Panel], src[i*j.values+p*vec.Panel:i*j.values+min(j.ValueDim, (p+1)*vec.Panel)]
			clear(to[copy(to, from):])
		}
	}
}

func (j *deltaJob) toRows(dst, src []float32) {
	for i := range j.n {
		for p := range panels(j.ValueDim) {
			copy(dst[i*j.values+p*vec.Panel:][:vec.Panel], src[p*chunkPanel+i*vec.Panel:])
		}
	}
}

// output writes the outputs o of the chunk's tokens for the group's g-th value head: qFrom·S + scores·new, where S is
// the state before the chunk.
func (j *deltaJob) output(g int, h deltaHead, to act) {
	o := j.sc.f32(dOut, op.DeltaChunk*j.values)
	j.sc.product(o, j.values, h.qFrom, j.keys, false, j.state(dStates, g), j.values, false, j.n, j.ValueDim, j.KeyDim, false)
	vec.Tile(j.n, j.n, h.scores, op.DeltaChunk, false, j.sc.f32(dNew, panels(j.ValueDim)*chunkPanel), chunkPanel, o, j.values,
		panels(j.ValueDim), true)
	for i := range j.n {
		to.put(((j.at+i)*j.Heads+j.kh*j.group+g)*j.ValueDim, o[i*j.values:][:j.ValueDim])
	}
}

// carry replaces the state of the group's g-th value head with the state after the chunk. The new
// state is the decayed state plus Kᵀ·new, where new is the result of solve. Each key in K is scaled
// by the decay from its token to the chunk's end.
func (j *deltaJob) carry(g int, h deltaHead) {
	s := j.state(dStates, g)
	j.decayRows(s, h)
	vec.Tile(j.KeyDim, j.n, h.kTo, j.keys, true, j.sc.f32(dNew, panels(j.ValueDim)*chunkPanel), chunkPanel, s, j.values,
		panels(j.ValueDim), true)
}

// decayRows multiplies each row of a state by its decay over the chunk.
func (j *deltaJob) decayRows(s []float32, h deltaHead) {
	for c, by := range h.keep {
		row := s[c*j.values:][:j.values]
		vec.Scale(row, row, by)
	}
}
