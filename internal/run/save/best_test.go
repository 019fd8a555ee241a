package save

import (
	"math"
	"strings"
	"testing"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/resolve"
	"mt/internal/run/resume"
	"mt/internal/testkit"
)

// TestBests: a lower loss counts as an improvement, and the run stops early after as many
// evaluations without one as patience says.
func TestBests(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		patience  int
		threshold float64
		losses    []float64
		want      checkpoint.Best
		over      int // the evaluation that is enough, counted from 1; 0: none
	}{
		{2, 0, []float64{3, 2, 1}, checkpoint.Best{Step: 3, Loss: 1}, 0},
		{2, 0, []float64{3, 3, 3}, checkpoint.Best{Step: 1, Loss: 3, Since: 2}, 3},
		{1, 0, []float64{3, 4}, checkpoint.Best{Step: 1, Loss: 3, Since: 1}, 2},
		{2, 0.5, []float64{3, 2.75, 2.5, 2}, checkpoint.Best{Step: 4, Loss: 2, Since: 3}, 3}, // lower each time, and never by more than 0.5
		{2, 0.5, []float64{3, 2.75, 2}, checkpoint.Best{Step: 3, Loss: 2}, 0},
		{2, 0, []float64{nan, 3, nan, nan}, checkpoint.Best{Step: 2, Loss: 3, Since: 2}, 4},
		{0, 0, []float64{1, 2, 3}, checkpoint.Best{Step: 1, Loss: 1, Since: 2}, 0},
	} {
		b := BestTracker{Patience: tc.patience, Threshold: tc.threshold}
		over := 0
		for i, l := range tc.losses {
			r := actors.EvalReport{Step: i + 1, Loss: l}
			b.Report(r)
			if b.Enough(r) && over == 0 {
				over = i + 1
			}
		}
		if b.asked != tc.want || b.Reported != tc.want || over != tc.over {
			t.Errorf("%v: %+v, enough after %d; want %+v after %d", tc.losses, b.asked, over, tc.want, tc.over)
		}
	}
}

func TestOneRunInADirectory(t *testing.T) {
	c := config.Default()
	c.OutputDir = t.TempDir()
	out := NewOutput(&resolve.Resolved{Start: resume.Fresh(&open.Inputs{Config: c})})
	unlock, err := out.LockOutput()
	testkit.NoError(t, err)
	if _, err := out.LockOutput(); err == nil || !strings.Contains(err.Error(), "another run writes there now") || config.IsUsage(err) {
		t.Errorf("beside another run: %v", err)
	}
	unlock()
	if unlock, err = out.LockOutput(); err != nil {
		t.Fatalf("after the other run: %v", err)
	}
	unlock()
}
