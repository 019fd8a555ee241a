package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// eval returns the value of the expression e, with the variables of scope s.
func (r *run) eval(e expr, s *scope) any { return plain(r.raw(e, s)) }

// raw returns the value of the expression e like eval, except that text written by a macro stays a
// *spanned. A *spanned records the message that wrote each part of the text; eval returns a plain
// string.
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

// compound returns the value of an expression that contains other expressions, such as an attribute or a call.
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

// operator returns the value of an expression made with an operator (and, not, +, <, …) or with brackets.
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

// usable fails if v is an undefined value. The error says which name was not found.
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

// binary returns a op b for an arithmetic operator such as + or %.
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

// join returns a + b if both are strings, lists or tuples; ok is false for other types.
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

// repeat returns a * b if one is an integer and the other a string, list or tuple; ok is false for other types.
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

// method is a method of a value, such as upper of a string. self is the value and a holds the arguments.
type method func(r *run, self any, a *args) any

// objectName returns the name of v's type as Python's error messages write it.
func objectName(v any) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// methodOf returns the method called name that v's type has; false: none.
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

// unsafe maps each method that changes a list or dict to the types that have it. Transformers' sandbox refuses such
// methods, so they are errors here.
var unsafe = map[string]string{
	"append": "list", "clear": "list dict", "pop": "list dict", "reverse": "list", "insert": "list", "sort": "list",
	"extend": "list", "remove": "list", "popitem": "dict", "setdefault": "dict", "update": "dict",
}

// attribute returns the attribute called name of v, such as a method; false: there is none. Items of a dict are not
// attributes.
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

// getattr is the template's v.name. It returns an attribute of v or, if there is none, an item of v.
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

// getitem is the template's v[key]. It returns an item of v or, if there is none and key is a string, an attribute of
// v.
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

// index is Python's v[key]; false: v has no such item.
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

// character returns the i-th character of s; a negative i counts from the end. false: s is too short.
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

// slice is Python's v[start:stop:step]; e holds the three expressions.
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

// sliceText returns the characters of the string v whose positions are in the range at. The result has v's string
// type.
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

// bounds returns the positions that a slice selects from n items, like Python's slice.indices. parts are start, stop
// and step; nil: not given.
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

// bound returns v, one of the integers of a slice, clamped to ±2^40. If v is None, it returns otherwise.
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

// callExpr returns the result of a call. A method is called directly, without a function value in between, which is
// faster.
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

// arguments returns the values of a call's arguments, with *list and **dict expanded.
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
		r.step(len(a.names) >> 4) // take scans all of them
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

// call calls fn, a macro or function, with the arguments a, and returns the result. It fails if fn cannot be called.
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

func (p *parser) call(e expr) expr {
	at := p.cur().pos
	return &callExpr{at, e, p.arguments()}
}

// arguments parses a call's arguments, with the parentheses around them.
func (p *parser) arguments() argList {
	var a argList
	open := p.expectOp("(")
	ensure := func(ok bool) {
		if !ok {
			syntaxFail(p.cur().pos, "this argument cannot stand here, in a call that begins at byte %d", open.pos)
		}
	}
	p.separated(")", true, func() {
		switch {
		case p.isOp("*"):
			ensure(a.star == nil && a.stars == nil)
			p.next()
			a.star = p.expression(true)
		case p.isOp("**"):
			ensure(a.stars == nil)
			p.next()
			a.stars = p.expression(true)
		case p.cur().kind == tName && p.tokens[p.at+1].kind == tOp && p.tokens[p.at+1].text == "=":
			ensure(a.stars == nil)
			t := p.next()
			if slices.Contains(a.names, t.text) {
				syntaxFail(t.pos, "argument '%s' comes twice", t.text)
			}
			p.next()
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression(true))
		default:
			ensure(a.star == nil && a.stars == nil && len(a.names) == 0)
			a.args = append(a.args, p.expression(true))
		}
	})
	return a
}

// filters parses the filters that follow the expression e, each after a |, and returns the filtered expression.
func (p *parser) filters(e expr) expr {
	for p.skipOp("|") {
		e = p.filter(e, p.expectName())
	}
	return e
}

// dotted parses the rest of a filter's or test's name that contains dots. name is the part before the first dot.
func (p *parser) dotted(name string) string {
	for p.skipOp(".") {
		name += "." + p.expectName().text
	}
	return name
}

// filter parses the arguments after a filter's name. It returns the filter, applied to e.
func (p *parser) filter(e expr, name token) expr {
	f := &filterExpr{pos: name.pos, node: e, name: p.dotted(name.text)}
	if p.isOp("(") {
		f.args = p.arguments()
	}
	p.mustExist(f)
	return f
}

// mustExist records the filter or test f in p.missing if there is none of its name. If p.soft is
// set, it records nothing, and the template fails only when f runs.
func (p *parser) mustExist(f *filterExpr) {
	if _, missing := named(f.name, f.test); missing != "" && !p.soft {
		p.missing = append(p.missing, syntaxError{f.pos, missing})
	}
}

func (p *parser) test(e expr) expr {
	at := p.next().pos
	negated := p.skipName("not")
	name := p.expectName()
	f := &filterExpr{pos: name.pos, node: e, name: p.dotted(name.text), test: true}
	t := p.cur()
	switch {
	case p.isOp("("):
		f.args = p.arguments()
	case t.kind == tName && (t.text == "else" || t.text == "or" || t.text == "and"):
	case p.isName("is"):
		syntaxFail(t.pos, "tests cannot be chained with 'is'")
	case t.kind == tName || t.kind == tString || t.kind == tInt || t.kind == tFloat || p.isOp("[") || p.isOp("{"):
		f.args.args = []expr{p.postfix(p.primary(false))}
	}
	p.mustExist(f)
	if negated {
		return &unaryExpr{at, "not", f}
	}
	return f
}

// maxBits is the largest size of an integer in bits; a larger result is an error. Python has no
// limit, but without one a template could take any amount of time.
const maxBits = 1 << 14

// small returns i op j, computed in int64, if both operands are within ±2^31 and op is one of its
// cases. Otherwise it returns false, and the slower integer computes the result.
func small(op string, i, j int64) (int64, bool) {
	const far = 1 << 31
	if i < -far || i > far || j < -far || j > far {
		return 0, false
	}
	switch op {
	case "+":
		return i + j, true
	case "-":
		return i - j, true
	case "*":
		return i * j, true
	}
	if i < 0 || j <= 0 {
		return 0, false
	}
	switch op {
	case "//":
		return i / j, true
	case "%":
		return i % j, true
	}
	return 0, false
}

// integer returns a op b for integers of any size. x and y are the values of a and b as big.Int.
func (r *run) integer(op string, a, b any, x, y *big.Int) any {
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		r.grow(x.BitLen() + y.BitLen())
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			r.fail("integer division or modulo by zero")
		}
		rest := new(big.Int)
		z.QuoRem(x, y, rest)
		if rest.Sign() != 0 && rest.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			z = rest
		}
	case "**":
		if y.Sign() < 0 {
			f, _ := asFloat(a)
			g, _ := asFloat(b)
			return r.float(op, f, g)
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > int64(maxBits/(x.BitLen()-1))) {
			r.fail("the result of ** is too large an integer")
		}
		z.Exp(x, y, nil)
	}
	if z.BitLen() > maxBits {
		r.fail("the result of %s is too large an integer", op)
	}
	return shrink(z)
}

// float returns f op g, as Python computes it. A division by zero fails.
func (r *run) float(op string, f, g float64) any {
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "**":
		return r.power(f, g)
	}
	if g == 0 {
		r.fail("division by zero")
	}
	if op == "/" {
		return f / g
	}
	rest := math.Mod(f, g)
	quotient := (f - rest) / g
	if rest != 0 {
		if (g < 0) != (rest < 0) {
			rest += g
			quotient--
		}
	} else {
		rest = math.Copysign(0, g)
	}
	if op == "%" {
		return rest
	}
	if quotient == 0 {
		return math.Copysign(0, f/g)
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole
}

func (r *run) power(f, g float64) any {
	if f == 0 && g < 0 {
		r.fail("0.0 cannot be raised to a negative power")
	}
	if f < 0 && !math.IsInf(f, 0) && g != math.Trunc(g) && !math.IsInf(g, 0) {
		r.fail("a negative number to the power of a fraction is complex, which is not supported")
	}
	p := math.Pow(f, g)
	if math.IsInf(p, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) {
		r.fail("the result of ** is too large a float")
	}
	return p
}

// intOf returns the whole number f as an integer of the template: int64, or *big.Int beyond int64. f must be finite.
func intOf(f float64) any {
	if math.Abs(f) < 1<<63 {
		return int64(f)
	}
	b, _ := big.NewFloat(f).Int(nil)
	return b
}

func toInt(r *run, v any, a *args) any {
	b := a.bind(r, "int", 0, "default", "base")
	if s, ok := asStr(v); ok {
		r.grow(4 * len(s))
		if i, ok := parseInt(s, int(b.int(1, 10))); ok {
			return i
		}
		if f, ok := parseFloat(s); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return intOf(math.Trunc(f))
		}
		return b.or(0, int64(0))
	}
	if i, ok := asBig(v); ok {
		return shrink(i)
	}
	if f, ok := v.(float64); ok && !math.IsNaN(f) {
		if math.IsInf(f, 0) {
			r.fail("cannot convert float infinity to integer")
		}
		return intOf(math.Trunc(f))
	}
	r.usable(v)
	return b.or(0, int64(0))
}

func toFloat(r *run, v any, a *args) any {
	b := a.bind(r, "float", 0, "default")
	if s, ok := asStr(v); ok {
		r.grow(2 * len(s))
		if f, ok := parseFloat(s); ok {
			return f
		}
	} else if f, ok := asFloat(v); ok {
		return f
	}
	r.usable(v)
	return b.or(0, 0.0)
}

// number returns s as Go's parsers accept it, for Python's int and float. It removes white space at the ends and
// single underscores between digits, which Python allows there. It returns false if an underscore stands elsewhere.
func number(s string) (string, bool) {
	s = strings.Map(asciiDigit, strings.TrimFunc(s, isSpace))
	if !strings.Contains(s, "_") {
		return s, s != ""
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !isHex(s[i-1]) || !isHex(s[i+1])) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// asciiDigit returns the ASCII digit for a digit of any script, and any other character as it is.
func asciiDigit(c rune) rune {
	if c < utf8.RuneSelf || !unicode.IsDigit(c) {
		return c
	}
	for _, r := range unicode.Nd.R16 {
		if c >= rune(r.Lo) && c <= rune(r.Hi) {
			return '0' + (c-rune(r.Lo))%10
		}
	}
	for _, r := range unicode.Nd.R32 {
		if c >= rune(r.Lo) && c <= rune(r.Hi) {
			return '0' + (c-rune(r.Lo))%10
		}
	}
	return c
}

func isHex(c byte) bool { return c < 0x80 && (unicode.IsDigit(rune(c)) || unicode.IsLetter(rune(c))) }

// parseInt is Python's int(s, base); false: s is no such number.
func parseInt(s string, base int) (any, bool) {
	s, ok := number(s)
	if !ok || len(s) > maxJSONDigits || base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		sign, s = s[:1], s[1:]
	}
	for _, p := range []struct {
		prefix string
		base   int
	}{{"0x", 16}, {"0o", 8}, {"0b", 2}} {
		if strings.HasPrefix(strings.ToLower(s), p.prefix) && (base == p.base || base == 0) {
			base, s = p.base, s[2:]
		}
	}
	if base == 0 {
		if base = 10; strings.HasPrefix(s, "0") && strings.Trim(s, "0") != "" {
			return nil, false
		}
	}
	if s == "" || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+s, base)
	if !ok {
		return nil, false
	}
	return shrink(b), true
}

// parseFloat is Python's float(s); false: s is no number.
func parseFloat(s string) (float64, bool) {
	s, ok := number(s)
	if !ok || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	if strings.EqualFold(strings.TrimLeft(s, "+-"), "nan") && len(s) <= 4 {
		return math.NaN(), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func round(r *run, v any, a *args) any {
	b := a.bind(r, "round", 0, "precision", "method")
	digits, method := b.int(0, 0), b.str(1, "common")
	if method != "common" && method != "ceil" && method != "floor" {
		r.fail("round: the method must be common, ceil or floor")
	}
	r.usable(v)
	f, ok := asFloat(v)
	if !ok {
		r.fail("type %s doesn't define round", typeName(v))
	}
	if digits < -400 || digits > 400 {
		r.fail("round: a precision of more than 400 digits")
	}
	if method == "common" {
		if i, ok := asBig(v); ok {
			return roundInt(i, digits)
		}
		return roundFloat(r, f, int(digits))
	}
	scale := math.Pow(10, float64(digits))
	f *= scale
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail("cannot convert float %s to integer", floatRepr(f))
	}
	if f = math.Floor(f); method == "ceil" {
		x, _ := asFloat(v)
		f = math.Ceil(x * scale)
	}
	return (f + 0) / scale
}

// roundInt returns i rounded to a multiple of 10^-digits; a number halfway between two goes to the even one. A
// negative digits rounds to tens, hundreds and so on.
func roundInt(i *big.Int, digits int64) any {
	if digits >= 0 {
		return shrink(i)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil)
	whole := halfEven(i, unit)
	return shrink(whole.Mul(whole, unit))
}

// halfEven returns a / b rounded to the nearest integer; a number halfway between two goes to the even one. b must be
// positive.
func halfEven(a, b *big.Int) *big.Int {
	whole, rest := new(big.Int).DivMod(a, b, new(big.Int))
	if c := rest.Lsh(rest, 1).Cmp(b); c > 0 || c == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}

// roundFloat returns f rounded to a number of decimals, digits, from f's exact value. A number halfway between two
// goes to the even one.
func roundFloat(r *run, f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if digits >= 0 {
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return out
	}
	unit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil))
	q := new(big.Rat).Quo(new(big.Rat).SetFloat64(f), unit)
	whole := new(big.Rat).SetInt(halfEven(q.Num(), q.Denom()))
	out, _ := whole.Mul(whole, unit).Float64()
	if math.IsInf(out, 0) {
		r.fail("rounded value too large to represent")
	}
	return math.Copysign(out, f)
}
