package config

import (
	"slices"
	"strconv"
	"strings"
)

// DeviceList is the parsed key devices: all devices, or Count of them. Ordinals lists their numbers; nil: the first
// Count devices.
type DeviceList struct {
	All      bool
	Count    int
	Ordinals []int
}

// DeviceList parses the key devices.
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

// maxDevices is above the number of devices of any machine.
const maxDevices = 64
