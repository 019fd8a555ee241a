package oracle

import "math"

// Delta describes sequences and heads of the gated delta rule, as op.DeltaShape does. A is nil or, with ByChannel, the
// a of all channels, and DA receives its gradient.
type Delta struct {
	Cu                                            []int32
	KeyHeads, Heads, KeyDim, ValueDim, GateStride int
	ByChannel                                     bool
	A, DA                                         []float64
}

// Conv describes a convolution as op.ShortConv does. Bias is nil if there is none.
type Conv struct {
	Cu                     []int32
	W, Bias                []float64
	Channels, Taps, Stride int
	Gated                  bool
}

// width returns the number of columns that the convolution reads in a row.
func (a Conv) width() int {
	if a.Gated {
		return 3 * a.Channels
	}
	return a.Channels
}

// ShortConv sets y (T, Channels) to the causal convolution of each sequence of x. tail is nil, or
// holds the rows before a single sequence.
func (a Conv) ShortConv(y, x, tail []float64) {
	a.convolve(x, tail, func(t, c int, sum float64, _ func(j int) (float64, int)) {
		if a.Gated {
			y[t*a.Channels+c] = sum * x[t*a.Stride+a.Channels+c]
		} else {
			y[t*a.Channels+c] = sum / (1 + math.Exp(-sum))
		}
	})
}

// ShortConvBackward computes the gradients of x, W and Bias, given dy, the gradient of y. It overwrites dx, and adds to
// dw and dbias. Each of the three may be nil.
func (a Conv) ShortConvBackward(dx, dw, dbias, dy, x []float64, dxStride int) {
	for t := range int(a.Cu[len(a.Cu)-1]) {
		clear(dx[t*dxStride:][:a.width()])
	}
	a.convolve(x, nil, func(t, c int, sum float64, at func(j int) (float64, int)) {
		s := 1 / (1 + math.Exp(-sum))
		d := dy[t*a.Channels+c]
		if a.Gated {
			dx[t*dxStride+a.Channels+c] = d * sum
			d *= x[t*a.Stride+a.Channels+c]
		} else {
			d *= s * (1 + sum*(1-s))
		}
		if dbias != nil {
			dbias[c] += d
		}
		for j := range a.Taps {
			v, from := at(j)
			if from >= 0 && a.Gated {
				row, to := x[from*a.Stride+c:], dx[from*dxStride+c:]
				to[0] += d * a.W[c*a.Taps+j] * row[2*a.Channels]
				to[2*a.Channels] += d * a.W[c*a.Taps+j] * row[0]
			} else if from >= 0 {
				dx[from*dxStride+c] += d * a.W[c*a.Taps+j]
			}
			if dw != nil {
				dw[c*a.Taps+j] += d * v
			}
		}
	})
}

// convolve calls f for every token t and channel c with the sum of the convolution. For a tap j, at(j) returns the
// input value and the token from which it comes, −1 for a token before the sequence.
func (a Conv) convolve(x, tail []float64, f func(t, c int, sum float64, at func(j int) (float64, int))) {
	cu, channels, taps := a.Cu, a.Channels, a.Taps
	input := func(row []float64, c int) float64 {
		if a.Gated {
			return row[c] * row[2*channels+c]
		}
		return row[c]
	}
	for s := range len(cu) - 1 {
		for t := int(cu[s]); t < int(cu[s+1]); t++ {
			for c := range channels {
				at := func(j int) (float64, int) {
					from := t - taps + 1 + j
					switch {
					case from >= int(cu[s]):
						return input(x[from*a.Stride:], c), from
					case tail != nil:
						return input(tail[(from-int(cu[s])+taps-1)*a.width():], c), -1
					}
					return 0, -1
				}
				var sum float64
				if a.Bias != nil {
					sum = a.Bias[c]
				}
				for j := range taps {
					v, _ := at(j)
					sum += a.W[c*taps+j] * v
				}
				f(t, c, sum, at)
			}
		}
	}
}

// step holds the numbers of one token and one head in the recurrence of the gated delta rule.
type step struct {
	q, k, v     []float64 // q and k are normalized
	rq, rk      float64   // factors that normalized q and k, without the scale of q
	beta, rate  float64   // rate: e^ALog
	g, a        []float64 // of the head, or of each key channel
	before, mid []float64 // the state before the token, and the decayed state
	after, d    []float64 // the state after the token; d: β(v − midᵀk)
	memory      []float64 // midᵀk
}

// steps computes tokens from … to−1, one sequence, for head h, and returns one step for each token. s is the state
// before the sequence.
func (a Delta) steps(h int, from, to int32, qkv, gates, aLog, dtBias, s []float64) (out []step) {
	K, V := a.KeyDim, a.ValueDim
	keys := a.KeyHeads * K
	width, kh := 2*keys+a.Heads*V, h/(a.Heads/a.KeyHeads)
	for t := int(from); t < int(to); t++ {
		row, gate := qkv[t*width:], gates[t*a.GateStride:]
		st := step{v: row[2*keys+h*V:][:V], beta: 1 / (1 + math.Exp(-gate[h])), rate: math.Exp(aLog[h])}
		if a.ByChannel {
			for c := range K {
				st.a = append(st.a, a.A[(t*a.Heads+h)*K+c]+dtBias[h*K+c])
			}
		} else {
			st.a = []float64{gate[a.Heads+h] + dtBias[h]}
		}
		for _, x := range st.a {
			st.g = append(st.g, -st.rate*softplus(x))
		}
		st.q, st.rq = unit(row[kh*K:][:K], 1/math.Sqrt(float64(K)))
		st.k, st.rk = unit(row[keys+kh*K:][:K], 1)
		st.before = s
		st.mid, st.after, st.memory, st.d = make([]float64, K*V), make([]float64, K*V), make([]float64, V), make([]float64, V)
		for i, x := range s {
			st.mid[i] = math.Exp(st.g[i/V%len(st.g)]) * x
			st.memory[i%V] += st.mid[i] * st.k[i/V]
		}
		for j, m := range st.memory {
			st.d[j] = st.beta * (st.v[j] - m)
		}
		for i, x := range st.mid {
			st.after[i] = x + st.k[i/V]*st.d[i%V]
		}
		s = st.after
		out = append(out, st)
	}
	return out
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// unit returns y, which is x scaled to the length scale, and r, the reciprocal of x's length.
func unit(x []float64, scale float64) (y []float64, r float64) {
	r = 1 / math.Sqrt(dot(x, x)+1e-6)
	for _, v := range x {
		y = append(y, scale*r*v)
	}
	return y, r
}

// GatedDelta sets o (T, Heads·ValueDim), token by token. It sets states as op.GatedDelta does,
// unless states is nil. Argument last is nil, or holds the state before a single sequence and is
// set to the state after it.
func (a Delta) GatedDelta(o, states, last, qkv, gates, aLog, dtBias []float64) {
	K, V := a.KeyDim, a.ValueDim
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			state := make([]float64, K*V)
			if last != nil {
				copy(state, last[h*K*V:])
			}
			for i, st := range a.steps(h, a.Cu[s], a.Cu[s+1], qkv, gates, aLog, dtBias, state) {
				t := int(a.Cu[s]) + i
				if states != nil && i > 0 && i%64 == 0 {
					copy(states[(t/64*a.Heads+h)*K*V:], st.before)
				}
				out := o[(t*a.Heads+h)*V:][:V]
				clear(out)
				for n, x := range st.after {
					out[n%V] += x * st.q[n/V]
				}
				state = st.after
			}
			if last != nil {
				copy(last[h*K*V:], state)
			}
		}
	}
}

// GatedDeltaBackward computes gradients, given do, the gradient of o. It overwrites dqkv and dgates, and adds to daLog
// and ddtBias.
func (a Delta) GatedDeltaBackward(dqkv, dgates, daLog, ddtBias, do, qkv, gates, aLog, dtBias []float64) {
	K, V := a.KeyDim, a.ValueDim
	keys := a.KeyHeads * K
	width := 2*keys + a.Heads*V
	clear(dqkv)
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			kh := h / (a.Heads / a.KeyHeads)
			ds := make([]float64, K*V)
			steps := a.steps(h, a.Cu[s], a.Cu[s+1], qkv, gates, aLog, dtBias, make([]float64, K*V))
			for i := len(steps) - 1; i >= 0; i-- {
				t := int(a.Cu[s]) + i
				row, gate := dqkv[t*width:], dgates[t*a.GateStride:]
				dbeta, dg := steps[i].backward(row[kh*K:][:K], row[keys+kh*K:][:K], row[2*keys+h*V:][:V], ds, do[(t*a.Heads+h)*V:][:V])
				st := steps[i]
				gate[h] = dbeta * st.beta * (1 - st.beta)
				das, at := gate[a.Heads:], h
				if a.ByChannel {
					das, at = a.DA[t*a.Heads*K:], h*K
				}
				for c, d := range dg {
					da := -d * st.rate / (1 + math.Exp(-st.a[c]))
					das[at+c] = da
					if daLog != nil {
						daLog[h] += d * st.g[c]
						ddtBias[at+c] += da
					}
				}
			}
		}
	}
}

// backward adds the step's gradients of v and of q and k before their normalization, and returns the gradients of β and
// g. ds holds the gradient of the state after the step; backward turns it into the gradient of the state before the
// step.
func (st step) backward(dq, dk, dv, ds, do []float64) (dbeta float64, dg []float64) {
	V := len(st.v)
	dg = make([]float64, len(st.g))
	dqn, dkn, dd := make([]float64, len(st.q)), make([]float64, len(st.k)), make([]float64, V)
	for n := range ds {
		i, j := n/V, n%V
		ds[n] += st.q[i] * do[j]
		dqn[i] += st.after[n] * do[j]
		dd[j] += ds[n] * st.k[i]
		dkn[i] += ds[n] * st.d[j]
	}
	for j := range dd {
		dbeta += dd[j] * (st.v[j] - st.memory[j])
		dv[j] += st.beta * dd[j]
	}
	for n := range ds {
		i, j := n/V, n%V
		dkn[i] -= st.mid[n] * st.beta * dd[j]
		ds[n] -= st.k[i] * st.beta * dd[j]
		c := i % len(dg)
		dg[c] += ds[n] * st.mid[n]
		ds[n] *= math.Exp(st.g[c])
	}
	unitBackward(dq, dqn, st.q, st.rq, 1/math.Sqrt(float64(len(st.q))))
	unitBackward(dk, dkn, st.k, st.rk, 1)
	return dbeta, dg
}

// unitBackward takes a gradient through the normalization y = scale·r·x. dy is the gradient of y; it adds the gradient
// of x to dx.
func unitBackward(dx, dy, y []float64, r, scale float64) {
	along := dot(dy, y) / scale
	for i := range dx {
		dx[i] += r * (scale*dy[i] - y[i]*along)
	}
}
