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
	reads(gates, a.T, a.GateStride, 2*a.Heads)
}

// gatedDeltaBackward takes the chunks of a sequence in reverse. From the stored state before each chunk, it
// recomputes the chunk's new values and goes back through the equations of gatedDelta.
func gatedDeltaBackward(s *stream, a *op.GatedDeltaBackward) error {
	announceDelta(&a.DeltaShape, a.QKV, a.Gates)
	reads(a.ALog, 1, 0, a.Heads)
	reads(a.DtBias, 1, 0, a.Heads)
	reads(a.DO, 1, 0, a.T*a.Heads*a.ValueDim)
	writes(a.DQKV, 1, 0, a.T*a.Width())
	writes(a.DGates, a.T, a.GateStride, 2*a.Heads)
	writes(a.States, 1, 0, a.StatesLen())
	writes(a.DALog, 1, 0, a.Heads)
	writes(a.DDtBias, 1, 0, a.Heads)
	s.partial = grown(s.partial, 2*a.Seqs*a.Heads)
	sums, states := s.partial[:2*a.Seqs*a.Heads], f32s(a.States, a.StatesLen())
	clear(sums)
	job := deltaJob{qkv: actOf(a.QKV), gates: actOf(a.Gates), aLog: f32s(a.ALog, a.Heads), dtBias: f32s(a.DtBias, a.Heads)}
	err := s.runDelta(&a.DeltaShape, job, func(seq int, j *deltaJob) {
		b := deltaBackward{deltaJob: j, a: a, sums: sums[2*seq*a.Heads:][:2*a.Heads]}
		clear(j.sc.f32(dDStates, j.group*j.KeyDim*j.values))
		chunks := (j.end - j.first + op.DeltaChunk - 1) / op.DeltaChunk
		for j.at = j.first + (chunks-1)*op.DeltaChunk; j.at >= j.first; j.at -= op.DeltaChunk {
			j.load()
			b.chunk(states)
		}
	})
	addSums(f32s(a.DALog, a.Heads), sums, a.Seqs, 0)
	addSums(f32s(a.DDtBias, a.Heads), sums, a.Seqs, 1)
	return err
}

// addSums adds one of the gradients that sequences have summed to total. Every sequence has two
// rows in sums; which selects row 0 or 1. If total is nil, addSums does nothing.
func addSums(total, sums []float32, seqs, which int) {
	for s := 0; total != nil && s < seqs; s++ {
		vec.Add(total, sums[(2*s+which)*len(total):][:len(total)])
	}
}

// deltaBackward is the backward of a deltaJob. The score of tokens i and j is multiplied by
// e^(γi−γj), where γ is the sum of a chunk's gates up to a token (deltaHead). The score's gradient
// is therefore added to γ's gradient at i and subtracted at j. For i = j the two cancel, so the
// code leaves them out. Otherwise their rounding errors would dominate where a state decays to 0 at
// once.
type deltaBackward struct {
	*deltaJob
	a          *op.GatedDeltaBackward
	sums       []float32 // of the sequence: gradients of ALog, then of DtBias
	dq, dk     []float32
	dbeta, dof []float32 // gradients of β and of γ
}

// chunk computes all gradients of the current chunk: head by head, and then through the normalization of q and k, which
// the heads share. states are the states before the chunk, as the forward stored them.
func (b *deltaBackward) chunk(states []float32) {
	b.dq, b.dk = b.sc.f32(dDQ, op.DeltaChunk*b.keys), b.sc.f32(dDK, op.DeltaChunk*b.keys)
	clear(b.dq)
	clear(b.dk)
	gates := b.sc.f32(dDGates, 2*op.DeltaChunk)
	b.dbeta, b.dof = gates[:b.n], gates[op.DeltaChunk:][:b.n]
	for g := range b.group {
		if clear(b.state(dStates, g)); b.at > b.first {
			b.copyState(states[b.place(g):], b.state(dStates, g), true)
		}
		clear(b.dbeta)
		clear(b.dof)
		h := b.head(g)
		b.solve(g, h)
		b.newValues(g, h)
		b.throughScores(g, h)
		b.throughSystem(h)
		b.throughState(g, h)
		b.storeGates(g, h)
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
	dnew, do, scores := b.sc.f32(dGrad, op.DeltaChunk*b.values), b.sc.f32(dOut, op.DeltaChunk*b.values), b.scores(h)
	b.product(dnew, b.values, b.k, b.keys, false, b.state(dDStates, g), b.values, false, b.n, b.ValueDim, b.KeyDim, false)
	fresh := b.sc.f32(dNewRows, op.DeltaChunk*b.values)
	for i := range b.n {
		row := dnew[i*b.values:][:b.ValueDim]
		vec.Scale(row, row, h.to[i])
		left := vec.Dot(row, fresh[i*b.values:][:b.ValueDim])
		b.dof[i] -= left
		b.dof[b.n-1] += left
		copy(do[i*b.values:][:b.ValueDim], actOf(b.a.DO).load(b.sc, dWide, ((b.at+i)*b.Heads+b.kh*b.group+g)*b.ValueDim, b.ValueDim))
	}
	b.product(dnew, b.values, scores, op.DeltaChunk, true, do, b.values, false, b.n, b.ValueDim, b.n, true)
}

// throughScores adds to the gradients of q, k and γ (deltaHead). These parts come from the outputs,
// and from the state after the chunk through the new values.
func (b *deltaBackward) throughScores(g int, h deltaHead) {
	do, fresh := b.sc.f32(dOut, op.DeltaChunk*b.values), b.sc.f32(dNewRows, op.DeltaChunk*b.values)
	ds, scores, term := b.sc.f32(dDScores, chunkSquare), b.sc.f32(dScores, chunkSquare), b.sc.f32(dTerm, op.DeltaChunk*b.keys)
	b.product(ds, op.DeltaChunk, do, b.values, false, fresh, b.values, true, b.n, b.n, b.ValueDim, false)
	for i := range b.n {
		for e := range b.n {
			at := i*op.DeltaChunk + e
			if e > i {
				ds[at] = 0
				continue
			}
			if e < i {
				through := ds[at] * scores[at]
				b.dof[i] += through
				b.dof[e] -= through
			}
			ds[at] *= h.decay[at]
		}
	}
	b.product(b.dq, b.keys, ds, op.DeltaChunk, false, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.product(b.dk, b.keys, ds, op.DeltaChunk, true, b.q, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.product(term, b.keys, do, b.values, false, b.state(dStates, g), b.values, true, b.n, b.KeyDim, b.ValueDim, false)
	b.addRows(b.dq, term, b.q, h.from, 1)
	b.product(term, b.keys, fresh, b.values, false, b.state(dDStates, g), b.values, true, b.n, b.KeyDim, b.ValueDim, false)
	for i := range b.n {
		row := term[i*b.keys:][:b.KeyDim]
		vec.Scale(row, row, h.to[i])
		vec.Add(b.dk[i*b.keys:][:b.KeyDim], row)
	}
}

// addRows adds sign·factor[i]·(row i of term) to row i of dx, the gradient of x. Each factor is an
// exponential of γ (deltaHead), so γ's gradient grows by the dot product of the added row and row i
// of x.
func (b *deltaBackward) addRows(dx, term, x, factor []float32, sign float32) {
	for i := range b.n {
		row := term[i*b.keys:][:b.KeyDim]
		vec.Scale(row, row, sign*factor[i])
		vec.Add(dx[i*b.keys:][:b.KeyDim], row)
		b.dof[i] += vec.Dot(row, x[i*b.keys:][:b.KeyDim])
	}
}

// throughSystem goes back through the linear system that solve has solved. It turns the gradient of the new values, in
// dGrad, into the gradient of the right-hand side β·(v − e^γ·K·S). It also adds to the gradients of β, γ and k, on
// which the system's matrix depends.
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
	dl, pairs := b.sc.f32(dDScores, chunkSquare), b.sc.f32(dPairs, chunkSquare)
	b.product(dl, op.DeltaChunk, rows, b.values, false, b.sc.f32(dNewRows, op.DeltaChunk*b.values), b.values, true, b.n, b.n, b.ValueDim, false)
	for i := range b.n {
		for e := range b.n {
			at := i*op.DeltaChunk + e
			if e >= i {
				dl[at] = 0
				continue
			}
			by := -dl[at] * h.decay[at]
			b.dbeta[i] += by * pairs[at]
			through := by * h.beta[i] * pairs[at]
			b.dof[i] += through
			b.dof[e] -= through
			dl[at] = by * h.beta[i]
		}
	}
	b.product(b.dk, b.keys, dl, op.DeltaChunk, false, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
	b.product(b.dk, b.keys, dl, op.DeltaChunk, true, b.k, b.keys, false, b.n, b.KeyDim, b.n, true)
}

// throughState takes the gradients through the state before the chunk. It stores the gradient of v
// and adds to the gradients of k, β and γ (deltaHead). It turns the gradient of the state after the
// chunk into the gradient of the state before it.
func (b *deltaBackward) throughState(g int, h deltaHead) {
	rows, rest, term := b.sc.f32(dGrad, op.DeltaChunk*b.values), b.sc.f32(dRest, op.DeltaChunk*b.values), b.sc.f32(dTerm, op.DeltaChunk*b.keys)
	off, to := 2*b.KeyHeads*b.KeyDim+(b.kh*b.group+g)*b.ValueDim, actOf(b.a.DQKV)
	for i := range b.n {
		row := rows[i*b.values:][:b.ValueDim]
		b.dbeta[i] += vec.Dot(row, rest[i*b.values:][:b.ValueDim])
		vec.Scale(row, row, h.beta[i])
		to.put((b.at+i)*b.Width()+off, row)
	}
	s, ds := b.state(dStates, g), b.state(dDStates, g)
	b.product(term, b.keys, rows, b.values, false, s, b.values, true, b.n, b.KeyDim, b.ValueDim, false)
	b.addRows(b.dk, term, b.k, h.from, -1)
	for i := range b.KeyDim {
		b.dof[b.n-1] += h.from[b.n-1] * vec.Dot(s[i*b.values:][:b.ValueDim], ds[i*b.values:][:b.ValueDim])
	}
	vec.Scale(ds, ds, h.from[b.n-1])
	b.product(ds, b.values, b.scaledRows(b.q, func(i int) float32 { return h.from[i] }), b.keys, true, b.sc.f32(dOut, op.DeltaChunk*b.values), b.values,
		false, b.KeyDim, b.ValueDim, b.n, true)
	b.product(ds, b.values, b.scaledRows(b.k, func(i int) float32 { return -h.from[i] }), b.keys, true, rows, b.values,
		false, b.KeyDim, b.ValueDim, b.n, true)
}

// storeGates turns the gradients of β and γ into gradients of their inputs b and a, and adds to the
// gradients of ALog and DtBias. A token's gate g is part of γ at this and every later token of the
// chunk, so its gradient is the sum of theirs.
func (b *deltaBackward) storeGates(g int, h deltaHead) {
	head, to, dg := b.kh*b.group+g, actOf(b.a.DGates), 0.0
	rate := math.Exp(float64(b.aLog[head]))
	var one [1]float32
	for i := b.n - 1; i >= 0; i-- {
		dg += float64(b.dof[i])
		_, a := b.gate(i, head)
		da := -dg * rate / (1 + math.Exp(-a))
		row := (b.at + i) * b.GateStride
		one[0] = b.dbeta[i] * h.beta[i] * (1 - h.beta[i])
		to.put(row+head, one[:])
		one[0] = float32(da)
		to.put(row+b.Heads+head, one[:])
		b.sums[head] += float32(dg * float64(h.g[i]))
		b.sums[b.Heads+head] += float32(da)
	}
}
