package conformance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/base/bf16"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cpu"
	"mt/internal/testkit"
)

// rounded computes the gated delta rule by chunks of 64 tokens in fp64, and rounds to bf16 what the kernels of
// gateddelta.cu round. only is a set of roundings, by name; nil: all.
type rounded struct {
	oracle.Delta
	only                                  map[string]bool
	qkv, gates, aLog, dtBias, do          []float64
	o, states, last, dqkv, dgates, da, dt []float64
}

type matrix [][]float64

// product returns a matrix (n, m) whose element (i, j) is the sum of f(i, j, e) over e < k.
func product(n, m, k int, f func(i, j, e int) float64) matrix {
	y := make(matrix, n)
	for i := range y {
		y[i] = make([]float64, m)
		for j := range m {
			for e := range k {
				y[i][j] += f(i, j, e)
			}
		}
	}
	return y
}

func toBF16(x float64) float64 { return float64(bf16.Widen(bf16.Round(float32(x)))) }

// round returns x with every element rounded, if the rounding called site takes place.
func (a *rounded) round(site string, x matrix) matrix {
	return product(len(x), len(x[0]), 1, func(i, j, _ int) float64 {
		if a.only == nil || a.only[site] {
			return toBF16(x[i][j])
		}
		return x[i][j]
	})
}

// chunk holds a chunk of a head: raw rows of q and k, v, dO, reciprocal lengths and gates of tokens, the system's
// inverse M, and scores. qFrom and kFrom are rows of q and k with their lengths, decayed since the chunk's start. The
// state is kept by keep, for each channel, and receives rows written times the new values, which are scaled by scale.
// Its gradient receives qRead and kRead, scaled by qScale and kScale. With a decay for each channel gamma has the sums
// of gates before a token, and qLocal, kLocal and kUntil rows decayed since the start of a block of 16, or up to its end.
type chunk struct {
	n, at                      int
	q, k, v, do                [][]float64
	rq, rk, beta, g, from, to  []float64
	decay                      func(i, e int) float64
	qFrom, kFrom, near, scores matrix
	written                    [][]float64
	scale, keep                []float64
	qRead, kRead               [][]float64
	qScale, kScale             []float64
	gamma                      matrix
	qLocal, kLocal, kUntil     matrix
	system                     matrix
}

func (a *rounded) chunk(h, at, n int) chunk {
	K, V, kh := a.KeyDim, a.ValueDim, h/(a.Heads/a.KeyHeads)
	width := 2*a.KeyHeads*K + a.Heads*V
	c := chunk{n: n, at: at}
	for t := at; t < at+n; t++ {
		row, gate := a.qkv[t*width:], a.gates[t*a.GateStride:]
		q, k := row[kh*K:][:K], row[(a.KeyHeads+kh)*K:][:K]
		c.q, c.k, c.v, c.do = append(c.q, q), append(c.k, k), append(c.v, row[2*a.KeyHeads*K+h*V:][:V]), append(c.do, a.do[(t*a.Heads+h)*V:][:V])
		c.rq, c.rk = append(c.rq, 1/math.Sqrt((dot(q, q)+1e-6)*float64(K))), append(c.rk, 1/math.Sqrt(dot(k, k)+1e-6))
		c.beta = append(c.beta, 1/(1+math.Exp(-gate[h])))
	}
	if a.ByChannel {
		a.byChannel(&c, h)
	} else {
		a.byHead(&c, h)
	}
	inverse := product(n, n, 0, nil)
	for j := range n {
		inverse[j][j] = 1
		for i := j + 1; i < n; i++ {
			for e := j; e < i; e++ {
				inverse[i][j] -= c.beta[i] * c.near[i][e] * inverse[e][j]
			}
		}
	}
	c.system = a.round("system", product(n, n, 1, func(i, j, _ int) float64 { return inverse[i][j] * c.beta[j] }))
	c.scores = a.round("scores", c.scores)
	return c
}

func (a *rounded) byHead(c *chunk, h int) {
	var gammas []float64
	gamma := 0.0
	for i := range c.n {
		g := -math.Exp(a.aLog[h]) * softplus(a.gates[(c.at+i)*a.GateStride+a.Heads+h]+a.dtBias[h])
		gamma += g
		c.g, gammas, c.from = append(c.g, g), append(gammas, gamma), append(c.from, math.Exp(gamma))
	}
	c.decay = func(i, e int) float64 {
		if e > i {
			return 0
		}
		return math.Exp(gammas[i] - gammas[e])
	}
	for i := range c.n {
		c.to = append(c.to, c.decay(c.n-1, i))
		c.scale = append(c.scale, c.to[i]*c.rk[i])
		c.qScale, c.kScale = append(c.qScale, c.from[i]*c.rq[i]), append(c.kScale, c.from[i]*c.rk[i])
	}
	c.keep, c.written, c.qRead, c.kRead = filled(a.KeyDim, c.from[c.n-1]), c.k, c.q, c.k
	c.qFrom = product(c.n, a.KeyDim, 1, func(i, e, _ int) float64 { return c.from[i] * c.rq[i] * c.q[i][e] })
	c.kFrom = product(c.n, a.KeyDim, 1, func(i, e, _ int) float64 { return c.from[i] * c.rk[i] * c.k[i][e] })
	c.near = product(c.n, c.n, 1, func(i, e, _ int) float64 { return c.rk[i] * c.rk[e] * c.decay(i, e) * dot(c.k[i], c.k[e]) })
	c.scores = product(c.n, c.n, 1, func(i, e, _ int) float64 { return c.rq[i] * c.rk[e] * c.decay(i, e) * dot(c.q[i], c.k[e]) })
}

// byChannel is byHead with a decay for each channel. Pairs of tokens in different blocks of 16 have rounded factors,
// split at the later block's start.
func (a *rounded) byChannel(c *chunk, h int) {
	gamma := product(c.n+1, a.KeyDim, 0, nil) // before token i
	for i := range c.n {
		for e, before := range gamma[i] {
			gamma[i+1][e] = before - math.Exp(a.aLog[h])*softplus(a.A[((c.at+i)*a.Heads+h)*a.KeyDim+e]+a.dtBias[h*a.KeyDim+e])
		}
	}
	rows := func(site string, x [][]float64, f func(i, e int) float64) matrix {
		return a.round(site, product(c.n, a.KeyDim, 1, func(i, e, _ int) float64 { return x[i][e] * f(i, e) }))
	}
	c.qFrom = rows("rows", c.q, func(i, e int) float64 { return c.rq[i] * math.Exp(gamma[i+1][e]) })
	c.kFrom = rows("rows", c.k, func(i, e int) float64 { return c.rk[i] * math.Exp(gamma[i+1][e]) })
	c.written = rows("rows", c.k, func(i, e int) float64 { return c.rk[i] * math.Exp(gamma[c.n][e]-gamma[i+1][e]) })
	c.scale, c.qScale, c.kScale = filled(c.n, 1), filled(c.n, 1), filled(c.n, 1)
	c.qRead, c.kRead, c.gamma = c.qFrom, c.kFrom, gamma
	for _, g := range gamma[c.n] {
		c.keep = append(c.keep, math.Exp(g))
	}
	local := func(i, e int) float64 { return math.Exp(gamma[i+1][e] - gamma[i/16*16][e]) }
	q, k := rows("factors", c.q, local), rows("factors", c.k, local)
	c.qLocal, c.kLocal = q, k
	c.kUntil = rows("factors", c.k, func(i, e int) float64 { return math.Exp(gamma[min(c.n, i/16*16+16)][e] - gamma[i+1][e]) })
	earlier := make([]matrix, 4)
	for b := range earlier {
		earlier[b] = rows("factors", c.k, func(i, e int) float64 {
			if i >= 16*b || 16*b >= c.n {
				return 0
			}
			return math.Exp(gamma[16*b][e] - gamma[i+1][e])
		})
	}
	pairs := func(left matrix, raw [][]float64, r []float64) matrix {
		return product(c.n, c.n, a.KeyDim, func(i, j, e int) float64 {
			switch {
			case j > i:
				return 0
			case j/16 == i/16:
				return r[i] * c.rk[j] * raw[i][e] * c.k[j][e] * math.Exp(gamma[i+1][e]-gamma[j+1][e])
			}
			return r[i] * c.rk[j] * left[i][e] * earlier[i/16][j][e]
		})
	}
	c.near, c.scores = pairs(k, c.k, c.rk), pairs(q, c.q, c.rq)
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// write returns V − K·S (read, decayed to the chunk's start) and the chunk's new values. s is rounded.
func (a *rounded) write(c chunk, s matrix) (read, values matrix) {
	read = product(c.n, a.ValueDim, a.KeyDim, func(i, j, e int) float64 { return c.kFrom[i][e] * s[e][j] })
	x := a.round("rest", product(c.n, a.ValueDim, 1, func(i, j, _ int) float64 { return c.v[i][j] - read[i][j] }))
	return read, product(c.n, a.ValueDim, c.n, func(i, j, e int) float64 { return c.system[i][e] * x[e][j] })
}

// update returns s·decay + Σ x·y of the chunk's tokens, with y a scaled row, rounded.
func (a *rounded) update(site string, c chunk, s matrix, x [][]float64, y func(i, j int) float64) matrix {
	r := a.round(site, product(c.n, a.ValueDim, 1, func(i, j, _ int) float64 { return y(i, j) }))
	return product(a.KeyDim, a.ValueDim, c.n, func(m, j, i int) float64 { return x[i][m] * r[i][j] }).plus(s)
}

func (x matrix) plus(y matrix) matrix {
	return product(len(x), len(x[0]), 1, func(i, j, _ int) float64 { return x[i][j] + y[i][j] })
}

func (x matrix) times(by float64) matrix {
	return product(len(x), len(x[0]), 1, func(i, j, _ int) float64 { return x[i][j] * by })
}

// forward sets o, states and last.
func (a *rounded) forward() {
	K, V := a.KeyDim, a.ValueDim
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			state := product(K, V, 0, nil)
			for at := int(a.Cu[s]); at < int(a.Cu[s+1]); at += 64 {
				c := a.chunk(h, at, min(64, int(a.Cu[s+1])-at))
				if at > int(a.Cu[s]) {
					a.put(a.states[(at/64*a.Heads+h)*K*V:], state)
				}
				r := a.round("state", state)
				_, values := a.write(c, r)
				kept := a.round("values", values)
				for i := range c.n {
					for j := range V {
						sum := 0.0
						for e := range K {
							sum += c.qFrom[i][e] * r[e][j]
						}
						for e := range i + 1 {
							sum += c.scores[i][e] * kept[e][j]
						}
						a.o[((at+i)*a.Heads+h)*V+j] = sum
					}
				}
				state = product(K, V, 1, func(e, j, _ int) float64 { return c.keep[e] * state[e][j] })
				state = a.update("written", c, state, c.written, func(i, j int) float64 { return c.scale[i] * values[i][j] })
			}
			a.put(a.last[h*K*V:], state)
		}
	}
}

func (a *rounded) put(to []float64, x matrix) {
	for i, row := range x {
		copy(to[i*len(row):], row)
	}
}

// backward sets dqkv and dgates and adds to da and dt. states holds the exact states.
func (a *rounded) backward() {
	K, V := a.KeyDim, a.ValueDim
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			first, end := int(a.Cu[s]), int(a.Cu[s+1])
			grad := product(K, V, 0, nil)
			for at := first + (end-first+63)/64*64 - 64; at >= first; at -= 64 {
				grad = a.chunkBackward(a.chunk(h, at, min(64, end-at)), h, at == first, grad)
			}
		}
	}
	width := 2*a.KeyHeads*K + a.Heads*V
	for row := range len(a.dqkv) / width {
		for part := range 2 * a.KeyHeads { // through the norms
			x, u := a.qkv[row*width+part*K:][:K], a.dqkv[row*width+part*K:][:K]
			r2, along := 1/(dot(x, x)+1e-6), dot(x, u)
			for e := range u {
				u[e] -= r2 * x[e] * along
			}
		}
	}
}

// chunkBackward adds the gradients of a chunk, and returns the gradient of the state before it. grad is that of the
// state after it.
func (a *rounded) chunkBackward(c chunk, h int, first bool, grad matrix) matrix {
	n, K, V := c.n, a.KeyDim, a.ValueDim
	state := product(K, V, 1, func(i, j, _ int) float64 {
		if first {
			return 0
		}
		return a.states[((c.at/64*a.Heads+h)*K+i)*V+j]
	})
	r, g := a.round("state", state), a.round("dstate", grad)
	read, values := a.write(c, r)
	values = a.round("values", values)
	y := a.round("read", product(n, V, n, func(e, j, i int) float64 { return c.scores[i][e] * c.do[i][j] }))
	left := product(n, V, K, func(i, j, e int) float64 { return c.scale[i] * c.written[i][e] * g[e][j] })
	y = a.round("dvalues", y.plus(left))
	exact := product(n, V, n, func(e, j, i int) float64 { return c.system[i][e] * y[i][j] })
	dx := a.round("drest", exact)
	for i := range n {
		copy(a.dqkv[(c.at+i)*a.width()+2*a.KeyHeads*K+h*V:], exact[i])
	}
	through := a.byHeadBackward
	if a.ByChannel {
		through = a.byChannelBackward
	}
	through(c, h, chunkGrads{state, r, g, read, values, left, dx})
	if grad = product(K, V, 1, func(e, j, _ int) float64 { return c.keep[e] * grad[e][j] }); first {
		return grad
	}
	grad = a.update("dread", c, grad, c.kRead, func(i, j int) float64 { return -c.kScale[i] * exact[i][j] })
	return a.update("dout", c, grad, c.qRead, func(i, j int) float64 { return c.qScale[i] * c.do[i][j] })
}

func (a *rounded) width() int { return 2*a.KeyHeads*a.KeyDim + a.Heads*a.ValueDim }

// chunkGrads are the matrices of a chunk by which its keys and gates change the loss: the state before it, exact and
// rounded, the gradient of the state after it, what the keys read, the new values, what the new values' gradient
// receives from the state, and the gradient of V.
type chunkGrads struct{ state, r, g, read, values, left, dx matrix }

// byHeadBackward adds the gradients of gates, q and k of a chunk.
func (a *rounded) byHeadBackward(c chunk, h int, m chunkGrads) {
	n, K, V, kh := c.n, a.KeyDim, a.ValueDim, h/(a.Heads/a.KeyHeads)
	state, r, g, read, values, left, dx := m.state, m.r, m.g, m.read, m.values, m.left, m.dx
	out := product(n, V, K, func(i, j, e int) float64 { return c.qFrom[i][e] * r[e][j] })
	reads := product(n, n, V, func(i, e, j int) float64 { return c.do[i][j] * values[e][j] * c.decay(i, e) * c.rq[i] * c.rk[e] })
	nears := product(n, n, V, func(i, e, j int) float64 {
		if i == e {
			return 0
		}
		return -dx[i][j] * values[e][j] * c.decay(i, e) * c.rk[i] * c.rk[e]
	})
	gamma, beta := make([]float64, n), make([]float64, n)
	for i := range n {
		written := dot(left[i], values[i])
		gamma[i] += dot(out[i], c.do[i]) - dot(dx[i], read[i]) - written
		gamma[n-1] += written
		beta[i] += dot(dx[i], c.v[i]) - dot(dx[i], read[i])
		for e := range i {
			near, all := nears[i][e]*dot(c.k[i], c.k[e]), 0.0
			beta[i] += near
			all = near + reads[i][e]*dot(c.q[i], c.k[e])
			gamma[i], gamma[e] = gamma[i]+all, gamma[e]-all
		}
	}
	for e := range K {
		gamma[n-1] += c.from[n-1] * dot(state[e], g[e])
	}
	sum := 0.0
	for i := n - 1; i >= 0; i-- {
		sum += gamma[i]
		gate := (c.at + i) * a.GateStride
		d := -sum * math.Exp(a.aLog[h]) / (1 + math.Exp(-a.gates[gate+a.Heads+h]-a.dtBias[h]))
		a.dgates[gate+h], a.dgates[gate+a.Heads+h] = beta[i]*(1-c.beta[i]), d
		a.da[h], a.dt[h] = a.da[h]+sum*c.g[i], a.dt[h]+d
	}
	reads, nears = a.round("dreads", reads), a.round("dnears", nears)
	width := a.width()
	for i := range n {
		dq, dk := a.dqkv[(c.at+i)*width+kh*K:][:K], a.dqkv[(c.at+i)*width+(a.KeyHeads+kh)*K:][:K]
		for e := range K {
			dq[e] += c.rq[i] * c.from[i] * dot(c.do[i], r[e])
			dk[e] += c.rk[i] * (c.to[i]*dot(values[i], g[e]) - c.from[i]*dot(dx[i], r[e]))
			for t := range n {
				dq[e] += reads[i][t] * c.k[t][e]
				dk[e] += reads[t][i]*c.q[t][e] + (nears[t][i]+nears[i][t])*c.k[t][e]
			}
		}
	}
}

// byChannelBackward is byHeadBackward with a decay for each channel. Pairs of tokens in different blocks of 16 have
// rounded factors, of which γ has the same.
func (a *rounded) byChannelBackward(c chunk, h int, m chunkGrads) {
	n, K, V := c.n, a.KeyDim, a.ValueDim
	pairs := func(site string, x [][]float64, by []float64, diagonal bool) matrix {
		return a.round(site, product(n, n, V, func(i, e, j int) float64 {
			if e > i || e == i && !diagonal {
				return 0
			}
			return by[i] * c.rk[e] * x[i][j] * m.values[e][j]
		}))
	}
	dx := m.dx.times(-1)
	reads, nears := pairs("dreads", c.do, c.rq, true), pairs("dnears", dx, c.rk, false)
	for i := range n {
		a.dgates[(c.at+i)*a.GateStride+h] = dot(m.dx[i], m.values[i]) * (1 - c.beta[i]) / c.beta[i]
	}
	for e := range K {
		gamma := a.channelBackward(c, h, e, m, dx, reads, nears)
		sum, rate := 0.0, math.Exp(a.aLog[h])
		for i := n - 1; i >= 0; i-- {
			sum += gamma[i]
			at := ((c.at+i)*a.Heads+h)*K + e
			x := a.A[at] + a.dtBias[h*K+e]
			d := -sum * rate / (1 + math.Exp(-x))
			a.DA[at] = d
			a.da[h], a.dt[h*K+e] = a.da[h]-sum*rate*softplus(x), a.dt[h*K+e]+d
		}
	}
}

// channelBackward adds the gradients of q and k of channel e and returns those of γ.
func (a *rounded) channelBackward(c chunk, h, e int, m chunkGrads, dx, reads, nears matrix) []float64 {
	n, K, gamma := c.n, a.KeyDim, make([]float64, c.n)
	decay := func(from, to int) float64 { return math.Exp(c.gamma[to][e] - c.gamma[from][e]) } // by tokens from … to−1
	for i := range n {
		begin, end := i/16*16, min(n, i/16*16+16)
		q, k, w, inQ, inK, inW := c.rq[i]*decay(0, begin)*dot(c.do[i], m.r[e]), c.rk[i]*decay(0, begin)*dot(dx[i], m.r[e]),
			c.rk[i]*decay(end, n)*dot(m.values[i], m.g[e]), 0.0, 0.0, 0.0
		if i < n-1 {
			gamma[n-1] += c.kUntil[i][e] * w
		}
		for t := range n {
			switch {
			case t < begin:
				by := decay(t/16*16+16, begin) * c.kUntil[t][e]
				q, k = q+reads[i][t]*by, k+nears[i][t]*by
			case t < i:
				by := decay(t+1, i+1) * c.k[t][e]
				inQ, inK = inQ+reads[i][t]*by, inK+nears[i][t]*by
			case t >= end:
				w += decay(end, t/16*16) * (reads[t][i]*c.qLocal[t][e] + nears[t][i]*c.kLocal[t][e])
			case t > i:
				inW += decay(i+1, t+1) * (reads[t][i]*c.q[t][e] + nears[t][i]*c.k[t][e])
			}
		}
		gamma[i] += c.qLocal[i][e]*q + c.kLocal[i][e]*k + c.q[i][e]*inQ + c.k[i][e]*(inK-inW)
		if i < n-1 {
			gamma[i] -= c.kUntil[i][e] * w
		}
		local, row := decay(begin, i+1), a.dqkv[(c.at+i)*a.width():]
		row[h*K+e] += local*q + inQ + reads[i][i]*c.k[i][e]
		row[(a.KeyHeads+h)*K+e] += local*k + inK + decay(i+1, end)*w + inW + reads[i][i]*c.q[i][e]
	}
	gamma[n-1] += c.keep[e] * dot(m.state[e], m.g[e])
	return gamma
}

// deltaSites are the names of all roundings.
var deltaSites = []string{"system", "scores", "state", "rest", "values", "written", "dstate", "read", "dvalues", "drest", "dreads", "dnears", "dread", "dout", "rows", "factors"}

// roundingError is the largest error of an output's elements, and the root of the errors' mean square, in units of
// uBF16 of the largest element.
type roundingError struct{ most, rms float64 }

// errors computes the rule with the roundings in only, and returns each output's error.
func (a rounded) errors(only map[string]bool) map[string]roundingError {
	T, C := int(a.Cu[len(a.Cu)-1]), a.Heads*a.KeyDim*a.ValueDim
	fresh := func() *rounded {
		b := a
		b.only, b.o, b.states, b.last = only, make([]float64, len(a.do)), make([]float64, (T+63)/64*C), make([]float64, C)
		b.DA = make([]float64, len(a.A))
		b.dqkv, b.dgates, b.da, b.dt = make([]float64, len(a.qkv)), make([]float64, len(a.gates)), slices.Clone(a.da), slices.Clone(a.dt)
		return &b
	}
	got, want := fresh(), fresh()
	last := want.last
	if len(a.Cu) > 2 {
		last = nil
	}
	want.GatedDelta(want.o, want.states, last, a.qkv, a.gates, a.aLog, a.dtBias)
	got.forward()
	errors := map[string]roundingError{}
	for name, x := range map[string][2][]float64{"O": {got.o, want.o}, "States": {got.states, want.states}, "Last": {got.last[:len(last)], last}} {
		errors[name] = compareRounded(x[0], x[1])
	}
	want.GatedDeltaBackward(want.dqkv, want.dgates, want.da, want.dt, a.do, a.qkv, a.gates, a.aLog, a.dtBias)
	got.states = want.states
	got.backward()
	for name, x := range map[string][2][]float64{"DQKV": {got.dqkv, want.dqkv}, "DGates": {got.dgates, want.dgates}, "DALog": {got.da, want.da}, "DDtBias": {got.dt, want.dt}, "DA": {got.DA, want.DA}} {
		errors[name] = compareRounded(x[0], x[1])
	}
	return errors
}

func compareRounded(got, want []float64) roundingError {
	size, most, sum := 1e-300, 0.0, 0.0
	for i, w := range want {
		e := math.Abs(got[i] - w)
		size, most, sum = max(size, math.Abs(w)), max(most, e), sum+e*e
	}
	return roundingError{most / size / uBF16, math.Sqrt(sum/float64(max(1, len(want)))) / size / uBF16}
}

// newRounded returns the inputs of a conformance case.
func newRounded(t *testing.T, sh deltaCase, form string, forgets bool) rounded {
	dev := testkit.Must(cpu.New(cpu.Options{}))(t)
	s := testkit.Must(dev.NewStream("test"))(t)
	defer s.Close()
	r := &rig{t: t, dev: dev, s: s, dt: device.BF16, rng: rand.New(rand.NewPCG(11, 12))}
	d := newDeltaRig(r, sh, form != "")
	a := rounded{Delta: d.oracle}
	a.do = r.act("DO", d.T*d.Heads*d.ValueDim).v
	r.act("DQKV", d.T*d.Width())
	r.act("DGates", d.T*d.GateStride)
	a.da, a.dt = r.f32("DALog", d.Heads).v, r.f32("DDtBias", d.Decays()).v
	if forgets {
		d.forget(r)
		a.da, a.dt = make([]float64, sh.heads), make([]float64, d.Decays())
	}
	a.qkv, a.gates, a.aLog, a.dtBias = d.qkv.v, d.gates.v, d.aLog.v, d.dtBias.v
	return a
}

// TestDeltaRoundings: deltaRoundings is what roundings to bf16 explain in the cases of conformance, and a tenth. The
// roundings' errors are independent: the mean square of all together is the sum of those of each.
func TestDeltaRoundings(t *testing.T) {
	testkit.NotShort(t)
	most, none := map[string]float64{}, map[string]bool{}
	for _, forgets := range []bool{false, true} {
		deltaForms(func(sh deltaCase, form string) {
			a := newRounded(t, sh, form, forgets)
			exact := a.errors(none)
			for name, e := range a.errors(nil) {
				most[name+form] = max(most[name+form], e.most)
				if exact[name].most > 1e-6 {
					t.Errorf("%v: %s without roundings differs by %g", sh, name, exact[name].most)
				}
			}
		})
	}
	for name, bound := range deltaRoundings {
		if most[name] > bound/1.05 || most[name] < bound/1.2 {
			t.Errorf("%s: roundings change it by %.3g, bound %.3g", name, most[name], bound)
		}
	}
	for form, sh := range map[string]deltaCase{"": someDeltas[3], " by channel": someByChannel[2]} {
		a := newRounded(t, sh, form, false)
		squares := map[string]float64{}
		for _, site := range deltaSites {
			for name, e := range a.errors(map[string]bool{site: true}) {
				squares[name] += e.rms * e.rms
			}
		}
		for name, e := range a.errors(nil) {
			if sum := math.Sqrt(squares[name]); math.Abs(e.rms-sum) > 0.1*sum && name != "DALog" && name != "DDtBias" { // few elements
				t.Errorf("%s: root of the mean square %.3g, independent roundings give %.3g", name+form, e.rms, sum)
			}
		}
	}
}
