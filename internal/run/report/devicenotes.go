package report

import (
	"slices"

	"mt/device"
)

// DeviceNotes is the notes of devices, each of which is shown once.
type DeviceNotes struct {
	devs []device.Device
	told []int // by device: how many of its notes were shown
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
			for _, text := range notes[min(n.told[i], len(notes)):] {
				if !slices.Contains(fresh, text) {
					fresh = append(fresh, text)
				}
			}
			n.told[i] = len(notes)
		}
	}
	return fresh
}
