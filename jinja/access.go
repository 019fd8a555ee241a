package jinja

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// method is a method of a value.
type method func(r *run, self any, a *args) any

// objectName is how an error names v's type.
func objectName(v any) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// methodOf is the method of that name that values of v's type have.
func methodOf(v any, name string) (method, bool) {
	var m method
	var ok bool
	switch v.(type) {
	case string, markup:
		m, ok = stringMethods[name]
	case []any:
		m, ok = listMethods[name]
	case tuple, group, intRange:
		m, ok = sequenceMethods[name]
	case *Object:
		m, ok = dictMethods[name]
	case *loop:
		m, ok = loopMethods[name]
	case *cycler:
		m, ok = cyclerMethods[name]
	}
	return m, ok
}

// unsafe are the methods that change a list or a dict, which the sandbox keeps
// away from templates.
var unsafe = map[string]string{
	"append": "list", "clear": "list dict", "pop": "list dict", "reverse": "list", "insert": "list", "sort": "list",
	"extend": "list", "remove": "list", "popitem": "dict", "setdefault": "dict", "update": "dict",
}

// attribute is an attribute of v that is none of its items.
func (r *run) attribute(v any, name string) (any, bool) {
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") || strings.Contains(unsafe[name], typeName(v)) {
		return &undefined{"access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe"}, true
	}
	if m, ok := methodOf(v, name); ok {
		return &function{name, func(r *run, a *args) any { return m(r, v, a) }}, true
	}
	switch v := v.(type) {
	case *namespace:
		return v.attrs.get(name)
	case *loop:
		return v.attr(name)
	case *cycler:
		if name == "current" {
			return v.items[v.at], true
		}
	case group:
		if name == "grouper" {
			return v.grouper, true
		}
		if name == "list" {
			return v.list, true
		}
	case *macro:
		if name == "name" {
			return v.name, true
		}
	case intRange:
		i, ok := map[string]int64{"start": v.start, "stop": v.stop, "step": v.step}[name]
		return i, ok
	}
	return nil, false
}

// getattr is v.name: an attribute, else an item.
func (r *run) getattr(v any, name string) any {
	r.usable(v)
	if o, ok := v.(*Object); ok && dictMethods[name] == nil && unsafe[name] == "" && !strings.HasPrefix(name, "__") {
		if item, ok := o.get(name); ok {
			return item
		}
		return &undefined{"'dict object' has no attribute '" + name + "'"}
	}
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	if item, ok := r.index(v, name); ok {
		return item
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}
}

// getitem is v[key]: an item, else for a string an attribute.
func (r *run) getitem(v, key any) any {
	r.usable(v)
	if item, ok := r.index(v, key); ok {
		return item
	}
	name, ok := asStr(key)
	if !ok {
		return &undefined{objectName(v) + " has no element " + r.reprOf(key)}
	}
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}
}

// index is Python's v[key], as far as there is such an item.
func (r *run) index(v, key any) (any, bool) {
	if o, ok := v.(*Object); ok {
		h, ok := hashKey(key)
		if !ok {
			return nil, false
		}
		return o.get(h)
	}
	i, ok := asInt(key)
	if !ok {
		return nil, false
	}
	if items, ok := asSeq(v); ok {
		if i < 0 {
			i += int64(len(items))
		}
		if i < 0 || i >= int64(len(items)) {
			return nil, false
		}
		return items[i], true
	}
	if s, ok := asStr(v); ok {
		c, ok := r.character(s, i)
		return like(v, c), ok
	}
	if g, ok := v.(intRange); ok {
		if i < 0 {
			i += g.len()
		}
		if i < 0 || i >= g.len() {
			return nil, false
		}
		return g.start + i*g.step, true
	}
	return nil, false
}

// character is the i-th character of s, from its end where i is negative.
func (r *run) character(s string, i int64) (string, bool) {
	r.grow(len(s) / 64)
	if i < 0 {
		for n := i; s != ""; {
			c, size := utf8.DecodeLastRuneInString(s)
			if n++; n == 0 {
				return string(c), true
			}
			s = s[:len(s)-size]
		}
		return "", false
	}
	for _, c := range s {
		if i == 0 {
			return string(c), true
		}
		i--
	}
	return "", false
}

func (r *run) item(e *itemExpr, s *scope) any {
	v := r.eval(e.node, s)
	if cut, ok := e.index.(*sliceExpr); ok {
		return r.slice(v, cut, s)
	}
	key := r.eval(e.index, s)
	r.pos = e.pos
	item := r.getitem(v, key)
	r.looked(e.index, key, item)
	return item
}

// slice is v[start:stop:step].
func (r *run) slice(v any, e *sliceExpr, s *scope) any {
	var bounds [3]any
	for i, part := range []expr{e.start, e.stop, e.step} {
		if part != nil {
			bounds[i] = r.eval(part, s)
		}
	}
	r.pos = e.pos
	r.usable(v)
	_, isStr := asStr(v)
	_, isSeq := asSeq(v)
	g, isRange := v.(intRange)
	if !isStr && !isSeq && !isRange {
		r.fail("'%s' object cannot be sliced", typeName(v))
	}
	n, _ := r.tryLen(v)
	at := r.bounds(n, bounds)
	if isRange {
		return intRange{g.start + at.start*g.step, g.start + at.stop*g.step, g.step * at.step}
	}
	if isStr {
		return r.sliceText(v, at)
	}
	items, _ := asSeq(v)
	r.grow(16 * int(at.len()))
	part := make([]any, 0, at.len())
	for i := range at.len() {
		part = append(part, items[at.start+i*at.step])
	}
	if isTuple(v) {
		return tuple(part)
	}
	return part
}

// sliceText is the part of a string that at tells.
func (r *run) sliceText(v any, at intRange) any {
	text, _ := asStr(v)
	r.grow(4 * len(text))
	var part string
	switch {
	case at.len() == 0:
	case at.step == 1 && isASCII(text):
		part = text[at.start:at.stop]
	default:
		chars := []rune(text)
		cut := make([]rune, at.len())
		for i := range cut {
			cut[i] = chars[at.start+int64(i)*at.step]
		}
		part = string(cut)
	}
	return like(v, part)
}

// bounds are the places that a slice of n items takes, as Python's slice.indices.
func (r *run) bounds(n int64, parts [3]any) intRange {
	step := r.bound(parts[2], 1)
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	low, high := int64(0), n
	from, to := low, high
	if step < 0 {
		low, high = -1, n-1
		from, to = high, low
	}
	clamp := func(part any, otherwise int64) int64 {
		if part == nil {
			return otherwise
		}
		i := r.bound(part, 0)
		if i < 0 {
			i = max(i+n, low)
		}
		return min(i, high)
	}
	return intRange{clamp(parts[0], from), clamp(parts[1], to), step}
}

// bound is an integer of a slice, within what a length can be.
func (r *run) bound(v any, otherwise int64) int64 {
	const most = 1 << 40
	if v == nil {
		return otherwise
	}
	if b, ok := v.(*big.Int); ok {
		return most * int64(b.Sign())
	}
	i, ok := asInt(v)
	if !ok {
		r.fail("slice indices must be integers or None, not %s", typeName(v))
	}
	return max(-most, min(most, i))
}

// callExpr is a call; a method is called without making a function of it.
func (r *run) callExpr(e *callExpr, s *scope) any {
	if fn, ok := e.fn.(*attrExpr); ok {
		v := r.eval(fn.node, s)
		r.pos = fn.pos
		if m, ok := methodOf(v, fn.name); ok {
			a := r.arguments(&e.args, s)
			r.pos = e.pos
			return m(r, v, a)
		}
		f := r.getattr(v, fn.name)
		a := r.arguments(&e.args, s)
		r.pos = e.pos
		return r.call(f, a)
	}
	fn := r.eval(e.fn, s)
	a := r.arguments(&e.args, s)
	r.pos = e.pos
	return r.call(fn, a)
}

// arguments are the values of a call's arguments.
func (r *run) arguments(l *argList, s *scope) *args {
	a := &args{pos: r.evalAll(l.args, s), names: slices.Clip(l.names), named: r.evalAll(l.named, s)}
	if l.star != nil {
		v := r.eval(l.star, s)
		a.pos = append(a.pos, r.collect(v)...)
	}
	if l.stars == nil {
		return a
	}
	v := r.eval(l.stars, s)
	o, ok := v.(*Object)
	if !ok {
		r.fail("argument after ** must be a mapping, not %s", typeName(v))
	}
	a.names = append([]string(nil), a.names...)
	for i, k := range o.keys {
		r.step(len(a.names) >> 4) // take looks at them all
		name, ok := asStr(k)
		if !ok {
			r.fail("keywords must be strings")
		}
		if _, twice := a.take(name); twice {
			r.fail("got multiple values for keyword argument '%s'", name)
		}
		a.names, a.named = append(a.names, name), append(a.named, o.vals[i])
	}
	return a
}

// call is fn(a).
func (r *run) call(fn any, a *args) any {
	switch fn := fn.(type) {
	case *macro:
		return r.callMacro(fn, a)
	case *function:
		return fn.call(r, a)
	case *loop:
		if fn.again == nil {
			r.fail("the loop must have the 'recursive' marker to be called recursively")
		}
		b := a.bind(r, "loop", 1, "iterable")
		return fn.again(b.vals[0], fn.depth0+1)
	}
	r.usable(fn)
	r.fail("'%s' object is not callable", typeName(fn))
	return nil
}
