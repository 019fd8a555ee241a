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
	text, listed := strings.CutPrefix(c.Devices, "[")
	if text == "auto" {
		return DeviceList{All: true}, nil
	}
	var list DeviceList
	for _, item := range strings.Split(strings.TrimSuffix(text, "]"), ", ") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 0 || n > maxDevices {
			return list, c.Errorf(devicesKey, "devices must be %s, not %q", wantDevices, item)
		}
		if slices.Contains(list.Ordinals, n) {
			return list, c.Errorf(devicesKey, "devices names GPU %d twice: name each GPU once", n)
		}
		list.Ordinals = append(list.Ordinals, n)
	}
	list.Count = len(list.Ordinals)
	if listed {
		return list, nil
	}
	if list = (DeviceList{Count: list.Ordinals[0]}); list.Count == 0 {
		return list, c.Errorf(devicesKey, "devices is 0: give at least 1 device, or [0] for the first GPU")
	}
	return list, nil
}

// wantDevices describes the values of the key devices.
const wantDevices = "auto, a number of devices up to 64, or a list of GPUs such as [0, 2]"

// maxDevices is the largest number of devices that the key devices accepts; no machine has more.
const maxDevices = 64
