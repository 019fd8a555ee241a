package plan

import (
	"math"
	"math/bits"
)

// Writes is what a run writes into its output directory from here on; sizes are
// in bytes.
type Writes struct {
	Checkpoint int64   // the size of one, with states that it links and the run then writes elsewhere; 0: there are none
	Saves      int     // how many there will be; Unknown where the run's length is not known
	Limit      int     // how many checkpoints stay; 0: all
	Kept       []int64 // the sizes of those that are there already, the oldest first
	Model      int64   // the final model
	Average    int64   // that of the averages of the weights; 0: there is none
	Log        int64   // metrics and events
}

// Unknown is Writes.Saves where the number follows only from the data.
const Unknown = -1

// AtMost is how many bytes of disk the run uses at most at any one time, beyond what is used
// now. A checkpoint, and the final model, is complete before what it replaces is removed.
// With a limit of 1 the checkpoint before the last is still there when the final model is
// written, since no step has shown the last one to be good. Where an unknown number of
// checkpoints stays it is math.MaxInt64.
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
	n := min(saves, max(1, limit-len(w.Kept)+1)) // the first save after which one may be removed
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

// times and sum do not overflow: they are math.MaxInt64 at most.
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
