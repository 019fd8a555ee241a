package ptx

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// builder translates the parsed statements of one kernel to instructions. st is the current
// statement.
type builder struct {
	*source
	kernel     *Kernel
	line       int
	statements []statement
	st         *statement
	const32    map[uint32]int32
	const64    map[uint64]int32
	special    map[string]int32
	shared     []*variable
	dynamic    []*variable
}

func newBuilder(r *reader, name string, line int) *builder {
	b := &builder{source: r.source, line: line, kernel: &Kernel{Name: name, module: r.module, file: r.name}}
	b.const32, b.const64, b.special = map[uint32]int32{}, map[uint64]int32{}, map[string]int32{}
	return b
}

// newReg adds a register of the given size in bytes to the kernel. Size 0 is a predicate register.
func (b *builder) newReg(bytes int) reg {
	k := b.kernel
	switch bytes {
	case 0:
		k.preds++
		return reg{inPreds, 0, int32(k.preds - 1)}
	case 8:
		k.regs64++
		return reg{in64, 8, int32(k.regs64 - 1)}
	}
	k.regs32++
	return reg{in32, uint8(bytes), int32(k.regs32 - 1)}
}

// finish decodes all statements, once the whole kernel has been parsed, and so completes the kernel.
func (b *builder) finish() {
	k := b.kernel
	b.layout()
	k.code = make([]inst, 0, len(b.statements)+1)
	for i := range b.statements {
		st := &b.statements[i]
		b.st = st
		in := inst{guard: -1, line: int32(st.line), slot: -1}
		if st.guard != "" {
			in.guard, in.not = b.pred(st.guard), st.not
		}
		b.decode(&in)
		k.code = append(k.code, in)
	}
	k.code = append(k.code, inst{fam: famControl, op: opExit, guard: -1, line: int32(b.peek().line), slot: -1})
	if b.at > 0 {
		k.code[len(k.code)-1].line = int32(b.tokens[b.at-1].line)
	}
	reconverge(k.code)
	k.statements = b.statements
	b.guard()
}

// layout assigns offsets to the shared variables that the kernel uses. ptxas places the kernel's own variables first,
// then the module's, both in the order of their declarations.
func (b *builder) layout() {
	for i := range b.statements {
		st := &b.statements[i]
		for _, o := range st.args {
			b.useShared(st, o)
		}
	}
	slices.SortFunc(b.shared, func(v, w *variable) int {
		if v.module == w.module {
			return cmp.Compare(v.at, w.at)
		}
		if w.module {
			return -1
		}
		return 1
	})
	at, align := 0, 16
	for _, v := range b.shared {
		at = alignUp(at, v.align)
		v.offset = at
		at += v.size
	}
	b.kernel.StaticShared = at
	for _, v := range b.dynamic {
		align = max(align, v.align)
	}
	b.kernel.dynamic = at
	if len(b.dynamic) > 0 {
		b.kernel.dynamic = alignUp(at, align)
	}
	for _, v := range b.dynamic {
		v.offset = b.kernel.dynamic
	}
}

func (b *builder) useShared(st *statement, o operand) {
	for _, e := range o.list {
		b.useShared(st, e)
	}
	v := st.scope.variable(o.name)
	if v == nil || v.space != "shared" {
		return
	}
	list := &b.shared
	if v.dynamic {
		list = &b.dynamic
	}
	if !slices.Contains(*list, v) {
		*list = append(*list, v)
	}
}

func (s *scope) variable(name string) *variable {
	for ; s != nil; s = s.parent {
		if v := s.vars[name]; v != nil {
			return v
		}
	}
	return nil
}

func (s *scope) reg(name string) (reg, bool) {
	for ; s != nil; s = s.parent {
		if r, ok := s.regs[name]; ok {
			return r, true
		}
	}
	return reg{}, false
}

func (b *builder) fail(format string, args ...any) { b.failAt(b.st.line, format, args...) }

// unknown ends parsing with the error that the emulator does not support the current instruction in
// this form.
func (b *builder) unknown() { b.fail("instruction %q is not supported", strings.Join(b.st.words, ".")) }

// arg returns the i-th argument of the current statement.
func (b *builder) arg(i int) operand {
	if i >= len(b.st.args) {
		b.fail("argument %d is missing", i+1)
	}
	return b.st.args[i]
}

// count fails unless the current statement has n arguments.
func (b *builder) count(n int) {
	if len(b.st.args) != n {
		b.fail("%d arguments where %d should be", len(b.st.args), n)
	}
}

// pred returns the index of a predicate register.
func (b *builder) pred(name string) int32 {
	r, ok := b.st.scope.reg(name)
	if !ok || r.file != inPreds {
		b.fail("%q is not a predicate", name)
	}
	return r.index
}

// predIn returns the index of the predicate register that operand o reads. For a constant it makes a register with
// that value.
func (b *builder) predIn(o operand) int32 {
	if v, ok := parseInteger(o.name); ok {
		r := b.newReg(0).index
		if v != 0 {
			b.kernel.always = append(b.kernel.always, r)
		}
		return r
	}
	return b.pred(o.name)
}

// out returns the index of the register that operand o names as a destination. The register must be
// in the given register file: 32 bits, 64 bits or predicates. For "_" (the result is not wanted) it
// makes a register that nothing reads.
func (b *builder) out(o operand, file uint8) int32 {
	if o.name == "_" {
		return b.newReg(map[uint8]int{inPreds: 0, in32: 4, in64: 8}[file]).index
	}
	r, ok := b.st.scope.reg(o.name)
	if !ok || o.mem || o.vec || o.not {
		b.fail("%q is not a register", o.name)
	}
	if r.file != file {
		b.fail("register %s has the wrong width", o.name)
	}
	return r.index
}

// fileOf returns the register file (predicates, 32 or 64 bits) for values of type t.
func fileOf(t string) uint8 {
	switch typeBytes(t) {
	case 8:
		return in64
	case 0:
		return inPreds
	}
	return in32
}

// in returns the index of a register with the value that operand o reads; t is its type. For a
// constant, a special register or the address of a variable it makes such a register.
func (b *builder) in(o operand, t string) int32 {
	if o.mem || o.vec || o.not || o.pair != "" {
		b.fail("%q is not a value", o.name)
	}
	file := fileOf(t)
	if r, ok := b.st.scope.reg(o.name); ok {
		if r.file != file {
			b.fail("register %s has the wrong width", o.name)
		}
		return r.index
	}
	if strings.HasPrefix(o.name, "%") {
		return b.specialReg(o.name, file == in64)
	}
	bits := b.constant(o.name, t)
	if file == in64 {
		return b.constant64(bits)
	}
	switch typeBytes(t) {
	case 1:
		bits &= 0xff
	case 2:
		bits &= 0xffff
	}
	return b.constant32(uint32(bits))
}

// constant returns the bits of name as a value of type t. name is a number, or a variable, whose address is the
// value.
func (b *builder) constant(name, t string) uint64 {
	if v := b.st.scope.variable(name); v != nil {
		return v.address()
	}
	isFloat := t[0] == 'f' || strings.HasPrefix(name, "0f") || strings.HasPrefix(name, "0d") || strings.HasPrefix(name, "0F") || strings.HasPrefix(name, "0D")
	if v, ok := parseInteger(name); ok && !isFloat {
		return uint64(v)
	}
	v, ok := parseFloat(name)
	if !ok {
		b.fail("%q is neither a register nor a number", name)
	}
	if typeBytes(t) == 8 {
		return math.Float64bits(v)
	}
	if len(name) == 10 && strings.EqualFold(name[:2], "0f") { // keeps the payload of NaNs
		n, _ := parseInteger("0x" + name[2:])
		return uint64(n)
	}
	return uint64(math.Float32bits(float32(v)))
}

// address returns the address of a variable. It is an offset in the variable's state space, except that .const and
// .global variables share the window of generic addresses that begins at constWindow.
func (v *variable) address() uint64 {
	if v.space == "const" || v.space == "global" {
		return constWindow + uint64(v.offset)
	}
	return uint64(v.offset)
}

func (b *builder) constant32(v uint32) int32 {
	if r, ok := b.const32[v]; ok {
		return r
	}
	r := b.newReg(4).index
	b.const32[v] = r
	b.kernel.consts32 = append(b.kernel.consts32, constant32{r, v})
	return r
}

func (b *builder) constant64(v uint64) int32 {
	if r, ok := b.const64[v]; ok {
		return r
	}
	r := b.newReg(8).index
	b.const64[v] = r
	b.kernel.consts64 = append(b.kernel.consts64, constant64{r, v})
	return r
}

func (b *builder) specialReg(name string, wide bool) int32 {
	if !knownSpecial(name) {
		b.fail("%q is neither a register nor a special register", name)
	}
	key := name
	if wide {
		key += ":64"
	}
	if r, ok := b.special[key]; ok {
		return r
	}
	bytes := 4
	if wide {
		bytes = 8
	}
	r := b.newReg(bytes).index
	b.special[key] = r
	b.kernel.specials = append(b.kernel.specials, special{r, name, wide})
	return r
}
