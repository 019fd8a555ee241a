package kernels

import (
	"embed"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"mt/device"
	"mt/device/op"
)

//go:embed *.ptx
var files embed.FS

// Kernel names one CUDA kernel, a __global__ function in one of the embedded PTX modules.
type Kernel struct {
	Module string // its file, without ".ptx"
	Name   string
	// Shared is the largest dynamic shared memory of any launch in bytes. The driver must be told
	// once if it is above 48 KiB.
	Shared int
	// persistent: blocks go over all work, so a launch has at most as many as the GPU has multiprocessors.
	persistent bool
}

// Dim3 is the size of a grid in blocks or of a block in threads.
type Dim3 struct{ X, Y, Z uint32 }

// Operations has all operations that the kernels of this package compute. Each operation's file
// adds its own. Running an operation returns an error only for arguments that the kernels do not
// support. If a launch fails, the Launcher reports it.
var Operations op.Table[Launcher]

// add adds an operation to Operations. launch is the function that launches its kernels.
func add[O any, P interface {
	*O
	device.Op
}](launch func(Launcher, *O)) {
	op.Add[Launcher, O, P](&Operations, func(l Launcher, a *O) error {
		launch(l, a)
		return nil
	})
}

// Launcher enqueues kernels on one stream. device/cuda implements it for a GPU, and tests for the
// emulator. Its methods return no errors: the stream keeps the first error and drops later work.
type Launcher interface {
	// Params returns the parameters of the next launch, emptied. The launcher owns them and has
	// only one set.
	Params() *Params
	// Launch enqueues k with shared bytes of dynamic shared memory. params are the kernel's parameters, packed as the
	// ABI wants (Params). Launch copies them before it returns.
	Launch(k *Kernel, grid, block Dim3, shared int, params *Params)
	// Scratch returns n bytes of device memory, at most ScratchBytes, for data between the kernels of one operation.
	// The content is undefined before and after.
	Scratch(n int64) device.Mem
	// SM90a reports whether attention uses kernels for sm_90a where they exist.
	SM90a() bool
	// TensorMap describes bf16 rows in t to the TMA unit: columns columns, rows rows, stride
	// elements from row to row. One copy takes BoxColumns columns of boxRows rows. The tensor and
	// its rows begin at multiples of 16 bytes.
	TensorMap(t device.Tensor, columns, rows, stride, boxRows int) TensorMap
	// Slower is called when attention runs on a slower kernel because there is none for sm_90a.
	// what is the reason, and dim the head size.
	Slower(what Lacking, dim int)
	// SharedBytes returns the most shared memory of a block in bytes, static and dynamic.
	SharedBytes() int
	// Processors returns the GPU's number of multiprocessors; 0: unknown.
	Processors() int
	// MostWork returns the most FLOPs on operands of type dt that one launch should have, so that a
	// watchdog does not end it; 0: no limit. Launches are split only where that changes no bit.
	MostWork(dt device.DType) float64
}

// ScratchBytes is the size in bytes of the device memory that a stream has for data between kernels
// of one operation.
const ScratchBytes = 32 << 20

// Params packs the parameters of a kernel as the driver expects them: each at the next multiple of
// its own size.
type Params struct{ Bytes []byte }

// Reset removes all parameters from p and keeps its memory.
func (p *Params) Reset() *Params {
	p.Bytes = p.Bytes[:0]
	return p
}

func (p *Params) align(n int) {
	for len(p.Bytes)%n != 0 {
		p.Bytes = append(p.Bytes, 0)
	}
}

// Tensor appends the address of t. The zero Tensor, for an absent argument, becomes a null pointer.
func (p *Params) Tensor(t device.Tensor) *Params { return p.I64(int64(t.Addr)) }

// Tensors appends the addresses of all of ts.
func (p *Params) Tensors(ts ...device.Tensor) *Params {
	for _, t := range ts {
		p.Tensor(t)
	}
	return p
}

// I64 appends an 8-byte integer.
func (p *Params) I64(v int64) *Params {
	p.align(8)
	p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, uint64(v))
	return p
}

// I32 appends a 4-byte integer. It panics if v does not fit in 32 bits, which is a bug of the
// caller.
func (p *Params) I32(v int) *Params {
	if int64(v) != int64(int32(v)) {
		panic(fmt.Sprintf("kernels: parameter %d does not fit in 32 bits", v))
	}
	p.align(4)
	p.Bytes = binary.LittleEndian.AppendUint32(p.Bytes, uint32(int32(v)))
	return p
}

// Bool appends a 4-byte integer: 1 if v is true, else 0.
func (p *Params) Bool(v bool) *Params {
	if v {
		return p.I32(1)
	}
	return p.I32(0)
}

// F32 appends a float.
func (p *Params) F32(v float32) *Params {
	p.align(4)
	p.Bytes = binary.LittleEndian.AppendUint32(p.Bytes, math.Float32bits(v))
	return p
}

// Modules returns the names of all embedded PTX modules, sorted.
func Modules() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".ptx"))
	}
	return out
}

// PTX returns the PTX text of a module; nil: there is no such module.
func PTX(module string) []byte {
	b, err := files.ReadFile(module + ".ptx")
	if err != nil {
		return nil
	}
	return b
}

// suffix returns the end of a kernel's name for a compute dtype.
func suffix(dt device.DType) string {
	if dt == device.BF16 {
		return "_bf16"
	}
	return "_f32"
}

// perType is a pair of kernels, one for each compute dtype (fp32 and bf16).
type perType [2]Kernel

// forTypes returns the kernels name_f32 and name_bf16 of a module. shared is their largest dynamic shared memory in
// bytes.
func forTypes(module, name string, shared int) perType {
	var k perType
	for _, dt := range []device.DType{device.F32, device.BF16} {
		k[dt] = Kernel{Module: module, Name: name + suffix(dt), Shared: shared}
	}
	return k
}

// ceilDiv returns ⌈a/b⌉.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
