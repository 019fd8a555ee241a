package data

import (
	"slices"
	"testing"
)

func TestPermutationIsABijection(t *testing.T) {
	sizes := []int64{1000, 1023, 1024, 1025, 4095, 4096, 4097, 10007}
	for n := int64(1); n <= 130; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for _, seed := range []int64{0, 1, -7} {
			p, seen := newPermutation(n, seed, 3), make([]bool, n)
			for i := range n {
				at := p.at(i)
				if at < 0 || at >= n || seen[at] {
					t.Fatalf("n %d seed %d: %d goes to %d, out of range or taken", n, seed, i, at)
				}
				seen[at] = true
			}
		}
	}
}

func TestPermutationLargeStaysInRange(t *testing.T) {
	n := int64(1)<<40 + 12345
	p := newPermutation(n, 42, 0)
	seen := map[int64]bool{}
	for i := range int64(1000) {
		at := p.at(n - 1 - i)
		if at < 0 || at >= n || seen[at] {
			t.Fatalf("%d goes to %d, out of range or taken", n-1-i, at)
		}
		seen[at] = true
	}
}

func order(n, seed int64, stream uint64) []int64 {
	p, out := newPermutation(n, seed, stream), make([]int64, n)
	for i := range out {
		out[i] = p.at(int64(i))
	}
	return out
}

func TestPermutationDependsOnSeedAndStream(t *testing.T) {
	base := order(100, 42, 0)
	if !slices.Equal(base, order(100, 42, 0)) {
		t.Error("the same seed gives two orders")
	}
	for name, other := range map[string][]int64{
		"stream 1": order(100, 42, 1), "seed 43": order(100, 43, 0),
	} {
		same := 0
		for i := range other {
			if other[i] == base[i] {
				same++
			}
		}
		if same > 20 {
			t.Errorf("%s leaves %d of 100 in place", name, same)
		}
	}
}

// TestPermutationSpreads: over many streams an index is mapped to every place about equally
// often, for sizes for which the network is smallest.
func TestPermutationSpreads(t *testing.T) {
	const streams = 4000
	for _, n := range []int64{2, 3, 5, 16} {
		counts := make([]int, n)
		for s := range uint64(streams) {
			counts[newPermutation(n, 1, s).at(0)]++
		}
		want := float64(streams) / float64(n)
		var chi2 float64
		for _, c := range counts {
			chi2 += (float64(c) - want) * (float64(c) - want) / want
		}
		if limit := 30 + 2*float64(n); chi2 > limit { // far above the 99.9 % quantile of its distribution
			t.Errorf("n %d: index 0 lands %v times in each place, chi-squared %.1f", n, counts, chi2)
		}
	}
}
