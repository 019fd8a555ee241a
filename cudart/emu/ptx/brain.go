package ptx

// brains decodes arithmetic on bf16 and on pairs of bf16. It is done in f32 and
// rounded to nearest even.
func (b *builder) brains(in *inst, m modifiers, t string) {
	name := b.st.words[0]
	nan, relu := m.has("NaN"), m.has("relu")
	m.take("rn")
	b.done(m)
	f, ok := map[string]func(x, y, z float32) float32{
		"add": func(x, y, _ float32) float32 { return x + y },
		"sub": func(x, y, _ float32) float32 { return x - y },
		"mul": func(x, y, _ float32) float32 { return x * y },
		"neg": func(x, _, _ float32) float32 { return f32(bits32(x) ^ 1<<31) },
		"abs": func(x, _, _ float32) float32 { return f32(bits32(x) &^ (1 << 31)) },
		"min": func(x, y, _ float32) float32 { return minMax(pick(nan, opFMinNaN, opFMin), x, y) },
		"max": func(x, y, _ float32) float32 { return minMax(pick(nan, opFMaxNaN, opFMax), x, y) },
		"fma": func(x, y, z float32) float32 { return 0 },
	}[name]
	if !ok || relu && name != "fma" {
		b.unknown()
	}
	one := func(x, y, z uint32) uint32 { return brain(bits32(f(f32(x<<16), f32(y<<16), f32(z<<16))), toNearest) }
	if name == "fma" {
		one = func(x, y, z uint32) uint32 { return fusedBrain(f32(x<<16), f32(y<<16), f32(z<<16), relu) }
	}
	in.fam, in.op = fam32, opCall
	in.x = &extra{run: func(d, a, b, c *lanes32) {
		for i := range d {
			lo := one(a[i]&0xffff, b[i]&0xffff, c[i]&0xffff)
			if t == "bf16x2" {
				lo |= one(a[i]>>16, b[i]>>16, c[i]>>16) << 16
			}
			d[i] = lo
		}
	}}
	n := map[string]int{"neg": 1, "abs": 1, "fma": 3}[name]
	if n == 0 {
		n = 2
	}
	b.operands(in, t, n)
}

// fusedBrain is a·b + c, rounded once to bf16. Until then the sum is rounded to
// odd: first in float64, then in float32 by truncating it and setting the last bit
// where something was cut off.
func fusedBrain(a, b, c float32, relu bool) uint32 {
	v := oddSum(float64(a)*float64(b), float64(c))
	x := narrow(v, toZero)
	u := bits32(x)
	if float64(x) != v && v == v {
		u |= 1
	}
	if relu && v < 0 {
		return 0
	}
	return brain(u, toNearest)
}

func minMax(o op, x, y float32) float32 {
	var d, a, b lanes32
	a[0], b[0] = bits32(x), bits32(y)
	minMaxLanes(o, &d, &a, &b)
	return f32(d[0])
}
