package args

import "mt/device"

// ScaleRows is the error of the arguments of Ops.ScaleRows. What Index holds is
// not looked at.
func ScaleRows(a device.ScaleRows) error {
	var c checker
	c.scaledRows(a.W, a.Index, a.T, a.C, a.P)
	c.act("X", a.X, a.T*a.C)
	return c.err
}

// ScaleRowsBackward is the error of the arguments of Ops.ScaleRowsBackward. What
// Index holds is not looked at.
func ScaleRowsBackward(a device.ScaleRowsBackward) error {
	var c checker
	c.scaledRows(a.W, a.Index, a.T, a.C, a.P)
	c.act("Y", a.Y, a.T*a.C)
	c.tensor("DY", a.DY, a.T*a.C, a.Y.DType)
	c.tensor("DW", a.DW, a.P, device.F32)
	return c.err
}

// AddRows is the error of the arguments of Ops.AddRows: dst (U, C) f32, src (T,
// C) act, index (T) i32. What index holds is not looked at.
func AddRows(dst, src, index device.Tensor, U, T, C int) error {
	var c checker
	c.sizes(U, T, C)
	c.tensor("dst", dst, U*C, device.F32)
	c.act("src", src, T*C)
	c.tensor("index", index, T, device.I32)
	return c.err
}

// Router is the error of the arguments of Ops.Router.
func Router(a device.Router) error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K)
	c.tensor("Weights", a.Weights, a.T*a.K, device.F32)
	c.optional("ProbSum", a.ProbSum, a.E, device.F32)
	return c.err
}

// RouterBackward is the error of the arguments of Ops.RouterBackward. What IDs
// hold is not looked at.
func RouterBackward(a device.RouterBackward) error {
	var c checker
	c.router(a.Logits, a.IDs, a.T, a.E, a.K)
	c.tensor("DLogits", a.DLogits, a.T*a.E, device.F32)
	c.tensor("DWeights", a.DWeights, a.T*a.K, device.F32)
	c.optional("Counts", a.Counts, a.E, device.I32)
	return c.err
}

// SortByExpert is the error of the arguments of Ops.SortByExpert. What IDs hold
// is not looked at.
func SortByExpert(a device.SortByExpert) error {
	var c checker
	c.sizes(a.N, a.K, a.E)
	c.experts(a.N, a.E)
	c.that(a.N == 0 || a.K > 0 && a.N%a.K == 0, "%d pairs are not %d for each token", a.N, a.K)
	c.tensor("IDs", a.IDs, a.N, device.I32)
	c.tensor("Order", a.Order, a.N, device.I32)
	c.tensor("Rows", a.Rows, a.N, device.I32)
	c.tensor("Offsets", a.Offsets, a.E+1, device.I32)
	c.optional("Counts", a.Counts, a.E, device.I32)
	return c.err
}

// scaledRows wants what both directions of ScaleRows need: one of P factors for each
// of T rows.
func (c *checker) scaledRows(w, index device.Tensor, T, C, P int) {
	c.sizes(T, C, P)
	c.tensor("W", w, P, device.F32)
	c.tensor("Index", index, T, device.I32)
}

// experts wants a number of experts that there may be, for n tokens.
func (c *checker) experts(n, experts int) {
	c.that(n == 0 || experts > 0, "there are no experts")
	c.that(experts <= device.MaxExperts, "%d experts: at most %d", experts, device.MaxExperts)
}

// router wants what both directions of a router need: that each of T tokens chooses
// K of E experts.
func (c *checker) router(logits, ids device.Tensor, T, E, K int) {
	c.sizes(T, E, K)
	c.experts(T, E)
	most := min(E, device.MaxChosen)
	c.that(T == 0 || K > 0 && K <= most, "%d of %d experts are chosen: want 1 to %d", K, E, most)
	c.tensor("Logits", logits, T*E, device.F32)
	c.tensor("IDs", ids, T*K, device.I32)
}
