package device

import (
	"fmt"
	"time"

	"mt/base/accounts"
	"mt/base/human"
)

// DType is the type of the elements of a Tensor.
type DType uint8

// The element types that a device holds.
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

// Align is the alignment in bytes of every allocation, and of every tensor in a
// tile. Libraries for matrix products want it, to use one algorithm for each shape.
const Align = 256

// Mem is a range of device memory. Only the device that gave it can make sense of
// Addr. The zero Mem is no memory.
type Mem struct {
	Addr  uintptr
	Bytes int64
}

// Slice is the n bytes of m from off on. It panics where they are not all inside m.
func (m Mem) Slice(off, n int64) Mem {
	if off < 0 || n < 0 || off+n > m.Bytes {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d bytes", off, off, n, m.Bytes))
	}
	return Mem{Addr: m.Addr + uintptr(off), Bytes: n}
}

// Tensor is the n elements of type dt that start off bytes into m.
func (m Mem) Tensor(dt DType, off, n int64) Tensor {
	s := m.Slice(off, n*dt.Size())
	return Tensor{Addr: s.Addr, Len: n, DType: dt}
}

// Tensor is a dense run of elements in device memory. It only knows where it is and
// how many elements it has; shapes are arguments of the operations. The zero Tensor
// means "none" where an operation allows that.
type Tensor struct {
	Addr  uintptr
	Len   int64 // elements
	DType DType
}

// Slice is the n elements of t from off on. It panics where they are not all inside
// t.
func (t Tensor) Slice(off, n int64) Tensor {
	if off < 0 || n < 0 || off+n > t.Len {
		panic(fmt.Sprintf("device: slice [%d:%d+%d] of %d elements", off, off, n, t.Len))
	}
	return Tensor{Addr: t.Addr + uintptr(off*t.DType.Size()), Len: n, DType: t.DType}
}

// None says whether t is no tensor at all.
func (t Tensor) None() bool { return t.Addr == 0 }

// Mem is the memory under t.
func (t Tensor) Mem() Mem { return Mem{Addr: t.Addr, Bytes: t.Len * t.DType.Size()} }

// Usage is how much memory a device holds now, and held at most, by purpose.
type Usage struct {
	accounts.Used
	Limit    int64 // the budget in bytes; 0 is no budget
	Capacity int64 // bytes that the device has, whoever uses them; 0: those of the host
	// Integrated says that the device, a GPU, has no memory of its own: what it holds is the host's memory.
	Integrated bool
}

// Device is one accelerator, or the host's cores acting as one.
type Device interface {
	// Name is the name for people: "cpu (2 threads, avx512)", "NVIDIA H100 80GB
	// HBM3".
	Name() string
	// Kind is "cpu" or "cuda".
	Kind() string
	// Unified is true where host and device read the same memory at the same rate.
	// A tile is then used in place (BindHost) and never copied.
	Unified() bool

	// Alloc returns that many bytes of device memory, aligned to Align; their
	// content is undefined. The error names the purpose, and the bytes requested,
	// used and allowed. It is an *OutOfMemory where there is not enough memory.
	Alloc(p accounts.Purpose, bytes int64) (Mem, error)
	// Free gives back what Alloc gave. The device must have finished all work that
	// uses it. Freeing the zero Mem does nothing.
	Free(m Mem)
	// AllocHost returns zeroed host memory for asynchronous copies, aligned to
	// Align, and pinned where that makes a difference.
	AllocHost(bytes int64) ([]byte, error)
	// FreeHost gives back what AllocHost gave.
	FreeHost(b []byte)
	// Register makes long-lived host memory fast to copy from and to, where the
	// device can; with an error, none of it. One call is given all memory, in the order of
	// its first use: a device may return when the first of it is fast, and go on beside other
	// calls. The memory must stay mapped until Unregister, which takes the same slices.
	Register(memory ...[]byte) error
	Unregister(memory ...[]byte)
	// BindHost is the device's view of host memory, for Unified devices only. Before operations use the view, the memory
	// must be registered, or it is of AllocHost.
	BindHost(b []byte) Mem
	// Usage counts memory by purpose.
	Usage() Usage

	// Reach has streams of this device copy into the memory of another one
	// (Stream.CopyPeer) and says whether they can. It is false where there is no way
	// between the two but through the host. Asking again changes nothing.
	Reach(to Device) (bool, error)

	// NewStream starts a stream; name is for errors and traces.
	NewStream(name string) (Stream, error)
	// NewEvent makes an event that counts as complete until it is recorded.
	NewEvent() (Event, error)
	// Do enqueues o on s. It copies what o points to before it returns, so the
	// caller may change it and use it again. An error makes the stream fail; see
	// Stream.
	Do(s Stream, o Op)
	// Close gives everything back. The streams must have been closed.
	Close() error
}

// Inner is the device itself under what is wrapped around it. What wraps a device, and
// whose devices are to reach each other, has a method Unwrap.
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
	// Name is what the operation is called, for errors and profiles.
	Name() string
	// Check returns what is wrong with the arguments, as far as shapes, types and
	// lengths show it. The error does not name the operation; the caller does.
	Check() error
}

// Event marks a point of a stream. It may be recorded again and again; a wait
// refers to the last record before the call of Wait.
type Event interface {
	// Elapsed is the device time from the completion of start's last record to
	// that of this event. Both must be complete.
	Elapsed(start Event) time.Duration
	Close()
}

// Stream runs what is enqueued in order. A call that fails makes the stream fail:
// Err keeps the first error, which names the call. Whatever is enqueued after that
// is dropped, except that events still complete, and that notifications still come,
// with the error. So callers check Err once after many calls, not after each. One
// goroutine at a time may use a Stream.
type Stream interface {
	// CopyH2D enqueues dst = src. src must not change until it is done.
	CopyH2D(dst Mem, src []byte)
	// CopyD2H enqueues dst = src. dst must not be touched until it is done.
	CopyD2H(dst []byte, src Mem)
	// CopyD2D enqueues dst = src, of equal size, not overlapping.
	CopyD2D(dst, src Mem)
	// CopyPeer enqueues dst = src, of equal size, where dst is memory of the device to,
	// which this stream's device reaches (Device.Reach).
	CopyPeer(to Device, dst, src Mem)
	// Zero enqueues dst = 0.
	Zero(dst Mem)
	// Record enqueues e: it completes when everything enqueued before it has.
	Record(e Event)
	// Wait makes what is enqueued later wait for e's last record. e may be of another
	// device of the same kind.
	Wait(e Event)
	// Notify calls f on a goroutine of the device's own when everything enqueued
	// before it is complete. Notifications come in the order of the calls. err is
	// the stream's first error by then. f must not block.
	Notify(f func(err error))
	// Sync waits for everything enqueued and returns Err.
	Sync() error
	// Err is the first error of the stream so far, nil while all is well.
	Err() error
	// Close waits for everything enqueued and ends the stream.
	Close() error
}

// OutOfMemory says that an allocation does not fit.
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
