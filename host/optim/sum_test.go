package optim

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/base/bf16"
	"mt/base/parallel"
)

// valuesOf returns the elements of a gradient as fp32.
func valuesOf(g Grad) (out []float32) {
	if !g.BF16 {
		return View[float32](g.Data[:4*g.Elems])
	}
	for _, x := range View[uint16](g.Data[:2*g.Elems]) {
		out = append(out, bf16.Widen(x))
	}
	return out
}

// TestSumParts: SumParts adds up the parts in their order, in fp32, and rounds once at the end. The
// parts include 1e8, 1 and −1e8, whose sum depends on the order.
func TestSumParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pool := parallel.New(2)
	defer pool.Close()
	for _, rounded := range []bool{false, true} {
		for _, n := range []int{0, 1, 7, sumElems, pieceElems + 5} {
			var parts []Grad
			for k := range 4 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(r.NormFloat64() * math.Pow(10, float64(3*((k+i)%4))))
				}
				parts = append(parts, gradFrom(v, rounded))
			}
			dst := gradFrom(make([]float32, n), rounded)
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
				if rounded {
					want = bf16.Widen(bf16.Round(want))
				}
				if got[i] != want {
					t.Fatalf("bf16 %t, %d elements: element %d is %v, want %v", rounded, n, i, got[i], want)
				}
			}
		}
	}
}

// TestSumRows: gradients of a table's rows from several ranks are added in rank order. If a share
// begins or ends inside a row, it sums only its part of that row. All shares together have every
// element.
func TestSumRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rows, cols = 30, 7
	for round := range 200 {
		rounded, ranks := round%2 == 0, 1+r.IntN(4)
		ids, slabs := make([][]int32, ranks), make([]Grad, ranks)
		table := make([]float32, rows*cols)
		for k := range ranks {
			var v []float32
			for id := range int32(rows) {
				if r.IntN(3) == 0 {
					ids[k] = append(ids[k], id)
					for range cols {
						v = append(v, bf16.Widen(bf16.Round(float32(r.NormFloat64()*math.Pow(8, float64(r.IntN(9)))))))
					}
				}
			}
			slabs[k] = gradFrom(v, rounded)
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
			dst := gradFrom(slices.Repeat([]float32{5}, len(touched)*cols), rounded)
			share.SumRows(nil, dst, touched, ids, parts, cols)
			got := valuesOf(dst)
			for id := range int32(rows) {
				if i, ok := slices.BinarySearch(touched, id); ok {
					for c := range cols {
						e := int64(id)*cols + int64(c)
						want := table[e]
						if rounded {
							want = bf16.Widen(bf16.Round(want))
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

var sumLengths = []int64{0, 1, 31, 32, 33, 1000, pieceElems - 1, pieceElems, pieceElems + 1, 3*pieceElems + 77}

func TestSumSquaresHasTheSameBitsEverywhere(t *testing.T) {
	for _, rounded := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n, rounded, uint64(n), wild)
			useKernels(t, &generic)
			want := SumSquares(nil, g)
			for _, k := range available() {
				useKernels(t, k)
				for _, threads := range []int{1, 2, 5} {
					if got := SumSquares(poolOf(t, threads), g); math.Float64bits(got) != math.Float64bits(want) {
						t.Errorf("bf16 %t, %d elements, %s, %d threads: %v, want %v", rounded, n, k.name, threads, got, want)
					}
				}
			}
		}
	}
}

// TestSumSquaresKeepsItsOrder compares SumSquares with its documented order of additions, written
// in another way: block by block, every 32nd square into one of 32 partial sums, and these combined
// in a tree.
func TestSumSquaresKeepsItsOrder(t *testing.T) {
	for _, n := range sumLengths {
		g := gradOf(n, false, uint64(n), wild)
		var want float64
		values := g.values()
		for len(values) > 0 {
			block := values[:min(len(values), 32768)]
			values = values[len(block):]
			sums := make([]float64, 32)
			for lane := range sums {
				for i := lane; i < len(block); i += 32 {
					sums[lane] += float64(block[i]) * float64(block[i])
				}
			}
			want += tree(sums)
		}
		if got := SumSquares(nil, g); math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%d elements: %v, want %v", n, got, want)
		}
	}
}

// tree sums x by adding elements that are half its length apart, and then the sums in the same way.
func tree(x []float64) float64 {
	if len(x) == 1 {
		return x[0]
	}
	half := make([]float64, len(x)/2)
	for i := range half {
		half[i] = x[i] + x[i+len(half)]
	}
	return tree(half)
}

// TestSumSquaresIsRight compares SumSquares with the exact sum, computed with big numbers. A
// float64 sum of n exact positive terms has a relative error of at most n·2⁻⁵³. No element passes
// through more than 1024 + 5 + 3 additions: within its partial sum, in the tree, and over the
// blocks.
func TestSumSquaresIsRight(t *testing.T) {
	const bound = 1100 * 0x1p-53
	for _, rounded := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n, rounded, uint64(n), mean)
			exact := new(big.Float).SetPrec(500)
			for _, x := range g.values() {
				f := new(big.Float).SetPrec(500).SetFloat64(float64(x))
				exact.Add(exact, f.Mul(f, f))
			}
			want, _ := exact.Float64()
			if got := SumSquares(nil, g); math.Abs(got-want) > bound*want {
				t.Errorf("bf16 %t, %d elements: %v, want %v", rounded, n, got, want)
			}
		}
	}
}

func TestSumSquaresIsFiniteWhenAllElementsAre(t *testing.T) {
	const greatest = math.MaxFloat32
	for _, k := range available() {
		useKernels(t, k)
		for _, bad := range []float64{0, math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, at := range []int{0, 40, 2*pieceElems + 3} {
				t.Run(fmt.Sprintf("%s %v at %d", k.name, bad, at), func(t *testing.T) {
					values := make([]float32, 2*pieceElems+5)
					for i := range values {
						values[i] = greatest
					}
					if bad != 0 {
						values[at] = float32(bad)
					}
					sum := SumSquares(nil, gradFrom(values, false))
					if AllFinite(sum) != (bad == 0) {
						t.Errorf("sum is %v", sum)
					}
				})
			}
		}
	}
}

func TestPaddingDoesNotChangeTheSum(t *testing.T) {
	values := gradOf(1000, false, 1, mean).values()
	want := SumSquares(nil, gradFrom(values, false))
	if got := SumSquares(nil, gradFrom(append(values, make([]float32, 123)...), false)); got != want {
		t.Errorf("with zeros behind %v, without %v", got, want)
	}
}

// TestSumSquaresEndsWithTheGradient: SumSquares reads no memory after the gradient's last element;
// a slab has other gradients there.
func TestSumSquaresEndsWithTheGradient(t *testing.T) {
	for _, rounded := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n+pieceElems, rounded, uint64(n), mean)
			part := g.Part(0, n)
			want := SumSquares(nil, part)
			for i := n; i < g.Elems; i++ {
				if rounded {
					View[uint16](g.Data)[i] = 0x7fc0 // NaN
				} else {
					View[float32](g.Data)[i] = float32(math.NaN())
				}
			}
			if got := SumSquares(nil, part); got != want {
				t.Errorf("bf16 %t, %d elements: %v with NaNs behind them, %v without", rounded, n, got, want)
			}
		}
	}
}
