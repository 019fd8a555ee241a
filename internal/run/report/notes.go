package report

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"mt/base/human"
	"mt/device"
)

// Notes collects notes during a run, from any goroutine. Each text is shown once.
type Notes struct {
	mu      sync.Mutex
	pending []string
	said    map[string]bool
}

// Add adds a note, unless the same text was added before.
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

// Take returns the notes not shown yet and removes them.
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

// Count returns the number of notes so far.
func (l *Notes) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.said)
}

// DeviceNotes collects the notes of devices. Each is shown once.
type DeviceNotes struct {
	devs  []device.Device
	shown []int // by device: number of notes already shown
}

// NotesOf returns the notes of devs, none of them shown.
func NotesOf(devs []device.Device) *DeviceNotes { return &DeviceNotes{devs, make([]int, len(devs))} }

// Take returns the devices' notes that were not shown yet, without duplicates, and marks them as shown.
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
