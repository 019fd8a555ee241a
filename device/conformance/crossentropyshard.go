package conformance

import (
	"fmt"
	"math"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("CrossEntropyShard", shardCases) }

// shardCases cuts a vocabulary into shards at the given columns. It computes losses shard by shard in one order, and
// gradients in the opposite order. The oracle, the float64 reference, computes the whole vocabulary at once; the shards
// together must give its result.
func shardCases(add func(string, func(*rig))) {
	for _, c := range []struct {
		T    int
		cuts []int // the first column of each shard, and the end of the last
	}{
		{1, []int{0, 1, 2}}, {3, []int{0, 3, 5}}, {70, []int{0, 1, 9, 17}}, {9, []int{0, 64, 128, 192, 256}},
		{8, []int{0, 401, 802, 803, 1002, 1003}}, {5, []int{0, 1003}}, {0, []int{0, 2, 6}},
	} {
		for _, form := range lossForms {
			for _, gradient := range []bool{false, true} {
				name := fmt.Sprintf("%d rows cut at %v,gradient %v,%v", c.T, c.cuts, gradient, form)
				add(name, func(r *rig) { shardCase(r, c.T, c.cuts, form, gradient) })
			}
		}
	}
}

func shardCase(r *rig, T int, cuts []int, f lossForm, gradient bool) {
	size, limit := f.size, f.limit
	shards, V := len(cuts)-1, cuts[len(cuts)-1]
	targets := make([]int32, T) // in each shard in turn: its first column, its last, a random one
	for t := range targets {
		from, to := cuts[t%shards], cuts[t%shards+1]
		targets[t] = int32([]int{from, to - 1, from + r.rng.IntN(to-from)}[t/shards%3])
		if t%5 == 4 {
			targets[t] = op.IgnoreIndex
		}
	}
	parts := make([]*array, shards)
	whole := make([]float64, T*V) // the logits of the whole vocabulary, rounded
	for k := range parts {
		width := cuts[k+1] - cuts[k]
		parts[k] = r.values(fmt.Sprintf("Logits %d", k), r.dt, scaled(r.normal(T*width), size))
		for t := range T {
			copy(whole[t*V+cuts[k]:], parts[k].v[t*width:(t+1)*width])
		}
	}
	ids, lse, losses := r.i32("Targets", targets), r.f32("LSE", T), r.f32("Losses", T)
	wantLSE := make([]float64, T)
	for t := range wantLSE {
		row := append([]float64(nil), whole[t*V:(t+1)*V]...)
		for i, x := range row {
			row[i], _ = oracle.Softcap(x, limit)
		}
		wantLSE[t] = oracle.LogSumExp(row)
	}
	// A row's log-sum-exp is below 5·size + log V. Merging a shard into it rounds it once more, so
	// there are as many roundings as shards.
	rounded := (5*size + math.Log(float64(V))) * float64(shards) * uF32
	wantL := make([]float64, T)
	const scale = 0.125
	oracle.CrossEntropy(whole, targets, wantL, V, scale, limit, f.smoothing, f.z, false)
	weights := f.weights(r, T, V, whole)
	lse.least, losses.least = 1, f.more(V)
	lse.expect(wantLSE, exponents(V, size, limit)+rounded, 0)
	losses.expect(wantL, exponents(V, size, limit)+rounded, 0)
	shard := func(k int, gradient, first, last bool) {
		enqueue(r, op.CrossEntropyShard{Logits: parts[k].t, Targets: ids.t, LSE: lse.t, Losses: losses.t, Weights: weights,
			T: T, V: cuts[k+1] - cuts[k], From: cuts[k], Scale: scale, Softcap: float32(limit), Terms: f.terms(), Vocab: V, First: first, Last: last, Gradient: gradient})
	}
	for k := range shards {
		shard(k, false, k == 0, k == shards-1)
	}
	for i := 0; i < shards && gradient; i++ {
		k := shards - 1 - i
		width := cuts[k+1] - cuts[k]
		want := make([]float64, T*width)
		for t := range T {
			copy(want[t*width:(t+1)*width], whole[t*V+cuts[k]:])
		}
		// The bound is that for the whole vocabulary, plus the error of the log-sum-exp, which is
		// part of every exponent. In a shard without a target all gradients may be small, so errors
		// are relative to least, if that is larger.
		parts[k].least = scale * f.more(V)
		parts[k].expect(want, exponents(V, size, limit)+rounded, 1)
		shard(k, true, i == 0, i == shards-1)
	}
}
