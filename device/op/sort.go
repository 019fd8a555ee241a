package op

import "mt/device"

// SortByExpert lists the pairs (token, choice) by expert.
//
//	IDs (N) i32, N = T·K, each < E ≤ MaxExperts: the result of Router
//	Order (N) i32: the pairs' numbers t·K + k by expert, ascending within an expert
//	Rows (N) i32 = Order/K
//	Offsets (E+1) i32: expert e has Order[Offsets[e]:Offsets[e+1]]
//	Counts (E) i32 accumulates each expert's number of pairs; none: not wanted
type SortByExpert struct {
	IDs, Order, Rows, Offsets, Counts device.Tensor
	N, K, E                           int
}

// Name implements device.Op.
func (a *SortByExpert) Name() string { return "SortByExpert" }

// Check implements device.Op. The values of IDs are not checked.
func (a *SortByExpert) Check() error {
	var c checker
	c.sizes(a.N, a.K, a.E)
	c.experts(a.N, a.E)
	if a.N > 0 && (a.K <= 0 || a.N%a.K != 0) {
		c.fail("%d pairs are not %d for each token", a.N, a.K)
	}
	c.tensor("IDs", a.IDs, a.N, device.I32)
	c.tensor("Order", a.Order, a.N, device.I32)
	c.tensor("Rows", a.Rows, a.N, device.I32)
	c.tensor("Offsets", a.Offsets, a.E+1, device.I32)
	c.optional("Counts", a.Counts, a.E, device.I32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SortByExpert) Bytes() int64 {
	return 12*int64(a.N) + 4*int64(a.E)
}
