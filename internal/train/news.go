package train

import (
	"slices"

	"mt/device"
)

// deviceNews is the notes of devices, each of which is shown once.
type deviceNews struct {
	devs []device.Device
	told []int // by device: how many of its notes were shown
}

func newsOf(devs []device.Device) *deviceNews { return &deviceNews{devs, make([]int, len(devs))} }

// take returns the notes of the devices that were not shown yet, each once; from
// then on they count as shown.
func (j *deviceNews) take() []string {
	var fresh []string
	for i, dev := range j.devs {
		if d, ok := dev.(interface{ Notes() []string }); ok {
			notes := d.Notes()
			for _, n := range notes[min(j.told[i], len(notes)):] {
				if !slices.Contains(fresh, n) {
					fresh = append(fresh, n)
				}
			}
			j.told[i] = len(notes)
		}
	}
	return fresh
}
