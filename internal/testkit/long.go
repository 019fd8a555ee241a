package testkit

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"testing"
)

// LongVariable is the environment variable that asks for long tests.
const LongVariable = "MT_LONG"

// Everything is the value of LongVariable for which all cases run: Drawn and Count leave none out.
const Everything = "all"

// longShare is how many times as many cases of Count run in long tests as in the default ones. MT_LONG=all runs all.
const longShare = 4

// asked says whether long tests run.
var asked = os.Getenv(LongVariable) != ""

// draw reports whether the test of this name runs, if one in n of its table should: always with MT_LONG=all, else by
// the name, so that no run meets a case that the run before did not.
var draw = func(name string, n int) bool {
	h := fnv.New64a()
	h.Write([]byte(name))
	return everything() || h.Sum64()>>32%uint64(n) == 0
}

func everything() bool { return os.Getenv(LongVariable) == Everything }

// Seed returns the seed of a test's random values if no flag gives one. It is the same in every run, so that no test
// fails by chance, but with MT_LONG=all it is random.
func Seed() uint64 {
	if everything() {
		return rand.Uint64()
	}
	return 1
}

// LongAsked reports whether long tests run (MT_LONG is set).
func LongAsked() bool { return asked }

// LongOnly skips a test, or a case of a table, unless long tests run.
func LongOnly(t *testing.T) {
	t.Helper()
	if !asked {
		t.Skip("long: " + LongVariable + "=1 runs it")
	}
}

// NotShort skips a test that `go test -short` leaves out.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: go test without -short runs it")
	}
}

// Count returns how many cases of a table a test tries: part, or longShare times as many if long tests run, and with
// MT_LONG=all whole, the number of all cases. A skipped subtest reports how many are left out.
func Count(t *testing.T, whole, part int) int {
	t.Helper()
	switch {
	case everything():
		return whole
	case asked:
		part *= longShare
	}
	if part >= whole {
		return whole
	}
	t.Run("the others", func(t *testing.T) {
		t.Skipf("long: %d of %d are tried, %s=1 tries more and %s=%s all", part, whole, LongVariable, LongVariable, Everything)
	})
	return part
}

// Every returns n, or n/longShare if long tests run, and 1 with MT_LONG=all. A test uses it as a step: it tries every
// n-th case. If cases are left out, a skipped subtest reports it.
func Every(t *testing.T, n int) int {
	t.Helper()
	return n / Count(t, n, 1)
}

// Drawn is for a case of a table that is too large for every run. It skips the case unless long tests run and the case
// is drawn, one in n by the tests' names.
func Drawn(t *testing.T, n int) {
	t.Helper()
	if LongOnly(t); !draw(t.Name(), n) {
		t.Skipf("long: 1 in %d is drawn, %s=%s runs all", n, LongVariable, Everything)
	}
}

// DrawnInRace skips a case of a table under the race detector, unless it is drawn, one in n by the tests' names. It
// is for cases with much computation and no concurrency of their own: other tests run the same goroutines under the
// race detector.
func DrawnInRace(t *testing.T, n int) {
	t.Helper()
	if Race && !draw(t.Name(), n) {
		t.Skipf("slow under the race detector, where 1 in %d is drawn, and run without it", n)
	}
}

// InRace wraps a test whose cases are its subtests. Under the race detector only a drawn part of the cases runs: one
// in N.
type InRace struct {
	*testing.T
	N int
}

// Run runs a case as a test of its own.
func (r InRace) Run(name string, f func(InRace)) bool {
	return r.T.Run(name, func(t *testing.T) { DrawnInRace(t, r.N); f(InRace{t, r.N}) })
}
