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

// arguments is a pool of argument arrays. The slice that purego receives escapes to the heap, which
// would cost an allocation for each call. Because status copies arguments into a pooled array, the
// callers' own slices stay on the stack.
var arguments = sync.Pool{New: func() any { return new([maxArguments]uintptr) }}

// maxArguments is the largest number of arguments that any function here takes; cublasLtMatmul has this many.
const maxArguments = 16

// status calls the function and returns its status code, which is 0 for success.
//
// The arguments are integers, or addresses in a frame. Addresses of stack variables are not allowed, because a stack
// may move while the call runs Go code.
func (f *function) status(args ...uintptr) int {
	block := arguments.Get().(*[maxArguments]uintptr)
	r, _, _ := purego.SyscallN(f.addr, block[:copy(block[:], args)]...)
	arguments.Put(block)
	return int(int32(r))
}

// call calls the function and converts a nonzero status code to an error.
func (f *function) call(args ...uintptr) error {
	if code := f.status(args...); code != 0 {
		return f.fail(code, "")
	}
	return nil
}

// fail returns the error for a status code. detail may be empty.
func (f *function) fail(code int, detail string) error {
	return &Error{Library: f.library, Op: f.name, Code: code, Text: f.texts.text(f.library, code), Detail: detail}
}

// frame is memory that a call shares with C: for results from C, and for text or parameters. It
// comes from a pool and therefore lies on the heap, where nothing moves, and the garbage collector
// keeps it until release. A local variable would not do. If only its address is passed, as an
// integer, the compiler may put the variable on the stack, and Go may move a stack.
type frame struct {
	words [16]uint64 // values that C reads or writes by address
	bytes []byte     // texts and parameters; begins at a multiple of 8
}

// Capacity in bytes of a new frame, and the largest capacity that returns to the pool.
const (
	frameBytes    = 1 << 10
	maxFrameBytes = 64 << 10
)

var frames = sync.Pool{New: func() any { return &frame{bytes: make([]byte, 0, frameBytes)} }}

// newFrame returns a frame. Its words have arbitrary values.
func newFrame() *frame { return frames.Get().(*frame) }

// release ends C's use of the frame and returns the frame to the pool.
func (m *frame) release() {
	runtime.KeepAlive(m)
	if cap(m.bytes) <= maxFrameBytes {
		frames.Put(m)
	}
}

// at returns the address of word i.
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

// int returns the C int at word i. Read a 64-bit integer from words directly.
func (m *frame) int(i int) int { return int(int32(m.words[i])) }

// float returns the C float at word i.
func (m *frame) float(i int) float32 { return *(*float32)(unsafe.Pointer(&m.words[i])) }

// pointer returns the C pointer at word i.
func (m *frame) pointer(i int) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&m.words[i])) }

// copy copies b into the frame and returns its address; 0 if b is empty.
func (m *frame) copy(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	m.bytes = append(m.bytes[:0], b...)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// text copies b and a terminating NUL into the frame and returns the address.
func (m *frame) text(b []byte) uintptr {
	m.bytes = append(append(m.bytes[:0], b...), 0)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// room reserves n zero bytes in the frame and returns their address.
func (m *frame) room(n int) uintptr {
	m.bytes = append(m.bytes[:0], make([]byte, n)...)
	return uintptr(unsafe.Pointer(&m.bytes[0]))
}

// goString returns b up to its first NUL.
func goString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
