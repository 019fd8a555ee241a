package gemm

import (
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"mt/base/parallel"
	"mt/internal/testkit"
)

// room is memory after which an unmapped page follows, so a read beyond its end crashes.
type room []byte

func newRoom(t *testing.T, pages int) room {
	t.Helper()
	n := pages * syscall.Getpagesize()
	mem := testkit.Must(syscall.Mmap(-1, 0, n+syscall.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON))(t)
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	testkit.NoError(t, syscall.Mprotect(mem[n:], syscall.PROT_NONE))
	return mem[:n]
}

// last copies the elements of m to the end of the memory and returns their address.
func (r room) last(m *matrix) unsafe.Pointer {
	b := m.content()
	at := r[len(r)-len(b):]
	copy(at, b)
	return unsafe.Pointer(&at[0])
}

// content returns the elements of m without the sentinels around them, as bytes.
func (m *matrix) content() []byte {
	size := 4
	if m.bf16 {
		size = 2
	}
	return unsafe.Slice((*byte)(m.pointer()), size*len(m.want))
}

// TestNothingBehindIsRead: A, B and D may end where mapped memory ends. A read or write behind them
// would crash.
func TestNothingBehindIsRead(t *testing.T) {
	pool := parallel.New(1)
	defer pool.Close()
	a, b, d := newRoom(t, 4), newRoom(t, 4), newRoom(t, 4)
	eachLevel(t, func(t *testing.T, l *level) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		ws := &Workspace{level: l}
		for _, s := range []struct{ m, n, k int }{{1, 7, 3}, {5, 33, 17}, {14, 65, 31}, {29, 40, 70}} {
			for i := range 16 {
				p := problem{m: s.m, n: s.n, k: s.k, transA: i&1 != 0, transB: i&2 != 0, aBF16: i&4 != 0, bBF16: i&8 != 0}
				x := p.fill(smallIntegers(uint64(i)))
				args := x.args()
				args.A, args.B, args.D = a.last(x.a), b.last(x.b), d.last(x.d)
				func() {
					defer func() {
						if err := recover(); err != nil {
							t.Errorf("%v: %v", p, err)
						}
					}()
					Run(pool, ws, args)
				}()
			}
		}
	})
}
