package optim

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

var sumLengths = []int64{0, 1, 31, 32, 33, 1000, pieceElems - 1, pieceElems, pieceElems + 1, 3*pieceElems + 77}

func TestSumSquaresHasTheSameBitsEverywhere(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n, bf16, uint64(n), wild)
			useKernels(t, &generic)
			want := SumSquares(nil, g)
			for _, k := range available() {
				useKernels(t, k)
				for _, threads := range []int{1, 2, 5} {
					if got := SumSquares(poolOf(t, threads), g); math.Float64bits(got) != math.Float64bits(want) {
						t.Errorf("bf16 %t, %d elements, %s, %d threads: %v, want %v", bf16, n, k.name, threads, got, want)
					}
				}
			}
		}
	}
}

// The order that SumSquares promises is written down in another way here: block by
// block, every 32nd square in turn, and then sums that are half a tree apart.
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

// tree adds up the elements of x that are half its length apart, then those sums
// likewise, and so on.
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

// The exact sum is computed with big numbers. A float64 sum of n positive terms,
// each of them exact, is off by at most n·2⁻⁵³ of itself; the longest chain here
// has 1024 + 5 + 3 terms.
func TestSumSquaresIsRight(t *testing.T) {
	const bound = 1100 * 0x1p-53
	for _, bf16 := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n, bf16, uint64(n), mean)
			exact := new(big.Float).SetPrec(500)
			for _, x := range g.values() {
				f := new(big.Float).SetPrec(500).SetFloat64(float64(x))
				exact.Add(exact, f.Mul(f, f))
			}
			want, _ := exact.Float64()
			if got := SumSquares(nil, g); math.Abs(got-want) > bound*want {
				t.Errorf("bf16 %t, %d elements: %v, want %v", bf16, n, got, want)
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

// What comes after a gradient in its slab is not part of it, and is not read.
func TestSumSquaresEndsWithTheGradient(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		for _, n := range sumLengths {
			g := gradOf(n+pieceElems, bf16, uint64(n), mean)
			part := g.Part(0, n)
			want := SumSquares(nil, part)
			for i := n; i < g.Elems; i++ {
				if bf16 {
					View[uint16](g.Data)[i] = 0x7fc0 // NaN
				} else {
					View[float32](g.Data)[i] = float32(math.NaN())
				}
			}
			if got := SumSquares(nil, part); got != want {
				t.Errorf("bf16 %t, %d elements: %v with NaNs behind them, %v without", bf16, n, got, want)
			}
		}
	}
}
