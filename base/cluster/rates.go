package cluster

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Rates has the measured rates of exchanges between ranks, the best of a few attempts.
type Rates struct {
	// AllToAll is the number of bytes a second that each rank sends, and receives, while every rank sends a part of its
	// memory to every other.
	AllToAll float64 `json:"all_to_all_bytes_per_s"`
	// AllGather is the number of bytes a second that each rank receives while all ranks gather the data of all.
	AllGather float64 `json:"all_gather_bytes_per_s"`
	// Latency is the time until each rank has a few bytes of every other rank, in seconds.
	Latency float64 `json:"small_all_gather_s"`
}

// largeTries and smallTries say how many times Measure repeats a large exchange, and a small one.
const (
	largeTries = 3
	smallTries = 50
)

// Measure measures the rates of exchanges between ranks. It exchanges this many bytes through c, on which no operation
// may be in progress. All ranks call Measure together and get the same result.
//
// Only a process that ends soon may call it. The exchanged data is on Go's heap. A fast network may keep that memory
// registered after the garbage collector has returned it to the system.
func Measure(w World, c Comm, bytes int) (Rates, error) {
	n := w.Size()
	part := max(bytes/n, 1)
	counts := make([]int, n)
	for i := range counts {
		counts[i] = part
	}
	send, recv := make([]byte, n*part), make([]byte, n*part)
	moved := float64((n - 1) * part)
	toAll, err := slowest(c, largeTries, func() error {
		return Wait(func(done func(error)) { c.AllToAllV(send, counts, recv, counts, done) })
	})
	if err != nil {
		return Rates{}, err
	}
	gather, err := slowest(c, largeTries, func() error {
		return Wait(func(done func(error)) { c.AllGatherV(recv, counts, done) })
	})
	if err != nil {
		return Rates{}, err
	}
	small, err := slowest(c, 1, func() error {
		for range smallTries {
			if err := Barrier(c); err != nil {
				return err
			}
		}
		return nil
	})
	return Rates{AllToAll: moved / toAll, AllGather: moved / gather, Latency: small / smallTries}, err
}

// slowest measures how long f takes when all ranks call it together. It calls f tries times, and each call counts with
// the time of the slowest rank. It returns the shortest of these times, in seconds. A call before them, which sets up
// connections, does not count.
func slowest(c Comm, tries int, f func() error) (float64, error) {
	best := math.Inf(1)
	for i := range tries + 1 {
		if err := Barrier(c); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took := time.Since(began).Seconds()
		all, err := Gather(c, binary.LittleEndian.AppendUint64(nil, math.Float64bits(took)))
		if err != nil {
			return 0, fmt.Errorf("telling times: %w", err)
		}
		for _, v := range all {
			took = max(took, math.Float64frombits(binary.LittleEndian.Uint64(v)))
		}
		if i > 0 {
			best = min(best, max(took, 1e-9))
		}
	}
	return best, nil
}

// GatherAll is Gather for values whose lengths differ from rank to rank.
func GatherAll(w World, c Comm, value []byte) ([][]byte, error) {
	lengths, err := Gather(c, binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	if err != nil {
		return nil, err
	}
	counts, all := make([]int, w.Size()), []byte(nil)
	for r, v := range lengths {
		counts[r] = int(binary.LittleEndian.Uint64(v))
		if r == w.Rank() {
			all = append(all, value...)
		} else {
			all = append(all, make([]byte, counts[r])...)
		}
	}
	if err := Wait(func(done func(error)) { c.AllGatherV(all, counts, done) }); err != nil {
		return nil, err
	}
	values := make([][]byte, w.Size())
	for r, n := range counts {
		values[r], all = all[:n:n], all[n:]
	}
	return values, nil
}
