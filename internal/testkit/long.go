package testkit

import (
	"math/rand/v2"
	"os"
	"testing"
)

// LongVariable names the environment variable that asks for the long tests.
const LongVariable = "MT_LONG"

// Everything is the variable's value that leaves nothing to chance: what Drawn draws from is run whole.
const Everything = "all"

// asked says whether long tests are run.
var asked = os.Getenv(LongVariable) != ""

// draw says whether a test is run of which one in n is.
var draw = func(n int) bool { return os.Getenv(LongVariable) == Everything || rand.N(n) == 0 }

// Seed is the seed of what a test draws where no flag gives one: the same in every run, so that a change fails no test by
// chance, and another in each run with MT_LONG=all.
func Seed() uint64 {
	if os.Getenv(LongVariable) == Everything {
		return rand.Uint64()
	}
	return 1
}

// LongAsked says whether long tests are asked for.
func LongAsked() bool { return asked }

// LongOnly skips a test, or one of a table, that nobody asked for.
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

// Count is how many of the whole a test tries: all where long tests are asked for,
// else a part, and the others are a subtest that is skipped.
func Count(t *testing.T, whole, part int) int {
	t.Helper()
	if asked || part >= whole {
		return whole
	}
	t.Run("the others", func(t *testing.T) { t.Skipf("long: %d of %d are tried, %s=1 tries all", part, whole, LongVariable) })
	return part
}

// Every is 1 where long tests are asked for. Else it is n: the test tries one in n,
// and the others are a subtest that is skipped.
func Every(t *testing.T, n int) int {
	t.Helper()
	return n / Count(t, n, 1)
}

// Drawn skips a test of a table that is too large for every run, unless it is one of those drawn: one in n, others
// each time. It is a long test too.
func Drawn(t *testing.T, n int) {
	t.Helper()
	if LongOnly(t); !draw(n) {
		t.Skipf("long: 1 in %d is drawn, %s=%s runs all", n, LongVariable, Everything)
	}
}

// DrawnInRace skips a test of a table under the race detector, unless it is one of those drawn there: one in n, others each
// time. It is for tests that are of values, and compute much, where others run the same goroutines.
func DrawnInRace(t *testing.T, n int) {
	t.Helper()
	if Race && !draw(n) {
		t.Skipf("slow under the race detector, where 1 in %d is drawn, and run without it", n)
	}
}

// InRace runs the cases of a table as tests, under the race detector those that DrawnInRace draws: one in N.
type InRace struct {
	*testing.T
	N int
}

// Run runs a case as a test of its own.
func (r InRace) Run(name string, f func(InRace)) bool {
	return r.T.Run(name, func(t *testing.T) { DrawnInRace(t, r.N); f(InRace{t, r.N}) })
}
