package ptx

// fast returns, for a conversion that programs use often, a function that converts
// all threads at once. It is nil for the others.
func (c *conversion) fast() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if c.saturate || c.flush || c.relu {
		return nil
	}
	if !isFloat(c.from) && !isFloat(c.to) {
		return c.fastInteger()
	}
	switch c.to + "." + c.from {
	case "f32.s32":
		if c.how == toNearest {
			return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
				for i := range d32 {
					d32[i] = bits32(float32(int32(a32[i])))
				}
			}
		}
	case "f32.u32":
		if c.how == toNearest {
			return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
				for i := range d32 {
					d32[i] = bits32(float32(a32[i]))
				}
			}
		}
	case "f32.bf16":
		return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d32 {
				d32[i] = a32[i] << 16
			}
		}
	case "f64.f32":
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = bits64(float64(f32(a32[i])))
			}
		}
	case "f32.f64":
		if c.how == toNearest && !c.integer {
			return func(d32 *lanes32, _ *lanes64, _ *lanes32, a64 *lanes64) {
				for i := range d32 {
					d32[i] = bits32(float32(f64(a64[i])))
				}
			}
		}
	}
	return nil
}

// fastInteger is fast for conversions that keep low bits and extend them.
func (c *conversion) fastInteger() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if c.from64 || typeBytes(c.to) < typeBytes(c.from) {
		return c.narrowing()
	}
	if typeBytes(c.from) != 4 {
		return nil
	}
	switch {
	case c.to64 && isSigned(c.from):
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = uint64(int64(int32(a32[i])))
			}
		}
	case c.to64:
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = uint64(a32[i])
			}
		}
	}
	return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) { *d32 = *a32 }
}

// narrowing is fast for conversions that keep the low bits of an integer.
func (c *conversion) narrowing() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if c.saturate || isFloat(c.from) || isFloat(c.to) {
		return nil
	}
	if c.from64 && !c.to64 && typeBytes(c.to) == 4 && typeBytes(c.from) == 8 {
		return func(d32 *lanes32, _ *lanes64, _ *lanes32, a64 *lanes64) {
			for i := range d32 {
				d32[i] = uint32(a64[i])
			}
		}
	}
	if !c.from64 && !c.to64 && c.to == "u16" {
		return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d32 {
				d32[i] = a32[i] & 0xffff
			}
		}
	}
	return func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
		for i := range d32 {
			v := uint64(a32[i])
			if c.from64 {
				v = a64[i]
			}
			v = c.keep(extend(v, c.from))
			if c.to64 {
				d64[i] = v
			} else {
				d32[i] = uint32(v)
			}
		}
	}
}
