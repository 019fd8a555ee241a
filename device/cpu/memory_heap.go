//go:build race || !linux

package cpu

import "mt/device"

// mapMemory returns zeroed memory of the Go heap, where the race detector sees it.
func mapMemory(bytes int64) ([]byte, error) {
	data := make([]byte, bytes+device.Align)
	skip := -int64(address(data)) & (device.Align - 1)
	return data[skip : skip+bytes : skip+bytes], nil
}

func unmapMemory([]byte) {}
