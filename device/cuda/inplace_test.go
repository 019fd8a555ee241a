package cuda

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/op"
	"mt/internal/testkit"
)

// integrated opens an emulated integrated GPU that uses host memory in place. Host memory is pinned
// one page per call of the driver, so tests cross many borders.
func integrated(t *testing.T, e emu.Options) *dev {
	t.Helper()
	e.Integrated = true
	d, _ := newDevice(t, e, Options{PinPiece: page})
	testkit.NoError(t, d.InPlace(true))
	return d
}

// TestContractInPlace: a GPU that uses host memory in place passes the conformance tests of
// streams.
func TestContractInPlace(t *testing.T) {
	conformance.Streams(t, func(t *testing.T) device.Device {
		d := integrated(t, orders["random1"])
		d.usage.Limit = d.usage.Total + 64<<20
		return d
	}, hold)
}

// TestInPlace: memsets, copies, kernels and products accept pinned host memory as if it were device
// memory, also if it spans several registered pieces.
func TestInPlace(t *testing.T) {
	d := integrated(t, emu.Options{Mode: emu.Random})
	const n = 3 * page / 4 // fp32 in three pages
	src, dst := pages(3*page), pages(3*page)
	for i := range n {
		binary.LittleEndian.PutUint32(src[4*i:], math.Float32bits(float32(i%256)))
	}
	testkit.NoError(t, d.Register(src, dst))
	defer d.Unregister(src, dst)
	from, to, own := d.BindHost(src), d.BindHost(dst), alloc(t, d, 6*n)
	if from.Addr != address(src) || from.Bytes != 4*n || d.BindHost(nil) != (device.Mem{}) {
		t.Errorf("BindHost gives %v for %#x", from, address(src))
	}
	s := newStream(t, d, "s")
	s.CopyD2D(own.Slice(0, 4*n), from)
	s.Zero(to.Slice(100, 2*page)) // in three pieces
	s.CopyD2D(to.Slice(100, 2*page), own.Slice(100, 2*page))
	s.CopyD2D(to.Slice(0, 100), from.Slice(0, 100))
	s.CopyD2H(dst[100+2*page:], from.Slice(100+2*page, page-100))
	testkit.NoError(t, s.Sync())
	if !bytes.Equal(src, dst) {
		t.Error("other bytes came by copies")
	}
	// One kernel converts fp32 in host memory to bf16 in device memory, and another one converts it
	// back. A product then reads both fp32 arrays in host memory.
	half := own.Tensor(device.BF16, 4*n, n)
	s.Zero(to)
	op.Do(d, s, op.Convert{Dst: half, Src: from.Tensor(device.F32, 0, n), N: n})
	op.Do(d, s, op.Convert{Dst: to.Tensor(device.F32, 0, n), Src: half, N: n})
	op.Do(d, s, op.MatMul{M: 1, N: 1, K: n, TransB: true, A: from.Tensor(device.F32, 0, n), B: to.Tensor(device.F32, 0, n), D: own.Tensor(device.F32, 0, 1)})
	got := make([]byte, 4)
	s.CopyD2H(got, own.Slice(0, 4))
	testkit.NoError(t, s.Sync())
	if !bytes.Equal(src, dst) {
		t.Error("other numbers came by kernels")
	}
	want := 0.0
	for i := range n {
		want += float64(i%256) * float64(i%256)
	}
	if sum := float64(math.Float32frombits(binary.LittleEndian.Uint32(got))); math.Abs(sum-want) > 1e-4*want {
		t.Errorf("the product is %g, want %g", sum, want)
	}
}

// TestInPlaceRefused: if host memory cannot be used in place, the error says why and what the user
// can do.
func TestInPlaceRefused(t *testing.T) {
	other, _ := newDevice(t, emu.Options{Name: "GPU of the test"}, Options{})
	if err := other.InPlace(true); err == nil || !strings.Contains(err.Error(), "GPU of the test has memory of its own") || other.Unified() {
		t.Errorf("a GPU with memory of its own: %v", err)
	}
	d := integrated(t, emu.Options{RegisterLimit: page})
	host := pages(2 * page)
	if err := d.Register(host); err == nil || !strings.Contains(err.Error(), "ulimit -l") || !strings.Contains(err.Error(), "binding: copy") || len(d.spans) != 0 {
		t.Errorf("memory that cannot be pinned: %v, %d pieces are", err, len(d.spans))
	}
	if err := d.InPlace(false); err != nil || d.Unified() || !panics(func() { d.BindHost(host) }) {
		t.Errorf("it goes on using host memory in place: %v", err)
	}
	if err := d.Register(host); err != nil {
		t.Errorf("a device that copies: %v", err)
	}
	d.Unregister(host)
}
