package kernels_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
)

// The largest relative error of one rounding to nearest, to fp32 and to bf16.
const (
	uF32  = 1.0 / (1 << 24)
	uBF16 = 1.0 / (1 << 8)
)

// summing bounds the error of a sum of n terms, relative to the largest sum. The roundings of
// partial sums add up like a random walk, so the error grows with √n. The 16 is an allowance for
// other roundings.
func summing(n int) float64 { return (16 + math.Sqrt(float64(n))) * uF32 }

// elements is one test case of any kernel other than matrix products and attention.
type elements struct {
	t       *testing.T
	dev     *rig
	s       *rigStream
	dt      device.DType
	at      int // offset in elements of tensors from a multiple of 16 bytes
	rng     *rand.Rand
	vectors []*vector
}

// vector is a tensor on the device, with its initial content v and its expected content want.
type vector struct {
	t       device.Tensor
	v, want []float64
	bound   float64 // of the computation's error, relative to the largest element
}

const around = 16 // elements before and after a tensor that nobody may write

// forms runs the case f in four forms: for fp32 and bf16, and with tensors that are and are not
// aligned to 16 bytes.
func forms(t *testing.T, dev *rig, name string, f func(e *elements)) {
	formsOf(t, dev, name, []device.DType{device.F32, device.BF16}, f)
}

// inFP32 runs the case f in fp32, with tensors that are and are not aligned to 16 bytes.
func inFP32(t *testing.T, dev *rig, name string, f func(e *elements)) {
	formsOf(t, dev, name, []device.DType{device.F32}, f)
}

func formsOf(t *testing.T, dev *rig, name string, types []device.DType, f func(e *elements)) {
	for _, dt := range types {
		for at, where := range []string{"aligned", "anywhere"} {
			t.Run(name+"/"+dt.String()+"/"+where, func(t *testing.T) {
				s, _ := dev.NewStream("")
				defer s.Close()
				e := &elements{t: t, dev: dev, s: s.(*rigStream), dt: dt, at: at, rng: rand.New(rand.NewPCG(7, 8))}
				f(e)
				e.check()
			})
		}
	}
}

// put makes a tensor of v, rounded to dt. Unless expect is called for it, the test fails if a
// kernel changes it.
func (e *elements) put(dt device.DType, v []float64) *vector {
	size, before := int(dt.Size()), around+e.at
	b, held := make([]byte, (len(v)+before+around)*size), make([]float64, len(v))
	for i := range b {
		b[i] = 0xa5
	}
	for i, x := range v {
		v, to := float32(x), b[(before+i)*size:]
		switch dt {
		case device.BF16:
			binary.LittleEndian.PutUint16(to, bf16.Round(v))
			v = bf16.Widen(bf16.Round(v))
		case device.F32:
			binary.LittleEndian.PutUint32(to, math.Float32bits(v))
		default:
			binary.LittleEndian.PutUint32(to, uint32(int32(x)))
		}
		held[i] = float64(v)
	}
	mem, _ := e.dev.Alloc(accounts.Workspace, int64(len(b)))
	e.t.Cleanup(func() { e.dev.Free(mem) })
	e.s.CopyH2D(mem, b)
	out := &vector{t: mem.Tensor(dt, int64(before*size), int64(len(v))), v: held}
	if dt == device.I32 {
		out.v = v
	}
	e.vectors = append(e.vectors, out)
	return out
}

func (e *elements) normal(dt device.DType, n int, scale float64) *vector {
	v := make([]float64, n)
	for i := range v {
		v[i] = scale * e.rng.NormFloat64()
	}
	return e.put(dt, v)
}

func (e *elements) act(n int) *vector { return e.normal(e.dt, n, 1) }
func (e *elements) f32(n int) *vector { return e.normal(device.F32, n, 1) }

func (e *elements) i32(v []int32) *vector {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = float64(x)
	}
	return e.put(device.I32, f)
}

func (v *vector) copy() []float64 { return append([]float64(nil), v.v...) }

// expect sets the expected content of v, and the bound of its error relative to the largest
// element. A NaN in want expects a NaN.
func (v *vector) expect(want []float64, bound float64) { v.want, v.bound = want, bound }

func (e *elements) check() {
	e.t.Helper()
	if err := e.s.Sync(); err != nil {
		e.t.Fatal(err)
	}
	for n, v := range e.vectors {
		want, largest := v.want, 0.0
		if want == nil {
			want = v.v
		}
		for _, w := range want {
			if !math.IsNaN(w) && !math.IsInf(w, 0) {
				largest = max(largest, math.Abs(w))
			}
		}
		for i := -around; i < len(want)+around; i++ {
			got, raw := e.get(v.t, i)
			if i < 0 || i >= len(want) {
				if raw != 0xa5a5a5a5 && raw != 0xa5a50000 {
					e.t.Fatalf("tensor %d: element %d of %d was written", n, i, len(want))
				}
				continue
			}
			allowed := v.bound * largest
			if v.t.DType == device.BF16 && v.want != nil {
				allowed += 1.01 * uBF16 * (math.Abs(want[i]) + allowed)
			}
			if got != want[i] && !(math.Abs(got-want[i]) <= allowed) && !(math.IsNaN(got) && math.IsNaN(want[i])) {
				e.t.Fatalf("tensor %d: element %d of %d is %v, want %v, allowed error %.3g", n, i, len(want), got, want[i], allowed)
			}
		}
	}
}

func (e *elements) get(t device.Tensor, i int) (value float64, raw uint32) {
	size := uintptr(t.DType.Size())
	b := e.dev.bytes(device.Mem{Addr: t.Addr + uintptr(i)*size, Bytes: int64(size)})
	if size == 2 {
		raw = uint32(binary.LittleEndian.Uint16(b)) << 16
	} else {
		raw = binary.LittleEndian.Uint32(b)
	}
	if t.DType == device.I32 {
		return float64(int32(raw)), raw
	}
	return float64(math.Float32frombits(raw)), raw
}
