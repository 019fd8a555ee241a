//go:build emu

package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"mt/cudart"
	"mt/cudart/emu"
)

// emuFault is the environment variable that makes the emulator misbehave, for tests. Its value has the syntax of
// emu.Options.Plant.
const emuFault = "MT_EMU_FAULT"

func init() {
	emulator = func() (cudart.Symbols, func() error, error) {
		o := emu.Options{Devices: 4, CoreDump: coreDump()}
		if err := o.Plant(os.Getenv(emuFault)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", emuFault, err)
		}
		drv := emu.New(o)
		return drv, drv.Close, nil
	}
}

// coreDump returns the name of the file into which the emulator writes a core dump after a fault. It follows the
// environment variables of CUDA's driver; "" means no dump.
func coreDump() string {
	if os.Getenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") != "1" {
		return ""
	}
	host, _ := os.Hostname() // without a name %h is empty
	return strings.NewReplacer("%p", strconv.Itoa(os.Getpid()), "%h", host).Replace(os.Getenv("CUDA_COREDUMP_FILE"))
}
