package cuda

import (
	"fmt"

	"mt/cudart"
	"mt/device"
)

// This file is about a watchdog of the driver. What mt itself says of launches that do not end is in hangs.go.
//
// A GPU that draws a display, and one under Windows' driver, has a watchdog: it ends a kernel after some 2
// seconds, and with it the context. A launch that might take longer is then cut.
const (
	launchSeconds = 1.0 // that a launch should take at most
	// What a multiprocessor does in a cycle on the slowest of the GPUs that mt runs on: 512 FLOPs in tensor
	// cores with fp32 sums (GA102, AD102), 128 outside them (GA100). Source: NVIDIA's whitepapers of these.
	cycleBF16, cycleF32 = 512, 128
	// attained is the share of that which attention reaches at least.
	attained = 0.25
)

// watch sets pace, and mostWork where there is a watchdog.
func (d *dev) watch() error {
	watched, err := d.cuda.DeviceAttribute(cudart.AttrExecTimeout, d.opts.Ordinal)
	if err != nil {
		return err
	}
	cycles := 1000 * attained // a second, of a clock in kHz
	for _, attr := range []cudart.DeviceAttr{cudart.AttrProcessors, cudart.AttrClockRate} {
		n, err := d.cuda.DeviceAttribute(attr, d.opts.Ordinal)
		if err != nil {
			return err
		}
		cycles *= float64(max(n, 1)) // a virtual GPU may say 0
	}
	d.pace = [2]float64{device.F32: cycleF32 * cycles, device.BF16: cycleBF16 * cycles}
	if watched == 0 && !d.opts.Watchdog {
		return nil
	}
	d.mostWork = [2]float64{device.F32: launchSeconds * d.pace[device.F32], device.BF16: launchSeconds * d.pace[device.BF16]}
	d.note(fmt.Sprintf("a watchdog ends work of the %s that takes longer than some 2 s: long attention is cut by heads into several launches", d.name))
	return nil
}
