package host

import (
	"fmt"
	"sync"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/host/optim"
)

// pageBytes is the alignment in bytes of arenas, and of the layers inside them.
const pageBytes = optim.PageBytes

// touchBytes is how many bytes one call touches when pages are first touched in
// parallel.
const touchBytes = 32 << 20

// Arena is one range of host memory, zeroed at first, which counts in Usage until
// it is closed. Its memory is outside the Go heap, except in race builds, where the
// detector has to see it. It is in huge pages where the system gives them. All of
// it is resident, so using it cannot fail any more.
type Arena struct {
	purpose accounts.Purpose
	raw     []byte // what the system gave, before alignment
	bytes   []byte
}

// NewArena makes an arena of the given size, aligned to 4 KiB, and touches its
// pages on the threads of pool (nil: on the caller's alone). With zero bytes the
// arena has no memory. The error is an *OutOfMemory where there is not enough
// memory.
func NewArena(purpose accounts.Purpose, bytes int64, pool *parallel.Pool) (*Arena, error) {
	return newArena(purpose, bytes, []int64{bytes}, pool)
}

// newArena is NewArena for a range that consists of pieces of so many bytes, of which each is laid out over all NUMA nodes.
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

// smallShare is the part of the available memory, as a divisor, that small arenas may take after one reading of it.
const smallShare = 256

// readingHolds is how long a reading of the available memory serves small arenas.
const readingHolds = time.Second

// reading is the last reading of AvailableMemory, which takes half a millisecond: a run has dozens of small arenas.
var reading struct {
	sync.Mutex
	at   time.Time
	left int64 // bytes that small arenas may still take without another reading
}

// checkAvailable refuses what cannot fit. Linux would promise such memory, and kill
// the process when it is touched.
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

// Bytes is the memory. It must not be used after Close.
func (a *Arena) Bytes() []byte { return a.bytes }

// Close gives the memory back. Closing twice, or nil, does nothing.
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
