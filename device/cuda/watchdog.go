package cuda

import (
	"fmt"

	"mt/cudart"
	"mt/device"
)

// This file is about the driver's watchdog. hangs.go reports launches that do not end.
//
// A GPU that drives a display, and a GPU under Windows' driver, has a watchdog. The watchdog ends a kernel after
// about 2 seconds, and the context with it. mt splits launches that might take longer.
const (
	launchSeconds = 1.0 // longest time of a launch in seconds
	// FLOPs (multiplications and additions) of a multiprocessor in a clock cycle, on the slowest
	// supported GPUs: 512 in tensor cores with fp32 sums (GA102, AD102), 128 outside tensor cores
	// (GA100). Source: NVIDIA's whitepapers of these GPUs.
	cycleBF16, cycleF32 = 512, 128
	// attained is the share of the GPU's peak, computed from the numbers above, that attention
	// reaches at least.
	attained = 0.25
)

// watch sets pace, a rate in FLOP/s that this GPU reaches in any case. If the GPU has a watchdog,
// watch also sets mostWork, the limit on the FLOPs of a launch.
func (d *dev) watch() error {
	watched, err := d.cuda.DeviceAttribute(cudart.AttrExecTimeout, d.opts.Ordinal)
	if err != nil {
		return err
	}
	clock, err := d.cuda.DeviceAttribute(cudart.AttrClockRate, d.opts.Ordinal) // kHz
	if err != nil {
		return err
	}
	cycles := 1000 * attained * float64(max(d.processors, 1)) * float64(max(clock, 1)) // a second; a virtual GPU may report 0
	d.pace = [2]float64{device.F32: cycleF32 * cycles, device.BF16: cycleBF16 * cycles}
	if watched == 0 && !d.opts.Watchdog {
		return nil
	}
	d.mostWork = [2]float64{device.F32: launchSeconds * d.pace[device.F32], device.BF16: launchSeconds * d.pace[device.BF16]}
	d.note(fmt.Sprintf("a watchdog ends work of the %s that takes longer than some 2 s: long attention is cut by heads into several launches", d.name))
	return nil
}
