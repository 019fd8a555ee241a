package train

import (
	"time"

	"mt/device"
)

// matMulRate measures the device's matrix product rate in FLOP/s, in the
// compute dtype: what mfu is relative to. It takes a few dozen milliseconds.
func matMulRate(dev device.Device, act device.DType) (float64, error) {
	const n, runs = 1024, 4
	s, err := dev.NewStream("rate")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	bytes := int64(n) * n * 4
	mem, err := dev.Alloc(device.ForWorkspace, 3*bytes)
	if err != nil {
		return 0, err
	}
	defer dev.Free(mem)
	s.Zero(mem)
	m := device.MatMul{M: n, N: n, K: n, TransB: true, A: mem.Tensor(act, 0, n*n), B: mem.Tensor(act, bytes, n*n), D: mem.Tensor(act, 2*bytes, n*n)}
	start, err := dev.NewEvent()
	if err != nil {
		return 0, err
	}
	defer start.Close()
	end, err := dev.NewEvent()
	if err != nil {
		return 0, err
	}
	defer end.Close()
	best := time.Duration(0)
	for range runs {
		s.Record(start)
		dev.Ops().MatMul(s, m)
		s.Record(end)
		if err := s.Sync(); err != nil {
			return 0, err
		}
		if d := end.Elapsed(start); best == 0 || d < best {
			best = d
		}
	}
	return 2 * n * n * n / best.Seconds(), nil
}
