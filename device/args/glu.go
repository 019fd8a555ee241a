package args

import "mt/device"

// GLU is the error of the arguments of Ops.GLU: y (T, F) and gu (T, 2F) of one
// compute type.
func GLU(f device.Activation, y, gu device.Tensor, T, F int) error {
	var c checker
	c.activation(f)
	c.sizes(T, F)
	c.act("gu", gu, 2*T*F)
	c.tensor("y", y, T*F, gu.DType)
	return c.err
}

// GLUBackward is the error of the arguments of Ops.GLUBackward: dgu and gu (T,
// 2F), dy and y (T, F), which may be none, of one compute type.
func GLUBackward(f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) error {
	var c checker
	c.activation(f)
	c.sizes(T, F)
	c.act("gu", gu, 2*T*F)
	c.tensor("dgu", dgu, 2*T*F, gu.DType)
	c.tensor("dy", dy, T*F, gu.DType)
	c.optional("y", y, T*F, gu.DType)
	return c.err
}

// activation wants f to be one that there is.
func (c *checker) activation(f device.Activation) {
	c.that(f == device.SiLU || f == device.GELUTanh, "%v is no activation", f)
}

// Scale is the error of the arguments of Ops.Scale: x (n) of a compute type.
func Scale(x device.Tensor, n int64) error {
	var c checker
	c.sizes(int(n))
	c.act("x", x, int(n))
	return c.err
}
