package train

import "sync"

// lateNotes are notes that come up while a run is under way, on any goroutine. The same
// text is shown only once.
type lateNotes struct {
	mu      sync.Mutex
	pending []string
	said    map[string]bool
}

func (l *lateNotes) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = map[string]bool{}
	}
	if !l.said[text] {
		l.said[text] = true
		l.pending = append(l.pending, text)
	}
}

// take returns the notes that were not shown yet, and forgets them.
func (l *lateNotes) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.pending
	l.pending = nil
	return out
}
