package cpu

import "testing"

// TestCostOfAJob: attnJob.cost is twice the job's attended (query, key) pairs, less at most one for
// each query.
func TestCostOfAJob(t *testing.T) {
	for _, j := range []attnJob{
		{nq: 600, nk: 600, to: 600, keyTo: 600},               // a sequence
		{nq: 600, nk: 600, from: 300, to: 600, keyTo: 600},    // its later queries
		{nq: 600, nk: 600, to: 600, keyFrom: 512, keyTo: 600}, // its last keys
		{nq: 100, nk: 600, from: 20, to: 50, keyTo: 600},      // queries behind other keys
	} {
		pairs := 0
		for q := j.from; q < j.to; q++ {
			pairs += max(0, min(q+j.shift()+1, j.keyTo)-j.keyFrom)
		}
		if cost := j.cost(); cost > 2*pairs || cost < 2*pairs-(j.to-j.from) {
			t.Errorf("%+v costs %d, and has %d pairs", j, cost, pairs)
		}
	}
}
