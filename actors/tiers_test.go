package actors

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"mt/base/accounts"
	"mt/host"
	"mt/internal/testkit"
)

// This file has the flags and helpers with which this package's tests run in parallel, draw random
// runs and skip cases of short test runs.

var (
	firstSeed = flag.Int64("fault-seed", 0, "the seed of the first run that a test of random runs, faults or interleavings makes; 0: the usual one (MT_LONG=all: drawn)")
	firstCall = flag.Int64("first-call", 0, "the first call that fails in a test which fails one call in several; 0: the usual one (MT_LONG=all: drawn)")
)

// TestMain lets more tests run at once than there are cores, because most tests wait for delayed
// streams. It also makes the garbage collector run less often, because little of the tests' memory
// stays alive.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// undisturbed runs f, whose subtests may run in parallel. It fails if they leave host memory or goroutines behind. A
// test that calls it must not be parallel.
func undisturbed(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	goroutines, memory := runtime.NumGoroutine(), host.Usage().Now
	t.Run("runs", f)
	if left := minus(host.Usage().Now, memory); left != ([accounts.NumPurposes]int64{}) {
		t.Errorf("host memory is left: %v", left)
	}
	settle(t, goroutines)
}

// drawSeed returns the first of n consecutive seeds, drawn from 1 to `most`. A failing test prints
// the flag that repeats its runs.
func drawSeed(t *testing.T, n, most int) int64 {
	t.Helper()
	first := *firstSeed
	if first == 0 {
		first = 1 + int64((testkit.Seed()-1)%uint64(max(1, most-n)))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seeds are drawn; to repeat them: -fault-seed %d", first)
		}
	})
	return first
}

// drawCall returns the number of the first call that fails, for a test in which one call in `every`
// fails. A failing test prints the flag that repeats it.
func drawCall(t *testing.T, every int64) int64 {
	t.Helper()
	first := *firstCall
	if first == 0 {
		first = 1 + int64((testkit.Seed()-1)%uint64(every))
	}
	t.Cleanup(func() {
		if t.Failed() && every > 1 {
			t.Logf("one call in %d fails; to repeat them: -first-call %d", every, first)
		}
	})
	return first
}

// inShort skips the test case called name under `go test -short`, unless it is one of `named`.
func inShort(t *testing.T, name string, named ...string) {
	t.Helper()
	if !slices.Contains(named, name) {
		testkit.NotShort(t)
	}
}

// usually skips the test case called name unless long tests are enabled or it is one of `named`.
func usually(t *testing.T, name string, named ...string) {
	t.Helper()
	if !slices.Contains(named, name) {
		testkit.LongOnly(t)
	}
}
