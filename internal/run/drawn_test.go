package run

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/internal/testkit"
)

var drawSeed = flag.Uint64("draw-seed", 0, "the seed of what tests draw; 0: the usual one (MT_LONG=all: another in each run)")

// draws returns the source of what a test draws by chance. A test that fails says how to draw the same again.
func draws(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *drawSeed
	if seed == 0 {
		seed = testkit.Seed()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("drawn with seed %d; to repeat it: go test ./internal/run -run '%s' -draw-seed %d", seed, t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// sample returns the numbers from 1 to n where long tests are asked for, else few of them, drawn and in order.
func sample(t *testing.T, n, few int) []int {
	t.Helper()
	drawn := draws(t).Perm(n)[:testkit.Count(t, n, few)]
	for i := range drawn {
		drawn[i]++
	}
	slices.Sort(drawn)
	return drawn
}

// stops returns the steps after which to stop a run that makes the steps between first and last, one for each time
// that it is started: where long tests are asked for after whatever step it makes first, up to its end, else few
// times after a drawn one.
func stops(t *testing.T, first, last, few int) []int {
	t.Helper()
	n := max(1, last-first-2) // a run may make one step more before it stops
	drawn := sample(t, n, few)
	if len(drawn) == n {
		return slices.Repeat([]int{1}, last)
	}
	for i := range drawn {
		drawn[i] += first
	}
	return drawn
}
