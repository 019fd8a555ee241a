package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("AddBiasGrad", biasCases) }

func biasCases(add func(string, func(*rig))) {
	for _, sh := range [][2]int{{1, 1}, {3, 5}, {31, 16}, {70, 33}, {300, 17}, {2100, 3}, {0, 4}, {4, 0}} {
		T, N := sh[0], sh[1]
		add(fmt.Sprintf("%dx%d", T, N), func(r *rig) {
			db, dy := r.f32("db", N), r.act("dy", T*N)
			want := db.copy()
			oracle.AddBiasGrad(want, dy.v, T, N)
			db.expect(want, summing(T), 0)
			enqueue(r, op.AddBiasGrad{DB: db.t, DY: dy.t, T: T, N: N})
		})
	}
}
