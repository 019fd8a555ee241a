package cuda

import (
	"fmt"

	"mt/cudart"
	"mt/device"
)

// A GPU that draws a display, and one under Windows' driver, has a watchdog: it ends a kernel after some 2
// seconds, and with it the context. A launch that might take longer is then cut.
const (
	launchSeconds = 1.0 // that a launch should take at most
	// What a multiprocessor does in a cycle on the slowest of the GPUs that mt runs on: 512 FLOPs in tensor
	// cores with fp32 sums, 256 outside them. Source: NVIDIA's whitepapers of GA102 and AD102.
	cycleBF16, cycleF32 = 512, 256
	// attained is the share of that which attention reaches at least.
	attained = 0.25
)

// watch sets mostWork where there is a watchdog.
func (d *dev) watch() error {
	var of [3]int
	for i, attr := range []cudart.DeviceAttr{cudart.AttrExecTimeout, cudart.AttrProcessors, cudart.AttrClockRate} {
		var err error
		if of[i], err = d.cuda.DeviceAttribute(attr, d.opts.Ordinal); err != nil {
			return err
		}
	}
	if of[0] == 0 && !d.opts.Watchdog {
		return nil
	}
	cycles := float64(of[1]) * float64(of[2]) * 1000 * launchSeconds * attained
	d.mostWork = [2]float64{device.F32: cycleF32 * cycles, device.BF16: cycleBF16 * cycles}
	d.note(fmt.Sprintf("a watchdog ends work of the %s that takes longer than some 2 s: long attention is cut by heads into several launches", d.name))
	return nil
}
