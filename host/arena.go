package host

import (
	"fmt"
	"sync"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/host/optim"
)

// pageBytes is the size in bytes of a page of memory, to which arenas and the layers in them are aligned.
const pageBytes = optim.PageBytes

// touchBytes is the largest number of bytes whose pages one goroutine touches at a time.
const touchBytes = 32 << 20

// Arena is one range of host memory, initially zero. Usage counts it until it is closed. The memory is outside the Go
// heap, except in race builds, because the race detector sees only the heap. The arena uses huge pages if the system
// provides them. All pages are resident, so later accesses cannot fail for lack of memory.
type Arena struct {
	purpose accounts.Purpose
	raw     []byte // what the system gave, before alignment
	bytes   []byte
}

// NewArena makes an arena of the given size, aligned to 4 KiB, and touches its pages so that they are resident. It does
// so on the threads of pool (nil: on the caller's thread). An arena of zero bytes has no memory. If memory is
// insufficient, the error is an *OutOfMemory.
func NewArena(purpose accounts.Purpose, bytes int64, pool *parallel.Pool) (*Arena, error) {
	return newArena(purpose, bytes, []int64{bytes}, pool)
}

// newArena is NewArena for memory that consists of pieces of these sizes, in order, such as the tiles of layers. Each
// piece is distributed over all NUMA nodes.
func newArena(purpose accounts.Purpose, bytes int64, pieces []int64, pool *parallel.Pool) (*Arena, error) {
	if !purpose.OfArena() || bytes < 0 {
		return nil, fmt.Errorf("host: arena of %d bytes for %s: a size is at least 0 and a purpose one of an arena's", bytes, purpose)
	}
	a := &Arena{purpose: purpose}
	if bytes == 0 {
		return a, nil
	}
	if err := checkAvailable(purpose.String(), bytes); err != nil {
		return nil, err
	}
	raw, b, err := reserve(bytes)
	if err != nil {
		return nil, fmt.Errorf("host: %w", &OutOfMemory{What: purpose.String(), Requested: bytes, Room: AvailableMemory(), Err: err})
	}
	a.raw, a.bytes = raw, b
	touch(b, pieces, MachineNodes(), pool)
	count(purpose, bytes)
	return a, nil
}

// smallShare bounds small arenas: together they may take 1/smallShare of the available memory before its size is read
// again.
const smallShare = 256

// readingHolds is how long a reading of the available memory is used for small arenas.
const readingHolds = time.Second

// reading is the last reading of AvailableMemory. Small arenas share it, because a reading takes half a millisecond and
// a run has dozens of small arenas.
var reading struct {
	sync.Mutex
	at   time.Time
	left int64 // bytes that small arenas may take without another reading
}

// checkAvailable returns an error if bytes exceed the memory that is available. Without this check Linux would grant
// the memory, and kill the process when it touches the pages. `what` is the purpose of the memory, for the error.
func checkAvailable(what string, bytes int64) error {
	reading.Lock()
	defer reading.Unlock()
	if bytes <= reading.left && time.Since(reading.at) < readingHolds {
		reading.left -= bytes
		return nil
	}
	room := AvailableMemory()
	if room.Known && bytes > room.Bytes {
		return fmt.Errorf("host: %w", &OutOfMemory{What: what, Requested: bytes, Room: room})
	}
	reading.at, reading.left = time.Now(), room.Bytes/smallShare-bytes
	return nil
}

// Bytes returns the memory. It must not be used after Close.
func (a *Arena) Bytes() []byte { return a.bytes }

// Close releases the memory. Closing a nil or closed Arena does nothing.
func (a *Arena) Close() error {
	if a == nil || a.bytes == nil {
		return nil
	}
	err := release(a.raw)
	count(a.purpose, -int64(len(a.bytes)))
	a.raw, a.bytes = nil, nil
	if err != nil {
		return fmt.Errorf("host: give back %s: %w", a.purpose, err)
	}
	return nil
}
