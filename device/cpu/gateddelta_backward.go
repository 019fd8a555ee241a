package cpu

import (
	"math"

	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, gatedDeltaBackward) }

func announceDelta(a *op.DeltaShape, qkv, gates device.Tensor) {
	reads(a.Cu, 1, 0, a.Seqs+1)
	reads(qkv, 1, 0, a.T*a.Width())
	reads(gates, a.T, a.GateStride, a.Heads)
	if !a.ByChannel {
		reads(gates, a.T, a.GateStride, 2*a.Heads)
	}
}

func announceRates(a *op.DeltaShape, rates, aLog, dtBias device.Tensor) {
	reads(rates, 1, 0, a.T*a.Decays())
	reads(aLog, 1, 0, a.Heads)
	reads(dtBias, 1, 0, a.Decays())
}

// gatedDeltaBackward takes the chunks of a sequence in reverse. From the stored state before each chunk, it
// recomputes the chunk's new values and goes back through the equations of gatedDelta.
func gatedDeltaBackward(s *stream, a *op.GatedDeltaBackward) error {
	announceDelta(&a.DeltaShape, a.QKV, a.Gates)
	announceRates(&a.DeltaShape, a.A, a.ALog, a.DtBias)
	reads(a.DO, 1, 0, a.T*a.Heads*a.ValueDim)
	writes(a.DQKV, 1, 0, a.T*a.Width())
	writes(a.DGates, a.T, a.GateStride, a.Heads)
	if !a.ByChannel {
		writes(a.DGates, a.T, a.GateStride, 2*a.Heads)
	}
	writes(a.DA, 1, 0, a.T*a.Decays())
	writes(a.States, 1, 0, a.StatesLen())
	writes(a.DALog, 1, 0, a.Heads)
	writes(a.DDtBias, 1, 0, a.Decays())
	each := a.Heads + a.Decays()
	s.partial = grown(s.partial, a.Seqs*each)
	sums, states := s.partial[:a.Seqs*each], f32s(a.States, a.StatesLen())
	clear(sums)
	job := deltaJob{qkv: actOf(a.QKV), gates: actOf(a.Gates), rates: actOf(a.A), aLog: f32s(a.ALog, a.Heads), dtBias: f32s(a.DtBias, a.Decays())}
	err := s.runDelta(&a.DeltaShape, job, func(seq int, j *deltaJob) {
		b := deltaBackward{deltaJob: j, a: a, sums: sums[seq*each:][:each]}
		clear(j.sc.f32(dDStates, j.group*j.KeyDim*j.values))
		chunks := (j.end - j.first + op.DeltaChunk - 1) / op.DeltaChunk
		for j.at = j.first + (chunks-1)*op.DeltaChunk; j.at >= j.first; j.at -= op.DeltaChunk {
			j.load()
			b.chunk(states)
		}
	})
	addSums(f32s(a.DALog, a.Heads), sums, each, 0)
	addSums(f32s(a.DDtBias, a.Decays()), sums, each, a.Heads)
	return err
}

// addSums adds to total the sums that begin at element at of every row of sums, row by row. Rows are width elements
// apart. If total is nil, addSums does nothing.
func addSums(total, sums []float32, width, at int) {
	for ; total != nil && at < len(sums); at += width {
		vec.Add(total, sums[at:][:len(total)])
	}
}

// deltaBackward is the backward of a deltaJob. The score of tokens i and j is multiplied by
// e^(γi−γj), where γ is the sum of a chunk's gates up to a token (deltaHead). The score's gradient
// is therefore added to γ's gradient at i and subtracted at j. For i = j the two cancel, so the
// code leaves them out. Otherwise their rounding errors would dominate where a state decays to 0 at
// once.
type deltaBackward struct {
	*deltaJob
	a             *op.GatedDeltaBackward
	sums          []float32 // of the sequence: gradients of ALog, then of DtBias
	dq, dk        []float32
	dbeta         []float32 // gradient of β
	dof           []float32 // gradient of γ: of every token or, with ByChannel, of every token and channel (n, keys)
	ds, dl        []float32 // gradients of scores and of near
	dqf, dkf, dkt []float32 // gradients of qFrom, kFrom and kTo
	dkeep         []float32 // gradient of keep
}

// chunk computes all gradients of the current chunk: head by head, and then through the normalization of q and k, which
// the heads share. states are the states before the chunk, as the forward stored them.
func (b *deltaBackward) chunk(states []float32) {
	b.dq, b.dk = b.sc.f32(dDQ, op.DeltaChunk*b.keys), b.sc.f32(dDK, op.DeltaChunk*b.keys)
	clear(b.dq)
	clear(b.dk)
	rows := op.DeltaChunk * b.keys
	scaled, squares := b.sc.f32(dDScaled, 3*rows), b.sc.f32(dDScores, 2*chunkSquare)
	b.dqf, b.dkf, b.dkt, b.ds, b.dl = scaled[:rows], scaled[rows:][:rows], scaled[2*rows:], squares[:chunkSquare], squares[chunkSquare:]
	gates := b.sc.f32(dDGates, op.DeltaChunk+op.MostDeltaDim+rows)
	b.dbeta, b.dkeep, b.dof = gates[:b.n], gates[op.DeltaChunk:][:b.KeyDim], gates[op.DeltaChunk+op.MostDeltaDim:]
	for g := range b.group {
		if clear(b.state(dStates, g)); b.at > b.first {
			copyPadded(states[b.place(g):], b.state(dStates, g), b.KeyDim, b.ValueDim, b.values, true)
		}
		clear(b.dbeta)
		clear(b.dof)
		h := b.head(g)
		b.solve(g, h)
		b.newValues(g, h)
		b.throughScores(g)
		b.throughSystem(h)
		b.throughState(g, h)
		if b.ByChannel {
			b.throughChannels(h)
			b.storeRates(b.kh, h)
		} else {
			b.throughDecays(h)
			b.storeRate(b.kh*b.group+g, h)
		}
		b.storeBeta(b.kh*b.group+g, h)
	}
	scale := 1 / math.Sqrt(float64(b.KeyDim))
	to := actOf(b.a.DQKV)
	for i := range b.n {
		at := (b.at+i)*b.Width() + b.kh*b.KeyDim
		to.put(at, b.throughUnit(b.dq, b.q, i, b.norms[2*i], scale))
		to.put(at+b.KeyHeads*b.KeyDim, b.throughUnit(b.dk, b.k, i, b.norms[2*i+1], 1))
	}
}

// throughUnit takes the gradient through the normalization y = scale·r·x of row i of q or k. dy holds the gradient of y
// and y the normalized rows. It overwrites row i of dy with the gradient of x and returns that row.
func (b *deltaBackward) throughUnit(dy, y []float32, i int, r float32, scale float64) []float32 {
	d, u := dy[i*b.keys:][:b.KeyDim], y[i*b.keys:][:b.KeyDim]
	along := float32(float64(vec.Dot(d, u)) / scale)
	for e := range d {
		d[e] = r * (float32(scale)*d[e] - u[e]*along)
	}
	return d
}

// newValues computes the gradient of the chunk's new values, the result of solve, as rows in the
// buffer dGrad. It adds the part from the outputs and the part from the state after the chunk.
func (b *deltaBackward) newValues(g int, h deltaHead) {
	dnew, do := b.sc.f32(dGrad, op.DeltaChunk*b.values), b.sc.f32(dOut, op.DeltaChunk*b.values)
	b.sc.product(dnew, b.values, h.kTo, b.keys, false, b.state(dDStates, g), b.values, false, b.n, b.ValueDim, b.KeyDim, false)
	for i := range b.n {
		copy(do[i*b.values:][:b.ValueDim], actOf(b.a.DO).load(b.sc, dWide, ((b.at+i)*b.Heads+b.kh*b.group+g)*b.ValueDim, b.ValueDim))
	}
	b.sc.product(dnew, b.values, h.scores, op.DeltaChunk, true, do, b.values, false, b.n, b.ValueDim, b.n, true)
}

// throughScores computes the gradients of scores, qFrom and kTo.
func (b *deltaBackward) throughScores(g int) {
	do, fresh := b.sc.f32(dOut, op.DeltaChunk*b.values), b.sc.f32(dNewRows, op.DeltaChunk*b.values)
	b.sc.product(b.ds, op.DeltaChunk, do, b.values, false, fresh, b.values, true, b.n, b.n, b.ValueDim, false)
	for i := range b.n {
		clear(b.ds[i*op.DeltaChunk+i+1 : (i+1)*op.DeltaChunk])
	}
	b.sc.product(b.dqf, b.keys, do, b.values, false, b.state(dStates, g), b.values, true, b.n, b.KeyDim, b.ValueDim, false)
	b.sc.product(b.dkt, b.keys, fresh, b.values, false, b.state(dDStates, g), b.values, true, b.n, b.KeyDim, b.ValueDim, false)
}

// throughSystem goes back through the linear system that solve has solved. It turns the gradient of the new values, in
// dGrad, into the gradient of the right-hand side β·(v − kFrom·S). It also computes the gradient of near, and adds to
// the gradient of β.
func (b *deltaBackward) throughSystem(h deltaHead) {
	rows, solved, lower := b.sc.f32(dGrad, op.DeltaChunk*b.values), b.sc.f32(dGradPack, panels(b.ValueDim)*chunkPanel), b.sc.f32(dLower, chunkSquare)
	b.toPanels(solved, rows)
	for p := range panels(b.ValueDim) {
		x := solved[p*chunkPanel:]
		for i := b.n - 2; i >= 0; i-- {
			vec.Tile(1, b.n-1-i, lower[(i+1)*op.DeltaChunk+i:], op.DeltaChunk, true, x[(i+1)*vec.Panel:], chunkPanel, x[i*vec.Panel:],
				vec.Panel, 1, true)
		}
	}
	b.toRows(rows, solved)
	b.sc.product(b.dl, op.DeltaChunk, rows, b.values, false, b.sc.f32(dNewRows, op.DeltaChunk*b.values), b.values, true, b.n, b.n, b.ValueDim, false)
	for i := range b.n {
		clear(b.dl[i*op.DeltaChunk+i : (i+1)*op.DeltaChunk])
		row := b.dl[i*op.DeltaChunk:][:i]
		b.dbeta[i] -= vec.Dot(row, h.near[i*op.DeltaChunk:][:i])
		vec.Scale(row, row, -h.beta[i])
	}
}

// throughState takes the gradients through the state before the chunk. It stores the gradient of v
// and adds to the gradients of k, β and γ (deltaHead). It turns the gradient of the state after the
// chunk into the gradient of the state before it.
func (b *deltaBackward) throughState(g int, h deltaHead) {
	rows, rest := b.sc.f32(dGrad, op.DeltaChunk*b.values), b.sc.f32(dRest, op.DeltaChunk*b.values)
	off, to := 2*b.KeyHeads*b.KeyDim+(b.kh*b.group+g)*b.ValueDim, actOf(b.a.DQKV)
	for i := range b.n {
		row := rows[i*b.values:][:b.ValueDim]
		b.dbeta[i] += vec.Dot(row, rest[i*b.values:][:b.ValueDim])
		vec.Scale(row, row, h.beta[i])
		to.put((b.at+i)*b.Width()+off, row)
		vec.Scale(row, row, -1)
	}
	s, ds := b.state(dStates, g), b.state(dDStates, g)
	b.sc.product(b.dkf, b.keys, rows, b.values, false, s, b.values, true, b.n, b.KeyDim, b.ValueDim, false)
	for c := range b.dkeep {
		b.dkeep[c] = vec.Dot(s[c*b.values:][:b.ValueDim], ds[c*b.values:][:b.ValueDim])
	}
	b.decayRows(ds, h)
	b.sc.product(ds, b.values, h.qFrom, b.keys, true, b.sc.f32(dOut, op.DeltaChunk*b.values), b.values, false, b.KeyDim, b.ValueDim, b.n, true)
	b.sc.product(ds, b.values, h.kFrom, b.keys, true, rows, b.values, false, b.KeyDim, b.ValueDim, b.n, true)
}

// throughDecays adds to the gradients of q, k and γ in a head with one decay for all channels. They come from the
// gradients that the deltaBackward holds.
func (b *deltaBackward) throughDecays(h deltaHead) {
	for i := range b.n {
		for e := range i + 1 {
			at := i*op.DeltaChunk + e
			if e < i {
				through := b.ds[at]*h.scores[at] + b.dl[at]*h.near[at]
				b.dof[i] += through
				b.dof[e] -= through
			}
			b.ds[at] *= h.decay[at]
			b.dl[at] *= h.decay[at]
		}
	}
	b.sc.product(b.dq, b.keys, b.ds, op.DeltaChunk, false, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.sc.product(b.dk, b.keys, b.ds, op.DeltaChunk, true, b.q, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.sc.product(b.dk, b.keys, b.dl, op.DeltaChunk, false, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.sc.product(b.dk, b.keys, b.dl, op.DeltaChunk, true, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
	last := b.n - 1
	for i := range b.n {
		row := func(x []float32) []float32 { return x[i*b.keys:][:b.KeyDim] }
		b.dof[i] += vec.Dot(row(b.dqf), row(h.qFrom)) + vec.Dot(row(b.dkf), row(h.kFrom))
		if i < last {
			left := vec.Dot(row(b.dkt), row(h.kTo))
			b.dof[i] -= left
			b.dof[last] += left
		}
		vec.Scale(row(b.dqf), row(b.dqf), h.from[i])
		vec.Add(row(b.dq), row(b.dqf))
		vec.Scale(row(b.dkf), row(b.dkf), h.from[i])
		vec.Add(row(b.dk), row(b.dkf))
		vec.Scale(row(b.dkt), row(b.dkt), h.to[i])
		vec.Add(row(b.dk), row(b.dkt))
	}
	b.dof[last] += vec.Dot(h.keep, b.dkeep)
}

// storeBeta turns the gradient of β into the gradient of the input b.
func (b *deltaBackward) storeBeta(head int, h deltaHead) {
	to := actOf(b.a.DGates)
	for i := range b.n {
		to.put((b.at+i)*b.GateStride+head, []float32{b.dbeta[i] * h.beta[i] * (1 - h.beta[i])})
	}
}

// storeRate turns the gradient of γ into the gradient of the input a, and adds to the gradients of ALog and DtBias. A
// token's g is part of γ of this and every later token, so its gradient is the sum of theirs.
func (b *deltaBackward) storeRate(head int, h deltaHead) {
	to, dg := actOf(b.a.DGates), 0.0
	rate := math.Exp(float64(b.aLog[head]))
	var one [1]float32
	for i := b.n - 1; i >= 0; i-- {
		dg += float64(b.dof[i])
		da := -dg * rate / (1 + math.Exp(-b.rate(i, head)))
		one[0] = float32(da)
		to.put((b.at+i)*b.GateStride+b.Heads+head, one[:])
		b.sums[head] += float32(dg * float64(h.g[i]))
		b.sums[b.Heads+head] += float32(da)
	}
}
