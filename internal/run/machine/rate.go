package machine

import (
	"errors"

	"mt/device"
	"mt/internal/doctor/measure"
)

// CPURateSize is the largest matrix size, in rows and columns, for measuring a CPU's rate of matrix products. It keeps
// the measurement short. Tests that train many small models set a smaller size, because the measurement would take
// longer than the training.
var CPURateSize = 1024

// MatMulRate measures the device's rate of matrix products in FLOP/s, in the compute dtype act. The metric mfu is
// relative to this rate. The matrices are square with most rows, or fewer if memory is short. They are random, because
// a GPU is faster on zeros. The rate is 0 if even most/8 rows do not fit.
func MatMulRate(dev device.Device, act device.DType, most int) (rate float64, err error) {
	m, err := measure.New(dev, measure.Options{Runs: 3, Least: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for n := most; n >= most/8; n /= 2 {
		p := measure.Product{M: n, N: n, K: n, TransB: true, DType: act}
		took, err := m.Product(p)
		if err == nil {
			return p.FLOPs() / took.Least, nil
		}
		if lacking := (*device.OutOfMemory)(nil); !errors.As(err, &lacking) {
			return 0, err
		}
	}
	return 0, nil
}
