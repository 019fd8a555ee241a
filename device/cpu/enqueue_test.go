package cpu

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/device/conformance"
)

// TestEveryOperation: package conformance has test cases for exactly the operations that this
// device has.
func TestEveryOperation(t *testing.T) {
	if got, want := table.Names(), conformance.OperationNames(); !slices.Equal(got, want) {
		t.Errorf("the device has %v, there are cases of %v", got, want)
	}
}

// enqueues is a testing.T for conformance.SomeOperations that counts allocations instead of
// comparing results. It takes a few cases of each operation and type.
type enqueues struct {
	*testing.T
	name string
	seen map[string]int
}

func (e enqueues) Errorf(string, ...any) {}

func (e enqueues) Run(name string, f func(enqueues)) bool {
	of := strings.Join(strings.SplitN(name, "/", 3)[:2], "/")
	if e.seen[of]++; e.seen[of] <= 3 {
		f(enqueues{e.T, name, e.seen})
	}
	return true
}

// Enqueue calls once repeatedly and counts allocations. It holds the stream, so that nothing but
// enqueueing runs. Each round reuses the values of the previous one, unless a pool has lost them:
// sync.Pool starts over when AllocsPerRun changes GOMAXPROCS. Code that allocates does so in every
// round.
func (e enqueues) Enqueue(s device.Stream, once func()) {
	const n, rounds = 40, 8
	got := 1.0
	for i := 0; i < rounds && got != 0; i++ {
		release := hold(s)
		got = testing.AllocsPerRun(n, once)
		release()
		if err := s.Sync(); err != nil {
			e.T.Fatalf("%s: %v", e.name, err)
		}
	}
	if got != 0 {
		e.T.Errorf("%s: %v allocations in round %d", e.name, got, rounds)
	}
}

// TestEnqueueingAllocatesNothing: enqueueing an operation allocates nothing once the pools are
// filled. Garbage collection is off, because it would empty the pools. Less than one allocation for
// each call is allowed on average, because a pool does not find values that another core holds.
func TestEnqueueingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("with the race detector every operation has memory of its own")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	e := enqueues{t, "", map[string]int{}}
	conformance.Operations(e, newDevice(t, Options{Threads: 2}))
	if want := 2 * len(conformance.OperationNames()); len(e.seen) != want {
		t.Errorf("cases of %d operations and types, want %d", len(e.seen), want)
	}
}
