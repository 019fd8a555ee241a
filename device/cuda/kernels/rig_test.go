package kernels_test

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestOp: the conformance cases pass on the kernels alone, without a driver; go test -run
// 'Op/RMSNorm' runs those of one operation. The work of the cases that tried accepts is counted and
// compared. Long tests also run the other cases.
func TestOp(t *testing.T) {
	want := tried()
	if testing.Short() {
		conformance.SomeOperations(t, newRig(), conformance.OneIn(0))
		return
	}
	dev := newRig()
	dev.steady = true
	conformance.SomeOperations(testkit.InRace{T: t, N: 4}, dev, want)
	t.Run("others", func(t *testing.T) {
		testkit.LongOnly(t)
		conformance.SomeOperations(testkit.InRace{T: t, N: 4}, newRig(), func(name string) bool { return !want(name) })
	})
	if only := flag.Lookup("test.run").Value.String(); !testkit.Race && !t.Failed() && !strings.Contains(only, "/") {
		dev.compareCounts(t)
	}
}

// tried accepts the cases that run by default: one in three of attention and one in two of the
// gated delta rule, which take most of the time, and all cases of other operations.
func tried() func(name string) bool {
	attention, delta := conformance.OneIn(3), conformance.OneIn(2)
	return func(name string) bool {
		switch {
		case strings.HasPrefix(name, "Attention"):
			return attention(name) || strings.HasSuffix(name, "dim 256,window 0") || strings.HasSuffix(name, "dim 512,window 0")
		case strings.HasPrefix(name, "GatedDelta"):
			return delta(name)
		}
		return true
	}
}

// TestEveryOperation: the conformance tests have cases for exactly the operations that have
// kernels.
func TestEveryOperation(t *testing.T) {
	if got, want := kernels.Operations.Names(), conformance.OperationNames(); !slices.Equal(got, want) {
		t.Errorf("there are kernels of %v, cases of %v", got, want)
	}
}

// rig is a device that executes every call at once, and runs kernels in the PTX interpreter.
type rig struct {
	device.Device
	mu         sync.Mutex
	buffers    map[uint64]*ptx.Buffer
	next       uint64
	kernels    map[kernels.Kernel]*ptx.Kernel
	modules    map[string]*ptx.Module // modules that replace the embedded ones
	counts     map[string]*ptx.Counts // by kernel, over all its launches
	sm90a      bool                   // attention uses kernels for sm_90a
	shared     int                    // bytes of shared memory that a block may have; 0: the least of all GPUs
	most       float64                // most FLOPs of a launch; 0: any number
	processors int                    // multiprocessors that launches may count on; 0: one
	blocks     int                    // blocks that take turns; 0: one after another on each thread
	period     int64                  // see ptx.Launch; 0: as on a GPU
	steady     bool                   // blocks that may wait for others run so that none waits, for reproducible counts
	slower     []kernels.Lacking      // reasons for slower kernels
}

func newRig() *rig {
	return &rig{buffers: map[uint64]*ptx.Buffer{}, next: 1, kernels: map[kernels.Kernel]*ptx.Kernel{}, modules: map[string]*ptx.Module{},
		counts: map[string]*ptx.Counts{}}
}

const rigShift = 36 // bits of an offset in a buffer

func (r *rig) Kind() string { return "cuda" }

func (r *rig) Do(s device.Stream, o device.Op) {
	on, bad := s.(*rigStream), o.Check()
	if bad == nil {
		var call op.Call[kernels.Launcher]
		if call, bad = kernels.Operations.Take(o); bad == nil {
			bad = call.Run(on)
		}
	}
	if bad != nil && on.err == nil {
		on.err = fmt.Errorf("%s: %w", o.Name(), bad)
	}
}

func (r *rig) Alloc(_ accounts.Purpose, size int64) (device.Mem, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &ptx.Buffer{Base: r.next << rigShift, Data: bytes.Repeat([]byte{0xff}, int(size)), Name: fmt.Sprintf("buffer %d", r.next)} // NaN
	r.buffers[r.next] = b
	r.next++
	return device.Mem{Addr: uintptr(b.Base), Bytes: size}, nil
}

func (r *rig) Free(m device.Mem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.buffers, uint64(m.Addr)>>rigShift)
}

// Find implements ptx.Memory: it returns the buffer that addr lies in.
func (r *rig) Find(addr uint64) *ptx.Buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buffers[addr>>rigShift]
}

func (r *rig) bytes(m device.Mem) []byte {
	if m.Bytes == 0 {
		return nil
	}
	off := int64(m.Addr) & (1<<rigShift - 1)
	return r.Find(uint64(m.Addr)).Data[off : off+m.Bytes]
}

func (r *rig) NewStream(string) (device.Stream, error) { return &rigStream{rig: r}, nil }

// kernel returns the parsed kernel k of the embedded PTX.
func (r *rig) kernel(k *kernels.Kernel) (*ptx.Kernel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.kernels[*k]; found != nil {
		return found, nil
	}
	m := r.modules[k.Module]
	if m == nil {
		var err error
		if m, err = module(k.Module); err != nil {
			return nil, err
		}
	}
	found := m.Kernel(k.Name)
	if found == nil {
		return nil, fmt.Errorf("module %s has no kernel %s", k.Module, k.Name)
	}
	r.kernels[*k] = found
	return found, nil
}

// parsed are the modules that this process has parsed, by name. They do not change.
var parsed sync.Map // name → *ptx.Module

// module returns a parsed module of the kernels, and parses each module once.
func module(name string) (*ptx.Module, error) {
	if m, ok := parsed.Load(name); ok {
		return m.(*ptx.Module), nil
	}
	src := kernels.PTX(name)
	if src == nil {
		return nil, fmt.Errorf("there is no module %s", name)
	}
	m, err := ptx.Parse(name+".ptx", string(src))
	if err == nil {
		parsed.Store(name, m)
	}
	return m, err
}

// rigStream implements device.Stream and kernels.Launcher on a rig.
type rigStream struct {
	device.Stream
	rig     *rig
	scratch device.Mem
	params  kernels.Params
	seed    uint64
	err     error
}

func (s *rigStream) CopyH2D(dst device.Mem, src []byte) { copy(s.rig.bytes(dst), src) }
func (s *rigStream) CopyD2H(dst []byte, src device.Mem) { copy(dst, s.rig.bytes(src)) }
func (s *rigStream) CopyD2D(dst, src device.Mem)        { copy(s.rig.bytes(dst), s.rig.bytes(src)) }
func (s *rigStream) Zero(dst device.Mem)                { clear(s.rig.bytes(dst)) }
func (s *rigStream) Sync() error                        { return s.err }
func (s *rigStream) Err() error                         { return s.err }
func (s *rigStream) Elapsed(device.Event) time.Duration { return 0 }
func (s *rigStream) Close() error {
	s.rig.Free(s.scratch)
	return s.err
}

func (s *rigStream) Params() *kernels.Params { return s.params.Reset() }

func (s *rigStream) Launch(k *kernels.Kernel, grid, block kernels.Dim3, shared int, params *kernels.Params) {
	if s.err != nil {
		return
	}
	found, err := s.rig.kernel(k)
	if err != nil {
		s.err = err
		return
	}
	if shared > k.Shared {
		s.err = fmt.Errorf("%s: %d bytes of shared memory where the kernel says at most %d", k.Name, shared, k.Shared)
		return
	}
	most, gpu := s.SharedBytes(), "that size"
	if strings.HasSuffix(k.Module, "_sm90a") {
		most, gpu = 227<<10, "sm_90"
	}
	if found.StaticShared+shared > most {
		s.err = fmt.Errorf("%s: %d bytes of shared memory and %d static ones, a GPU of %s gives a block %d", k.Name, shared, found.StaticShared, gpu, most)
		return
	}
	s.seed++
	l := ptx.Launch{Kernel: found, Grid: [3]uint32(dims(grid)), Block: [3]uint32(dims(block)), Shared: shared, Params: params.Bytes,
		Memory: s.rig, Seed: s.seed, Together: s.rig.blocks, Period: s.rig.period, CheckGlobal: true, Count: &ptx.Count{}}
	if s.rig.steady && strings.Contains(found.Name, "_gradients_") {
		l.Threads = 1
	}
	if _, err := l.Run(); err != nil {
		s.err = err
	}
	s.rig.counted(found.Name, &l.Count.Sum)
}

func (s *rigStream) SM90a() bool { return s.rig.sm90a }

func (s *rigStream) TensorMap(t device.Tensor, columns, rows, stride, boxRows int) kernels.TensorMap {
	m := &ptx.TensorMap{Address: uint64(t.Addr), Element: 2, Rank: 2, Swizzle: 128, Size: [5]uint64{uint64(columns), uint64(rows)},
		Stride: [5]uint64{2, uint64(stride) * 2}, Box: [5]uint32{kernels.BoxColumns, uint32(boxRows)}}
	if err := m.Check(); err != nil && s.err == nil {
		s.err = err
	}
	return m.Encode()
}

func (s *rigStream) Slower(what kernels.Lacking, _ int) { s.rig.slower = append(s.rig.slower, what) }

func (s *rigStream) SharedBytes() int { return max(s.rig.shared, 99<<10) }

func (s *rigStream) Processors() int { return max(s.rig.processors, 1) }

func (s *rigStream) MostWork(device.DType) float64 { return s.rig.most }

func dims(d kernels.Dim3) []uint32 { return []uint32{d.X, d.Y, d.Z} }

// Scratch returns fresh memory each time. So the test notices if a kernel reads scratch memory that
// no kernel has written.
func (s *rigStream) Scratch(n int64) device.Mem {
	if n > kernels.ScratchBytes {
		s.err = fmt.Errorf("%d bytes of scratch, at most %d", n, kernels.ScratchBytes)
	}
	s.rig.Free(s.scratch)
	s.scratch, _ = s.rig.Alloc(accounts.Workspace, n)
	return s.scratch
}

func on(s device.Stream) kernels.Launcher { return s.(*rigStream) }

// TestCoherentLoads: no kernel reads through the non-coherent cache (ld.global.nc), since outputs
// may overlap inputs.
func TestCoherentLoads(t *testing.T) {
	for _, module := range kernels.Modules() {
		if at := bytes.Index(kernels.PTX(module), []byte("ld.global.nc")); at >= 0 {
			t.Errorf("%s.ptx: ld.global.nc at byte %d", module, at)
		}
	}
}
