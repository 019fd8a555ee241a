package emu_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"mt/cudart"
	"mt/cudart/emu"
)

// tinyPTX is a module of three kernels. store writes each thread's number plus one to p[i+tid].
// late exchanges values through shared memory without the barrier that it needs. fresh reads shared
// memory that no thread has written. late and fresh write the values that they read to p.
const tinyPTX = `
.version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 p, .param .u32 i)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [i];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r2, %tid.x;
	add.s32 %r3, %r1, %r2;
	mul.wide.s32 %rd3, %r3, 4;
	add.s64 %rd4, %rd2, %rd3;
	add.s32 %r4, %r2, 1;
	st.global.u32 [%rd4], %r4;
	ret;
}
.visible .entry late(.param .u64 p)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<5>;
	.shared .align 4 .b8 s[512];
	mov.u32 %r1, s;
	mov.u32 %r2, %tid.x;
	shl.b32 %r3, %r2, 2;
	add.s32 %r4, %r1, %r3;
	st.shared.u32 [%r4], %r2;
	xor.b32 %r5, %r3, 256;
	add.s32 %r6, %r1, %r5;
	ld.shared.u32 %r7, [%r6];
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.u32 [%rd4], %r7;
	ret;
}
.visible .entry fresh(.param .u64 p)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<5>;
	.shared .align 4 .b8 s[512];
	mov.u32 %r1, s;
	mov.u32 %r2, %tid.x;
	shl.b32 %r3, %r2, 2;
	add.s32 %r4, %r1, %r3;
	ld.shared.u32 %r7, [%r4];
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.u32 [%rd4], %r7;
	ret;
}
`

// call calls a C function. Memory behind args must be on the heap.
func call(f uintptr, args ...uintptr) int {
	r, _, _ := purego.SyscallN(f, args...)
	return int(int32(r))
}

func ptr[T any](p *T) uintptr {
	pointed = p
	return uintptr(unsafe.Pointer(p))
}

var pointed any // a stored value escapes to the heap

// kernelRig is an emulated driver with tinyPTX loaded, a stream, and memory for 100 words.
type kernelRig struct {
	*rig
	m cudart.Module
	s cudart.Stream
	p cudart.DevicePtr
}

func openKernels(t *testing.T, o emu.Options) *kernelRig {
	r := &kernelRig{rig: open(t, o)}
	var err error
	r.ctx, err = r.PrimaryContext(0)
	r.must(err)
	r.m, err = r.ModuleLoad(r.ctx, []byte(tinyPTX))
	r.must(err)
	r.s, r.p = r.stream(), r.malloc(512)
	return r
}

func (r *kernelRig) release() {
	r.must(errors.Join(r.Free(r.p), r.StreamDestroy(r.s), r.ModuleUnload(r.ctx, r.m), r.ReleasePrimaryContext(0)))
	r.close()
}

func (r *kernelRig) launch(name string, threads uint32, shared uint32, s cudart.Stream, params []byte) error {
	f, err := r.ModuleFunction(r.ctx, r.m, name)
	r.must(err)
	return r.LaunchKernel(r.ctx, f, [3]uint32{1, 1, 1}, [3]uint32{threads, 1, 1}, shared, s, params)
}

func (r *kernelRig) params(i uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(r.p)), i)
}

func TestKernelRuns(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := openKernels(t, o)
		out := r.host(512)
		r.must(r.MemsetAsync(r.p, 0, 512, r.s))
		r.must(r.launch("store", 64, 0, r.s, r.params(10)))
		r.d2h(out, r.p, r.s)
		r.sync(r.s)
		for i := range uint32(128) {
			want := uint32(0)
			if i >= 10 && i < 74 {
				want = i - 9
			}
			if got := binary.LittleEndian.Uint32(out[4*i:]); got != want {
				t.Errorf("word %d is %d, want %d", i, got, want)
			}
		}
		r.must(r.FreeHost(out))
		r.release()
	})
}

// TestKernelParametersByPointers: a kernel gets the right parameters if they are passed as an array
// of pointers.
func TestKernelParametersByPointers(t *testing.T) {
	r := openKernels(t, emu.Options{})
	f, err := r.ModuleFunction(r.ctx, r.m, "store")
	r.must(err)
	values := &[2]uint64{uint64(r.p), 3}
	each := &[2]uintptr{ptr(&values[0]), ptr(&values[1])}
	if code := call(r.d.Symbol(cudart.Driver, "cuLaunchKernel"), uintptr(f), 1, 1, 1, 1, 1, 1, 0, uintptr(r.s), ptr(&each[0]), 0); code != 0 {
		t.Fatalf("code %d", code)
	}
	out := pageable(4)
	r.d2h(out, r.p+12, r.s)
	if out[0] != 1 {
		t.Errorf("wrote %v", out)
	}
	r.release()
}

func TestKernelFaults(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		i            uint32
		says         []string
	}{
		{"out of bounds", "store", 120, []string{"store", "block 0,0,0, thread", "of device memory #1 (512 bytes)"}},
		{"missing barrier", "late", 0, []string{"late", "shared"}},
		{"uninitialised shared memory", "fresh", 0, []string{"fresh", "shared"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openKernels(t, emu.Options{})
			params := r.params(c.i)
			if c.kernel != "store" {
				params = params[:8]
			}
			r.must(r.launch(c.kernel, 128, 0, r.s, params))
			if err := r.StreamSynchronize(r.s); !errors.Is(err, cudart.ErrContextLost) {
				t.Errorf("synchronising gives %v", err)
			}
			r.expect(emu.Kernel, c.says...)
		})
	}
}

// TestOrderOfKernels: a kernel that writes memory is checked against unordered accesses of other
// streams. The driver knows a kernel's accesses only after it has run, so the check comes then.
func TestOrderOfKernels(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		r := openKernels(t, o)
		s2 := r.stream()
		r.must(r.launch("store", 32, 0, r.s, r.params(0)))
		r.must(r.launch("store", 32, 0, s2, r.params(31)))
		r.sync(r.s)
		r.sync(s2)
		r.expect(emu.Order, "kernel store on stream #1", "kernel store on stream #2", "bytes 124 to 128 of device memory #1")
	})
}

func TestLaunchesThatAreRefused(t *testing.T) {
	r := openKernels(t, emu.Options{})
	for _, c := range []struct {
		name            string
		threads, shared uint32
		params          []byte
	}{
		{"too many threads", 1025, 0, r.params(0)},
		{"no threads", 0, 0, r.params(0)},
		{"much shared memory", 1, 48<<10 + 1, r.params(0)},
		{"parameters too short", 1, 0, r.params(0)[:8]},
	} {
		if err := r.launch("store", c.threads, c.shared, r.s, c.params); !errors.Is(err, cudart.ErrInvalidValue) {
			t.Errorf("%s: got %v, want invalid value", c.name, err)
		}
	}
	f, err := r.ModuleFunction(r.ctx, r.m, "store")
	r.must(err)
	r.must(r.FuncSetMaxDynamicShared(r.ctx, f, 99<<10))
	if err := r.FuncSetMaxDynamicShared(r.ctx, f, 228<<10); err == nil {
		t.Error("more shared memory than there is was allowed")
	}
	r.must(r.MemsetAsync(r.p, 0, 512, r.s))
	r.must(r.launch("store", 1, 99<<10, r.s, r.params(0)))
	r.sync(r.s)
	if _, err := r.ModuleFunction(r.ctx, r.m, "none"); !errors.Is(err, cudart.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	if n := len(r.d.Faults()); n != 4 {
		t.Errorf("%d faults, want one for each refused launch", n)
	}
}

// TestLimitsOfGridsAndBlocks: a launch that exceeds any limit of grids or blocks by one is
// rejected.
func TestLimitsOfGridsAndBlocks(t *testing.T) {
	one := [3]uint32{1, 1, 1}
	for _, c := range []struct {
		name        string
		grid, block [3]uint32
	}{
		{"columns of blocks", [3]uint32{1 << 31, 1, 1}, one},
		{"rows of blocks", [3]uint32{1, 65536, 1}, one},
		{"layers of blocks", [3]uint32{1, 1, 65536}, one},
		{"no column of blocks", [3]uint32{0, 1, 1}, one},
		{"no row of blocks", [3]uint32{1, 0, 1}, one},
		{"no layer of blocks", [3]uint32{1, 1, 0}, one},
		{"layers of threads", one, [3]uint32{1, 1, 65}},
		{"threads in all", one, [3]uint32{32, 33, 1}},
		{"no layer of threads", one, [3]uint32{1, 1, 0}},
	} {
		r := openKernels(t, emu.Options{})
		f, err := r.ModuleFunction(r.ctx, r.m, "store")
		r.must(err)
		if err := r.LaunchKernel(r.ctx, f, c.grid, c.block, 0, r.s, r.params(0)); !errors.Is(err, cudart.ErrInvalidValue) {
			t.Errorf("%s: got %v, want invalid value", c.name, err)
		}
	}
	r := openKernels(t, emu.Options{})
	f, err := r.ModuleFunction(r.ctx, r.m, "store")
	r.must(err)
	r.must(r.MemsetAsync(r.p, 0, 512, r.s))
	r.must(r.LaunchKernel(r.ctx, f, one, [3]uint32{1, 16, 64}, 0, r.s, r.params(0)))
	r.sync(r.s)
}

func TestModulesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  emu.Options
		ptx  string
		code int
		says string
	}{
		{"newer PTX", emu.Options{DriverVersion: 11080}, tinyPTX, 222, ".version 8.0"},
		{"newer GPU", emu.Options{ComputeCapability: 75}, tinyPTX, 218, "sm_80"},
		{"other architecture", emu.Options{ComputeCapability: 100}, strings.Replace(tinyPTX, "sm_80", "sm_90a", 1), 218, "sm_90a"},
		{"not PTX", emu.Options{}, "hello", 218, ".version"},
		{"wrong instruction", emu.Options{}, strings.Replace(tinyPTX, "xor.b32", "frob.b32", 1), 218, "frob"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, c.opt)
			ctx, err := r.PrimaryContext(0)
			r.must(err)
			_, err = r.ModuleLoad(ctx, []byte(c.ptx))
			var e *cudart.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Detail, c.says) {
				t.Errorf("got %v, want code %d and a log that says %q", err, c.code, c.says)
			}
			r.must(r.ReleasePrimaryContext(0))
			r.close()
		})
	}
}
