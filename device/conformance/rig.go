package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/op"
)

// Results maps case names to the results of a device.
type Results map[string]Result

// Result is the result of one case.
type Result struct {
	// Hash is a hash of the bits of all outputs. Devices that promise the same bits have equal hashes.
	Hash uint64
	// Worst is the largest error as a share of the allowed error.
	Worst float64
}

// Reporter receives the failures of a case, as *testing.T does.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	// Fatal ends the case.
	Fatal(args ...any)
}

// OperationsT is the test argument of Operations: it runs every case as a subtest by name, as
// *testing.T does.
type OperationsT[Self any] interface {
	Reporter
	Run(name string, f func(Self)) bool
}

// Enqueuer is a Reporter (such as a benchmark) that enqueues a case's operation itself, in order to
// measure it. Enqueue gets a stream, and a function that enqueues the operation on this stream
// once. Enqueue may call the function any number of times, so the operation's results are not
// compared.
type Enqueuer interface {
	Enqueue(s device.Stream, once func())
}

// Operations tests all operations of dev and returns their results.
func Operations[Self OperationsT[Self]](t Self, dev device.Device) Results {
	t.Helper()
	return SomeOperations(t, dev, func(string) bool { return true })
}

// SomeOperations tests the cases that want accepts and returns their results. A case's name is OPERATION/TYPE/CASE. If
// want accepts none, dev may be nil.
func SomeOperations[Self OperationsT[Self]](t Self, dev device.Device, want func(name string) bool) Results {
	t.Helper()
	out := Results{}
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, name := range OperationNames() {
			table[name](func(of string, f func(*rig)) {
				if of = fmt.Sprintf("%s/%s/%s", name, dt, of); want(of) {
					t.Run(of, func(t Self) { out[of] = runCase(t, dev, name, dt, f) })
				}
			})
		}
	}
	return out
}

// OneIn returns a function for the argument want of SomeOperations. It accepts every n-th case of
// each operation and type, beginning with the first; n = 0: only the first.
func OneIn(n int) func(name string) bool {
	picked := map[string]bool{}
	for _, op := range OperationNames() {
		i := 0
		table[op](func(of string, _ func(*rig)) {
			picked[op+"/"+of] = i == 0 || n > 0 && i%n == 0
			i++
		})
	}
	return func(name string) bool {
		op, rest, _ := strings.Cut(name, "/")
		_, of, _ := strings.Cut(rest, "/")
		return picked[op+"/"+of]
	}
}

// computed caches the results of the function once, by key. A value is a function that computes the
// result at the first call.
var computed sync.Map

// once returns the result of f, which it calls once per process and key. Cases have the same inputs
// on every device, so they share expected values. The caller must not change the result.
func once[V any](key string, f func() V) V {
	of, _ := computed.LoadOrStore(key, sync.OnceValue(f))
	return of.(func() V)()
}

// table has the cases of every operation by name. Each operation's file adds its own.
var table = map[string]cases{}

// cases is a function with the test cases of one operation. It calls add for each case, with the case's name and the
// function that tests it.
type cases func(add func(name string, f func(*rig)))

// row adds an operation, named op, with its test cases to the table of all operations.
func row(op string, c cases) {
	if table[op] != nil {
		panic("conformance: two rows for " + op)
	}
	table[op] = c
}

// OperationNames returns the names of the table's operations, sorted.
func OperationNames() []string { return slices.Sorted(maps.Keys(table)) }

// uF32 and uBF16 are the largest relative errors of rounding a number to fp32 and to bf16.
const (
	uF32  = 1.0 / (1 << 24)
	uBF16 = 1.0 / (1 << 8)
)

// rig is one test case in progress: its operation, device, arrays and source of random numbers.
type rig struct {
	op     string
	done   int // how many times the operation has been enqueued
	t      Reporter
	dev    device.Device
	s      device.Stream
	dt     device.DType // compute type
	rng    *rand.Rand
	arrays []*array
}

// array is a tensor on the device and its expected content.
type array struct {
	name  string
	mem   device.Mem
	t     device.Tensor
	bits  []byte    // the uploaded bytes, with sentinels
	v     []float64 // the same elements as numbers
	want  []float64 // expected content afterwards; nil: the same bits
	bound float64   // allowed error, relative to the largest element of want
	least float64   // lower limit of the largest element
	any   bool      // any content is allowed afterwards
}

// enqueue enqueues the operation of the case on the case's stream.
func enqueue[O any, P interface {
	*O
	device.Op
}](r *rig, o O) {
	r.t.Helper()
	if name := P(&o).Name(); name != r.op {
		r.t.Errorf("a case of %s enqueues %s", r.op, name)
	}
	r.done++
	if t, ok := r.t.(Enqueuer); ok {
		t.Enqueue(r.s, func() { op.Do[O, P](r.dev, r.s, o) })
		return
	}
	op.Do[O, P](r.dev, r.s, o)
}

func runCase(t Reporter, dev device.Device, of string, dt device.DType, f func(*rig)) Result {
	s, err := dev.NewStream("test")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &rig{op: of, t: t, dev: dev, s: s, dt: dt, rng: rand.New(rand.NewPCG(11, 12))}
	defer r.free()
	if f(r); r.done == 0 {
		t.Errorf("the case enqueues no %s", of)
	}
	return r.check()
}

func (r *rig) free() {
	for _, a := range r.arrays {
		r.dev.Free(a.mem)
	}
}

// guard is the number of bytes that follow every array and that no operation may write. They are compared after the
// operation.
const guard = 256

// upload makes an array of n elements of type dt on the device. put writes element i to b, as the device stores it.
func (r *rig) upload(name string, dt device.DType, n int, put func(i int, b []byte)) *array {
	r.t.Helper()
	size := int(dt.Size())
	a := &array{name: name, bits: bytes.Repeat([]byte{0xa5}, n*size+guard)}
	for i := range n {
		put(i, a.bits[i*size:])
	}
	mem, err := r.dev.Alloc(accounts.Workspace, int64(len(a.bits)))
	if err != nil {
		r.t.Fatal(err)
	}
	a.mem, a.t = mem, mem.Tensor(dt, 0, int64(n))
	a.v = numbers(a.bits, dt, n)
	r.s.CopyH2D(mem, a.bits)
	r.arrays = append(r.arrays, a)
	return a
}

// values makes an array of the numbers v, rounded to dt.
func (r *rig) values(name string, dt device.DType, v []float64) *array {
	return r.upload(name, dt, len(v), func(i int, b []byte) {
		if dt == device.BF16 {
			binary.NativeEndian.PutUint16(b, bf16.Round(float32(v[i])))
		} else {
			binary.NativeEndian.PutUint32(b, math.Float32bits(float32(v[i])))
		}
	})
}

// distinct returns n different random numbers from 0 to limit−1, in random order.
func (r *rig) distinct(n, limit int) []int32 {
	v := make([]int32, n)
	for i, p := range r.rng.Perm(limit)[:n] {
		v[i] = int32(p)
	}
	return v
}

func scaled(v []float64, k float64) []float64 {
	for i := range v {
		v[i] *= k
	}
	return v
}

func floats(v []int32) []float64 {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = float64(x)
	}
	return f
}

func (r *rig) normal(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = r.rng.NormFloat64()
	}
	return v
}

// act and f32 make arrays of n random numbers on the device: act in the compute type of the case, f32 in fp32.
func (r *rig) act(name string, n int) *array { return r.values(name, r.dt, r.normal(n)) }
func (r *rig) f32(name string, n int) *array { return r.values(name, device.F32, r.normal(n)) }

func (r *rig) i32(name string, v []int32) *array {
	return r.upload(name, device.I32, len(v), func(i int, b []byte) { binary.NativeEndian.PutUint32(b, uint32(v[i])) })
}

// numbers converts n elements of type dt from bits, as the device stores them, to float64.
func numbers(bits []byte, dt device.DType, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		switch dt {
		case device.BF16:
			v[i] = float64(bf16.Widen(binary.NativeEndian.Uint16(bits[2*i:])))
		case device.F32:
			v[i] = float64(math.Float32frombits(binary.NativeEndian.Uint32(bits[4*i:])))
		default:
			v[i] = float64(int32(binary.NativeEndian.Uint32(bits[4*i:])))
		}
	}
	return v
}

// copy returns a copy of the array's elements, which the oracle, the float64 reference, may overwrite.
func (a *array) copy() []float64 { return append([]float64(nil), a.v...) }

// expect sets the expected content of a to want. computing is the allowed error of the fp32
// computation, relative to the largest element of want. In bf16, results or intermediate values may
// also be rounded to bf16; roundings is how often.
func (a *array) expect(want []float64, computing float64, roundings int) {
	a.want, a.bound = want, computing
	if a.t.DType == device.BF16 {
		a.bound += float64(roundings) * 1.01 * uBF16
	}
}

// check waits for the enqueued operation and compares every array with its expected content.
func (r *rig) check() Result {
	r.t.Helper()
	got := make([][]byte, len(r.arrays))
	for i, a := range r.arrays {
		got[i] = make([]byte, len(a.bits))
		r.s.CopyD2H(got[i], a.mem)
	}
	if err := r.s.Sync(); err != nil {
		r.t.Fatal(err)
	}
	h, worst := fnv.New64a(), 0.0
	for i, a := range r.arrays {
		n := len(a.bits) - guard
		if !bytes.Equal(got[i][n:], a.bits[n:]) {
			r.t.Errorf("%s: the bytes behind it were written", a.name)
		}
		if a.any {
			continue
		}
		if a.want == nil {
			if !bytes.Equal(got[i][:n], a.bits[:n]) {
				r.t.Errorf("%s was written", a.name)
			}
			continue
		}
		h.Write(got[i][:n])
		worst = max(worst, a.compare(r.t, numbers(got[i], a.t.DType, len(a.v))))
	}
	return Result{h.Sum64(), worst}
}

// compare returns the largest error among the elements of got, as a share of the allowed error. It reports elements
// whose error is not allowed to t.
func (a *array) compare(t Reporter, got []float64) float64 {
	t.Helper()
	size, worst := a.least, 0.0
	at := -1
	for i, w := range a.want {
		size = max(size, math.Abs(w))
		if e := math.Abs(got[i] - w); e > worst || e != e {
			worst, at = e, i
		}
	}
	if at >= 0 && !(worst <= a.bound*size) {
		t.Errorf("%s[%d] is %v, want %v: error %.3g of the largest element %.3g, allowed %.3g",
			a.name, at, got[at], a.want[at], worst/size, size, a.bound)
	}
	if worst == 0 {
		return 0
	}
	return worst / (a.bound * size)
}

// summing bounds the error of a sum of n products, relative to the largest of many such sums. The n roundings of
// partial sums of size √n add up like a random walk, to n·u, and the largest sum is about √n. The 8 allows for the
// products' roundings and for unlikely sums.
func summing(n int) float64 { return (8 + math.Sqrt(float64(n))) * uF32 }
