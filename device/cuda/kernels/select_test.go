package kernels_test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// recordedTopK returns the cases of testdata/topk.json and testdata/killer.json of device/cpu, whose chosen keys are
// seen. Scores of later keys are missing at the end.
func recordedTopK(t *testing.T) (cases []topKCase) {
	type recorded []struct {
		K      int
		Scores []*float64
		Chosen []int32
	}
	var all, bad recorded
	testkit.NoError(t, json.Unmarshal(testkit.Must(os.ReadFile("../../cpu/testdata/topk.json"))(t), &all))
	testkit.NoError(t, json.Unmarshal(testkit.Must(os.ReadFile("../../cpu/testdata/killer.json"))(t), &bad))
	for _, c := range append(all, bad...) {
		of := topKCase{keys: len(c.Scores), k: c.K, chosen: c.Chosen}
		for _, x := range c.Scores {
			if x != nil {
				of.scores = append(of.scores, *x)
			}
		}
		if len(of.scores) >= c.K {
			cases = append(cases, of)
		}
	}
	return cases
}

type topKCase struct {
	scores  []float64
	keys, k int
	chosen  []int32
}

// run returns the choice of the first query on dev. Later queries see later keys. A query has a head with the positive
// scores, and a head with the negative ones.
func (c topKCase) run(t *testing.T, dev *rig, dt device.DType) ([]int32, error) {
	queries := c.keys - len(c.scores) + 1
	r := newAttentionRun(t, dev, dt, attentionCase{queries: []int{queries}, keys: []int{c.keys}, heads: 2, kvHeads: 1, dim: 1})
	q, k := r.alloc(dt, 2*queries, 0), r.alloc(dt, c.keys, 0)
	signs := make([]float64, 2*queries)
	for i := range signs {
		signs[i] = float64(1 - i%2*2)
	}
	r.put(q, signs)
	r.put(k, append(slices.Clone(c.scores), make([]float64, queries-1)...))
	keys := r.ints(make([]int32, queries*c.k))
	kernels.SelectKeysBy(r.s, &op.SelectKeys{Keys: keys, Q: q, K: k, W: q, CuQ: r.shape.CuQ, CuK: r.shape.CuK, Seqs: 1,
		TQ: queries, TK: c.keys, MaxK: c.keys, Heads: 2, Dim: 1, TopK: c.k, Scale: 1, WScale: 1}, 3)
	out := make([]int32, c.k)
	testkit.Must(binary.Decode(dev.bytes(keys.Mem()), binary.LittleEndian, out))(t)
	return out, r.s.err
}

// TestEqualScores: among equal scores a GPU makes the choice of torch.topk on a CPU. Segments of three queries change
// no choice.
func TestEqualScores(t *testing.T) {
	dev := newRig()
	for _, c := range recordedTopK(t) {
		for _, dt := range []device.DType{device.F32, device.BF16} {
			if dt == device.BF16 && slices.ContainsFunc(c.scores, func(x float64) bool { return x*4 != float64(int(x*4)) }) {
				continue // rounding makes other scores equal
			}
			if got, err := c.run(t, dev, dt); err != nil || !slices.Equal(got, c.chosen) {
				t.Errorf("%v: %d of %d, %d seen: %v, torch.topk chooses %v; error %v", dt, c.k, c.keys, len(c.scores), got, c.chosen, err)
			}
		}
	}
}

// TestMissingBarriersOfSelectKeys removes every barrier of the kernels of SelectKeys, one at a time. Each is needed.
func TestMissingBarriersOfSelectKeys(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs the same interpreter in TestOp")
	}
	withoutEachBarrier(t, "select", 1, selectSome)
}

// selectSome runs every kernel of SelectKeys: by few and many heads, with and without equal scores at the limit.
func selectSome(t *testing.T, dev *rig) error {
	const n = 330
	for _, c := range []struct {
		dt               device.DType
		heads, dim, topK int
	}{{device.F32, 70, 40, 40}, {device.F32, 1, 40, 250}, {device.BF16, 3, 136, 250}, {device.BF16, 70, 40, 20}, {device.BF16, 1, 1, 250}} {
		r := newAttentionRun(t, dev, c.dt, attentionCase{queries: []int{3, 35}, keys: []int{3, n}, heads: 1, kvHeads: 1, dim: c.dim})
		q, _ := r.random(38, c.heads*c.dim, c.heads*c.dim)
		k, _ := r.random(n+3, c.dim, c.dim)
		w, _ := r.random(38, c.heads, c.heads)
		kernels.SelectKeys(r.s, &op.SelectKeys{Keys: r.ints(make([]int32, 38*c.topK)), Q: q, K: k, W: w, CuQ: r.shape.CuQ, CuK: r.shape.CuK, Seqs: 2,
			TQ: 38, TK: n + 3, MaxK: n, Heads: c.heads, Dim: c.dim, TopK: c.topK, Scale: 1, WScale: 1})
		if r.s.err != nil {
			return r.s.err
		}
	}
	return nil
}
