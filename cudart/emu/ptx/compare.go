package ptx

// The operations (inst.op) of famCompare, the family of comparisons and of operations on predicates.
const (
	opCmp32 op = iota // compares a and b xor imm (the sign bit for signed types)
	opCmp64
	opCmpF32
	opPredMov
	opPredNot
	opPredAnd
	opPredOr
	opPredXor
)

// relation is the kind of a comparison, such as less. A relation of floats is false if an operand is a NaN.
type relation uint8

const (
	isEqual relation = iota
	isLess
	isLessEqual
	isNumber // neither operand is a NaN
)

// comparison is the comparison that setp makes: a relation of (a, b), or of (b, a) if swap is set, negated if not
// is set. andNumber also requires that both operands are numbers. orNaN makes the comparison true if an operand is
// a NaN.
type comparison struct {
	rel              relation
	swap, not        bool
	andNumber, orNaN bool
}

var comparisons = map[string]comparison{
	"eq": {rel: isEqual}, "ne": {rel: isEqual, not: true, andNumber: true},
	"lt": {rel: isLess}, "le": {rel: isLessEqual}, "gt": {rel: isLess, swap: true}, "ge": {rel: isLessEqual, swap: true},
	"equ": {rel: isEqual, orNaN: true}, "neu": {rel: isEqual, not: true},
	"ltu": {rel: isLessEqual, swap: true, not: true}, "leu": {rel: isLess, swap: true, not: true},
	"gtu": {rel: isLessEqual, not: true}, "geu": {rel: isLess, not: true},
	"num": {rel: isNumber}, "nan": {rel: isNumber, not: true},
	"lo": {rel: isLess}, "ls": {rel: isLessEqual}, "hi": {rel: isLess, swap: true}, "hs": {rel: isLessEqual, swap: true},
}

// comparing decodes setp on type t: the comparison, which m names, and the operands. A third
// operand is a predicate, with which the result is combined.
func (b *builder) comparing(in *inst, m *modifiers, t string) {
	c, ok := comparison{}, false
	for _, w := range *m {
		if c, ok = comparisons[w]; ok {
			m.take(w)
			break
		}
	}
	if !ok || typeBytes(t) == 0 {
		b.unknown()
	}
	flush := m.has("ftz")
	logic := m.take("and", "or", "xor")
	in.fam, in.x = famCompare, &extra{compare: &c, logic: logic, flush: flush}
	in.a, in.b, in.c = b.in(b.arg(1), t), b.in(b.arg(2), t), -1
	if logic != "" {
		o := b.arg(3)
		in.c = b.pred(o.name)
		in.x.notC = o.not
	}
	b.count(pick(logic != "", 4, 3))
	in.size = uint8(typeBytes(t))
	switch {
	case t == "f32":
		in.op = opCmpF32
	case isFloat(t):
		b.unknown()
	case fileOf(t) == in64:
		in.op, c.andNumber = opCmp64, false
		in.imm = pick(isSigned(t), -1<<63, int64(0))
	default:
		in.op, c.andNumber = opCmp32, false
		in.imm = pick(isSigned(t), 1<<31, int64(0))
	}
	in.wrap = pick(isSigned(t) && in.size == 2, wrapSign16, 0)
}

// setp decodes setp.cmp[.logic].type p[|q], a, b[, c].
func (b *builder) setp(in *inst) {
	m := b.modifiers()
	t := m.last()
	b.comparing(in, &m, t)
	b.done(m)
	to := b.arg(0)
	in.e = -1
	if to.pair != "" {
		in.e = b.out(operand{name: to.pair}, inPreds)
	}
	in.d = b.out(operand{name: to.name}, inPreds)
}

// predicates decodes the instructions and, or, xor and not of predicates.
func (b *builder) predicates(in *inst, m modifiers) {
	b.done(m)
	in.fam = famCompare
	in.d, in.a = b.out(b.arg(0), inPreds), b.predIn(b.arg(1))
	if b.st.words[0] == "not" {
		b.count(2)
		in.op = opPredNot
		return
	}
	o, ok := map[string]op{"and": opPredAnd, "or": opPredOr, "xor": opPredXor}[b.st.words[0]]
	if !ok {
		b.unknown()
	}
	b.count(3)
	in.op, in.b = o, b.predIn(b.arg(2))
}

// compare executes an instruction of famCompare for the threads of mask, whose result is a predicate.
func (w *warp) compare(in *inst, mask uint32) {
	p := &w.preds[in.d]
	var v uint32
	switch in.op {
	case opPredMov:
		v = w.preds[in.a]
	case opPredNot:
		v = ^w.preds[in.a]
	case opPredAnd:
		v = w.preds[in.a] & w.preds[in.b]
	case opPredOr:
		v = w.preds[in.a] | w.preds[in.b]
	case opPredXor:
		v = w.preds[in.a] ^ w.preds[in.b]
	default:
		w.setPredicate(in, mask)
		return
	}
	*p = *p&^mask | v&mask
}

func (w *warp) setPredicate(in *inst, mask uint32) {
	x := in.x
	v := w.relate(in, x.compare)
	other := ^v
	if in.c >= 0 {
		c := w.preds[in.c]
		if x.notC {
			c = ^c
		}
		switch x.logic {
		case "and":
			v, other = v&c, other&c
		case "or":
			v, other = v|c, other|c
		case "xor":
			v, other = v^c, other^c
		}
	}
	p := &w.preds[in.d]
	*p = *p&^mask | v&mask
	if in.e >= 0 {
		q := &w.preds[in.e]
		*q = *q&^mask | other&mask
	}
}

// relate evaluates the comparison c of an instruction's operands for all 32 threads. It returns a
// mask of the threads with the result true.
func (w *warp) relate(in *inst, c *comparison) uint32 {
	ra, rb := in.a, in.b
	if c.swap {
		ra, rb = rb, ra
	}
	var v uint32
	switch in.op {
	case opCmp32:
		a, b := &w.r32[ra], &w.r32[rb]
		if in.wrap != 0 {
			w.opA, w.opB = *a, *b
			a, b = &w.opA, &w.opB
			for i := range a {
				a[i], b[i] = uint32(int32(int16(a[i]))), uint32(int32(int16(b[i])))
			}
		}
		v = relate(c.rel, a, b, uint32(in.imm))
	case opCmp64:
		v = relate(c.rel, &w.r64[ra], &w.r64[rb], uint64(in.imm))
	case opCmpF32:
		a, b := &w.r32[ra], &w.r32[rb]
		if in.x.flush {
			w.opA, w.opB = *a, *b
			a, b = &w.opA, &w.opB
			flush(a)
			flush(b)
		}
		v = relateF32(c.rel, a, b)
		if c.not {
			v = ^v
		}
		if c.andNumber {
			v &= relateF32(isNumber, a, b)
		}
		if c.orNaN {
			v |= ^relateF32(isNumber, a, b)
		}
		return v
	}
	if c.not {
		v = ^v
	}
	return v
}

func relate[T uint32 | uint64](rel relation, a, b *[32]T, sign T) (v uint32) {
	switch rel {
	case isEqual:
		for i := range a {
			v = v>>1 | b32(a[i] == b[i])<<31
		}
	case isLess:
		for i := range a {
			v = v>>1 | b32(a[i]^sign < b[i]^sign)<<31
		}
	case isLessEqual:
		for i := range a {
			v = v>>1 | b32(a[i]^sign <= b[i]^sign)<<31
		}
	}
	return v
}

func relateF32(rel relation, a, b *lanes32) (v uint32) {
	switch rel {
	case isEqual:
		for i := range a {
			v = v>>1 | b32(f32(a[i]) == f32(b[i]))<<31
		}
	case isLess:
		for i := range a {
			v = v>>1 | b32(f32(a[i]) < f32(b[i]))<<31
		}
	case isLessEqual:
		for i := range a {
			v = v>>1 | b32(f32(a[i]) <= f32(b[i]))<<31
		}
	case isNumber:
		for i := range a {
			v = v>>1 | b32(a[i]<<1 <= 0xff000000 && b[i]<<1 <= 0xff000000)<<31
		}
	}
	return v
}
