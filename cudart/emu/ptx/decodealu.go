package ptx

// integers are the integer instructions that take their operands in order. The key
// is the mnemonic and, where the sign matters, the letter of the type.
var integers = map[string]op{
	"add": opAdd, "sub": opSub, "div.s": opDivS, "div.u": opDivU, "rem.s": opRemS, "rem.u": opRemU, "min.s": opMinS, "min.u": opMinU,
	"max.s": opMaxS, "max.u": opMaxU, "abs.s": opAbs, "neg.s": opNeg, "and": opAnd, "or": opOr, "xor": opXor, "not": opNot,
	"shl": opShl, "shr.s": opShrS, "shr.u": opShrU, "shr.b": opShrU, "popc": opPopc, "clz": opClz,
	"bfe.s": opBfeS, "bfe.u": opBfeU, "bfi": opBfi, "prmt": opPrmt, "shf": opShfL,
}

// floats are the floating-point instructions. Those with fewer than three operands
// leave the last ones unset.
var floats = map[string]op{
	"add": opFAdd, "sub": opFSub, "mul": opFMul, "fma": opFMA, "mad": opFMA, "div": opFDiv, "min": opFMin, "max": opFMax, "neg": opFNeg,
	"abs": opFAbs, "sqrt": opFSqrt, "rsqrt": opFRsqrt, "rcp": opFRcp, "ex2": opFEx2, "lg2": opFLg2,
}

// arithmetic decodes all instructions on integers and floats except mul and mad.
func (b *builder) arithmetic(in *inst) {
	m := b.modifiers()
	t := m.last()
	switch {
	case t == "f32" || t == "f64":
		b.float(in, m, t)
	case t == "pred":
		b.predicates(in, m)
	case typeBytes(t) == 0 || isFloat(t):
		b.unknown()
	default:
		b.integerOp(in, m, t)
	}
}

// operands decodes the destination and n operands of type t.
func (b *builder) operands(in *inst, t string, n int) {
	b.count(n + 1)
	in.d = b.out(b.arg(0), fileOf(t))
	for i, to := range []*int32{&in.a, &in.b, &in.c, &in.e}[:n] {
		*to = b.in(b.arg(i+1), t)
	}
}

func (b *builder) integerOp(in *inst, m modifiers, t string) {
	name := b.st.words[0]
	o, ok := integers[name]
	if !ok {
		if o, ok = integers[name+"."+t[:1]]; !ok {
			b.unknown()
		}
	}
	in.op, in.fam = o, fam32
	if fileOf(t) == in64 {
		in.fam = fam64
	}
	switch name {
	case "shl", "shr":
		b.done(m)
		b.count(3)
		in.d, in.a, in.b = b.out(b.arg(0), fileOf(t)), b.in(b.arg(1), t), b.in(b.arg(2), "u32")
		b.narrowInteger(in, t)
		if in.wrap&(wrapSign16|wrapSign8) != 0 {
			b.fixShift(in)
		}
		return
	case "shf", "prmt", "bfe", "bfi", "popc", "clz":
		b.fields(in, m, t)
		return
	}
	b.done(m)
	n := 2
	switch name {
	case "abs", "neg", "not":
		n = 1
	}
	b.operands(in, t, n)
	b.narrowInteger(in, t)
}

// fixShift decodes a signed right shift of 16 bits: the amount of the shift is not
// such a number.
func (b *builder) fixShift(in *inst) {
	in.x = &extra{run: func(d, a, n, _ *lanes32) {
		for i := range d {
			d[i] = uint32(int32(int16(a[i])) >> n[i])
		}
	}}
	in.op, in.wrap = opCall, wrapMask16
}

// narrowInteger has the operands and the result of an instruction on 16 or 8 bits
// adjusted.
func (b *builder) narrowInteger(in *inst, t string) {
	n := typeBytes(t)
	if n > 2 {
		return
	}
	in.fam = famWrapped
	in.wrap |= pick(n == 2, wrapMask16, wrapMask8)
	if isSigned(t) {
		in.wrap |= pick(n == 2, wrapSign16, wrapSign8)
	}
}

// fields decodes the instructions on bit fields, whose operands are of different
// types.
func (b *builder) fields(in *inst, m modifiers, t string) {
	wide := fileOf(t) == in64
	if name := b.st.words[0]; wide && name != "popc" && name != "clz" {
		b.unknown()
	}
	switch b.st.words[0] {
	case "popc", "clz":
		b.done(m)
		b.count(2)
		in.d, in.a = b.out(b.arg(0), in32), b.in(b.arg(1), t)
		if wide {
			in.fam, in.op = famMixed, pick(in.op == opPopc, opPopc64, opClz64)
		}
	case "bfe":
		b.done(m)
		b.count(4)
		in.d, in.a, in.b, in.c = b.out(b.arg(0), in32), b.in(b.arg(1), t), b.in(b.arg(2), "u32"), b.in(b.arg(3), "u32")
	case "bfi":
		b.done(m)
		b.count(5)
		in.d, in.a, in.b = b.out(b.arg(0), in32), b.in(b.arg(1), t), b.in(b.arg(2), t)
		in.c, in.e = b.in(b.arg(3), "u32"), b.in(b.arg(4), "u32")
	case "shf":
		left, clamp := m.take("l", "r") == "l", m.take("wrap", "clamp") == "clamp"
		b.done(m)
		b.operands(in, t, 3)
		in.op = pick(left, pick(clamp, opShfLClamp, opShfL), pick(clamp, opShfRClamp, opShfR))
	case "prmt":
		b.done(m)
		b.operands(in, t, 3)
	}
}

// mul decodes mul and mad of every type.
func (b *builder) mul(in *inst) {
	m := b.modifiers()
	t := m.last()
	mad := b.st.words[0] == "mad"
	n := pick(mad, 3, 2)
	if t == "f32" || t == "f64" {
		b.float(in, m, t)
		return
	}
	half := m.take("lo", "hi", "wide")
	b.done(m)
	if typeBytes(t) < 2 || t[0] == 'b' || t[0] == 'f' {
		b.unknown()
	}
	signed := t[0] == 's'
	in.fam = pick(fileOf(t) == in64, fam64, fam32)
	switch half {
	case "wide":
		if mad {
			b.unknown()
		}
		b.mulWide(in, t, signed)
		return
	case "lo":
		in.op = pick(mad, opMad, opMul)
	case "hi":
		if mad || typeBytes(t) != 4 {
			b.unknown()
		}
		in.op = pick(signed, opMulHiS, opMulHiU)
	default:
		b.unknown()
	}
	b.operands(in, t, n)
	b.narrowInteger(in, t)
}

func (b *builder) mulWide(in *inst, t string, signed bool) {
	b.count(3)
	var result string
	switch typeBytes(t) {
	case 2:
		result = "b32"
		in.fam, in.op = famWrapped, opMul
		in.wrap = pick(signed, wrapSign16, 0)
	case 4:
		result = "b64"
		in.fam = famMixed
		in.op = pick(signed, opMulWideS, opMulWideU)
	default:
		b.unknown()
	}
	in.d, in.a, in.b = b.out(b.arg(0), fileOf(result)), b.in(b.arg(1), t), b.in(b.arg(2), t)
}

// float decodes an f32 or f64 instruction.
func (b *builder) float(in *inst, m modifiers, t string) {
	o, ok := floats[b.st.words[0]]
	if !ok {
		b.unknown()
	}
	flush, nan := m.has("ftz"), m.has("NaN")
	m.take("rn", "approx", "full")
	b.done(m)
	n := 2
	switch {
	case o == opFMA:
		n = 3
	case o == opFNeg || o == opFAbs || o >= opFSqrt && o <= opFLg2:
		n = 1
	}
	if nan && (t != "f32" || o != opFMin && o != opFMax) {
		b.unknown()
	}
	if nan {
		o = pick(o == opFMin, opFMinNaN, opFMaxNaN)
	}
	in.op = o
	b.operands(in, t, n)
	if t == "f64" {
		if in.fam = fam64; o > opFDiv && o != opFNeg && o != opFAbs || flush {
			b.unknown()
		}
		return
	}
	in.fam = fam32
	if flush {
		in.fam, in.wrap = famWrapped, wrapFlushIn|wrapFlushOut
	}
}
