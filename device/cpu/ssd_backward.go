package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, ssdBackward) }

// ssdGrads computes the backward of one chunk and one group of heads. sums holds the chunk's part of the gradients of
// ALog, DtBias and D, with one number for each head.
type ssdGrads struct {
	*ssdJob
	a        *op.SSDBackward
	sums     []float32
	b, c     []float32
	db, dc   []float32
	dpairs   []float32
	ofGammas [op.SSDChunk]float32 // gradients of γ
}

// ssdBackward works in two phases. It computes the gradients of the states after all chunks, head by head. Then it
// computes all other gradients, chunk by chunk.
func ssdBackward(s *stream, a *op.SSDBackward) error {
	announceSSD(&a.SSDShape, a.XBC, a.Dt, a.ALog, a.DtBias, a.D)
	reads(a.DO, 1, 0, a.T*a.Heads*a.HeadDim)
	reads(a.States, 1, 0, a.StatesLen())
	writes(a.DStates, 1, 0, a.StatesLen())
	writes(a.DXBC, 1, 0, a.T*a.Width())
	writes(a.DDt, a.T, a.DtStride, a.Heads)
	writes(a.DALog, 1, 0, a.Heads)
	writes(a.DDtBias, 1, 0, a.Heads)
	writes(a.DD, 1, 0, a.Heads)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 {
		return err
	}
	dstates, dy := f32s(a.DStates, a.StatesLen()), actOf(a.DO)
	job := ssdJob{SSDShape: &a.SSDShape, xbc: actOf(a.XBC), steps: actOf(a.Dt), aLog: f32s(a.ALog, a.Heads), dtBias: f32s(a.DtBias, a.Heads),
		d: f32s(a.D, a.Heads), cu: cu}
	s.runSSD(a.Heads, job, func(h int, j *ssdJob) {
		state := j.sc.f32(sState, j.HeadDim*j.states)
		clear(state)
		for c := j.Chunks() - 1; c >= 0; c-- {
			j.begin(c)
			copyPadded(j.stateOf(dstates, h), state, j.HeadDim, j.StateDim, j.states, false)
			j.head(h)
			j.carry(state, j.rows(sC, j.inC(h), j.StateDim, j.states), j.scaled(j.grads(dy, h), func(i int) float32 { return j.from[i] }))
		}
	})
	each := 3 * a.Heads
	s.partial = grown(s.partial, a.Chunks()*each)
	sums := s.partial[:a.Chunks()*each]
	clear(sums)
	s.runSSD(a.Chunks()*a.Groups, job, func(i int, j *ssdJob) {
		j.begin(i / a.Groups)
		g := ssdGrads{ssdJob: j, a: a, sums: sums[i/a.Groups*each:][:each]}
		g.group(i % a.Groups)
	})
	for i, total := range [][]float32{f32s(a.DALog, a.Heads), f32s(a.DDtBias, a.Heads), f32s(a.DD, a.Heads)} {
		for c := 0; total != nil && c < a.Chunks(); c++ {
			vec.Add(total, sums[c*each+i*a.Heads:][:a.Heads])
		}
	}
	return nil
}

// grads returns, for head h, the rows of dy (the gradient of the output) that belong to the chunk.
func (j *ssdJob) grads(dy act, h int) []float32 {
	y := j.sc.f32(sDY, op.SSDChunk*j.heads)
	for i := range j.n {
		copy(y[i*j.heads:][:j.HeadDim], dy.load(j.sc, sWide, ((j.at+i)*j.Heads+h)*j.HeadDim, j.HeadDim))
	}
	return y
}

// group computes the gradients of all heads of a group. The heads share b and c, so each head adds
// to their gradients.
func (g *ssdGrads) group(group int) {
	heads := g.Heads / g.Groups
	g.b, g.c, _ = g.load(group * heads)
	g.db, g.dc, g.dpairs = g.sc.f32(sDB, op.SSDChunk*g.states), g.sc.f32(sDC, op.SSDChunk*g.states), g.sc.f32(sDPairs, ssdSquare)
	clear(g.db)
	clear(g.dc)
	clear(g.dpairs)
	for h := group * heads; h < (group+1)*heads; h++ {
		g.ofHead(h)
	}
	g.sc.product(g.dc, g.states, g.dpairs, op.SSDChunk, false, g.b, g.states, false, g.n, g.StateDim, g.n, true)
	g.sc.product(g.db, g.states, g.dpairs, op.SSDChunk, true, g.c, g.states, false, g.n, g.StateDim, g.n, true)
	to := actOf(g.a.DXBC)
	for i := range g.n {
		row := (g.at + i) * g.Width()
		to.put(row+g.inB(group*heads), g.db[i*g.states:][:g.StateDim])
		to.put(row+g.inC(group*heads), g.dc[i*g.states:][:g.StateDim])
	}
}

func (g *ssdGrads) ofHead(h int) {
	g.head(h)
	n, p := g.n, g.HeadDim
	state, dstate := g.stateOf(f32s(g.a.States, g.a.StatesLen()), h), g.stateOf(f32s(g.a.DStates, g.a.StatesLen()), h)
	x, dy := g.rows(sX, h*p, p, g.heads), g.grads(actOf(g.a.DO), h)
	scores, dw := g.scores(func(int) float32 { return 1 }), g.sc.f32(sDW, ssdSquare)
	g.sc.product(dw, op.SSDChunk, dy, g.heads, false, x, g.heads, true, n, n, p, false)
	dx, keys, from := g.sc.f32(sDX, op.SSDChunk*g.heads), g.sc.f32(sKeys, op.SSDChunk*g.heads), g.sc.f32(sFrom, op.SSDChunk*g.heads)
	g.sc.product(dx, g.heads, scores, op.SSDChunk, true, dy, g.heads, false, n, p, n, false)
	g.sc.product(keys, g.heads, g.b, g.states, false, dstate, g.StateDim, true, n, p, g.StateDim, false)
	g.sc.product(from, g.heads, g.c, g.states, false, state, g.StateDim, true, n, p, g.StateDim, false)
	g.sc.product(g.dc, g.states, g.scaled(dy, func(i int) float32 { return g.from[i] }), g.heads, false, state, g.StateDim, false, n, g.StateDim, p, true)
	g.sc.product(g.db, g.states, g.scaled(x, func(i int) float32 { return g.to[i] * g.dt[i] }), g.heads, false, dstate, g.StateDim, false, n, g.StateDim, p, true)
	g.throughPairs(scores, dw)
	g.ofGammas[n-1] += g.keep * vec.Dot(state, dstate)
	var ddt [op.SSDChunk]float32
	var dd float32
	to, row := actOf(g.a.DXBC), g.sc.f32(sOut, op.SSDChunk*g.heads)[:p]
	for i := range n {
		xi, yi, di, ki := x[i*g.heads:][:p], dy[i*g.heads:][:p], dx[i*g.heads:][:p], keys[i*g.heads:][:p]
		written := g.to[i] * g.dt[i] * vec.Dot(xi, ki)
		g.ofGammas[i] += g.from[i]*vec.Dot(yi, from[i*g.heads:][:p]) - written
		g.ofGammas[n-1] += written
		for e := range row {
			di[e] += g.to[i] * ki[e]
			row[e] = g.dt[i]*di[e] + g.d[h]*yi[e]
		}
		ddt[i] = vec.Dot(xi, di)
		dd += vec.Dot(xi, yi)
		to.put((g.at+i)*g.Width()+h*p, row)
	}
	g.sums[2*g.Heads+h] = dd
	g.throughSteps(h, ddt[:n])
}

// throughPairs adds one head's part to the gradient of C·Bᵀ, and sets the part of γ's gradients
// that comes through the scores. A token's γ is the sum of the chunk's log-decays up to the token
// (ssdHead). The score of tokens i and j is multiplied by e^(γi−γj). Its gradient is therefore
// added to γ's at i and subtracted at j. For i = j the two cancel, so the code leaves them out:
// otherwise their rounding errors would dominate where a state decays to 0 at once.
func (g *ssdGrads) throughPairs(scores, dw []float32) {
	clear(g.ofGammas[:])
	for i := range g.n {
		for e := range i + 1 {
			at := i*op.SSDChunk + e
			d := dw[at] * g.dt[e]
			g.dpairs[at] += d * g.decay[at]
			if e < i {
				g.ofGammas[i] += d * scores[at]
				g.ofGammas[e] -= d * scores[at]
			}
		}
	}
}

// throughSteps writes the gradients of head h's step sizes dt. ddt holds the part that does not
// come through γ, the sum of log-decays (ssdHead). A token's step is part of γ at this and all
// later tokens of its sequence.
func (g *ssdGrads) throughSteps(h int, ddt []float32) {
	to, sum := actOf(g.a.DDt), 0.0
	var ofA, ofBias float64
	for i := g.n - 1; i >= 0; i-- {
		if i+1 < g.n && g.first[i+1] == g.at+i+1 {
			sum = 0
		}
		sum += float64(g.ofGammas[i])
		ofA -= sum * g.rate * float64(g.dt[i])
		d := float64(ddt[i]) - sum*g.rate
		raw := float64(g.raw[i])
		if all := softplus(raw); all < float64(g.DtMin) || all > float64(g.DtMax) {
			d = 0
		}
		d /= 1 + math.Exp(-raw)
		ofBias += d
		to.put((g.at+i)*g.DtStride+h, []float32{float32(d)})
	}
	g.sums[h], g.sums[g.Heads+h] = float32(ofA), float32(ofBias)
}
