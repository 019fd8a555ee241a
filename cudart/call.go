package cudart

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// function is a C function that returns a status code, 0 for success.
type function struct {
	name    string
	library Library
	addr    uintptr
	texts   *describers
}

// arguments holds blocks for the arguments of calls. The list that purego is given
// escapes to the heap; because it is copied into a pooled block, our callers' lists
// need no memory of their own.
var arguments = sync.Pool{New: func() any { return new([maxArguments]uintptr) }}

// maxArguments is the most arguments that a call has, which are those of
// cublasLtMatmul.
const maxArguments = 16

// status calls the function and returns its code.
//
// The arguments are integers or addresses of memory in a frame, never of a
// stack variable: a stack moves while the call runs Go code.
func (f *function) status(args ...uintptr) int {
	block := arguments.Get().(*[maxArguments]uintptr)
	r, _, _ := purego.SyscallN(f.addr, block[:copy(block[:], args)]...)
	arguments.Put(block)
	return int(int32(r))
}

// call calls the function and turns its code into an error.
func (f *function) call(args ...uintptr) error {
	if code := f.status(args...); code != 0 {
		return f.fail(code, "")
	}
	return nil
}

// fail returns the error that stands for code. detail may be empty.
func (f *function) fail(code int, detail string) error {
	return &Error{Library: f.library, Op: f.name, Code: code, Text: f.texts.text(f.library, code), Detail: detail}
}

// frame is the memory that one call shares with C. It comes from a pool and so lies
// on the heap, where nothing moves, and it is in use until release, so the
// collector keeps it. A variable would not do: that its address is passed as an
// integer does not keep the compiler from placing it on the stack.
type frame struct {
	words [16]uint64 // values that C reads or writes by address
	bytes []byte     // text, parameters, at a multiple of 8
}

// The room for bytes that a new frame has, and the most with which one goes back to
// the pool.
const (
	frameBytes    = 1 << 10
	maxFrameBytes = 64 << 10
)

var frames = sync.Pool{New: func() any { return &frame{bytes: make([]byte, 0, frameBytes)} }}

// newFrame returns a frame whose words have arbitrary values.
func newFrame() *frame { return frames.Get().(*frame) }

// release ends the use of the frame's memory by C and gives it back.
func (m *frame) release() {
	runtime.KeepAlive(m)
	if cap(m.bytes) <= maxFrameBytes {
		frames.Put(m)
	}
}

// at is the address of word i.
func (m *frame) at(i int) uintptr { return uintptr(unsafe.Pointer(&m.words[i])) }

// out clears word i and returns its address, for C to write to.
func (m *frame) out(i int) uintptr {
	m.words[i] = 0
	return m.at(i)
}

// in sets word i and returns its address, for C to read.
func (m *frame) in(i int, v uint64) uintptr {
	m.words[i] = v
	return m.at(i)
}

// int returns the C int at word i. A 64-bit integer is read from words directly.
func (m *frame) int(i int) int { return int(int32(m.words[i])) }

// float is the C float at word i.
func (m *frame) float(i int) float32 { return *(*float32)(unsafe.Pointer(&m.words[i])) }

// pointer is the C pointer at word i.
func (m *frame) pointer(i int) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&m.words[i])) }

// copy puts b into the frame and returns its address; 0 where b is empty.
func (m *frame) copy(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	m.bytes = append(m.bytes[:0], b...)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// text puts b with a NUL after it into the frame and returns its address.
func (m *frame) text(b []byte) uintptr {
	m.bytes = append(append(m.bytes[:0], b...), 0)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// room makes n zero bytes in the frame and returns their address.
func (m *frame) room(n int) uintptr {
	m.bytes = append(m.bytes[:0], make([]byte, n)...)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// goString is a copy of the text up to the first NUL of b.
func goString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
