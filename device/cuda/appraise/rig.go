package appraise

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// rig is an emulated GPU for one operation. It implements ptx.Memory, the memory of the emulator's
// kernels. It also implements kernels.Launcher, but only records launches; a sample runs some of
// their blocks later.
type rig struct {
	buffers  []*ptx.Buffer
	zeros    bool // random leaves tensors zero, which saves time if launches do not run
	params   kernels.Params
	rng      *rand.Rand
	launches []launch
	sm90a    bool // attention uses kernels for sm_90a
	shared   int  // shared memory that a block may have, in bytes
	sms      int  // multiprocessors
	err      error
}

// launch is a recorded kernel launch, with all that the emulator needs to run it.
type launch struct {
	kernel      *ptx.Kernel
	grid, block [3]uint32
	shared      int
	params      []byte
	marks       int // offset in params of the address of the ticket counter and marks; 0: blocks do not wait for each other
}

func newRig() *rig {
	return &rig{rng: rand.New(rand.NewPCG(5, 6))}
}

// shift splits an emulated address: the bits from here on are the number of the buffer, and the
// lower bits are the offset in the buffer.
const shift = 36

// Find implements ptx.Memory: it returns the buffer that addr lies in.
func (r *rig) Find(addr uint64) *ptx.Buffer {
	if i := int(addr>>shift) - 1; i >= 0 && i < len(r.buffers) {
		return r.buffers[i]
	}
	return nil
}

// alloc returns a new buffer of the given size, zeroed.
func (r *rig) alloc(bytes int64) device.Mem {
	n := uint64(len(r.buffers) + 1)
	b := &ptx.Buffer{Base: n << shift, Data: make([]byte, bytes), Name: fmt.Sprintf("buffer %d", n)}
	r.buffers = append(r.buffers, b)
	return device.Mem{Addr: uintptr(b.Base), Bytes: bytes}
}

// random returns a tensor of n random numbers around zero. To save time the numbers repeat every 256 KiB, which changes
// no kernel's speed.
func (r *rig) random(dt device.DType, n int) device.Tensor {
	m := r.alloc(int64(n) * dt.Size())
	if r.zeros {
		return m.Tensor(dt, 0, int64(n))
	}
	data := r.buffers[len(r.buffers)-1].Data
	const period = 1 << 16
	for i := range min(period, len(data)/4) {
		x := math.Float32bits(float32(r.rng.NormFloat64()))
		if dt == device.BF16 {
			x = x&0xffff0000 | math.Float32bits(float32(r.rng.NormFloat64()))>>16
		}
		binary.LittleEndian.PutUint32(data[4*i:], x)
	}
	for at := 4 * period; at < len(data); at += copy(data[at:], data[:at]) {
	}
	return m.Tensor(dt, 0, int64(n))
}

// integers returns an int32 tensor of n numbers; the i-th is at(i).
func (r *rig) integers(n int, at func(i int) int) device.Tensor {
	m := r.alloc(int64(n) * 4)
	data := r.buffers[len(r.buffers)-1].Data
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(int32(at(i))))
	}
	return m.Tensor(device.I32, 0, int64(n))
}

// take records the launches of the operation o in the rig. It runs no kernel.
func (r *rig) take(o device.Op) error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("%s: %w", o.Name(), err)
	}
	var call op.Call[kernels.Launcher]
	call, err := kernels.Operations.Take(o)
	if err == nil {
		err = call.Run(r)
	}
	if err == nil {
		err = r.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name(), err)
	}
	return nil
}

// parsed has the modules that this process has parsed, by name. They do not change.
var parsed sync.Map // name → *ptx.Module

// module returns a parsed module of the kernels, and parses each module once.
func module(name string) (*ptx.Module, error) {
	if m, ok := parsed.Load(name); ok {
		return m.(*ptx.Module), nil
	}
	m, err := ptx.Parse(name+".ptx", string(kernels.PTX(name)))
	if err == nil {
		parsed.Store(name, m)
	}
	return m, err
}

// Params implements kernels.Launcher: it returns the emptied buffer for a launch's parameters.
func (r *rig) Params() *kernels.Params { return r.params.Reset() }

// Launch implements kernels.Launcher: it records the launch.
func (r *rig) Launch(k *kernels.Kernel, grid, block kernels.Dim3, shared int, params *kernels.Params) {
	m, err := module(k.Module)
	if err != nil {
		r.err = err
		return
	}
	found := m.Kernel(k.Name)
	if found == nil {
		r.err = fmt.Errorf("module %s has no kernel %s", k.Module, k.Name)
		return
	}
	r.launches = append(r.launches, launch{found, [3]uint32{grid.X, grid.Y, grid.Z}, [3]uint32{block.X, block.Y, block.Z}, shared,
		append([]byte(nil), params.Bytes...), 0})
}

// SM90a implements kernels.Launcher: it reports whether the GPU runs kernels for sm_90a.
func (r *rig) SM90a() bool { return r.sm90a }

// SharedBytes implements kernels.Launcher: it returns the shared memory that a block may have, in
// bytes.
func (r *rig) SharedBytes() int { return r.shared }

// TensorMap implements kernels.Launcher: it describes the bf16 rows of t for bulk copies, as
// cuTensorMapEncodeTiled does.
func (r *rig) TensorMap(t device.Tensor, columns, rows, stride, boxRows int) kernels.TensorMap {
	size := device.BF16.Size()
	m := &ptx.TensorMap{Address: uint64(t.Addr), Element: int(size), Rank: 2, Swizzle: 128, Size: [5]uint64{uint64(columns), uint64(rows)},
		Stride: [5]uint64{uint64(size), uint64(stride) * uint64(size)}, Box: [5]uint32{kernels.BoxColumns, uint32(boxRows)}}
	if err := m.Check(); err != nil && r.err == nil {
		r.err = err
	}
	return m.Encode()
}

// Slower implements kernels.Launcher. Launchers call it to report that attention runs on a slower kernel. The rig
// reports nothing, because its output already names the kernel of every launch.
func (r *rig) Slower(kernels.Lacking, int) {}

// Processors implements kernels.Launcher: it returns the number of multiprocessors.
func (r *rig) Processors() int { return r.sms }

// MostWork implements kernels.Launcher. It returns 0, no limit, because no watchdog ends launches here.
func (r *rig) MostWork(device.DType) float64 { return 0 }

// Scratch implements kernels.Launcher: it returns a new buffer with random numbers, as scratch
// memory has any content.
func (r *rig) Scratch(n int64) device.Mem {
	t := r.random(device.F32, int(n+3)/4)
	return device.Mem{Addr: t.Addr, Bytes: n}
}

// blocks returns the number of blocks of a launch.
func (l *launch) blocks() int { return int(l.grid[0]) * int(l.grid[1]) * int(l.grid[2]) }

// threads returns the number of threads of a block.
func (l *launch) threads() int { return int(l.block[0]) * int(l.block[1]) * int(l.block[2]) }

// run emulates the thread blocks with the numbers in only, or all blocks if only is nil, and counts
// their work in c. Blocks that take tickets and wait for each other run one by one. Each gets its
// own number as ticket, and its waits are already satisfied, so the cost of waiting is not counted.
func (l *launch) run(r *rig, only []uint32, c *ptx.Count) ([]ptx.Access, error) {
	x := ptx.Launch{Kernel: l.kernel, Grid: l.grid, Block: l.block, Shared: l.shared, Params: l.params, Memory: r, Only: only, Count: c}
	if l.marks == 0 {
		return x.Run()
	}
	if only == nil {
		for b := range l.blocks() {
			only = append(only, uint32(b))
		}
	}
	var touched []ptx.Access
	for _, b := range only {
		r.admit(binary.LittleEndian.Uint64(l.params[l.marks:]), b)
		x.Only = []uint32{b}
		some, err := x.Run()
		if err != nil {
			return nil, err
		}
		touched = append(touched, some...)
	}
	return touched, nil
}

// admit prepares memory for the next block of a kernel whose blocks wait for each other. The ticket
// counter is at the address marks, and the marks follow. A block gets its own number as ticket, and
// marks so large that no wait is left.
func (r *rig) admit(marks uint64, ticket uint32) {
	data := r.Find(marks).Data
	const passed = 1 << 30
	for i := 4; i+4 <= len(data); i += 4 {
		binary.LittleEndian.PutUint32(data[i:], passed)
	}
	binary.LittleEndian.PutUint32(data, ticket)
}
