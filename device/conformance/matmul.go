package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("MatMul", matMulCases) }

func matMulCases(add func(string, func(*rig))) {
	raggedCases(add)
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
