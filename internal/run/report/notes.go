package report

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"mt/base/human"
	"mt/device"
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

// DeviceNotes is the notes of devices, each of which is shown once.
type DeviceNotes struct {
	devs  []device.Device
	shown []int // by device: how many of its notes were shown
}

// NotesOf are the notes of devs, none of which was shown yet.
func NotesOf(devs []device.Device) *DeviceNotes { return &DeviceNotes{devs, make([]int, len(devs))} }

// Take returns the notes of the devices that were not shown yet, each once; from
// then on they count as shown.
func (n *DeviceNotes) Take() []string {
	var fresh []string
	for i, dev := range n.devs {
		if d, ok := dev.(interface{ Notes() []string }); ok {
			notes := d.Notes()
			for _, text := range notes[min(n.shown[i], len(notes)):] {
				if !slices.Contains(fresh, text) {
					fresh = append(fresh, text)
				}
			}
			n.shown[i] = len(notes)
		}
	}
	return fresh
}
