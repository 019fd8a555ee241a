package optim

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/base/bf16"
	"mt/internal/testkit"
)

// TestRoundBy: among all 2^16 draws, the number of those that round away from zero equals the
// cut-off part, so the mean of the results is the number itself. A number that is exactly a bf16 is
// never changed, and no NaN becomes a number.
func TestRoundBy(t *testing.T) {
	for b := range uint32(1 << 16) {
		x := bf16.Widen(uint16(b))
		for _, draw := range []uint32{0, 1, 0x8000, 0xffff} {
			if got := roundBy(x, draw); got != uint16(b) && (x == x || bf16.Widen(got) == bf16.Widen(got)) {
				t.Fatalf("%04x becomes %04x", b, got)
			}
		}
	}
	for _, nan := range []uint32{0x7f800001, 0x7fffffff, 0xff80ffff, 0xffffffff} {
		if got := bf16.Widen(roundBy(math.Float32frombits(nan), 0xffff)); got == got {
			t.Errorf("the NaN %08x becomes %g", nan, got)
		}
	}
	for _, upper := range []uint32{0x3f80, 0xbf7f, 0x0000, 0x8001, 0x7f7e} { // 1, a negative number, denormals, a huge one
		for _, low := range []uint32{1, 0x1234, 0x8000, 0xffff} {
			x, up := math.Float32frombits(upper<<16|low), uint32(0)
			for draw := range uint32(1 << 16) {
				switch got := uint32(roundBy(x, draw)); got {
				case upper + 1:
					up++
				case upper:
				default:
					t.Fatalf("%08x becomes %04x", upper<<16|low, got)
				}
			}
			if up != low {
				t.Errorf("%08x is rounded up by %d draws, wanted %d", upper<<16|low, up, low)
			}
		}
	}
}

// TestDrawsAreFair: stochastic rounding rounds up with the expected frequency p, over the elements
// of a step and over the steps of an element. The number of n roundings that go up has a binomial
// distribution with standard deviation √(n·p·(1−p)). Chance exceeds the allowed 5 deviations once
// in 1.7 million cases, and there are 40.
func TestDrawsAreFair(t *testing.T) {
	testkit.NotShort(t)
	const n = 1 << 18
	for i, p := range []float64{1. / 65536, 1. / 256, 0.3, 0.5, 0.99} {
		low := uint32(math.Round(p * 65536))
		x := math.Float32frombits(0x3f80<<16 | low)
		p := float64(low) / 65536
		from, to := slices.Repeat([]float32{x}, n), make([]uint16, n)
		up := func() (n int) {
			for _, b := range to {
				n += int(b - 0x3f80)
			}
			return n
		}
		fair := func(what string, up int) {
			t.Helper()
			if off := math.Abs(float64(up) - n*p); off > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%s: %d of %d are rounded up, wanted %.0f", what, up, n, n*p)
			}
		}
		for _, layer := range []int{0, 7} {
			drawsOf(uint64(i), 3, layer).round(to, from, 5)
			fair(fmt.Sprintf("layer %d", layer), up())
			for place := range 4 { // of the four that have a number in common
				count := 0
				for s := range n {
					var one [1]uint16
					drawsOf(uint64(i), int64(s+1), layer).round(one[:], from[:1], uint64(4*layer+place))
					count += int(one[0] - 0x3f80)
				}
				fair(fmt.Sprintf("element %d over steps", 4*layer+place), count)
			}
		}
	}
}

// TestDrawsDiffer: the random bits for two seeds, steps, layers or neighbouring elements differ in
// half of all positions. The number of differing bits has a binomial distribution with standard
// deviation √(bits)/2.
func TestDrawsDiffer(t *testing.T) {
	const n = 1 << 14
	all := func(seed uint64, step int64, layer int, from uint64) (out []uint64) {
		for i := range uint64(n) {
			out = append(out, drawsOf(seed, step, layer).four(from+i))
		}
		return out
	}
	base := all(1, 1, 1, 0)
	for name, other := range map[string][]uint64{"seed": all(2, 1, 1, 0), "step": all(1, 2, 1, 0), "layer": all(1, 1, 2, 0),
		"element": all(1, 1, 1, 1), "seed and step": all(2, 0, 1, 0), "step and layer": all(1, 2, 0, 0), "a far one": all(1, 1, 1, 1<<32)} {
		differ := 0
		for i, x := range base {
			differ += bits.OnesCount64(x ^ other[i])
		}
		if off := math.Abs(float64(differ) - 32*n); off > 5*math.Sqrt(64*n)/2 {
			t.Errorf("another %s: %d of %d bits differ", name, differ, 64*n)
		}
	}
	neighbours := 0 // of elements within a number
	for _, x := range base {
		neighbours += bits.OnesCount64(x ^ bits.RotateLeft64(x, 16))
	}
	if off := math.Abs(float64(neighbours) - 32*n); off > 5*math.Sqrt(64*n) { // each bit is in two of these
		t.Errorf("neighbours: %d of %d bits differ", neighbours, 64*n)
	}
}

// TestRoundInPieces: rounding and widening a range of elements gives the same bits in one call and
// in several, with any instruction set.
func TestRoundInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 3000
	from, want := make([]float32, n), make([]uint16, n)
	for i := range from {
		from[i] = math.Float32frombits(r.Uint32())
	}
	for i, special := range []uint32{0x7f800000, 0xff800000, 0x7f800001, 0xff80ffff, 0x7fffffff, 0xffffffff, 0x7f7fffff, 0, 0x80000000} {
		for at := 5 + 64*i; at < n; at += n / 4 { // in a register and, in some pieces, outside
			from[at] = math.Float32frombits(special)
		}
	}
	const first = 1<<32 - 1234 // counters are 64 bits
	d := drawsOf(5, 6, 7)
	for i, x := range from {
		e := uint64(first + i)
		want[i] = roundBy(x, uint32(d.four(e/4)>>(16*(e%4)))&0xffff)
	}
	for _, k := range available() {
		useKernels(t, k)
		for range 50 {
			got := make([]uint16, n)
			for at := 0; at < n; {
				m := min(n-at, 1+r.IntN(1+r.IntN(400)))
				d.round(got[at:at+m], from[at:at+m], uint64(first+at))
				wide := make([]float32, m)
				widenBF16(wide, got[at:at+m])
				for i, x := range wide {
					if math.Float32bits(x) != uint32(got[at+i])<<16 {
						t.Fatalf("%s: %04x is widened to %g", k.name, got[at+i], x)
					}
				}
				at += m
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: pieces give other bits", k.name)
			}
		}
	}
}

// TestBF16MasterIsTheFP32UpdateRounded: weights without lower halves, and their moments, are
// updated like fp32 weights of the same values. The new weights are then rounded with the random
// bits of step, layer and element.
func TestBF16MasterIsTheFP32UpdateRounded(t *testing.T) {
	const n = 8192
	adam := AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}
	lion := Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1}
	for _, o := range []Optimizer{adam, Quantised{adam, 8}, Quantised{adam, 4}, lion, Quantised{lion, 8}, SGD{WeightDecay: 0.1}, SGD{Momentum: 0.9, Nesterov: true}} {
		for _, k := range available() {
			useKernels(t, k)
			for _, gradBF16 := range []bool{false, true} {
				full, half := matrix(n, false), matrix(n, true)
				half.BF16Master, half.Index = true, 3
				w, states := held(&full, o.Planes)
				r, rstates := held(&half, o.Planes)
				r.Lo, r.Seed = nil, 11
				hi, plain := View[uint16](r.Tile), View[float32](w.Tile)
				for i, x := range gradOf(n, true, 9, mean).values() {
					hi[i] = bf16.Round(x)
				}
				for step := int64(1); step <= 3; step++ {
					for i, b := range hi[:n] {
						plain[i] = bf16.Widen(b)
					}
					g, rate := gradOf(n, gradBF16, uint64(step), mean), Rate{LR: 1e-3, Step: step, Clip: 0.5}
					update(o, rate, w, states, g)
					update(o, rate, r, rstates, g)
					want := make([]uint16, n)
					drawsOf(11, step, 3).round(want, plain[:n], 0)
					if !slices.Equal(hi[:n], want) {
						t.Fatalf("%T %v, %s, step %d: other weights", o, o, k.name, step)
					}
				}
				for i, s := range states {
					if !slices.Equal(s.Data, rstates[i].Data) {
						t.Errorf("%T %v, %s: other %s", o, o, k.name, s.Name)
					}
				}
			}
		}
	}
}

// TestSmallUpdatesAreNotLost: updates of a hundredth of the bf16 spacing, which rounding to nearest
// would lose, move weights on average as far as in fp32. Each rounding has a standard deviation of
// at most half a spacing, so the mean of n weights after s steps has at most half a spacing times
// √(s/n).
func TestSmallUpdatesAreNotLost(t *testing.T) {
	const n, steps, distance = 8192, 200, 1. / 128
	l := matrix(n, true)
	l.BF16Master = true
	w, states := held(&l, SGD{}.Planes)
	hi := View[uint16](w.Tile)
	for i := range hi[:n] {
		hi[i] = bf16.Round(1)
	}
	g := gradFrom(slices.Repeat([]float32{-1}, n), false)
	for s := range steps {
		update(SGD{}, Rate{LR: distance / 100, Step: int64(s + 1), Clip: 1}, w, states, g)
	}
	sum := 0.0
	for _, b := range hi[:n] {
		sum += float64(bf16.Widen(b))
	}
	want := 1 + steps*distance/100
	if off := math.Abs(sum/n - want); off > 5*distance/2*math.Sqrt(steps)/math.Sqrt(n) {
		t.Errorf("the mean weight is %g after %d steps, wanted %g", sum/n, steps, want)
	}
}
