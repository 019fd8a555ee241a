package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("MatMul", matMulCases) }

func matMulCases(add func(string, func(*rig))) {
	raggedCases(add)
	batchCases(add)
	shapes := [][3]int{{1, 1, 1}, {3, 5, 7}, {1, 40, 33}, {2, 130, 70}, {17, 33, 65}, {29, 64, 16}, {64, 48, 400}, {5, 6, 0}, {0, 4, 3}, {4, 0, 3}}
	for _, sh := range shapes {
		for bits := range 4 {
			transA, transB := bits&1 != 0, bits&2 != 0
			for _, form := range []string{"plain", "bias", "c", "accumulate", "fp32"} {
				add(fmt.Sprintf("%dx%dx%d,%v,%v,%s", sh[0], sh[1], sh[2], transA, transB, form), func(r *rig) {
					matMul(r, sh[0], sh[1], sh[2], transA, transB, form)
				})
			}
		}
	}
}

// raggedCases are the three products of an expert: the forward, and the gradients of its input and
// of its weights. An expert gets any number of rows. Several numbers below the same power of two
// are tested, because a device may choose one algorithm for all of them.
func raggedCases(add func(string, func(*rig))) {
	const wide, narrow = 48, 16
	for _, rows := range []int{0, 1, 2, 31, 32, 33, 47, 64, 200} {
		add(fmt.Sprintf("ragged %d rows", rows), func(r *rig) {
			for _, m := range []op.MatMul{{M: rows, N: wide, K: narrow, TransB: true}, {M: rows, N: narrow, K: wide},
				{M: wide, N: narrow, K: rows, TransA: true}} {
				a, b := r.act("A", m.M*m.K), r.act("B", m.K*m.N)
				d := r.act("D", m.M*m.N)
				var c []float64
				if m.TransA { // added to D
					d = r.f32("D", m.M*m.N)
					m.C, c = d.t, d.v
				}
				m.A, m.B, m.D, m.Ragged = a.t, b.t, d.t, true
				want := d.copy()
				oracle.MatMul(want, a.v, b.v, c, nil, m.M, m.N, m.K, m.TransA, m.TransB)
				d.expect(want, summing(m.K), 1)
				enqueue(r, m)
			}
		})
	}
}

// batchCases are products of parts of wider matrices: of heads side by side in a row of all heads (gap > 0 elements follow
// the heads), or one after the other.
func batchCases(add func(string, func(*rig))) {
	for _, sh := range [][5]int{{1, 3, 5, 7, 1}, {3, 9, 16, 24, 8}, {3, 5, 8, 16, 3}, {4, 70, 64, 40, 16}, {2, 33, 1, 9, 3}, {2, 1, 32, 264, 0}, {2, 33, 48, 1100, 8}} {
		for bits := range 16 {
			n, M, N, K, gap := sh[0], sh[1], sh[2], sh[3], sh[4]
			transA, transB, sum, inRow := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
			add(fmt.Sprintf("batch %v,%v,%v,%v,%v", sh, transA, transB, sum, inRow), func(r *rig) {
				m := op.MatMul{M: M, N: N, K: K, TransA: transA, TransB: transB, Batch: op.Batch{N: n}}
				a, b, d := m.Stored()
				for _, x := range []*op.Matrix{&a, &b, &d} {
					x.Row, x.Next = x.Cols+gap, x.Rows*(x.Cols+gap)+gap
					if inRow {
						x.Row, x.Next = n*(x.Cols+gap), x.Cols+gap
					}
				}
				m.Batch.A, m.Batch.B, m.Batch.D = a.Place, b.Place, d.Place
				size := func(x op.Matrix) int { return n * (x.Rows*(x.Cols+gap) + gap) }
				left, right, out := r.act("A", size(a)), r.act("B", size(b)), r.act("D", size(d))
				var c []float64
				if sum {
					out = r.f32("D", size(d))
					m.C, c = out.t, out.v
				}
				m.A, m.B, m.D = left.t, right.t, out.t
				want := out.copy()
				for i := range n {
					batched(want, left.v, right.v, c, m, i)
				}
				out.expect(want, summing(K), 1)
				enqueue(r, m)
			})
		}
	}
}

// batched writes the reference of product i of m to want, with the oracle's dense matrices.
func batched(want, a, b, c []float64, m op.MatMul, i int) {
	dense := func(v []float64, x op.Matrix) (out []float64) {
		for r := range x.Rows {
			at := i*x.Next + r*x.Row
			out = append(out, v[at:at+x.Cols]...)
		}
		return out
	}
	left, right, out := m.Stored()
	d := make([]float64, m.M*m.N)
	if c != nil {
		c = dense(c, out)
	}
	oracle.MatMul(d, dense(a, left), dense(b, right), c, nil, m.M, m.N, m.K, m.TransA, m.TransB)
	for r := range out.Rows {
		copy(want[i*out.Next+r*out.Row:], d[r*out.Cols:(r+1)*out.Cols])
	}
}

func matMul(r *rig, M, N, K int, transA, transB bool, form string) {
	a, b := r.act("A", M*K), r.act("B", K*N)
	d := r.act("D", M*N)
	m := op.MatMul{M: M, N: N, K: K, TransA: transA, TransB: transB, A: a.t, B: b.t}
	var c, bias []float64
	switch form {
	case "bias":
		x := r.f32("Bias", N)
		m.Bias, bias = x.t, x.v
	case "c":
		x := r.act("C", M*N)
		m.C, c = x.t, x.v
	case "accumulate":
		d = r.f32("D", M*N)
		x := r.f32("Bias", N)
		m.C, c, m.Bias, bias = d.t, d.v, x.t, x.v
	case "fp32":
		d = r.f32("D", M*N)
	}
	m.D = d.t
	want := d.copy()
	oracle.MatMul(want, a.v, b.v, c, bias, M, N, K, transA, transB)
	d.expect(want, summing(K), 1)
	enqueue(r, m)
}
