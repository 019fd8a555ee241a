package config

import (
	"slices"
	"strconv"
	"strings"
)

// DeviceList says what the key devices asks for: all devices there are, or Count of them, which
// are the first ones where Ordinals is nil.
type DeviceList struct {
	All      bool
	Count    int
	Ordinals []int
}

// DeviceList reads the key devices.
func (c *Config) DeviceList() (DeviceList, error) {
	const want = "want auto, a number of devices, or a list of GPUs such as [0, 2]"
	text, listed := strings.CutPrefix(c.Devices, "[")
	if text == "auto" {
		return DeviceList{All: true}, nil
	}
	var list DeviceList
	for _, item := range strings.Split(strings.TrimSuffix(text, "]"), ", ") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 0 || n > maxDevices {
			return list, c.Errorf(devicesKey, "devices: %q: %s", item, want)
		}
		if slices.Contains(list.Ordinals, n) {
			return list, c.Errorf(devicesKey, "devices: GPU %d is named twice", n)
		}
		list.Ordinals = append(list.Ordinals, n)
	}
	list.Count = len(list.Ordinals)
	if listed {
		return list, nil
	}
	if list = (DeviceList{Count: list.Ordinals[0]}); list.Count == 0 {
		return list, c.Errorf(devicesKey, "devices: 0 devices compute nothing: %s; [0] is the first GPU", want)
	}
	return list, nil
}

// maxDevices is more devices than any machine has.
const maxDevices = 64
