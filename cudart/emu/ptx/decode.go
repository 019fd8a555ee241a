package ptx

import (
	"slices"
	"strings"
)

// decoders has the decoder of every mnemonic. init fills it.
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

// decode fills in in from the statement b.st.
func (b *builder) decode(in *inst) {
	f := decoders[b.st.words[0]]
	if f == nil {
		b.unknown()
	}
	f(b, in)
}

// modifiers are the words after the mnemonic. Decoders take them one by one.
type modifiers []string

func (b *builder) modifiers() modifiers { return modifiers(slices.Clone(b.st.words[1:])) }

// take removes the first of the given words that is there, and returns it.
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

// last takes the last word, which is the type.
func (m *modifiers) last() string {
	if len(*m) == 0 {
		return ""
	}
	t := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return t
}

// done checks that all words have been taken.
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

// label is the instruction that a label names; it looks for the label in scope s
// and in those around it.
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

// brx decodes brx.idx index, table.
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

// mov decodes mov, which moves, packs or unpacks.
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

// pack decodes a mov between a register and a vector of its parts.
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

// cvta decodes cvta, which turns addresses of a space into generic ones, or back
// with .to. Addresses of the global and the constant space are generic addresses
// already.
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
	// The registers may be wider than the types.
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
