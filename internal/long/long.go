package long

import (
	"os"
	"testing"
)

// Variable names the environment variable that asks for the long tests.
const Variable = "MT_LONG"

// asked says whether long tests are run.
var asked = os.Getenv(Variable) != ""

// Only skips a test, or one of a table, that nobody asked for.
func Only(t *testing.T) {
	t.Helper()
	if !asked {
		t.Skip("long: " + Variable + "=1 runs it")
	}
}

// Count is how many of the whole a test tries: all where long tests are asked for,
// else a part, and the others are a subtest that is skipped.
func Count(t *testing.T, whole, part int) int {
	t.Helper()
	if asked || part >= whole {
		return whole
	}
	t.Run("the others", func(t *testing.T) { t.Skipf("long: %d of %d are tried, %s=1 tries all", part, whole, Variable) })
	return part
}

// Every is 1 where long tests are asked for. Else it is n: the test tries one in n,
// and the others are a subtest that is skipped.
func Every(t *testing.T, n int) int {
	t.Helper()
	return n / Count(t, n, 1)
}
