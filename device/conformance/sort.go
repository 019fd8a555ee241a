package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("SortByExpert", sortCases) }

func sortCases(add func(string, func(*rig))) {
	// Each shape has the number of (token, expert) pairs, the pairs of each token, and the number
	// of experts. Only the last experts are chosen at all; the fourth number counts them.
	for _, sh := range [][4]int{{1, 1, 1, 1}, {12, 4, 5, 5}, {600, 3, 1000, 1000}, {5000, 8, 64, 64}, {3000, 2, 128, 1}, {2100, 1, 1024, 7},
		{0, 2, 7, 7}, {0, 0, 0, 0}} {
		for _, counting := range []bool{true, false} {
			add(fmt.Sprintf("%v,counting %v", sh, counting), func(r *rig) { sortCase(r, sh, counting) })
		}
	}
}

func sortCase(r *rig, sh [4]int, counting bool) {
	N, K, E := sh[0], sh[1], sh[2]
	v, before := make([]int32, N), make([]int32, E)
	for i := range v {
		v[i] = int32(E - 1 - r.rng.IntN(sh[3]))
	}
	for e := range before {
		before[e] = int32(r.rng.IntN(100))
	}
	ids, order, rows := r.i32("IDs", v), r.i32("Order", make([]int32, N)), r.i32("Rows", make([]int32, N))
	offsets, counts := r.i32("Offsets", make([]int32, E+1)), r.i32("Counts", before)
	wantO, wantR, wantF, wantC := make([]int32, N), make([]int32, N), make([]int32, E+1), append([]int32(nil), before...)
	oracle.SortByExpert(v, wantO, wantR, wantF, wantC, E, K)
	order.expect(floats(wantO), 0, 0)
	rows.expect(floats(wantR), 0, 0)
	offsets.expect(floats(wantF), 0, 0)
	a := op.SortByExpert{IDs: ids.t, Order: order.t, Rows: rows.t, Offsets: offsets.t, N: N, K: K, E: E}
	if counting {
		a.Counts = counts.t
		counts.expect(floats(wantC), 0, 0)
	}
	enqueue(r, a)
}
