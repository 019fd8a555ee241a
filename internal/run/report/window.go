package report

import (
	"sync"

	"mt/checkpoint"
)

// Windows are the windows of the log that checkpoints hold.
type Windows = Awaited[checkpoint.LogWindow]

// Awaited is a value that changes from step to step and that checkpoints hold. A
// checkpoint is committed while later steps are already reported, so the value after its
// step is kept until then. It may be used from several goroutines.
type Awaited[T any] struct {
	mu     sync.Mutex
	last   T         // after the step reported last
	awaits map[int]T // by the step of a checkpoint to come
}

// Reported notes the value after a step; saved says that a checkpoint is made of the
// state after it.
func (w *Awaited[T]) Reported(step int, saved bool, now T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = now
	if !saved {
		return
	}
	if w.awaits == nil {
		w.awaits = map[int]T{}
	}
	w.awaits[step] = now
}

// Take returns the value after a step that is being saved. A save that no report
// announced is of the state after the last step reported.
func (w *Awaited[T]) Take(step int) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, ok := w.awaits[step]
	if !ok {
		return w.last
	}
	delete(w.awaits, step)
	return now
}
