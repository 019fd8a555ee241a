package jinja

import (
	"math"
	"math/big"
	"strings"
)

// eval is the value of e.
func (r *run) eval(e expr, s *scope) any { return plain(r.raw(e, s)) }

// raw is the value of e in which text that a macro wrote still says what is known of it (*spanned).
func (r *run) raw(e expr, s *scope) any {
	r.step(1)
	switch e := e.(type) {
	case *constExpr:
		return e.value
	case *nameExpr:
		return r.lookup(s, e.name)
	}
	r.enter()
	v := r.compound(e, s)
	r.leave()
	return v
}

// compound is the value of an expression that is made of other expressions.
func (r *run) compound(e expr, s *scope) any {
	switch e := e.(type) {
	case *attrExpr:
		v := r.eval(e.node, s)
		r.pos = e.pos
		return r.getattr(v, e.name)
	case *itemExpr:
		return r.item(e, s)
	case *callExpr:
		return r.callExpr(e, s)
	case *filterExpr:
		return r.filter(e, r.eval(e.node, s), s)
	case *condExpr:
		if truth(r.eval(e.test, s)) {
			return r.raw(e.yes, s)
		}
		if e.no == nil {
			return &undefined{"the inline if-expression evaluated to false and no else section was defined"}
		}
		return r.raw(e.no, s)
	}
	return r.operator(e, s)
}

// operator is the value of an expression that is made with operators or brackets.
func (r *run) operator(e expr, s *scope) any {
	switch e := e.(type) {
	case *logicExpr:
		v := r.eval(e.left, s)
		if truth(v) == e.or {
			return v
		}
		return r.eval(e.right, s)
	case *unaryExpr:
		v := r.eval(e.node, s)
		r.pos = e.pos
		return r.unary(e.op, v)
	case *binaryExpr:
		a := r.eval(e.left, s)
		b := r.eval(e.right, s)
		r.pos = e.pos
		return r.binary(e.op, a, b)
	case *concatExpr:
		return r.concat(e, s)
	case *compareExpr:
		return r.compare(e, s)
	case *listExpr:
		items := r.evalAll(e.items, s)
		if e.tuple {
			return tuple(items)
		}
		return items
	case *dictExpr:
		o := &Object{}
		for i, k := range e.keys {
			key := r.eval(k, s)
			v := r.eval(e.vals[i], s)
			r.pos = e.pos
			r.grow(64)
			o.set(r.hash(key), key, v)
		}
		return o
	}
	panic("template: an expression of unknown kind")
}

func (r *run) evalAll(list []expr, s *scope) []any {
	r.grow(16 * len(list))
	vals := make([]any, len(list))
	for i, e := range list {
		vals[i] = r.eval(e, s)
	}
	return vals
}

func (r *run) concat(e *concatExpr, s *scope) any {
	var b strings.Builder
	for _, v := range r.evalAll(e.parts, s) {
		text := r.str(v)
		r.grow(len(text))
		b.WriteString(text)
	}
	return b.String()
}

func (r *run) compare(e *compareExpr, s *scope) any {
	a := r.eval(e.first, s)
	for i, op := range e.ops {
		b := r.eval(e.rest[i], s)
		r.pos = e.pos
		var ok bool
		switch op {
		case "==":
			ok = r.equal(a, b)
		case "!=":
			ok = !r.equal(a, b)
		case "in":
			ok = r.contains(b, a)
		case "notin":
			ok = !r.contains(b, a)
		default:
			ok = r.less(op, a, b)
		}
		if !ok {
			return false
		}
		a = b
	}
	return true
}

// usable fails where v is undefined, with the reason.
func (r *run) usable(v any) {
	if u, ok := v.(*undefined); ok {
		r.fail("%s", u.hint)
	}
}

func (r *run) unary(op string, v any) any {
	if op == "not" {
		return !truth(v)
	}
	r.usable(v)
	if f, ok := v.(float64); ok {
		if op == "-" {
			return -f
		}
		return f
	}
	b, ok := asBig(v)
	if !ok {
		r.fail("bad operand type for unary %s: '%s'", op, typeName(v))
	}
	if op == "-" {
		return shrink(new(big.Int).Neg(b))
	}
	return shrink(b)
}

// binary is a op b for an arithmetic operator.
func (r *run) binary(op string, a, b any) any {
	if s, ok := asStr(a); ok && op == "%" {
		return r.formatMarkup(a, s, b)
	}
	r.usable(a)
	r.usable(b)
	switch op {
	case "+":
		if v, ok := r.join(a, b); ok {
			return v
		}
	case "*":
		if v, ok := r.repeat(a, b); ok {
			return v
		}
	}
	if i, ok := a.(int64); ok {
		if j, ok := b.(int64); ok {
			if sum, ok := small(op, i, j); ok {
				return sum
			}
		}
	}
	x, okX := asBig(a)
	y, okY := asBig(b)
	if okX && okY && op != "/" {
		return r.integer(op, a, b, x, y)
	}
	f, okF := asFloat(a)
	g, okG := asFloat(b)
	if okF && okG {
		return r.float(op, f, g)
	}
	r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

// join is a + b for strings, lists and tuples.
func (r *run) join(a, b any) (any, bool) {
	if s, ok := asStr(a); ok {
		t, ok := asStr(b)
		if !ok {
			return nil, false
		}
		r.grow(len(s) + len(t))
		_, markA := a.(markup)
		_, markB := b.(markup)
		switch {
		case markA && !markB:
			return markup(s + escapeHTML(t)), true
		case markB && !markA:
			return markup(escapeHTML(s) + t), true
		case markA:
			return markup(s + t), true
		}
		return s + t, true
	}
	x, okX := asSeq(a)
	y, okY := asSeq(b)
	if !okX || !okY || isTuple(a) != isTuple(b) {
		return nil, false
	}
	r.grow(16 * (len(x) + len(y)))
	both := append(append(make([]any, 0, len(x)+len(y)), x...), y...)
	if isTuple(a) {
		return tuple(both), true
	}
	return both, true
}

// repeat is a * b where one is a string, list or tuple and the other an integer.
func (r *run) repeat(a, b any) (any, bool) {
	n, ok := asInt(b)
	if !ok {
		if n, ok = asInt(a); !ok {
			return nil, false
		}
		a = b
	}
	n = max(n, 0)
	if s, ok := asStr(a); ok {
		if len(s) > 0 && n > int64(r.bytes)/int64(len(s)) {
			r.grow(math.MaxInt)
		}
		r.grow(int(n) * len(s))
		return like(a, strings.Repeat(s, int(n))), true
	}
	items, ok := asSeq(a)
	if !ok {
		return nil, false
	}
	if len(items) == 0 {
		n = 0
	} else if n > int64(r.bytes)/int64(16*len(items)) {
		r.grow(math.MaxInt)
	}
	r.grow(int(n) * 16 * len(items))
	all := make([]any, 0, int(n)*len(items))
	for range n {
		all = append(all, items...)
	}
	if isTuple(a) {
		return tuple(all), true
	}
	return all, true
}
