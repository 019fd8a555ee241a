//go:build emu

package machine

import (
	"mt/cudart"
	"mt/cudart/emu"
)

func init() {
	emulator = func() (cudart.Symbols, func() error) {
		drv := emu.New(emu.Options{Devices: 4})
		return drv, drv.Close
	}
}
