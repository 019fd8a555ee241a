package cudart

import (
	"bytes"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"mt/internal/testkit"
)

// call is one recorded call of the fake libraries.
type call struct {
	name string
	args [maxArguments]uintptr
}

// fake replaces all libraries. Every C function is a Go callback that records its arguments and
// returns what the test has set for its name in answers; otherwise 0.
type fake struct {
	mu      sync.Mutex
	calls   []call
	answers map[string]func(args *[maxArguments]uintptr) uintptr
	absent  map[string]bool
	addrs   map[Library]map[string]uintptr
}

// theFake is made once for all tests, since purego never frees callbacks and limits their number.
var theFake = sync.OnceValue(func() *fake {
	f := &fake{addrs: map[Library]map[string]uintptr{}}
	for lib, names := range boundSymbols() {
		f.addrs[lib] = map[string]uintptr{}
		for _, name := range names {
			f.addrs[lib][name] = purego.NewCallback(func(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15 uintptr) uintptr {
				return f.answer(name, [maxArguments]uintptr{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15})
			})
		}
	}
	return f
})

func (f *fake) answer(name string, args [maxArguments]uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call{name, args})
	growStack(100)
	if answer := f.answers[name]; answer != nil {
		return answer(&args)
	}
	return 0
}

// growStack makes Go move the stack of the goroutine that is calling C. If a C argument pointed to
// the stack, its address would then be wrong and a test would notice.
func growStack(depth int) byte {
	var room [1024]byte
	if depth == 0 {
		return room[0]
	}
	return growStack(depth-1) + room[depth%len(room)]
}

func (f *fake) Symbol(lib Library, name string) uintptr {
	if f.absent[name] || f.absent[string(lib)] {
		return 0
	}
	return f.addrs[lib][name]
}

// recorder is a Symbols that records the names that New requests.
type recorder map[Library][]string

func (r recorder) Symbol(lib Library, name string) uintptr {
	r[lib] = append(r[lib], name)
	return 1
}

// boundSymbols returns the names of all C functions that New binds, by library.
func boundSymbols() map[Library][]string {
	r := recorder{}
	if _, err := New(r); err != nil {
		panic(err)
	}
	return r
}

// newFake returns the fake without recorded calls, and a CUDA on it.
func newFake(t *testing.T) (*fake, *CUDA) {
	t.Helper()
	f := theFake()
	f.calls, f.answers, f.absent = nil, map[string]func(*[maxArguments]uintptr) uintptr{}, nil
	c := testkit.Must(New(f))(t)
	return f, c
}

// on makes the function name call answer and return its result.
func (f *fake) on(name string, answer func(a *[maxArguments]uintptr) uintptr) {
	f.answers[name] = answer
}

// fails makes a function return code.
func (f *fake) fails(name string, code int) {
	f.on(name, func(*[maxArguments]uintptr) uintptr { return uintptr(code) })
}

// says makes a function that describes status codes return the text for its code.
func (f *fake) says(name string, text map[int]string) {
	f.on(name, func(a *[maxArguments]uintptr) uintptr {
		s, ok := text[int(int32(a[0]))]
		if !ok {
			return 0
		}
		return cText(s)
	})
}

// memory returns the object of type T at an address passed to C.
func memory[T any](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }

// names returns the called functions in order.
func (f *fake) names() []string {
	var out []string
	for _, c := range f.calls {
		out = append(out, c.name)
	}
	return out
}

// cTexts keeps the results of cText alive.
var cTexts [][]byte

// cText returns the address of a C string that is never freed.
func cText(s string) uintptr {
	b := append([]byte(s), 0)
	cTexts = append(cTexts, b)
	return address(b)
}

// textAt returns the C string at an address.
func textAt(addr uintptr) string {
	return cString(unsafe.Pointer(memory[byte](addr)))
}

// bytesAt returns a copy of n bytes at an address.
func bytesAt(addr uintptr, n int) []byte {
	return bytes.Clone(unsafe.Slice(memory[byte](addr), n))
}
