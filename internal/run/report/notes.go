package report

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"mt/internal/human"
)

// Notes are notes that come up while a run is under way, on any goroutine. The same
// text is shown only once.
type Notes struct {
	mu      sync.Mutex
	pending []string
	said    map[string]bool
}

// Add adds a note, unless there was the same before.
func (l *Notes) Add(text string) {
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

// Take returns the notes that were not shown yet, and forgets them.
func (l *Notes) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.pending
	l.pending = nil
	return out
}

// ShowAll prints notes.
func ShowAll(w io.Writer, notes ...[]string) {
	for _, s := range slices.Concat(notes...) {
		fmt.Fprintln(w, "note:", human.Screen(s))
	}
}

// Count is how many notes came up so far.
func (l *Notes) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.said)
}
