package ptx

import "strings"

// slot gives a memory instruction its entry in block.slots.
func (b *builder) slot(in *inst) {
	in.slot = int32(b.kernel.slots)
	b.kernel.slots++
}

// address decodes [base+offset].
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

// spaces are the state spaces that loads and stores name.
var spaces = map[string]space{"": spaceGeneric, "global": spaceGlobal, "const": spaceGlobal, "shared": spaceShared, "shared::cta": spaceShared,
	"param": spaceParam, "local": spaceLocal}

// spaceWord takes the word for the state space. The lexer has left "shared::cta" in
// one piece.
func (b *builder) spaceWord(m *modifiers) space {
	w := m.take("global", "const", "shared", "shared::cta", "param", "local")
	return spaces[w]
}

// access takes the words that say how memory is accessed. It returns flagStrong
// where one of them makes the access a strong one, with which warps may order each
// other. The other words have no effect here.
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

// vector decodes one register, or several in braces; t is the type of the elements.
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
