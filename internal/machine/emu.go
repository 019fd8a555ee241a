//go:build emu

package machine

import (
	"mt/cudart"
	"mt/cudart/emu"
)

func init() {
	emulator = func() (cudart.Symbols, func() error) {
		drv := emu.New(emu.Options{})
		return drv, drv.Close
	}
}
