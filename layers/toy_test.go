package layers

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"time"

	"mt/device"
	"mt/device/op"
	"mt/internal/accounts"
	"mt/internal/bfloat"
)

// toy is a device in the plainest Go: every operation runs at once, in float64,
// and rounds once, where it stores. It is strict: what it holds is NaN until it
// is written, ranges are checked, and tensors that may not overlap are an error.
type toy struct {
	base []uintptr
	data [][]byte
	used device.Usage
	// matmuls and attended count floating point operations of MatMul and of
	// Attention's forward.
	matmuls, attended int64
	recurred          int64 // those of recurrences' forward
	// up and down count bytes that streams copied to it and from it.
	up, down int64
}

func newToy() *toy { return &toy{} }

func (d *toy) Name() string               { return "toy" }
func (d *toy) Kind() string               { return "toy" }
func (d *toy) Unified() bool              { return false }
func (d *toy) Free(device.Mem)            {}
func (d *toy) FreeHost([]byte)            {}
func (d *toy) Register(...[]byte) error   { return nil }
func (d *toy) Unregister(...[]byte)       {}
func (d *toy) Usage() device.Usage        { return d.used }
func (d *toy) Close() error               { return nil }
func (d *toy) BindHost([]byte) device.Mem { panic("toy: not unified") }

func (d *toy) Reach(device.Device) (bool, error) { return false, nil }

func (d *toy) AllocHost(n int64) ([]byte, error)       { return make([]byte, n), nil }
func (d *toy) NewStream(string) (device.Stream, error) { return toyStream{d}, nil }
func (d *toy) NewEvent() (device.Event, error)         { return toyEvent{}, nil }
func (d *toy) Alloc(_ accounts.Purpose, n int64) (device.Mem, error) {
	next := uintptr(device.Align)
	if k := len(d.base); k > 0 {
		next = (d.base[k-1] + uintptr(len(d.data[k-1])) + 2*device.Align) / device.Align * device.Align
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xFF // NaN in fp32 and bf16
	}
	d.base, d.data = append(d.base, next), append(d.data, b)
	return device.Mem{Addr: next, Bytes: n}, nil
}

// bytes is the memory of m, which must lie inside one allocation.
func (d *toy) bytes(m device.Mem) []byte {
	k := sort.Search(len(d.base), func(i int) bool { return d.base[i] > m.Addr }) - 1
	if k < 0 || int64(m.Addr-d.base[k])+m.Bytes > int64(len(d.data[k])) {
		panic(fmt.Sprintf("toy: %d bytes at %#x are no memory of mine", m.Bytes, m.Addr))
	}
	return d.data[k][m.Addr-d.base[k]:][:m.Bytes]
}

// load reads the first n elements of t.
func (d *toy) load(t device.Tensor, n int) []float64 {
	b := d.bytes(t.Slice(0, int64(n)).Mem())
	out := make([]float64, n)
	for i := range out {
		switch t.DType {
		case device.BF16:
			out[i] = float64(bfloat.Widen(binary.LittleEndian.Uint16(b[2*i:])))
		case device.F32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case device.I32:
			out[i] = float64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return out
}

// loadInt reads the first n elements of an I32 tensor.
func (d *toy) loadInt(t device.Tensor, n int) []int {
	if t.DType != device.I32 {
		panic("toy: " + t.DType.String() + " where int32 belongs")
	}
	out := make([]int, n)
	for i, v := range d.load(t, n) {
		out[i] = int(v)
	}
	return out
}

// store writes element i of t.
func (d *toy) store(t device.Tensor, i int, v float64) {
	b := d.bytes(t.Slice(int64(i), 1).Mem())
	if t.DType == device.F32 {
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
		return
	}
	binary.LittleEndian.PutUint16(b, bfloat.Round(float32(v)))
}

func (d *toy) storeAll(t device.Tensor, v []float64) {
	for i := range v {
		d.store(t, i, v[i])
	}
}

// disjoint panics where an output overlaps another tensor.
func disjoint(op string, out device.Tensor, others ...device.Tensor) {
	for _, o := range others {
		if o.None() || out.None() {
			continue
		}
		a, b := out.Mem(), o.Mem()
		if a.Addr < b.Addr+uintptr(b.Bytes) && b.Addr < a.Addr+uintptr(a.Bytes) {
			panic("toy: " + op + " writes over what it reads")
		}
	}
}

// exact panics unless t has n elements.
func exact(op string, t device.Tensor, n int) {
	if t.Len != int64(n) {
		panic(fmt.Sprintf("toy: %s is given %d elements for %d", op, t.Len, n))
	}
}

// Do implements device.Device.
func (d *toy) Do(_ device.Stream, o device.Op) {
	if err := o.Check(); err != nil {
		panic(fmt.Sprintf("toy: %s: %v", o.Name(), err))
	}
	switch a := o.(type) {
	case *op.Activate:
		d.activate(a)
	case *op.ActivateBackward:
		d.activateBackward(a)
	case *op.AddBiasGrad:
		d.addBiasGrad(a)
	case *op.AddRows:
		d.addRows(a)
	case *op.AddNoise:
		d.addNoise(a)
	case *op.AddPositions:
		d.addPositions(a)
	case *op.AddPositionsBackward:
		d.addPositionsBackward(a)
	case *op.Attention:
		d.attention(a)
	case *op.AttentionBackward:
		d.attentionBackward(a)
	case *op.WeightedBiasGrad:
		d.weightedBiasGrad(a)
	case *op.Sinks:
		d.sinks(a)
	case *op.SinksGrad:
		d.sinksGrad(a)
	case *op.ShortConv:
		d.shortConv(a)
	case *op.ShortConvBackward:
		d.shortConvBackward(a)
	case *op.GatedDelta:
		d.gatedDelta(a)
	case *op.GatedDeltaBackward:
		d.gatedDeltaBackward(a)
	case *op.Convert:
		d.convert(a)
	case *op.CrossEntropy:
		d.crossEntropy(a)
	case *op.PreferenceWeights:
		d.preferenceWeights(a)
	case *op.CrossEntropyShard:
		d.crossEntropyShard(a)
	case *op.GLU:
		d.glu(a)
	case *op.GLUBackward:
		d.gluBackward(a)
	case *op.CopyColumns:
		d.copyColumns(a)
	case *op.CopyHeads:
		d.copyHeads(a)
	case *op.SumHeads:
		d.sumHeads(a)
	case *op.GatherRows:
		d.gatherRows(a)
	case *op.LayerNorm:
		d.layerNorm(a)
	case *op.LayerNormBackward:
		d.layerNormBackward(a)
	case *op.MatMul:
		d.matMul(a)
	case *op.RMSNorm:
		d.rmsNorm(a)
	case *op.RMSNormBackward:
		d.rmsNormBackward(a)
	case *op.RoPE:
		d.rope(a)
	case *op.Router:
		d.router(a)
	case *op.RouterBackward:
		d.routerBackward(a)
	case *op.Scale:
		d.scale(a)
	case *op.ScaleRows:
		d.scaleRows(a)
	case *op.ScaleRowsBackward:
		d.scaleRowsBackward(a)
	case *op.ScatterAddRows:
		d.scatterAddRows(a)
	case *op.SortByExpert:
		d.sortByExpert(a)
	default:
		panic("toy: no operation " + o.Name())
	}
}

type toyEvent struct{}

func (toyEvent) Elapsed(device.Event) time.Duration { return 0 }
func (toyEvent) Close()                             {}

type toyStream struct{ d *toy }

func (s toyStream) CopyH2D(dst device.Mem, src []byte) { s.d.up += int64(copy(s.d.bytes(dst), src)) }
func (s toyStream) CopyD2H(dst []byte, src device.Mem) { s.d.down += int64(copy(dst, s.d.bytes(src))) }
func (s toyStream) CopyD2D(dst, src device.Mem)        { copy(s.d.bytes(dst), s.d.bytes(src)) }
func (s toyStream) CopyPeer(device.Device, device.Mem, device.Mem) {
	panic("toy: it reaches no other device")
}
func (s toyStream) Zero(dst device.Mem)  { clear(s.d.bytes(dst)) }
func (s toyStream) Record(device.Event)  {}
func (s toyStream) Wait(device.Event)    {}
func (s toyStream) Notify(f func(error)) { f(nil) }
func (s toyStream) Sync() error          { return nil }
func (s toyStream) Err() error           { return nil }
func (s toyStream) Close() error         { return nil }
