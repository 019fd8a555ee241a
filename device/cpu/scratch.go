package cpu

import (
	"math"
	"sync"
	"unsafe"
)

// scratch is memory of one worker while it computes a part of an operation. Its buffers grow as
// needed and keep undefined old content.
type scratch struct {
	bufs [numBuffers][]float32
}

// numBuffers is the number of buffers of a scratch. Operations that work row by row count from buffer 0. Attention and
// the scans have names for their buffers.
const numBuffers = 30

// f32 returns buffer i with n elements, aligned to a cache line.
func (s *scratch) f32(i, n int) []float32 {
	s.bufs[i] = grown(s.bufs[i], n)
	return s.bufs[i][:n]
}

// grown returns buf, or a larger buffer if buf is too small. The result has at least n elements and begins on a cache
// line.
func grown(buf []float32, n int) []float32 {
	if cap(buf) >= n {
		return buf[:cap(buf)]
	}
	const line = 16
	buf = make([]float32, n+n/4+line)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))/4) & (line - 1)
	return buf[skip:]
}

// scratchList keeps scratch memory that no worker uses at the moment. Workers take from it and give
// back.
type scratchList struct {
	mu     sync.Mutex
	free   []*scratch
	poison bool // for tests: old content of buffers becomes NaN
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
