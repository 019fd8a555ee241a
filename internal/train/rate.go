package train

import (
	"errors"
	"time"

	"mt/device"
)

// matMulRate measures the device's matrix product rate in FLOP/s, in the
// compute dtype: what mfu is relative to. It takes a few dozen milliseconds, and
// smaller matrices where device_memory is small; 0 where none fit.
func matMulRate(dev device.Device, act device.DType) (float64, error) {
	const most, runs = 1024, 4
	s, err := dev.NewStream("rate")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	n := most
	mem, err := dev.Alloc(device.ForWorkspace, 3*squareBytes(n))
	for lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking); mem, err = dev.Alloc(device.ForWorkspace, 3*squareBytes(n)) {
		if n /= 2; n < most/8 {
			return 0, nil
		}
	}
	if err != nil {
		return 0, err
	}
	defer dev.Free(mem)
	s.Zero(mem)
	m := device.MatMul{M: n, N: n, K: n, TransB: true,
		A: mem.Tensor(act, 0, int64(n*n)), B: mem.Tensor(act, squareBytes(n), int64(n*n)), D: mem.Tensor(act, 2*squareBytes(n), int64(n*n))}
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
	return 2 * float64(n) * float64(n) * float64(n) / best.Seconds(), nil
}

// squareBytes is the size of an (n, n) matrix of any dtype.
func squareBytes(n int) int64 { return 4 * int64(n) * int64(n) }
