package kernels_test

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// sparseRun is attention to chosen keys with its results, over sequences with the given numbers of queries and keys. Each
// query chooses topK keys, the early ones one in two.
type sparseRun struct {
	*attentionRun
	forward  op.SparseAttention
	backward op.SparseAttentionBackward
	chosen   []int32
}

func newSparseRun(t *testing.T, dev *rig, dt device.DType, queries, keys []int, heads, dim, values, topK int) *sparseRun {
	r := newAttentionRun(t, dev, dt, attentionCase{queries: queries, keys: keys, heads: heads, kvHeads: 1, dim: dim})
	n, tk := r.o.TQ, r.tk
	chosen := make([]int32, 0, n*topK)
	for i, nq := range queries {
		for place := keys[i] - nq; place < keys[i]; place++ {
			end := len(chosen) + topK
			for key := range place + 1 {
				if len(chosen) < end && ((key^place)&1 == 0 || end-len(chosen) > place-key) {
					chosen = append(chosen, int32(key))
				}
			}
			for len(chosen) < end {
				chosen = append(chosen, -1)
			}
		}
	}
	s := op.SparseShape{AttentionShape: r.shape, Values: values, TopK: topK, Keys: r.ints(chosen)}
	q, _ := r.random(n, heads*dim, heads*dim)
	k, _ := r.random(tk, dim, dim)
	do, _ := r.random(n, heads*values, heads*values)
	f := op.SparseAttention{SparseShape: s, O: r.alloc(dt, n*heads*values, 0), LSE: r.alloc(device.F32, n*heads, 0), Q: q, K: k, QStride: heads * dim, KStride: dim}
	b := op.SparseAttentionBackward{SparseShape: s, DQ: r.alloc(dt, n*heads*dim, 0), DK: r.alloc(dt, tk*dim, 0), DO: do, O: f.O, LSE: f.LSE, Q: q, K: k,
		QStride: heads * dim, KStride: dim, DQStride: heads * dim, DKStride: dim, Delta: r.alloc(device.F32, n*heads, 0), Sums: r.alloc(device.F32, s.SumsLen(), 0)}
	return &sparseRun{r, f, b, chosen}
}

// bits runs the forward, and the backward with the given number of blocks for the gradient of keys. It returns the bits of all
// results.
func (r *sparseRun) bits(blocks int) []byte {
	op.Do(r.dev, r.s, r.forward)
	if err := kernels.SparseAttentionBackwardBy(r.s, &r.backward, blocks); r.s.err == nil {
		r.s.err = err
	}
	var out []byte
	for _, x := range []device.Tensor{r.forward.O, r.forward.LSE, r.backward.Delta, r.backward.DQ, r.backward.DK} {
		out = append(out, r.dev.bytes(x.Mem())...)
	}
	return out
}

// TestSparseBits: the bits of attention to chosen keys do not depend on the number of blocks, nor on how launches are split. With
// one segment of keys, a query has more keys in the segment than its list has room for.
func TestSparseBits(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs the same interpreter in TestOp")
	}
	for _, dt := range []device.DType{device.F32, device.BF16} {
		dev := newRig()
		r := newSparseRun(t, dev, dt, []int{5, 4}, []int{5, 560}, 17, 24, 16, 550)
		want := r.bits(132)
		for _, blocks := range []int{1, 12, 400} {
			dev.most = float64(blocks % 2)
			if got := r.bits(blocks); !bytes.Equal(got, want) {
				t.Errorf("%v: the bits with %d blocks differ", dt, blocks)
			}
		}
		r.ok()
	}
}

// TestSparseNaN: a NaN in a key's row appears in the results of the queries that chose the key, and in no other.
func TestSparseNaN(t *testing.T) {
	testkit.NotShort(t)
	const n, heads, dim, key = 50, 2, 24, 40
	for _, dt := range []device.DType{device.F32, device.BF16} {
		r := newSparseRun(t, newRig(), dt, []int{n}, []int{n}, heads, dim, dim, 8)
		k := r.get(r.forward.K)
		k[key*dim+3] = math.NaN()
		r.put(r.forward.K, k)
		r.bits(132)
		r.ok()
		o := r.get(r.forward.O)
		for q := range n {
			want := slices.Contains(r.chosen[q*8:q*8+8], key)
			if got := math.IsNaN(o[q*heads*dim+5]); got != want {
				t.Errorf("%v: query %d is NaN: %v, it chose the key: %v", dt, q, got, want)
			}
		}
	}
}

// TestMissingBarriersOfChosenKeys removes every barrier of the kernels of attention to chosen keys, one at a time. Each is
// needed.
func TestMissingBarriersOfChosenKeys(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs the same interpreter in TestOp")
	}
	for module, dt := range map[string]device.DType{"attention_sparse": device.BF16, "attention_sparse_f32": device.F32} {
		withoutEachBarrier(t, module, 1, func(t *testing.T, dev *rig) error {
			r := newSparseRun(t, dev, dt, []int{3, 20}, []int{3, 90}, 33, 70, 66, 70)
			r.bits(1)
			few := newSparseRun(t, dev, dt, []int{9}, []int{90}, 1, 8, 8, 24) // the last segment has no chosen key
			few.bits(132)
			return cmp.Or(r.s.err, few.s.err)
		})
	}
}
