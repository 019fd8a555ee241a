// Package measure times the parts of training: matrix products, attention and the other operations of a device,
// copies, and the host's work on memory and disk. Each function takes a shape and returns the seconds of several runs
// of the same work.
//
//	m, err := measure.New(dev, measure.Options{})
//	defer m.Close()
//	p := measure.Product{M: 4096, N: 4096, K: 4096, DType: device.BF16}
//	t, err := m.Product(p)
//	rate := p.FLOPs() / t.Median
//
// It imports device, device/op, host, host/optim and model, but no command and no device implementation.
//
// Invariant: each time is the device time between two events of one stream, or the host time of a call, after a
// warm-up run. A function frees its memory before it returns.
package measure
