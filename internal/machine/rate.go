package machine

import (
	"errors"
	"time"

	"mt/device"
	"mt/device/op"
	"mt/internal/accounts"
	"mt/internal/measure"
)

// CPURateSize is the largest number of rows and columns of the matrices with which a run measures
// the rate of a CPU: few enough to be done soon. Tests that train many small models make it smaller
// before they begin, since the products would take longer than the runs.
var CPURateSize = 1024

// MatMulRate measures the device's rate of matrix products in FLOP/s, in the compute dtype
// act; mfu is relative to it. It multiplies random matrices (a GPU is faster on zeros) of
// most × most elements, or of fewer where the device has no memory for them; the rate is 0
// where even most/8 rows and columns do not fit.
func MatMulRate(dev device.Device, act device.DType, most int) (float64, error) {
	const runs = 4
	s, err := dev.NewStream("rate")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	n := most
	mem, err := dev.Alloc(accounts.Workspace, 3*squareBytes(n))
	for lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking); mem, err = dev.Alloc(accounts.Workspace, 3*squareBytes(n)) {
		if n /= 2; n < most/8 {
			return 0, nil
		}
	}
	if err != nil {
		return 0, err
	}
	defer dev.Free(mem)
	m := op.MatMul{M: n, N: n, K: n, TransB: true,
		A: mem.Tensor(act, 0, int64(n*n)), B: mem.Tensor(act, squareBytes(n), int64(n*n)), D: mem.Tensor(act, 2*squareBytes(n), int64(n*n))}
	if err := measure.FillRandom(dev, s, mem.Slice(0, 2*squareBytes(n)), act); err != nil {
		return 0, err
	}
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
		op.Do(dev, s, m)
		s.Record(end)
		if err := s.Sync(); err != nil {
			return 0, err
		}
		if d := end.Elapsed(start); best == 0 || d < best {
			best = d
		}
	}
	return 2 * float64(n) * float64(n) * float64(n) / max(best, 1).Seconds(), nil
}

// squareBytes is the size of an (n, n) matrix of any dtype.
func squareBytes(n int) int64 { return 4 * int64(n) * int64(n) }
