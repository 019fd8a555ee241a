package optim

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
)

// useKernels makes updates use the kernels k, those of one instruction set, until the test ends.
func useKernels(t *testing.T, k *kernels) {
	t.Helper()
	before := active
	active = k
	t.Cleanup(func() { active = before })
}

// poolOf returns a thread pool that is closed when the test ends.
func poolOf(t *testing.T, threads int) *parallel.Pool {
	t.Helper()
	p := parallel.New(threads)
	t.Cleanup(p.Close)
	return p
}

// wild returns a random number of any magnitude: usual ones, zeros, subnormal and huge ones.
func wild(r *rand.Rand) float32 {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.Float32frombits(r.Uint32() & 0x807fffff) // denormal
	case 2:
		return math.Float32frombits(r.Uint32()&0x80ffffff | 0x7e000000) // huge
	case 3:
		return math.Float32frombits(r.Uint32()&0x80ffffff | 0x00800000) // barely normal
	}
	return float32(r.NormFloat64())
}

// mean returns a random number of the magnitude of weights and gradients.
func mean(r *rand.Rand) float32 { return float32(r.NormFloat64()) }

// gradOf returns a gradient of n random elements, which the function number draws.
func gradOf(n int64, bf16 bool, seed uint64, number func(*rand.Rand) float32) Grad {
	r := rand.New(rand.NewPCG(seed, 2))
	values := make([]float32, n)
	for i := range values {
		values[i] = number(r)
	}
	return gradFrom(values, bf16)
}

// gradFrom returns a gradient with these values. rounded: its elements are bf16, to which the
// values are rounded.
func gradFrom(values []float32, rounded bool) Grad {
	g := Grad{BF16: rounded, Elems: int64(len(values))}
	words := make([]float32, len(values)) // for the alignment
	g.Data = bytesOf(words)
	if rounded {
		g.Data = g.Data[:2*g.Elems]
	}
	for i, x := range values {
		if rounded {
			View[uint16](g.Data)[i] = bf16.Round(x)
		} else {
			View[float32](g.Data)[i] = x
		}
	}
	return g
}

// values returns the elements of g as fp32.
func (g Grad) values() []float32 {
	out := make([]float32, g.Elems)
	for i := range out {
		if g.BF16 {
			out[i] = bf16.Widen(View[uint16](g.Data)[i])
		} else {
			out[i] = View[float32](g.Data)[i]
		}
	}
	return out
}

// bytesOf views the memory of x as bytes.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}
