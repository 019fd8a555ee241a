package cudart

import (
	"testing"

	"github.com/ebitengine/purego"

	"mt/internal/testkit"
)

// onC returns a CUDA in which every name is bound to one real C function, which takes no arguments
// and returns 0. So calls go through purego to C and do nothing there. It skips the test if the C
// library has no such function.
func onC(t testing.TB) *CUDA {
	t.Helper()
	handle, err := load("libc.so.6")
	if err != nil {
		t.Skip(err)
	}
	addr := symbol(handle, "sched_yield")
	if addr == 0 {
		t.Skip("no sched_yield")
	}
	if r, _, _ := purego.SyscallN(addr); r != 0 {
		t.Fatalf("sched_yield returns %d", r)
	}
	c, err := New(same(addr))
	testkit.NoError(t, err)
	return c
}

// same is a Symbols that returns the same function for every name.
type same uintptr

func (s same) Symbol(Library, string) uintptr { return uintptr(s) }

// hotCalls are the calls that one training step makes thousands of times.
func hotCalls(c *CUDA) map[string]func() error {
	params := make([]byte, 200)
	blas := c.BlasLt()
	shape, args := &MatmulShape{Desc: 1, A: 2, B: 3, C: 4, D: 4}, &MatmulArgs{Alpha: 1, Algorithm: &Algorithm{}}
	return map[string]func() error{
		"MemcpyAsync":     func() error { return c.MemcpyAsync(90, 1, 2, 3, HostToDevice, 5) },
		"MemsetAsync":     func() error { return c.MemsetAsync(90, 1, 0, 3, 5) },
		"EventRecord":     func() error { return c.EventRecord(90, 1, 2) },
		"StreamWaitEvent": func() error { return c.StreamWaitEvent(90, 1, 2) },
		"LaunchKernel": func() error {
			return c.LaunchKernel(1, 2, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, 3, params)
		},
		"Matmul": func() error { return blas.Matmul(77, 1, shape, args, 5) },
	}
}

// TestHotCallsDoNotAllocate: the calls that a training step repeats allocate no memory on average.
// A single call may, since a garbage collection empties the pools.
func TestHotCallsDoNotAllocate(t *testing.T) {
	if testkit.Race {
		t.Skip("with the race detector pools drop what they hold at random")
	}
	for name, call := range hotCalls(onC(t)) {
		if n := testing.AllocsPerRun(1000, func() {
			testkit.NoError(t, call())
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkHotCalls(b *testing.B) {
	for name, call := range hotCalls(onC(b)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
