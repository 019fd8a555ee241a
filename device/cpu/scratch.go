package cpu

import (
	"math"
	"sync"
	"unsafe"
)

// scratch is the working memory of one worker during one piece of an operation:
// buffers that grow and are used again, with whatever is left in them.
type scratch struct {
	bufs [numBuffers][]float32
}

// The number of buffers of a scratch. Operations on rows number the first ones in
// their own order; attention gives its buffers names.
const numBuffers = 26

// f32 is buffer i with n elements, on a cache line.
func (s *scratch) f32(i, n int) []float32 {
	s.bufs[i] = grown(s.bufs[i], n)
	return s.bufs[i][:n]
}

// grown is buf, or a larger buffer where buf is too small, with at least n
// elements. It begins on a cache line.
func grown(buf []float32, n int) []float32 {
	if cap(buf) >= n {
		return buf[:cap(buf)]
	}
	const line = 16
	buf = make([]float32, n+n/4+line)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))/4) & (line - 1)
	return buf[skip:]
}

// scratchList keeps the scratches that nobody uses at the moment.
type scratchList struct {
	mu     sync.Mutex
	free   []*scratch
	poison bool // for tests: what was left in the buffers becomes NaN
}

func (l *scratchList) get() *scratch {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return &scratch{}
	}
	s := l.free[last]
	l.free = l.free[:last]
	return s
}

func (l *scratchList) put(s *scratch) {
	if l.poison {
		nan := float32(math.NaN())
		for _, buf := range s.bufs {
			for i := range buf {
				buf[i] = nan
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, s)
}
