package plan

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// played is AtMost by playing a run with a known number of saves.
func played(w Writes) int64 {
	kept := slices.Clone(w.Kept)
	var now, most int64
	saves := w.Saves
	if w.Checkpoint == 0 {
		saves = 0
	}
	for i := range saves {
		limit := w.Limit
		if limit == 1 && i == saves-1 {
			limit = 2
		}
		kept = append(kept, w.Checkpoint)
		now += w.Checkpoint
		most = max(most, now)
		for limit > 0 && len(kept) > limit {
			now, kept = now-kept[0], kept[1:]
		}
	}
	return w.Log + max(most, now+w.Average+w.Model)
}

// TestDiskAtMost compares with runs played save by save.
func TestDiskAtMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		w := Writes{Checkpoint: r.Int64N(3) * 10, Saves: r.IntN(8), Limit: r.IntN(5), Model: r.Int64N(30), Average: r.Int64N(2) * 7, Log: r.Int64N(3)}
		for range r.IntN(6) {
			w.Kept = append(w.Kept, r.Int64N(40))
		}
		if got, want := w.AtMost(), played(w); got != want {
			t.Fatalf("%+v: %d, want %d", w, got, want)
		}
	}
}

func TestDiskAtMostOfLongRuns(t *testing.T) {
	for _, tc := range []struct {
		w    Writes
		want int64
	}{
		{Writes{Checkpoint: 100, Saves: Unknown, Model: 20, Log: 1}, math.MaxInt64},
		{Writes{Checkpoint: 0, Saves: Unknown, Model: 20, Log: 1}, 21},
		{Writes{Checkpoint: 0, Saves: Unknown, Model: 20, Average: 5, Log: 1}, 26},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 2, Model: 20, Log: 1}, 301},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 2, Model: 20, Kept: []int64{100, 100}}, 100},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: 1, Model: 120, Kept: []int64{100, 100}}, 120},
		{Writes{Checkpoint: 100, Saves: Unknown, Limit: math.MaxInt, Model: 20, Log: 1}, math.MaxInt64},
		{Writes{Checkpoint: math.MaxInt64 / 2, Saves: 3, Model: math.MaxInt64}, math.MaxInt64},
		{Writes{Checkpoint: 1 << 40, Saves: math.MaxInt, Limit: 3, Model: 20}, 4 << 40},
	} {
		if got := tc.w.AtMost(); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.w, got, tc.want)
		}
	}
}
