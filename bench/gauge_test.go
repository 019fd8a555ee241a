package bench

import (
	"errors"
	"testing"

	"mt/internal/testkit"
)

// TestTimed: work is repeated, up to the maximum, if the machine's speed changed during it. The result is the speed
// around the last run.
func TestTimed(t *testing.T) {
	for _, c := range []struct {
		readings []float64
		attempts int
		runs     int
		speed    float64
	}{
		{[]float64{1, 1.05}, 3, 1, 1.025},
		{[]float64{1, 2, 2, 2.1}, 3, 2, 2.05},
		{[]float64{2, 1, 1, 2, 4, 1, 9, 9}, 3, 3, 2.5},
	} {
		next, runs := 0, 0
		read := func() (float64, error) {
			next++
			return c.readings[next-1], nil
		}
		speed, err := timed(read, c.attempts, func() error { runs++; return nil })
		if err != nil || runs != c.runs || speed != c.speed {
			t.Errorf("readings %v: %d runs at %v, want %d at %v: %v", c.readings, runs, speed, c.runs, c.speed, err)
		}
	}
	broken := errors.New("broken")
	good := func() (float64, error) { return 1, nil }
	if _, err := timed(good, 3, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a run that fails: %v", err)
	}
	if _, err := timed(func() (float64, error) { return 0, broken }, 3, func() error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a gauge that fails: %v", err)
	}
}

// TestGauge: a reading of the gauge returns a positive time.
func TestGauge(t *testing.T) {
	testkit.NotShort(t)
	g := testkit.Must(newGauge())(t)
	if took, err := g.read(); err != nil || took <= 0 {
		t.Errorf("a step took %v s: %v", took, err)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
}
