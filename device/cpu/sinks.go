package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, sinks)
	op.Add(&table, sinksGrad)
}

// sinks multiplies each head's output row by 1 − p, where p is the attention probability of the head's sink.
func sinks(s *stream, a *op.Sinks) error {
	reads(a.Sinks, 1, 0, a.Heads)
	writes(a.O, 1, 0, a.T*a.Heads*a.Dim)
	writes(a.LSE, 1, 0, a.Heads*a.T)
	o, lse, sink := actOf(a.O), f32s(a.LSE, a.Heads*a.T), f32s(a.Sinks, a.Heads)
	width := a.Heads * a.Dim
	s.forRows(a.T, width, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row := o.load(sc, 0, t*width, width)
			for h, x := range sink {
				was := float64(lse[h*a.T+t])
				above := float64(x)*math.Log2E - was
				share := 1 / (1 + math.Exp2(above))
				head := row[h*a.Dim : (h+1)*a.Dim]
				vec.Scale(head, head, float32(share))
				lse[h*a.T+t] = float32(was + max(above, 0) + math.Log1p(math.Exp2(-math.Abs(above)))*math.Log2E)
			}
			o.store(t*width, row)
		}
	})
	return nil
}

// sinksGrad sums the gradients of each block of rows, and then adds the blocks' sums in order. So
// any number of threads gives the same bits.
func sinksGrad(s *stream, a *op.SinksGrad) error {
	reads(a.Sinks, 1, 0, a.Heads)
	reads(a.LSE, 1, 0, a.Heads*a.T)
	reads(a.Delta, 1, 0, a.Heads*a.T)
	writes(a.DSinks, 1, 0, a.Heads)
	lse, delta, sink := f32s(a.LSE, a.Heads*a.T), f32s(a.Delta, a.Heads*a.T), f32s(a.Sinks, a.Heads)
	s.sumRows(a.DSinks, a.Heads, a.T, func(_ *scratch, sum []float32, from, to int) {
		for h, x := range sink {
			for t := h*a.T + from; t < h*a.T+to; t++ {
				sum[h] -= float32(math.Exp2(float64(x)*math.Log2E-float64(lse[t]))) * delta[t]
			}
		}
	})
	return nil
}
