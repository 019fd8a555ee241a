package plan

import (
	"math"
	"math/bits"
)

// Writes describes what a run will write into its output directory. Sizes are in bytes.
type Writes struct {
	Checkpoint int64   // size of a checkpoint, including linked state files, which the run then writes anew; 0: no checkpoints
	Saves      int     // number of saves; Unknown if the run's length is unknown
	Limit      int     // number of checkpoints to keep; 0: all
	Kept       []int64 // sizes of the existing checkpoints, oldest first
	Model      int64   // the final model
	Average    int64   // size of the averaged model; 0: none
	Log        int64   // metrics and events
}

// Unknown is the value of Writes.Saves if the number of saves depends on the data.
const Unknown = -1

// AtMost returns the run's peak disk usage in bytes, beyond the present usage. A new checkpoint, or
// the final model, is complete before the checkpoint that it replaces is removed. With a limit of
// 1, two checkpoints still exist when the final model is written: the older one is removed only
// after a step has followed the newer. If neither checkpoints nor saves are bounded in number, the
// result is math.MaxInt64.
func (w Writes) AtMost() int64 {
	saves := w.Saves
	if saves == Unknown {
		saves = math.MaxInt
	}
	if w.Checkpoint == 0 {
		saves = 0
	}
	if saves == 0 || w.Limit == 0 {
		return sum(w.Log, times(saves, w.Checkpoint), w.Model, w.Average)
	}
	limit := min(w.Limit, math.MaxInt/2)
	n := min(saves, max(1, limit-len(w.Kept)+1)) // the first save after which a checkpoint may be removed
	now := times(n, w.Checkpoint)
	most, kept, removed := now, w.Kept, int64(0)
	remove := func() {
		switch {
		case n+len(w.Kept) <= limit:
			return
		case len(kept) > 0:
			removed, kept = kept[0], kept[1:]
		default:
			removed = w.Checkpoint
		}
		now -= removed
	}
	for extra := len(w.Kept) - limit; extra > 0; extra-- { // an earlier run kept more
		remove()
	}
	remove()
	for ; n < saves && len(kept) > 0; n++ {
		now = sum(now, w.Checkpoint)
		most = max(most, now)
		remove()
	}
	if n < saves {
		most, removed = max(most, sum(now, w.Checkpoint)), w.Checkpoint
	}
	if limit == 1 {
		now += removed
	}
	return sum(w.Log, max(most, sum(now, w.Model, w.Average)))
}

// times returns n·bytes, and sum below returns the sum of its arguments. Both return math.MaxInt64
// instead of overflowing.
func times(n int, bytes int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(bytes))
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

func sum(terms ...int64) int64 {
	var s int64
	for _, t := range terms {
		if t > 0 && s > math.MaxInt64-t {
			return math.MaxInt64
		}
		s += t
	}
	return s
}
