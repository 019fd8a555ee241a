package jinja

import "slices"

// macro is a macro with the scope it was defined in.
type macro struct {
	*macroStmt
	name  string
	scope *scope
}

// args are the arguments of a call.
type args struct {
	pos   []any
	names []string
	named []any
}

// take takes the argument name out of the keywords.
func (a *args) take(name string) (any, bool) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return nil, false
	}
	v := a.named[i]
	a.names, a.named = slices.Delete(slices.Clone(a.names), i, i+1), slices.Delete(slices.Clone(a.named), i, i+1)
	return v, true
}

// keywords are the keyword arguments as a dict.
func (a *args) keywords() *Object {
	o := &Object{}
	for i, name := range a.names {
		o.Set(name, a.named[i])
	}
	return o
}

func (a *args) noKeywords(r *run, name string) {
	if len(a.names) > 0 {
		r.fail("%s() takes no keyword arguments", name)
	}
}

// missing stands for a parameter that was not given.
type missing struct{}

// bind gives the arguments of the function name in the order of params. The first need of
// params must be given; of the others those that are not given are missing{}.
func (a *args) bind(r *run, name string, need int, params ...string) bound {
	if len(a.pos) > len(params) {
		r.fail("%s() takes at most %d arguments (%d given)", name, len(params), len(a.pos))
	}
	vals := make([]any, len(params))
	n := copy(vals, a.pos)
	for i := n; i < len(vals); i++ {
		vals[i] = missing{}
	}
	for i, key := range a.names {
		at := slices.Index(params, key)
		if at < 0 {
			r.fail("%s() got an unexpected keyword argument '%s'", name, key)
		}
		if at < n {
			r.fail("%s() got multiple values for argument '%s'", name, key)
		}
		vals[at] = a.named[i]
	}
	for i := range need {
		if vals[i] == (missing{}) {
			r.fail("%s() missing the argument '%s'", name, params[i])
		}
	}
	return bound{r, name, params, vals}
}

// bound are the arguments of a function in the order of its parameters.
type bound struct {
	r      *run
	name   string
	params []string
	vals   []any
}

func (b bound) has(i int) bool { return b.vals[i] != (missing{}) }

// or is argument i, or v where it is missing.
func (b bound) or(i int, v any) any {
	if !b.has(i) {
		return v
	}
	return b.vals[i]
}

// optional is argument i, nil where it is missing.
func (b bound) optional(i int) any { return b.or(i, nil) }

func (b bound) int(i int, v int64) int64 { return typed(b, i, v, asInt, "an integer") }

func (b bound) str(i int, v string) string { return typed(b, i, v, asStr, "a string") }

// typed is argument i, converted by as, or v where it is missing. It fails where as cannot
// convert it.
func typed[T any](b bound, i int, v T, as func(any) (T, bool), kind string) T {
	if !b.has(i) {
		return v
	}
	t, ok := as(b.vals[i])
	if !ok {
		b.r.usable(b.vals[i])
		b.r.fail("%s(): '%s' must be %s, not %s", b.name, b.params[i], kind, typeName(b.vals[i]))
	}
	return t
}

func (b bound) bool(i int) bool { return b.has(i) && truth(b.vals[i]) }

// macroDepth is how many levels of nesting a macro's call counts for beyond its one, since it
// takes more stack than an expression does.
const macroDepth = 3

// callMacro runs a macro. Arguments become its parameters by Jinja's rules.
func (r *run) callMacro(m *macro, a *args) any {
	r.depth += macroDepth
	r.enter()
	inner := &scope{outer: m.scope}
	at := r.pos
	foundCaller := len(a.pos) >= len(m.params) && slices.Contains(m.params, "caller")
	for i, name := range m.params {
		if i < len(a.pos) {
			inner.set(name, a.pos[i])
			continue
		}
		foundCaller = foundCaller || name == "caller"
		r.step((len(a.names) + len(inner.names)) >> 4)
		if v, ok := a.take(name); ok {
			inner.set(name, v)
		} else {
			inner.set(name, missing{})
		}
	}
	r.special(m, a, inner, foundCaller)
	for i, name := range m.params {
		if inner.vals[i] != (missing{}) {
			continue
		}
		inner.set(name, &undefined{"parameter '" + name + "' was not provided"})
		if d := i - (len(m.params) - len(m.defaults)); d >= 0 {
			inner.set(name, r.eval(m.defaults[d], inner))
		}
	}
	out := r.capture(func() { r.exec(m.body, inner) })
	r.pos = at
	r.leave()
	r.depth -= macroDepth
	return out
}

// special gives a macro caller, kwargs and varargs where its body reads them, and
// fails on arguments that nothing takes.
func (r *run) special(m *macro, a *args, inner *scope, foundCaller bool) {
	if m.caller && !foundCaller {
		v, ok := a.take("caller")
		if !ok || v == nil {
			v = &undefined{"No caller defined"}
		}
		inner.set("caller", v)
	}
	if m.kwargs && !slices.Contains(m.params, "kwargs") {
		inner.set("kwargs", a.keywords())
	} else if len(a.names) > 0 {
		r.fail("macro '%s' takes no keyword argument '%s'", m.name, a.names[0])
	}
	if m.varargs && !slices.Contains(m.params, "varargs") {
		inner.set("varargs", tuple(slices.Clone(a.pos[min(len(a.pos), len(m.params)):])))
	} else if len(a.pos) > len(m.params) {
		r.fail("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
}

// callBlock runs a call with the block's body as its caller.
func (r *run) callBlock(st *callStmt, s *scope) any {
	caller := &macro{st.macro, "", s}
	fn := r.eval(st.call.fn, s)
	a := r.arguments(&st.call.args, s)
	if slices.Contains(a.names, "caller") {
		r.fail("the argument 'caller' comes twice")
	}
	a.names, a.named = append(a.names, "caller"), append(a.named, caller)
	r.pos = st.pos
	return r.call(fn, a)
}
