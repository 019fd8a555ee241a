package oracle

import "math"

// Shape describes queries and keys as op.AttentionShape does.
type Shape struct {
	CuQ, CuK            []int32
	TQ                  int
	Heads, KVHeads, Dim int
	Scale               float64
	Window              int
	Softcap             float64
	QStride, KStride    int
	DQStride, DKStride  int

	// Keys (TQ, TopK) are the keys that each query attends to, counted from the sequence's first key; −1 after the last.
	// Without Keys a query attends to all keys up to its own.
	Keys []int32
	TopK int
}

// scores calls f for every head h and query. Argument row is the query's row, and keys the rows of the attended keys.
// The scaled scores include the softcap. The slopes are derivatives of scores by the scores before the softcap.
func (s *Shape) scores(q, k []float64, f func(h, row int, keys []int, scores, slopes []float64)) {
	for i := range len(s.CuQ) - 1 {
		nq, nk := int(s.CuQ[i+1]-s.CuQ[i]), int(s.CuK[i+1]-s.CuK[i])
		for h := range s.Heads {
			for t := range nq {
				row := int(s.CuQ[i]) + t
				keys := s.attended(row, t+nk-nq)
				scores := make([]float64, len(keys))
				for j := range scores {
					keys[j] += int(s.CuK[i])
					scores[j] = s.Scale * dot(s.query(q, row, h), s.key(k, keys[j], h))
				}
				capped, slopes := softcapped(scores, s.Softcap)
				f(h, row, keys, capped, slopes)
			}
		}
	}
}

// attended returns the keys to which the query in a row attends, counted from the sequence's first. place is the
// position of the query.
func (s *Shape) attended(row, place int) (keys []int) {
	if s.Keys != nil {
		for _, key := range s.Keys[row*s.TopK : (row+1)*s.TopK] {
			if key >= 0 {
				keys = append(keys, int(key))
			}
		}
		return keys
	}
	first := 0
	if s.Window > 0 {
		first = max(0, place-s.Window+1)
	}
	for key := first; key <= place; key++ {
		keys = append(keys, key)
	}
	return keys
}

// query returns the elements of head h in a row of q, which is laid out as Q. Method key does the
// same for K and V, in which heads share key/value heads.
func (s *Shape) query(q []float64, row, h int) []float64 { return q[row*s.QStride+h*s.Dim:][:s.Dim] }

func (s *Shape) key(k []float64, row, h int) []float64 {
	return k[row*s.KStride+h/(s.Heads/s.KVHeads)*s.Dim:][:s.Dim]
}

// dot returns Σ x·y. It keeps four partial sums, because a processor can compute them in parallel.
func dot(x, y []float64) float64 {
	var a, b, c, d float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += x[i] * y[i]
		b += x[i+1] * y[i+1]
		c += x[i+2] * y[i+2]
		d += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		a += x[i] * y[i]
	}
	return a + b + c + d
}

// add computes y += a·x.
func add(y []float64, a float64, x []float64) {
	for i := range x {
		y[i] += a * x[i]
	}
}

// LogSumExp returns log Σ exp x without overflow.
func LogSumExp(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

// Attention writes o (TQ, Heads·Dim), the output, and lse (Heads, TQ), the log-sum-exp of each
// query's scores, to base 2.
func Attention(o, lse, q, k, v []float64, s Shape) {
	s.scores(q, k, func(h, row int, keys []int, scores, _ []float64) {
		l := LogSumExp(scores)
		lse[h*s.TQ+row] = l * math.Log2E
		out := o[(row*s.Heads+h)*s.Dim:][:s.Dim]
		clear(out)
		for j, x := range scores {
			add(out, math.Exp(x-l), s.key(v, keys[j], h))
		}
	})
}

// AttentionBackward overwrites dq, dk and dv with the gradients of q, k and v, given do. Rows that
// belong to no sequence keep their values.
func AttentionBackward(dq, dk, dv, do, o, lse, q, k, v []float64, s Shape) {
	d := s
	d.QStride, d.KStride = s.DQStride, s.DKStride
	for row := s.CuK[0]; row < s.CuK[len(s.CuK)-1]; row++ {
		for h := range s.Heads {
			clear(d.key(dk, int(row), h))
			clear(d.key(dv, int(row), h))
		}
	}
	s.scores(q, k, func(h, row int, keys []int, scores, slopes []float64) {
		at := (row*s.Heads + h) * s.Dim
		dout, grad := do[at:at+s.Dim], d.query(dq, row, h)
		delta := dot(dout, o[at:at+s.Dim])
		clear(grad)
		for j, x := range scores {
			p := math.Exp(x - lse[h*s.TQ+row]*math.Ln2)
			ds := s.Scale * slopes[j] * p * (dot(dout, s.key(v, keys[j], h)) - delta)
			add(grad, ds, s.key(k, keys[j], h))
			add(d.key(dk, keys[j], h), ds, s.query(q, row, h))
			add(d.key(dv, keys[j], h), p, dout)
		}
	})
}

// SparseAttention is Attention in which all heads read the same row of a key, whose first values elements are its value.
// o is (TQ, Heads·values).
func SparseAttention(o, lse, q, k []float64, s Shape, values int) {
	wide := make([]float64, s.TQ*s.Heads*s.Dim)
	Attention(wide, lse, q, k, k, s)
	for i := range s.TQ * s.Heads {
		copy(o[i*values:][:values], wide[i*s.Dim:])
	}
}

// SparseAttentionBackward overwrites dq and dk with the gradients of q and of the keys' rows, given do.
func SparseAttentionBackward(dq, dk, do, o, lse, q, k []float64, s Shape, values int) {
	wideDO, wideO, dv := make([]float64, s.TQ*s.Heads*s.Dim), make([]float64, s.TQ*s.Heads*s.Dim), append([]float64(nil), dk...)
	for i := range s.TQ * s.Heads {
		copy(wideDO[i*s.Dim:][:values], do[i*values:])
		copy(wideO[i*s.Dim:][:values], o[i*values:])
	}
	AttentionBackward(dq, dk, dv, wideDO, wideO, lse, q, k, k, s)
	for row := s.CuK[0]; row < s.CuK[len(s.CuK)-1]; row++ {
		add(dk[int(row)*s.DKStride:][:s.Dim], 1, dv[int(row)*s.DKStride:][:s.Dim])
	}
}
