package device

import (
	"fmt"
	"time"

	"mt/base/accounts"
	"mt/base/human"
)

// DType is the type of the elements of a Tensor.
type DType uint8

// The element types of tensors.
const (
	F32 DType = iota
	BF16
	I32
)

// Size is the number of bytes of one element.
func (d DType) Size() int64 {
	if d == BF16 {
		return 2
	}
	return 4
}

func (d DType) String() string {
	switch d {
	case F32:
		return "fp32"
	case BF16:
		return "bf16"
	case I32:
		return "int32"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Align is the alignment in bytes of every allocation and of every tensor in a tile. With aligned operands, matrix
// libraries can use one algorithm for each shape.
const Align = 256

// Mem is a range of device memory. Addr has a meaning only for the device that allocated the range. The zero Mem is
// no memory.
type Mem struct {
	Addr  uintptr
	Bytes int64
}

// Slice returns the n bytes of m from offset off. It panics if they are not all inside m.
func (m Mem) Slice(off, n int64) Mem {
	if off < 0 || n < 0 || off+n > m.Bytes {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d bytes", off, off, n, m.Bytes))
	}
	return Mem{Addr: m.Addr + uintptr(off), Bytes: n}
}

// Tensor returns the n elements of type dt that start off bytes into m.
func (m Mem) Tensor(dt DType, off, n int64) Tensor {
	s := m.Slice(off, n*dt.Size())
	return Tensor{Addr: s.Addr, Len: n, DType: dt}
}

// Tensor is a dense run of elements in device memory: an address, a length and a type. Shapes are arguments of the
// operations. The zero Tensor means "none" for operations that allow none.
type Tensor struct {
	Addr  uintptr
	Len   int64 // elements
	DType DType
}

// Slice returns the n elements of t from element off. It panics if they are not all inside t.
func (t Tensor) Slice(off, n int64) Tensor {
	if off < 0 || n < 0 || off+n > t.Len {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d elements", off, off, n, t.Len))
	}
	return Tensor{Addr: t.Addr + uintptr(off*t.DType.Size()), Len: n, DType: t.DType}
}

// None reports whether t is the zero Tensor.
func (t Tensor) None() bool { return t.Addr == 0 }

// Mem returns the memory under t.
func (t Tensor) Mem() Mem { return Mem{Addr: t.Addr, Bytes: t.Len * t.DType.Size()} }

// Usage is the memory that a device has allocated for mt, now and at its peak, by purpose.
type Usage struct {
	accounts.Used
	Limit    int64 // the budget in bytes; 0: no budget
	Capacity int64 // the device's memory in bytes, whoever uses it; 0: the device uses host memory
	// Integrated is true for a GPU without memory of its own: its allocations are host memory.
	Integrated bool
}

// Device is one accelerator, or the host's cores acting as one.
type Device interface {
	// Name is the name for people, for example "cpu (2 threads, avx512)" or "NVIDIA H100 80GB HBM3".
	Name() string
	// Kind is "cpu" or "cuda".
	Kind() string
	// Unified is true if host and device read the same memory at the same rate. Operations then use tiles in place
	// (BindHost), and nothing copies them.
	Unified() bool

	// Alloc returns bytes bytes of device memory, aligned to Align, with undefined content. The error names the
	// purpose and the bytes requested, used and allowed. If memory is short, the error is an *OutOfMemory.
	Alloc(p accounts.Purpose, bytes int64) (Mem, error)
	// Free releases memory that Alloc returned. All work that uses the memory must have finished. Freeing the zero
	// Mem does nothing.
	Free(m Mem)
	// AllocHost returns zeroed host memory for asynchronous copies, aligned to Align. The memory is pinned if pinning
	// makes copies faster.
	AllocHost(bytes int64) ([]byte, error)
	// FreeHost releases memory that AllocHost returned.
	FreeHost(b []byte)
	// Register makes copies from and to long-lived host memory fast, by pinning it if the device can. On an error,
	// none of the memory is registered. One call passes all memory in the order of its first use. Register may return
	// when the first part is fast; the device then registers the rest in the background. The memory must stay mapped
	// until Unregister, which takes the same slices.
	Register(memory ...[]byte) error
	Unregister(memory ...[]byte)
	// BindHost returns the device's view of host memory, for Unified devices only. Register or AllocHost must have
	// prepared the memory before operations use the view.
	BindHost(b []byte) Mem
	// Usage counts memory by purpose.
	Usage() Usage

	// Reach lets streams of this device copy into the memory of another device (Stream.CopyPeer) and reports whether
	// they can. It returns false if the only path goes through the host. A second call changes nothing.
	Reach(to Device) (bool, error)

	// NewStream starts a stream; name is for errors and traces.
	NewStream(name string) (Stream, error)
	// NewEvent returns an event. The event counts as complete until a stream records it.
	NewEvent() (Event, error)
	// Do enqueues o on s. It copies the struct behind o before it returns, so the caller may change and reuse the
	// struct. An error makes the stream fail; see Stream.
	Do(s Stream, o Op)
	// Close releases everything. The streams must have been closed.
	Close() error
}

// Inner returns the device that the wrappers around d hide (package wrap). A wrapper needs a method
// Unwrap if its devices are used with Reach.
func Inner(d Device) Device {
	for {
		w, ok := d.(interface{ Unwrap() Device })
		if !ok {
			return d
		}
		d = w.Unwrap()
	}
}

// Op is an operation with its arguments: a pointer to a struct of package op.
type Op interface {
	// Name is the operation's name in errors and profiles.
	Name() string
	// Check returns an error if shapes, types or lengths of the arguments are wrong. The caller adds the operation's
	// name to the error.
	Check() error
}

// Event marks a point of a stream. A stream may record it again and again. A wait refers to the last record before
// the call of Wait.
type Event interface {
	// Elapsed returns the device time between the last records of start and of this event. Both must be complete.
	Elapsed(start Event) time.Duration
	Close()
}

// Stream runs enqueued work in order. A failing call makes the stream fail: Err keeps the first error, which names
// the call. A failed stream drops all later work, but events still complete and notifications still come, with the
// error. So callers check Err once after many calls. One goroutine at a time may use a Stream.
type Stream interface {
	// CopyH2D enqueues dst = src. src must not change until the copy is done.
	CopyH2D(dst Mem, src []byte)
	// CopyD2H enqueues dst = src. Nobody may read or write dst until the copy is done.
	CopyD2H(dst []byte, src Mem)
	// CopyD2D enqueues dst = src. The two have equal size and do not overlap.
	CopyD2D(dst, src Mem)
	// CopyPeer enqueues dst = src, of equal size. dst is memory of the device named to. Device.Reach must have
	// returned true for that device.
	CopyPeer(to Device, dst, src Mem)
	// Zero enqueues dst = 0.
	Zero(dst Mem)
	// Record enqueues e. The event completes when everything enqueued before it has completed.
	Record(e Event)
	// Wait makes later work wait for e's last record. e may belong to another device of the same kind.
	Wait(e Event)
	// Notify calls f on a goroutine of the device when everything enqueued before is complete. Notifications come in
	// the order of the calls. err is the stream's first error by then. f must not block.
	Notify(f func(err error))
	// Sync waits for everything enqueued and returns Err.
	Sync() error
	// Err returns the stream's first error so far, or nil.
	Err() error
	// Close waits for everything enqueued and ends the stream.
	Close() error
}

// OutOfMemory reports an allocation that does not fit.
type OutOfMemory struct {
	Purpose                accounts.Purpose
	Requested, Used, Limit int64 // bytes; a Limit of 0 is no limit
}

func (e *OutOfMemory) Error() string {
	of := ""
	if e.Limit > 0 {
		of = " of " + human.Bytes(e.Limit)
	}
	return fmt.Sprintf("out of device memory: %s wants %s, %s%s are in use (see device_memory, pipeline and recompute)",
		e.Purpose, human.Bytes(e.Requested), human.Bytes(e.Used), of)
}
