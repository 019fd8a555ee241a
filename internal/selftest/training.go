package selftest

import (
	"fmt"
	"math"

	"mt/device"
)

// Bounds of a loss's relative difference to the CPU device's over ten steps. In
// fp32 both round every product sum in another order, about 1e-6 of a logit,
// which training amplifies a little each step. In bf16 activations are rounded
// to 2^-9 in other places; the losses of recorded bf16 runs against fp32 ones
// stay within a percent.
var trainBounds = map[device.DType]float64{device.F32: 1e-4, device.BF16: 2e-2}

// training compares the losses of a short run with those of the CPU device.
func (r *Report) training(o *Options) error {
	if o.Train == nil {
		return nil
	}
	for _, act := range []device.DType{device.F32, device.BF16} {
		on := func(kind string) ([]float64, error) {
			begins := func() { r.starts(fmt.Sprintf("training %s on %s", act, kind)) }
			begins()
			return o.Train(kind, act, begins)
		}
		got, err := on(o.Device.Kind())
		if err != nil {
			return fmt.Errorf("training %s on %s: %w", act, o.Device.Kind(), err)
		}
		want, err := on(o.CPU.Kind())
		if err != nil {
			return fmt.Errorf("training %s on %s: %w", act, o.CPU.Kind(), err)
		}
		c := Check{Name: "training " + act.String(), OK: true}
		if len(got) != len(want) || len(want) == 0 {
			c.errorf("%d steps, the %s device did %d", len(got), o.CPU.Kind(), len(want))
			r.add(c)
			continue
		}
		worst := 0.0
		for i, v := range want {
			e := math.Abs(got[i]-v) / v
			if !(e <= trainBounds[act]) {
				c.errorf("step %d: loss %v, on the %s device %v", i+1, got[i], o.CPU.Kind(), v)
			}
			worst = max(worst, e)
		}
		c.Detail = fmt.Sprintf("%d steps, loss %.4f → %.4f, at most %.2g from the %s device's (allowed %.2g)", len(want), got[0], got[len(got)-1],
			worst, o.CPU.Kind(), trainBounds[act])
		r.add(c)
	}
	return nil
}
