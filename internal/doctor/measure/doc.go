// Package measure times what training is made of: matrix products, attention and the
// other operations of a device, copies, and what the host does to its memory and to
// its disk. Every function takes shapes and returns the seconds that several runs of
// the same work took.
//
//	m, err := measure.New(dev, measure.Options{})
//	defer m.Close()
//	t, err := m.Product(measure.Product{M: 4096, N: 4096, K: 4096, DType: device.BF16})
//	rate := p.FLOPs() / t.Median
//
// It imports device, device/op, host, host/optim and model, and no command and no
// device of its own.
//
// Invariant: what is timed is device time between two events of one stream, or the
// host's time around a call, after a run that does not count; the memory that it takes
// is given back before a function returns.
package measure
