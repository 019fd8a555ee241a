package ptx

import (
	"slices"
	"strings"
)

// decoders maps every mnemonic to its decoder, the function that turns a statement into an instruction. init fills
// it.
var decoders map[string]func(*builder, *inst)

func init() {
	decoders = map[string]func(*builder, *inst){
		"mov": (*builder).mov, "selp": (*builder).selp, "cvt": (*builder).cvt, "cvta": (*builder).cvta,
		"setp": (*builder).setp,
		"mul":  (*builder).mul, "mad": (*builder).mul,
		"bra": (*builder).bra, "brx": (*builder).brx, "ret": (*builder).exit, "exit": (*builder).exit, "trap": (*builder).trap,
		"ld": (*builder).ld, "st": (*builder).stores, "atom": (*builder).atom, "red": (*builder).atom,
		"cp": (*builder).cp, "mbarrier": (*builder).mbar, "wgmma": (*builder).wgmma, "setmaxnreg": (*builder).setmaxnreg, "ldmatrix": (*builder).ldmatrix, "mma": (*builder).mmaSync,
		"shfl": (*builder).shfl, "vote": (*builder).vote, "match": (*builder).match, "redux": (*builder).redux,
		"bar": (*builder).bar, "barrier": (*builder).bar,
		"membar": (*builder).nothing, "fence": (*builder).fences, "nanosleep": (*builder).nothing,
	}
	for _, name := range []string{"add", "sub", "div", "rem", "min", "max", "abs", "neg", "and", "or", "xor", "not", "shl", "shr",
		"shf", "prmt", "bfe", "bfi", "popc", "clz", "fma", "sqrt", "rsqrt", "rcp", "ex2", "lg2"} {
		decoders[name] = (*builder).arithmetic
	}
}

// decode fills in the fields of in from the current statement, b.st.
func (b *builder) decode(in *inst) {
	f := decoders[b.st.words[0]]
	if f == nil {
		b.unknown()
	}
	f(b, in)
}

// modifiers are the words of an instruction after the mnemonic, such as global and u32 in
// ld.global.u32. Decoders remove the words that they know. If a word is left, the instruction is
// not supported (done).
type modifiers []string

func (b *builder) modifiers() modifiers { return modifiers(slices.Clone(b.st.words[1:])) }

// take removes and returns the first of the given words that is present; "" if none is.
func (m *modifiers) take(words ...string) string {
	for _, w := range words {
		if i := slices.Index(*m, w); i >= 0 {
			*m = slices.Delete(*m, i, i+1)
			return w
		}
	}
	return ""
}

func (m *modifiers) has(word string) bool { return m.take(word) != "" }

// last removes and returns the last word, which is the type.
func (m *modifiers) last() string {
	if len(*m) == 0 {
		return ""
	}
	t := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return t
}

// done fails if m has a word left, since the decoder does not know its meaning.
func (b *builder) done(m modifiers) {
	if len(m) > 0 {
		b.unknown()
	}
}

func (b *builder) nothing(in *inst) {
	in.fam, in.op = famControl, opNop
}

func (b *builder) exit(in *inst) {
	in.fam, in.op = famControl, opExit
}

func (b *builder) trap(in *inst) { in.fam, in.op = famControl, opTrap }

// label returns the index of the instruction that the label called name marks. It searches scope s and then the
// enclosing scopes.
func (b *builder) label(s *scope, name string) int32 {
	for ; s != nil; s = s.parent {
		if at, ok := s.labels[name]; ok {
			return int32(at)
		}
	}
	b.fail("there is no label %q", name)
	return 0
}

func (b *builder) bra(in *inst) {
	m := b.modifiers()
	m.take("uni")
	b.done(m)
	b.count(1)
	in.fam, in.op, in.imm = famControl, opBra, int64(b.label(b.st.scope, b.arg(0).name))
}

// brx decodes brx.idx index, table: a branch to the label that index selects from a table of labels.
func (b *builder) brx(in *inst) {
	m := b.modifiers()
	m.take("uni")
	if !m.has("idx") {
		b.unknown()
	}
	b.done(m)
	b.count(2)
	in.fam, in.op, in.a, in.x = famControl, opBrx, b.in(b.arg(0), "b32"), &extra{}
	for s := b.st.scope; s != nil; s = s.parent {
		for _, name := range s.tables[b.arg(1).name] {
			in.x.targets = append(in.x.targets, b.label(s, name))
		}
	}
	if len(in.x.targets) == 0 {
		b.fail("there is no table %q", b.arg(1).name)
	}
}

// mov decodes mov: it moves a value, or packs parts into a register, or unpacks a register into parts.
func (b *builder) mov(in *inst) {
	m := b.modifiers()
	t := m.last()
	b.done(m)
	b.count(2)
	to, from := b.arg(0), b.arg(1)
	switch {
	case t == "pred":
		in.fam, in.op = famCompare, opPredMov
		in.d, in.a = b.out(to, inPreds), b.predIn(from)
	case to.vec || from.vec:
		b.pack(in, t, to, from)
	case strings.HasPrefix(from.name, "%clock"):
		in.fam, in.op = famMixed, opClock32
		if fileOf(t) == in64 {
			in.op = opClock64
		} else if from.name == "%clock_hi" {
			in.op = opClockHigh
		}
		in.d = b.out(to, fileOf(t))
	case fileOf(t) == in64:
		in.fam, in.op, in.d, in.a = fam64, opMov, b.out(to, in64), b.in(from, t)
	case typeBytes(t) != 0:
		in.fam, in.op, in.d, in.a = fam32, opMov, b.out(to, in32), b.in(from, t)
	default:
		b.unknown()
	}
}

// pack decodes a mov between a register and a vector of registers that hold its parts, in either direction.
func (b *builder) pack(in *inst, t string, to, from operand) {
	in.fam = famMixed
	list := to.list
	if from.vec {
		list = from.list
	}
	wide := typeBytes(t) == 8
	part := pick(wide, "b32", "b16")
	if len(list) != 2 || typeBytes(t) < 4 || to.vec && from.vec {
		b.unknown()
	}
	var regs [2]int32
	for i, o := range list {
		if to.vec {
			regs[i] = b.out(o, in32)
		} else {
			regs[i] = b.in(o, part)
		}
	}
	if from.vec {
		in.a, in.b, in.d = regs[0], regs[1], b.out(to, fileOf(t))
		in.op = pick(wide, opPack64, opPack32)
		return
	}
	in.d, in.e, in.a = regs[0], regs[1], b.in(from, t)
	in.op = pick(wide, opUnpack64, opUnpack32)
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

func (b *builder) selp(in *inst) {
	m := b.modifiers()
	t := m.last()
	b.done(m)
	b.count(4)
	if typeBytes(t) == 0 {
		b.unknown()
	}
	in.fam, in.op = famMixed, pick(fileOf(t) == in64, opSelp64, opSelp32)
	in.d, in.a, in.b, in.c = b.out(b.arg(0), fileOf(t)), b.in(b.arg(1), t), b.in(b.arg(2), t), b.pred(b.arg(3).name)
}

// cvta decodes cvta, which converts an address of a state space to a generic address; cvta.to converts back.
// Addresses in the global and constant spaces are generic addresses already.
func (b *builder) cvta(in *inst) {
	m := b.modifiers()
	t := m.last()
	to := m.has("to")
	where := m.take("global", "shared", "local", "const", "param")
	if m.take("cta") != "" || where != "shared" {
		where = strings.TrimSuffix(where, "::cta")
	}
	if t != "u64" || where == "" {
		if w := m.take("shared::cta"); w == "" {
			b.unknown()
		}
		where = "shared"
	}
	b.done(m)
	b.count(2)
	in.fam, in.op, in.d, in.a = fam64, opMov, b.out(b.arg(0), in64), b.in(b.arg(1), "u64")
	window := map[string]uint64{"shared": sharedWindow, "local": localWindow, "param": paramWindow}[where]
	if window != 0 {
		in.op, in.b = pick(to, opSub, opAdd), b.constant64(window)
	}
}

func (b *builder) cvt(in *inst) {
	m := b.modifiers()
	from := m.last()
	to := m.last()
	c := &conversion{from: from, to: to}
	c.flush = m.has("ftz")
	m.take("rn")
	if r := m.take("rni", "rzi", "rmi", "rpi"); r != "" {
		c.integral = integrals[r]
	}
	b.done(m)
	in.fam, in.x = famConvert, &extra{convert: c}
	if to == "bf16x2" {
		b.count(3)
		if from != "f32" {
			b.unknown()
		}
		c.pair = true
		in.d, in.a, in.b = b.out(b.arg(0), in32), b.in(b.arg(1), from), b.in(b.arg(2), from)
		return
	}
	b.count(2)
	if typeBytes(from) == 0 || typeBytes(to) == 0 || from == "bf16" || from == "bf16x2" || to == "bf16" && from != "f32" {
		b.unknown()
	}
	// A register may be wider than the type that cvt names for it.
	d, ok := b.st.scope.reg(b.arg(0).name)
	if !ok || d.file == inPreds || int(d.bytes) < typeBytes(to) {
		b.fail("%q is not a register of type %s", b.arg(0).name, to)
	}
	c.regBytes, c.to64, c.from64 = int(d.bytes), d.file == in64, fileOf(from) == in64
	in.d = d.index
	if a, ok := b.st.scope.reg(b.arg(1).name); ok && a.file == in64 && !c.from64 {
		c.from64 = true
		in.a = a.index
		c.from = from
		c.lanes = c.narrowing()
		return
	}
	in.a = b.in(b.arg(1), from)
	c.lanes = c.fast()
}

// integers maps mnemonics to integer operations. Their operands are decoded in order. If the result
// depends on signedness, the key ends in the first letter of the type: s, u or b.
var integers = map[string]op{
	"add": opAdd, "sub": opSub, "div.s": opDivS, "div.u": opDivU, "rem.s": opRemS, "rem.u": opRemU, "min.s": opMinS, "min.u": opMinU,
	"max.s": opMaxS, "max.u": opMaxU, "abs.s": opAbs, "neg.s": opNeg, "and": opAnd, "or": opOr, "xor": opXor, "not": opNot,
	"shl": opShl, "shr.s": opShrS, "shr.u": opShrU, "shr.b": opShrU, "popc": opPopc, "clz": opClz,
	"bfe.s": opBfeS, "bfe.u": opBfeU, "bfi": opBfi, "prmt": opPrmt, "shf": opShfL,
}

// floats maps mnemonics to floating-point operations. An operation with fewer than three operands leaves the other
// operands of inst unset.
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

// operands decodes the destination and then n source operands, all of type t, into in.
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

// fixShift completes the decoding of shr.s16. The other narrow instructions convert all of their operands to 16
// bits, but a shift amount is 32-bit and must stay unchanged.
func (b *builder) fixShift(in *inst) {
	in.x = &extra{run: func(d, a, n, _ *lanes32) {
		for i := range d {
			d[i] = uint32(int32(int16(a[i])) >> n[i])
		}
	}}
	in.op, in.wrap = opCall, wrapMask16
}

// narrowInteger handles integer types of 16 and 8 bits, which are computed in 32 bits. It sets inst.wrap so that
// operands and result are converted. It does nothing for wider types.
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

// fields decodes instructions on bits and bit fields, such as popc and bfe, whose operands have different types.
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

// slot gives a memory instruction an entry of its own in block.slots. The entry caches the buffer
// that the instruction accessed last.
func (b *builder) slot(in *inst) {
	in.slot = int32(b.kernel.slots)
	b.kernel.slots++
}

// address decodes operand o, an address [base+offset], into the fields of in.
func (b *builder) address(in *inst, o operand) {
	if !o.mem {
		b.fail("%q is not an address", o.name)
	}
	in.imm = o.off
	if r, ok := b.st.scope.reg(o.name); ok {
		if r.file == inPreds || r.bytes < 4 {
			b.fail("register %s cannot hold an address", o.name)
		}
		in.a = r.index
		if r.file == in32 {
			in.flags |= flagNarrow
		}
		return
	}
	in.a = b.in(operand{name: o.name}, "u64")
}

// spaces maps the words of loads and stores to state spaces.
var spaces = map[string]space{"": spaceGeneric, "global": spaceGlobal, "const": spaceGlobal, "shared": spaceShared, "shared::cta": spaceShared,
	"param": spaceParam, "local": spaceLocal}

// spaceWord takes the word of the state space from m and returns the space. Without such a word the address is
// generic.
func (b *builder) spaceWord(m *modifiers) space {
	w := m.take("global", "const", "shared", "shared::cta", "param", "local")
	return spaces[w]
}

// access takes the words that qualify a memory access, such as volatile or cache hints, from m. It returns
// flagStrong if a word makes the access strong, which means that warps may synchronize through it. The other words
// have no effect in the emulator.
func access(m *modifiers) (strong uint8) {
	if m.take("relaxed", "acquire", "release", "acq_rel", "volatile") != "" {
		strong = flagStrong
	}
	for _, words := range [][]string{
		{"weak"}, {"cta", "gpu", "sys", "cluster"},
		{"ca", "cg", "cs", "lu", "cv", "wb", "wt"}, {"nc"},
		{"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"},
		{"L2::cache_hint"}, {"L2::64B", "L2::128B", "L2::256B"},
	} {
		m.take(words...)
	}
	return strong
}

// vector decodes operand o of a load or store: one register, or several in braces (v2, v4). An
// element has the type t. If written is true, the instruction writes the registers.
func (b *builder) vector(in *inst, m *modifiers, o operand, t string, written bool) {
	in.size = uint8(typeBytes(t))
	in.n = map[string]uint8{"": 1, "v2": 2, "v4": 4}[m.take("v2", "v4")]
	if in.size == 0 {
		b.unknown()
	}
	list := []operand{o}
	if o.vec {
		list = o.list
	}
	if len(list) != int(in.n) {
		b.fail("%d registers where %d should be", len(list), in.n)
	}
	for i, e := range list {
		r, ok := b.st.scope.reg(e.name)
		wide := fileOf(t) == in64 || ok && r.file == in64
		if ok && in.size > r.bytes {
			b.fail("register %s is too narrow", e.name)
		}
		if wide && in.size < 8 {
			in.flags |= flagWide
		}
		if ok && r.bytes == 2 && isSigned(t) && in.size == 1 {
			in.imm32 = 0xffff
		}
		file, kind := uint8(in32), "b32"
		if wide {
			file, kind = in64, "b64"
		}
		if i > 0 && wide != (fileOf(t) == in64 || in.flags&flagWide != 0) {
			b.fail("registers of different widths")
		}
		if written {
			in.v[i] = b.out(e, file)
		} else if t[0] == 'f' {
			in.v[i] = b.in(e, t)
		} else {
			in.v[i] = b.in(e, kind)
		}
	}
	if isSigned(t) {
		in.flags |= flagSigned
	}
}

// ld decodes loads.
func (b *builder) ld(in *inst) {
	m := b.modifiers()
	t := m.last()
	in.fam = famLoad
	in.space = b.spaceWord(&m)
	in.flags |= access(&m)
	if len(b.st.args) != 2 && len(b.st.args) != 3 {
		b.count(2)
	}
	b.vector(in, &m, b.arg(0), t, true)
	b.done(m)
	b.address(in, b.arg(1))
	b.slot(in)
}

// stores decodes stores.
func (b *builder) stores(in *inst) {
	m := b.modifiers()
	t := m.last()
	in.fam = famStore
	in.space = b.spaceWord(&m)
	in.flags |= access(&m)
	if len(b.st.args) != 2 && len(b.st.args) != 3 {
		b.count(2)
	}
	b.address(in, b.arg(0))
	b.vector(in, &m, b.arg(1), strings.Replace(t, "s", "u", 1), false)
	b.done(m)
	b.slot(in)
}
