package bench

import (
	"strings"
	"sync"
)

// tailBytes is the number of bytes that a tail keeps.
const tailBytes = 4096

// tail keeps the last tailBytes bytes that were written to it: the end of a process's standard error. Calls may be
// concurrent.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer. It never returns an error.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(p), nil
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.kept))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
