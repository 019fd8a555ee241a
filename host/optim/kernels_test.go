package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

func TestChooseHonoursTheLimit(t *testing.T) {
	all := []*kernels{{name: "avx512vbmi"}, {name: "avx512"}, {name: "avx2"}, &generic}
	for limit, want := range map[string]string{"": "avx512vbmi", "avx512vbmi": "avx512vbmi", "avx512": "avx512", "avx2": "avx2", "generic": "generic", "other": "avx512vbmi"} {
		if got := choose(limit, all).name; got != want {
			t.Errorf("limit %q: %s, want %s", limit, got, want)
		}
	}
	if got := choose("avx512", all[2:]).name; got != "avx2" {
		t.Errorf("without avx512: %s", got)
	}
	arm := []*kernels{{name: "neon"}, &generic}
	for limit, want := range map[string]string{"": "neon", "neon": "neon", "generic": "generic"} {
		if got := choose(limit, arm).name; got != want {
			t.Errorf("on arm64, limit %q: %s, want %s", limit, got, want)
		}
	}
}

// TestUse: Use selects every instruction set that this machine has (Levels), and panics for any
// other.
func TestUse(t *testing.T) {
	first := Level()
	defer Use(first)
	for _, level := range Levels() {
		before := Level()
		if was := Use(level); was != before || Level() != level {
			t.Errorf("Use(%q) = %q, before was %q, now is %q", level, was, before, Level())
		}
	}
	mustPanic(t, func() { Use("abacus") })
}

// TestKernelsAgree: for every rule and instruction set, kernels give the bits of plain Go. It uses numbers of any
// magnitude, any number of elements, and both kinds of weights and of gradients. All NaNs count as equal.
func TestKernelsAgree(t *testing.T) {
	decay, half := float32(0.99), float32(0.5)
	factors := map[rule][]coefs{
		adamRule:     {AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}.arithmetic(Rate{LR: 0.1, Step: 3, Clip: 0.5}).still},
		lionRule:     {Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1}.arithmetic(Rate{LR: 0.1, Clip: 0.5}).decays},
		sgdRule:      {SGD{WeightDecay: 0.1}.arithmetic(Rate{LR: 0.1, Clip: 0.5}).decays},
		momentumRule: {SGD{Momentum: 0.9, WeightDecay: 0.1}.arithmetic(Rate{LR: 0.1, Clip: 0.5}).decays, SGD{Momentum: 0.9, Nesterov: true}.arithmetic(Rate{LR: 0.1, Clip: 0.5}).still},
		applyRule:    {{decay, half}},
		averageRule:  {*Average{Decay: 0.9}.factors(2), *Average{Decay: 0.25}.factors(2), *Average{Decay: 0.9}.factors(1)},
	}
	for _, k := range available() {
		for seed, n := range []int{1, 8, 15, 16, 17, 33, 64, 999} {
			for by, all := range factors {
				for _, c := range all {
					for kind := range gradKinds {
						if active.plain[by][kind] != nil {
							agree(t, fmt.Sprintf("%s, rule %d, %v, kind %d, %d elements", k.name, by, c, kind, n), n, uint64(seed), kind,
								func(k *kernels, x weightAt, m, v *float32, grad *byte) { k.move(by, x, m, v, kind, grad, n, &c) }, k)
						}
					}
				}
			}
			for _, o := range []Muon{{Momentum: 0.95, Nesterov: true}, {Momentum: 0.3, Nesterov: true}, {Momentum: 0.95}} {
				for kind := range gradZero {
					for to := range gradZero {
						c := o.MatricesAt(Rate{LR: 0.1, Clip: 0.5}).factors()
						agree(t, fmt.Sprintf("%s, %+v, kinds %d and %d, %d elements", k.name, o, kind, to, n), n, uint64(seed), kind,
							func(k *kernels, x weightAt, m, v *float32, grad *byte) {
								out := (*byte)(unsafe.Pointer(v))
								k.prepared(m, kind, grad, to, out, n, c)
							}, k)
					}
				}
			}
		}
	}
}

// agree runs f with the kernels k and with plain Go, on equal random weights, moments and
// gradients. The results must have the same bits.
func agree(t *testing.T, what string, n int, seed uint64, kind gradKind, f func(k *kernels, x weightAt, m, v *float32, grad *byte), k *kernels) {
	t.Helper()
	for _, split := range []bool{false, true} {
		var outs [2][][]float32
		for i, k := range []*kernels{&generic, k} {
			g := gradOf(int64(n), kind == gradBF16, seed, wild)
			r := rand.New(rand.NewPCG(seed, 3))
			w, m, v := make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range w {
				w[i], m[i], v[i] = wild(r), wild(r), float32(math.Abs(float64(wild(r))))
			}
			x := weightAt{w: &w[0]}
			hi, lo := make([]uint16, n), make([]uint16, n)
			if split {
				SplitRow(hi, lo, w)
				x = weightAt{hi: &hi[0], lo: &lo[0]}
			}
			f(k, x, &m[0], &v[0], g.at(0))
			if split {
				JoinRow(w, hi, lo)
			}
			outs[i] = [][]float32{w, m, v}
		}
		for j, want := range outs[0] {
			for i, x := range want {
				got := outs[1][j][i]
				if math.Float32bits(got) != math.Float32bits(x) && (got == got || x == x) {
					t.Fatalf("%s, split %t: element %d of %s is %v (%#x), want %v (%#x)", what, split, i, []string{"weights", "m", "v"}[j], got, math.Float32bits(got), x, math.Float32bits(x))
				}
			}
		}
	}
}
