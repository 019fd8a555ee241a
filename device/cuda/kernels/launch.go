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

// Kernel names one __global__ function.
type Kernel struct {
	Module string // the file it is in, without ".ptx"
	Name   string
	// Shared is the most dynamic shared memory in bytes that any launch asks
	// for; over 48 KiB the driver must be told once.
	Shared int
}

// Dim3 is the size of a grid in blocks or of a block in threads.
type Dim3 struct{ X, Y, Z uint32 }

// Operations has all operations that the kernels of this package compute; the file
// of each operation adds its own. Running one returns an error only for arguments
// that the kernels do not take. What fails in a launch is reported by the Launcher.
var Operations op.Table[Launcher]

// add adds an operation to the table, given the function that launches it.
func add[O any, P interface {
	*O
	device.Op
}](launch func(Launcher, *O)) {
	op.Add[Launcher, O, P](&Operations, func(l Launcher, a *O) error {
		launch(l, a)
		return nil
	})
}

// Launcher enqueues kernels on one stream. Errors stick to the stream.
type Launcher interface {
	// Params returns the parameters of the next launch, without any in it. They
	// belong to the launcher, which has those of one launch at a time.
	Params() *Params
	// Launch enqueues k with shared bytes of dynamic shared memory. params are
	// the kernel's parameters as the ABI packs them (Params); they are copied
	// before Launch returns.
	Launch(k *Kernel, grid, block Dim3, shared int, params *Params)
	// Scratch is n bytes of device memory through which the kernels of one
	// operation may pass data to each other. Its content is undefined before and
	// after; n is at most ScratchBytes.
	Scratch(n int64) device.Mem
	// SM90a says whether kernels for sm_90a are to be taken where there are some.
	SM90a() bool
	// TensorMap describes rows of bf16 elements in t to kernels for sm_90a: so many columns, so many rows,
	// stride elements from row to row. What is copied at a time is BoxColumns columns of boxRows rows. The
	// tensor begins, and its rows do, at multiples of 16 bytes.
	TensorMap(t device.Tensor, columns, rows, stride, boxRows int) TensorMap
	// Slower tells that the device has no kernel for sm_90a for what is computed, with heads of dim
	// elements, and takes a slower one.
	Slower(what Lacking, dim int)
	// SharedBytes is how many bytes of shared memory a block may have, static and dynamic.
	SharedBytes() int
	// MostWork is how many FLOPs on operands of a type a launch should have at most, as far as that can be
	// had without changing a bit; 0: any number.
	MostWork(dt device.DType) float64
}

// ScratchBytes is the size of a stream's scratch memory.
const ScratchBytes = 32 << 20

// Params packs the parameters of a kernel: each at the next multiple of its own
// size, as the driver expects a parameter buffer.
type Params struct{ Bytes []byte }

// Reset removes all parameters from p and keeps the memory for them.
func (p *Params) Reset() *Params {
	p.Bytes = p.Bytes[:0]
	return p
}

func (p *Params) align(n int) {
	for len(p.Bytes)%n != 0 {
		p.Bytes = append(p.Bytes, 0)
	}
}

// Tensor appends a pointer; the zero Tensor is a null pointer.
func (p *Params) Tensor(t device.Tensor) *Params { return p.I64(int64(t.Addr)) }

// I64 appends an 8-byte integer.
func (p *Params) I64(v int64) *Params {
	p.align(8)
	p.Bytes = binary.LittleEndian.AppendUint64(p.Bytes, uint64(v))
	return p
}

// I32 appends an int. It panics where v does not fit in 32 bits, which is a mistake
// of the caller.
func (p *Params) I32(v int) *Params {
	if int64(v) != int64(int32(v)) {
		panic(fmt.Sprintf("kernels: parameter %d does not fit in 32 bits", v))
	}
	p.align(4)
	p.Bytes = binary.LittleEndian.AppendUint32(p.Bytes, uint32(int32(v)))
	return p
}

// Bool appends an int that is 0 or 1.
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

// Modules are the names of all modules, sorted.
func Modules() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // cannot happen, as the files are embedded
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".ptx"))
	}
	return out
}

// PTX is the text of a module, nil where there is none of that name.
func PTX(module string) []byte {
	b, err := files.ReadFile(module + ".ptx")
	if err != nil {
		return nil
	}
	return b
}

// suffix is how the name of a kernel for a compute dtype ends.
func suffix(dt device.DType) string {
	if dt == device.BF16 {
		return "_bf16"
	}
	return "_f32"
}

// perType is a kernel for each compute dtype.
type perType [2]Kernel

// forTypes names the kernels name_f32 and name_bf16 of a module.
func forTypes(module, name string, shared int) perType {
	var k perType
	for _, dt := range []device.DType{device.F32, device.BF16} {
		k[dt] = Kernel{Module: module, Name: name + suffix(dt), Shared: shared}
	}
	return k
}

// ceilDiv is ⌈a/b⌉.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
