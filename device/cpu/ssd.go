package cpu

import (
	"math"
	"sort"

	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, ssd) }

// Buffers of the state space scan. Rows are padded to whole panels.
const (
	_       = iota // scratch.product
	sB             // b of the chunk (n, StateDim)
	sC             // c of the chunk (n, StateDim)
	sX             // x of a head (n, HeadDim)
	sScaled        // x or the output's gradient times factors
	sPairs         // C·Bᵀ
	sScores        // C·Bᵀ·decay
	sDecay         // for j ≤ i of one sequence: e^(γi−γj)
	sOut           // o
	sFrom          // C·Sᵀ
	sState         // a state (HeadDim, StateDim)
	sSteps         // per-token numbers
	sWide          // a temporary row
	// Buffers that only the backward uses.
	sDY     // gradient of o (n, HeadDim)
	sDPairs // gradient of C·Bᵀ, summed over the heads of a group
	sDW     // DY·Xᵀ
	sDX     // gradient of x/dt
	sKeys   // B·dSᵀ
	sDB     // gradient of b
	sDC     // gradient of c
)

const ssdSquare = op.SSDChunk * op.SSDChunk

// ssdJob is the work of one thread at a time: one chunk of tokens, for one head or for a group of heads that share b
// and c.
type ssdJob struct {
	*op.SSDShape
	sc              *scratch
	xbc, steps      act
	aLog, dtBias, d []float32
	cu              []int32
	goesOn          bool // a state precedes token 0
	at, n           int  // the chunk: its first token and its length
	heads, states   int  // HeadDim and StateDim rounded up to whole panels
	first           [op.SSDChunk]int
	ssdHead
}

// ssdHead holds numbers for each token of one head in a chunk. Let γ be the sum of −e^ALog·dt from the chunk's first
// token on.
//
//	from: e^γ, or 0 if a sequence begins between the chunk's start and the token
//	to: e^(γ of the last token − γ), or 0 if a sequence begins after the token, up to the next chunk's first token
//	keep: the factor by which the state before the chunk enters the state after the chunk
type ssdHead struct {
	raw, dt, from, to, decay []float32
	rate                     float64
	keep                     float32
}

func announceSSD(a *op.SSDShape, xbc, dt, aLog, dtBias, d device.Tensor) {
	reads(a.Cu, 1, 0, a.Seqs+1)
	reads(xbc, 1, 0, a.T*a.Width())
	reads(dt, a.T, a.DtStride, a.Heads)
	reads(aLog, 1, 0, a.Heads)
	reads(dtBias, 1, 0, a.Heads)
	reads(d, 1, 0, a.Heads)
}

// runSSD calls f for i = 0 … n−1 on all cores. Each call gets its own copy of job, with scratch
// memory.
func (s *stream) runSSD(n int, job ssdJob, f func(i int, j *ssdJob)) {
	s.pool.Run(n, func(i int) {
		j := job
		j.sc, j.heads, j.states = s.scratch.get(), panels(j.HeadDim)*vec.Panel, panels(j.StateDim)*vec.Panel
		f(i, &j)
		s.scratch.put(j.sc)
	})
}

// ssd works in two phases. It computes the states before all chunks, head by head. Then it computes the outputs, chunk
// by chunk. Source: arXiv:2405.21060, section 6.
func ssd(s *stream, a *op.SSD) error {
	announceSSD(&a.SSDShape, a.XBC, a.Dt, a.ALog, a.DtBias, a.D)
	writes(a.O, 1, 0, a.T*a.Heads*a.HeadDim)
	writes(a.States, 1, 0, a.StatesLen())
	writes(a.Last, 1, 0, a.Heads*a.HeadDim*a.StateDim)
	cu, err := tokensOf(i32s(a.Cu, a.Seqs+1), a.T)
	if err != nil || a.T == 0 {
		return err
	}
	states, last := f32s(a.States, a.StatesLen()), f32s(a.Last, a.Heads*a.HeadDim*a.StateDim)
	job := ssdJob{SSDShape: &a.SSDShape, xbc: actOf(a.XBC), steps: actOf(a.Dt), aLog: f32s(a.ALog, a.Heads), dtBias: f32s(a.DtBias, a.Heads),
		d: f32s(a.D, a.Heads), cu: cu, goesOn: last != nil}
	s.runSSD(a.Heads, job, func(h int, j *ssdJob) {
		state := j.sc.f32(sState, j.HeadDim*j.states)
		clear(state)
		if last != nil {
			copyPadded(last[h*j.HeadDim*j.StateDim:], state, j.HeadDim, j.StateDim, j.states, true)
		}
		for c := range j.Chunks() {
			j.begin(c)
			copyPadded(j.stateOf(states, h), state, j.HeadDim, j.StateDim, j.states, false)
			j.head(h)
			j.carry(state, j.rows(sB, j.inB(h), j.StateDim, j.states), j.scaled(j.rows(sX, h*j.HeadDim, j.HeadDim, j.heads),
				func(i int) float32 { return j.to[i] * j.dt[i] }))
		}
		if last != nil {
			copyPadded(last[h*j.HeadDim*j.StateDim:], state, j.HeadDim, j.StateDim, j.states, false)
		}
	})
	s.runSSD(a.Chunks()*a.Groups, job, func(i int, j *ssdJob) {
		j.begin(i / a.Groups)
		group := a.Heads / a.Groups
		j.load(i % a.Groups * group)
		for h := i % a.Groups * group; h < (i%a.Groups+1)*group; h++ {
			j.output(h, j.stateOf(states, h), actOf(a.O))
		}
	})
	return nil
}

// begin sets the job's chunk, and finds for each token of the chunk the first token of its sequence.
func (j *ssdJob) begin(chunk int) {
	j.at = chunk * op.SSDChunk
	j.n = min(op.SSDChunk, j.T-j.at)
	for i := range j.n {
		j.first[i] = j.firstOf(j.at + i)
	}
}

func (j *ssdJob) firstOf(t int) int {
	return int(j.cu[sort.Search(len(j.cu), func(i int) bool { return int(j.cu[i]) > t })-1])
}

// stateOf returns the state of head h for the current chunk from the tensor states, without padding.
func (j *ssdJob) stateOf(states []float32, h int) []float32 {
	n := j.HeadDim * j.StateDim
	return states[(j.at/op.SSDChunk*j.Heads+h)*n:][:n]
}

// inB and inC return the columns where b and c of head h begin in a row.
func (j *ssdJob) inB(h int) int {
	return j.Heads*j.HeadDim + h/(j.Heads/j.Groups)*j.StateDim
}
func (j *ssdJob) inC(h int) int { return j.inB(h) + j.Groups*j.StateDim }

// rows copies the chunk's rows into buffer buf as fp32 and returns the buffer. It takes width columns from column at
// on. Rows of the buffer are stride floats apart.
func (j *ssdJob) rows(buf, at, width, stride int) []float32 {
	y := j.sc.f32(buf, op.SSDChunk*stride)
	for i := range j.n {
		copy(y[i*stride:][:width], j.xbc.load(j.sc, sWide, (j.at+i)*j.Width()+at, width))
	}
	return y
}

// scaled returns a copy of x, a head's rows, whose row i is multiplied by factor(i).
func (j *ssdJob) scaled(x []float32, factor func(i int) float32) []float32 {
	y := j.sc.f32(sScaled, op.SSDChunk*j.heads)
	for i := range j.n {
		vec.Scale(y[i*j.heads:][:j.HeadDim], x[i*j.heads:][:j.HeadDim], factor(i))
	}
	return y
}

// carry replaces the state before the chunk with the state after it: keep·state + xᵀ·b. Rows of x
// must be scaled by each token's step and its decay until the chunk's end.
func (j *ssdJob) carry(state, b, x []float32) {
	vec.Scale(state, state, j.keep)
	j.sc.product(state, j.states, x, j.heads, true, b, j.states, false, j.HeadDim, j.StateDim, j.n, true)
}

// load reads the chunk's rows of b and c, which the heads of h's group share. It returns them and the products pairs =
// C·Bᵀ.
func (j *ssdJob) load(h int) (b, c, pairs []float32) {
	b, c = j.rows(sB, j.inB(h), j.StateDim, j.states), j.rows(sC, j.inC(h), j.StateDim, j.states)
	pairs = j.sc.f32(sPairs, ssdSquare)
	j.sc.product(pairs, op.SSDChunk, c, j.states, false, b, j.states, true, j.n, j.n, j.StateDim, false)
	return b, c, pairs
}

// head computes the ssdHead of head h for the chunk.
func (j *ssdJob) head(h int) {
	v := j.sc.f32(sSteps, 4*op.SSDChunk)
	at := func(i int) []float32 { return v[i*op.SSDChunk:][:j.n] }
	j.ssdHead = ssdHead{raw: at(0), dt: at(1), from: at(2), to: at(3), decay: j.sc.f32(sDecay, ssdSquare), rate: math.Exp(float64(j.aLog[h]))}
	var sums [op.SSDChunk]float64 // γ, in fp64, because its differences matter
	sum := 0.0
	reads := func(i int) bool { return j.first[i] < j.at || j.at == 0 && j.goesOn }
	for i := range j.n {
		raw := float64(j.steps.load(j.sc, sWide, (j.at+i)*j.DtStride+h, 1)[0]) + float64(j.dtBias[h])
		dt := min(max(softplus(raw), float64(j.DtMin)), float64(j.DtMax))
		sum -= j.rate * dt
		j.raw[i], j.dt[i], sums[i], j.from[i] = float32(raw), float32(dt), sum, 0
		if reads(i) {
			j.from[i] = float32(math.Exp(sum))
		}
		for e := range i + 1 {
			if j.decay[i*op.SSDChunk+e] = 0; j.at+e >= j.first[i] {
				j.decay[i*op.SSDChunk+e] = float32(math.Exp(sum - sums[e]))
			}
		}
	}
	end, last := j.at+j.n, j.n-1
	goesOn := end == j.T || j.firstOf(end) < end
	if j.keep = 0; goesOn && reads(last) {
		j.keep = float32(math.Exp(sum))
	}
	for i := range j.n {
		if j.to[i] = 0; goesOn && j.at+i >= j.first[last] {
			j.to[i] = float32(math.Exp(sum - sums[i]))
		}
	}
}

// scores returns C·Bᵀ·decay with column e multiplied by by(e). Elements above the diagonal are 0.
func (j *ssdJob) scores(by func(e int) float32) []float32 {
	s, pairs := j.sc.f32(sScores, ssdSquare), j.sc.f32(sPairs, ssdSquare)
	for i := range j.n {
		row := s[i*op.SSDChunk:][:j.n]
		clear(row)
		for e := range i + 1 {
			row[e] = pairs[i*op.SSDChunk+e] * j.decay[i*op.SSDChunk+e] * by(e)
		}
	}
	return s
}

// output writes the output of head h for the chunk: scores·x + from·C·Sᵀ + D·x. S is the state
// before the chunk, and from the decay since the chunk's start (ssdHead).
func (j *ssdJob) output(h int, state []float32, to act) {
	j.head(h)
	x, o, from := j.rows(sX, h*j.HeadDim, j.HeadDim, j.heads), j.sc.f32(sOut, op.SSDChunk*j.heads), j.sc.f32(sFrom, op.SSDChunk*j.heads)
	j.sc.product(from, j.heads, j.sc.f32(sC, op.SSDChunk*j.states), j.states, false, state, j.StateDim, true, j.n, j.HeadDim, j.StateDim, false)
	j.sc.product(o, j.heads, j.scores(func(e int) float32 { return j.dt[e] }), op.SSDChunk, false, x, j.heads, false, j.n, j.HeadDim, j.n, false)
	for i := range j.n {
		row, at := o[i*j.heads:][:j.HeadDim], i*j.heads
		for p := range row {
			row[p] += j.from[i]*from[at+p] + j.d[h]*x[at+p]
		}
		to.put(((j.at+i)*j.Heads+h)*j.HeadDim, row)
	}
}
