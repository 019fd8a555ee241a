package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/internal/bfloat"
	"mt/internal/parallel"
)

// valuesOf are the elements of a gradient.
func valuesOf(g Grad) (out []float32) {
	if !g.BF16 {
		return View[float32](g.Data[:4*g.Elems])
	}
	for _, x := range View[uint16](g.Data[:2*g.Elems]) {
		out = append(out, bfloat.Widen(x))
	}
	return out
}

// TestSumParts: parts are added up in their order, in fp32, and rounded once. In another order the
// sum of 1e8, 1 and −1e8 has other bits.
func TestSumParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pool := parallel.New(2)
	defer pool.Close()
	for _, bf16 := range []bool{false, true} {
		for _, n := range []int{0, 1, 7, sumElems, pieceElems + 5} {
			var parts []Grad
			for k := range 4 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(r.NormFloat64() * math.Pow(10, float64(3*((k+i)%4))))
				}
				parts = append(parts, gradFrom(v, bf16))
			}
			dst := gradFrom(make([]float32, n), bf16)
			SumParts(pool, dst, parts)
			got := valuesOf(dst)
			var values [][]float32
			for _, p := range parts {
				values = append(values, valuesOf(p))
			}
			for i := range n {
				var want float32
				for k, v := range values {
					if x := v[i]; k == 0 {
						want = x
					} else {
						want += x
					}
				}
				if bf16 {
					want = bfloat.Widen(bfloat.Round(want))
				}
				if got[i] != want {
					t.Fatalf("bf16 %t, %d elements: element %d is %v, want %v", bf16, n, i, got[i], want)
				}
			}
		}
	}
}

// TestSumRows: the rows that several ranks have of a table, each rank others, are added up in the
// order of the ranks; a share that cuts rows has its part of them, and all shares together have
// every element.
func TestSumRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rows, cols = 30, 7
	for round := range 200 {
		bf16, ranks := round%2 == 0, 1+r.IntN(4)
		ids, slabs := make([][]int32, ranks), make([]Grad, ranks)
		table := make([]float32, rows*cols)
		for k := range ranks {
			var v []float32
			for id := range int32(rows) {
				if r.IntN(3) == 0 {
					ids[k] = append(ids[k], id)
					for range cols {
						v = append(v, bfloat.Widen(bfloat.Round(float32(r.NormFloat64()*math.Pow(8, float64(r.IntN(9)))))))
					}
				}
			}
			slabs[k] = gradFrom(v, bf16)
			for i, id := range ids[k] {
				for c := range cols {
					table[int(id)*cols+c] += v[i*cols+c]
				}
			}
		}
		cuts := []int64{0, r.Int64N(rows * cols), r.Int64N(rows * cols), rows * cols}
		slices.Sort(cuts)
		sent := make([]int64, ranks)
		for s := range 3 {
			share := Share{cuts[s], cuts[s+1]}
			what := fmt.Sprintf("round %d, share %v", round, share)
			var parts []Grad
			for k := range ranks {
				from, to := share.Rows(ids[k], cols)
				if from != sent[k] {
					t.Fatalf("%s: rank %d sends elements from %d on, after %d", what, k, from, sent[k])
				}
				sent[k] = to
				part := slabs[k].Part(from, to-from)
				part.Data = slices.Clip(slices.Clone(part.Data)) // nothing is behind it
				parts = append(parts, part)
			}
			touched := share.Touched(ids, cols)
			dst := gradFrom(slices.Repeat([]float32{5}, len(touched)*cols), bf16)
			share.SumRows(nil, dst, touched, ids, parts, cols)
			got := valuesOf(dst)
			for id := range int32(rows) {
				if i, ok := slices.BinarySearch(touched, id); ok {
					for c := range cols {
						e := int64(id)*cols + int64(c)
						want := table[e]
						if bf16 {
							want = bfloat.Widen(bfloat.Round(want))
						}
						if !share.Has(e) {
							want = 0
						}
						if got[i*cols+c] != want {
							t.Fatalf("%s: row %d column %d is %v, want %v", what, id, c, got[i*cols+c], want)
						}
					}
					continue
				}
				for e := max(int64(id)*cols, share.From); e < min(int64(id+1)*cols, share.To); e++ {
					if table[e] != 0 {
						t.Fatalf("%s: row %d is not there", what, id)
					}
				}
			}
		}
		for k := range ranks {
			if sent[k] != slabs[k].Elems {
				t.Fatalf("round %d: rank %d sends %d of %d elements", round, k, sent[k], slabs[k].Elems)
			}
		}
	}
}
