package train

import (
	"sync"

	"mt/checkpoint"
)

// windows are the windows of the log that checkpoints hold. A checkpoint is
// committed while later steps are already reported, so the window of its step is
// kept until then. They may be used from several goroutines.
type windows struct {
	mu     sync.Mutex
	last   checkpoint.LogWindow         // after the step reported last
	awaits map[int]checkpoint.LogWindow // by the step of a checkpoint to come
}

// reported notes how the window stands after a step; saved says that a checkpoint is
// made of the state after it.
func (w *windows) reported(step int, saved bool, now checkpoint.LogWindow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = now
	if !saved {
		return
	}
	if w.awaits == nil {
		w.awaits = map[int]checkpoint.LogWindow{}
	}
	w.awaits[step] = now
}

// take returns the window after a step that is being saved. A save that no report
// announced is of the state after the last step reported.
func (w *windows) take(step int) checkpoint.LogWindow {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, ok := w.awaits[step]
	if !ok {
		return w.last
	}
	delete(w.awaits, step)
	return now
}
