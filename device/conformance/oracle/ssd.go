package oracle

import "math"

// SSD describes the state space scan, as op.SSDShape does.
type SSD struct {
	Cu                                         []int32
	Groups, Heads, HeadDim, StateDim, DtStride int
	DtMin, DtMax                               float64
}

// ssdStep is one token of one head: the vectors x, b and c, the step dt, the decay, and the states
// before and after the token.
type ssdStep struct {
	x, b, c        []float64
	raw, dt, decay float64 // raw: before the softplus
	before, after  []float64
	xAt, bAt, cAt  int // where x, b and c are in a row
	inside         bool
}

// steps computes tokens from … to−1 of one sequence for head h, and returns one ssdStep for each token. s is the state
// before token from.
func (a SSD) steps(h int, from, to int32, xbc, dt, aLog, dtBias, s []float64) (out []ssdStep) {
	P, N, inner := a.HeadDim, a.StateDim, a.Heads*a.HeadDim
	g := h / (a.Heads / a.Groups)
	width := inner + 2*a.Groups*N
	for t := int(from); t < int(to); t++ {
		row := xbc[t*width:]
		st := ssdStep{xAt: h * P, bAt: inner + g*N, cAt: inner + (a.Groups+g)*N, raw: dt[t*a.DtStride+h] + dtBias[h], before: s}
		st.x, st.b, st.c = row[st.xAt:][:P], row[st.bAt:][:N], row[st.cAt:][:N]
		all := softplus(st.raw)
		st.dt = min(max(all, a.DtMin), a.DtMax)
		st.inside = all >= a.DtMin && all <= a.DtMax
		st.decay = math.Exp(-math.Exp(aLog[h]) * st.dt)
		st.after = make([]float64, P*N)
		for i := range st.after {
			st.after[i] = st.decay*s[i] + st.dt*st.x[i/N]*st.b[i%N]
		}
		s = st.after
		out = append(out, st)
	}
	return out
}

// SSD sets o (T, Heads·HeadDim) and states, token by token. Argument last is nil, or holds the
// state before a single sequence and is set to the state after it.
func (a SSD) SSD(o, states, last, xbc, dt, aLog, dtBias, d []float64) {
	P, N := a.HeadDim, a.StateDim
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			state := make([]float64, P*N)
			if last != nil {
				copy(state, last[h*P*N:])
			}
			for i, st := range a.steps(h, a.Cu[s], a.Cu[s+1], xbc, dt, aLog, dtBias, state) {
				t := int(a.Cu[s]) + i
				if t%64 == 0 {
					copy(states[(t/64*a.Heads+h)*P*N:], st.before)
				}
				for p := range P {
					o[(t*a.Heads+h)*P+p] = d[h]*st.x[p] + dot(st.after[p*N:][:N], st.c)
				}
				state = st.after
			}
			if last != nil {
				copy(last[h*P*N:], state)
			}
		}
	}
}

// SSDBackward computes gradients, given do, the gradient of o. It overwrites dxbc and ddt, and adds to daLog, ddtBias
// and dd.
func (a SSD) SSDBackward(dxbc, ddt, daLog, ddtBias, dd, do, xbc, dt, aLog, dtBias, d []float64) {
	P, N := a.HeadDim, a.StateDim
	width := a.Heads*P + 2*a.Groups*N
	clear(dxbc)
	for s := range len(a.Cu) - 1 {
		for h := range a.Heads {
			ds, rate := make([]float64, P*N), math.Exp(aLog[h])
			steps := a.steps(h, a.Cu[s], a.Cu[s+1], xbc, dt, aLog, dtBias, make([]float64, P*N))
			for i := len(steps) - 1; i >= 0; i-- {
				t, st := int(a.Cu[s])+i, steps[i]
				row, dy := dxbc[t*width:], do[(t*a.Heads+h)*P:][:P]
				var step, decay float64 // gradients of dt by its write, and of the decay
				for n := range ds {
					p, k := n/N, n%N
					ds[n] += dy[p] * st.c[k]
					row[st.cAt+k] += dy[p] * st.after[n]
					row[st.xAt+p] += st.dt * ds[n] * st.b[k]
					row[st.bAt+k] += st.dt * ds[n] * st.x[p]
					step += ds[n] * st.x[p] * st.b[k]
					decay += ds[n] * st.before[n]
					ds[n] *= st.decay
				}
				for p := range P {
					row[st.xAt+p] += d[h] * dy[p]
				}
				dd[h] += dot(dy, st.x)
				step -= decay * st.decay * rate
				daLog[h] -= decay * st.decay * rate * st.dt
				if !st.inside {
					step = 0
				}
				step /= 1 + math.Exp(-st.raw)
				ddt[t*a.DtStride+h] = step
				ddtBias[h] += step
			}
		}
	}
}
