package jinja

import (
	"fmt"
	"slices"
	"time"
)

// signal says how the execution of a list of statements ended: normally, by break or by continue.
type signal uint8

const (
	ended signal = iota
	broken
	continued
)

// exec runs the statements of body in scope s. It stops at a break or continue, and returns how the list ended.
func (r *run) exec(body []stmt, s *scope) signal {
	for _, st := range body {
		r.step(1)
		r.pos = st.at()
		if sig := r.statement(st, s); sig != ended {
			return sig
		}
	}
	return ended
}

func (r *run) statement(st stmt, s *scope) signal {
	switch st := st.(type) {
	case *textStmt:
		r.writeText(st.text)
	case *printStmt:
		for _, e := range st.exprs {
			r.write(r.raw(e, s))
		}
	case *ifStmt:
		if truth(r.eval(st.test, s)) {
			return r.exec(st.body, s)
		}
		return r.exec(st.orElse, s)
	case *forStmt:
		return r.forLoop(st, s)
	case *setStmt:
		r.checkSpaces(st.target, s)
		r.assign(st.target, r.raw(st.value, s), s)
	case *setBlockStmt:
		return r.setBlock(st, s)
	case *macroStmt:
		s.set(st.name, &macro{st, st.name, s})
	case *callStmt:
		r.write(r.callBlock(st, s))
	case *filterStmt:
		return r.filterBlock(st, s)
	case *withStmt:
		inner := &scope{outer: s}
		for i, target := range st.targets {
			r.assign(target, r.eval(st.values[i], s), inner)
		}
		return r.exec(st.body, inner)
	case *blockStmt:
		return r.namedBlock(st, s)
	case *generationStmt:
		from := len(r.out.text)
		r.exec(st.body, &scope{outer: s})
		r.out.gens = append(r.out.gens, Span{from, len(r.out.text)})
	case *jumpStmt:
		if st.stop {
			return broken
		}
		return continued
	}
	return ended
}

func (r *run) setBlock(st *setBlockStmt, s *scope) signal {
	v, sig := r.captured(st.body, st.filter, s)
	if sig == ended {
		r.pos = st.pos
		r.assign(st.target, v, s)
	}
	return sig
}

func (r *run) filterBlock(st *filterStmt, s *scope) signal {
	v, sig := r.captured(st.body, st.filter, s)
	if sig == ended {
		r.write(v)
	}
	return sig
}

// captured runs body and returns its output as a value, with the filter applied if there is one (filter not nil). It
// returns nil if body ends with a break or continue.
func (r *run) captured(body []stmt, filter expr, s *scope) (v any, sig signal) {
	inner := &scope{outer: s}
	v = r.capture(func() { sig = r.exec(body, inner) })
	if sig != ended {
		return nil, sig
	}
	if filter != nil {
		v = r.filtered(filter, plain(v), inner)
	}
	return v, ended
}

// filtered applies to v the filters of a filter block or set block. e is the expression of the
// chained filters. The value that the innermost filter applies to is nil in e, and v takes its
// place.
func (r *run) filtered(e expr, v any, s *scope) any {
	f := e.(*filterExpr)
	if f.node != nil {
		v = r.filtered(f.node, v, s)
	}
	return r.filter(f, v, s)
}

// namedBlock runs a {% block %}. Inside, only the template's own variables are visible; in a block marked scoped,
// also variables of the enclosing loops and blocks.
func (r *run) namedBlock(st *blockStmt, s *scope) signal {
	if st.required {
		r.fail("required block '%s' not found", st.name)
	}
	outer := r.root
	if st.scoped {
		outer = s
	}
	r.exec(st.body, &scope{outer: outer})
	return ended
}

// assign assigns v to target, a name or an attribute of a namespace. If target is a tuple of names, each name gets
// one item of v.
func (r *run) assign(target expr, v any, s *scope) {
	switch t := target.(type) {
	case *nameExpr:
		s.set(t.name, v)
	case *nsExpr:
		ns, ok := r.lookup(s, t.name).(*namespace)
		if !ok { // the target of a set block, which checkSpaces has not seen
			r.fail("cannot assign attribute on non-namespace object")
		}
		r.checkSpaceName(t.attr)
		ns.attrs.Set(t.attr, v)
	case *listExpr:
		v = plain(v)
		if _, ok := r.tryIter(v); !ok {
			r.fail("cannot unpack non-iterable %s object", typeName(v))
		}
		items := r.collect(v)
		if len(items) != len(t.items) {
			r.fail("%d values for %d names", len(items), len(t.items))
		}
		for i, item := range t.items {
			r.assign(item, items[i], s)
		}
	}
}

// checkSpaces fails if target contains an attribute of a value that is not a namespace. As in Jinja, only a
// namespace's attributes can be assigned to.
func (r *run) checkSpaces(target expr, s *scope) {
	switch t := target.(type) {
	case *nsExpr:
		if _, ok := r.lookup(s, t.name).(*namespace); !ok {
			r.fail("cannot assign attribute on non-namespace object")
		}
	case *listExpr:
		for _, item := range t.items {
			r.checkSpaces(item, s)
		}
	}
}

// checkSpaceName fails if name begins with an underscore. Transformers does not allow such names in a namespace.
func (r *run) checkSpaceName(name string) {
	if name != "" && name[0] == '_' {
		r.fail("a namespace cannot store '%s', whose name begins with an underscore", name)
	}
}

// loop is the variable loop in the body of a for loop, with attributes such as loop.index.
type loop struct {
	items       *iterator
	count       int64 // -1: unknown
	index0      int64
	before, now any
	ahead       []any // read from items, but not reached by the loop
	depth0      int
	again       func(v any, depth int) any // nil: the loop is not recursive
	changed     []any
	everChanged bool
}

func (r *run) newLoop(it *iterator, source any) *loop {
	l := &loop{items: it, count: -1, index0: -1}
	if _, filtered := source.(*iterator); !filtered {
		if n, ok := r.tryLen(source); ok {
			l.count = n
		}
	}
	return l
}

// peek returns the loop's next item without moving to it; false: there is none.
func (l *loop) peek() (any, bool) {
	if len(l.ahead) == 0 {
		item, ok := l.items.next()
		if !ok {
			return nil, false
		}
		l.ahead = append(l.ahead, item)
	}
	return l.ahead[0], true
}

// advance moves to the loop's next item and returns it; false: there is none.
func (l *loop) advance() (any, bool) {
	item, ok := l.peek()
	if !ok {
		return nil, false
	}
	l.ahead = l.ahead[1:]
	l.index0++
	l.before, l.now = l.now, item
	return item, true
}

// length returns the number of the loop's items. If the number is unknown, length reads all remaining items to count
// them, and keeps them in l.ahead.
func (l *loop) length() int64 {
	if l.count < 0 {
		for {
			item, ok := l.items.next()
			if !ok {
				break
			}
			l.ahead = append(l.ahead, item)
		}
		l.count = l.index0 + 1 + int64(len(l.ahead))
	}
	return l.count
}

// attr returns the attribute called name of the variable loop, such as index or last; false: there is none.
func (l *loop) attr(name string) (any, bool) {
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "revindex":
		return l.length() - l.index0, true
	case "revindex0":
		return l.length() - l.index0 - 1, true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.length(), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		if item, ok := l.peek(); ok {
			return item, true
		}
		return &undefined{"there is no next item"}, true
	}
	return nil, false
}

var loopMethods = map[string]method{
	"cycle": func(r *run, self any, a *args) any {
		if len(a.pos) == 0 {
			r.fail("no items for cycling given")
		}
		a.noKeywords(r, "cycle")
		return a.pos[self.(*loop).index0%int64(len(a.pos))]
	},
	"changed": func(r *run, self any, a *args) any {
		l := self.(*loop)
		a.noKeywords(r, "changed")
		if l.everChanged && r.equalSeq(l.changed, a.pos) {
			return false
		}
		l.everChanged, l.changed = true, a.pos
		return true
	},
}

// iteration is one execution of a loop's body, with one of the loop's items.
type iteration struct {
	item any
	// message is the index of the message that the iteration is at, or NoMessage. from is the offset in out at
	// which the iteration's output begins.
	message int
	from    int
	out     *buffer
	target  expr // the loop's variables
}

func (r *run) forLoop(st *forStmt, s *scope) signal {
	if st.recursive {
		r.write(r.capture(func() { r.recursiveLoop(st, s, r.eval(st.iter, s), 0) }))
		return ended
	}
	return r.loop(st, s, r.eval(st.iter, s), 0, nil)
}

// recursiveLoop runs a loop marked recursive over the items of v. The body may call loop(items), which runs the loop
// again over these items, one level deeper. depth is the level, 0 at first.
func (r *run) recursiveLoop(st *forStmt, s *scope, v any, depth int) {
	r.loop(st, s, v, depth, func(v any, depth int) any {
		return r.capture(func() { r.recursiveLoop(st, s, v, depth) })
	})
}

func (r *run) loop(st *forStmt, s *scope, v any, depth int, again func(any, int) any) signal {
	r.enter()
	defer r.leave()
	it, source := r.iter(v), v
	if st.test != nil {
		it = r.filteredItems(st, s, it)
		source = it
	}
	l := r.newLoop(it, source)
	l.depth0, l.again = depth, again
	none := true
	for {
		item, ok := l.advance()
		if !ok {
			break
		}
		r.step(1)
		inner := &scope{outer: s, names: []string{"loop"}, vals: []any{l}}
		r.pos = st.pos
		r.assign(st.target, item, inner)
		r.begin(st, item)
		sig := r.exec(st.body, inner)
		r.end()
		if sig == broken {
			break
		}
		// As in Jinja, an iteration that ends with continue does not count.
		none = none && sig != ended
	}
	if none {
		return r.exec(st.none, &scope{outer: s})
	}
	return ended
}

// filteredItems returns the iterator's items that satisfy the loop's test (for … if test).
func (r *run) filteredItems(st *forStmt, s *scope, it *iterator) *iterator {
	return &iterator{"generator", func() (any, bool) {
		for {
			item, ok := it.next()
			if !ok {
				return nil, false
			}
			r.step(1)
			inner := &scope{outer: s}
			r.assign(st.target, item, inner)
			r.enter()
			ok = truth(r.eval(st.test, inner))
			r.leave()
			if ok {
				return r.packed(st.target, item, inner), true
			}
		}
	}}
}

// packed returns an item in the form that the loop's variables, target, have after assignment. For
// several variables this is a tuple, even if item was a list, as in Jinja for a loop with a test.
func (r *run) packed(target expr, item any, s *scope) any {
	t, ok := target.(*listExpr)
	if !ok {
		if name, ok := target.(*nameExpr); ok {
			return r.lookup(s, name.name)
		}
		return item
	}
	items := make(tuple, len(t.items))
	for i, part := range t.items {
		items[i] = r.packed(part, nil, s)
	}
	return items
}

// begin records that an iteration of the loop st with this item begins. If the item is a message, the iteration is at
// that message.
func (r *run) begin(st *forStmt, item any) {
	i := &iteration{item: item, message: NoMessage, from: len(r.out.text), out: r.out, target: st.target}
	if o, ok := item.(*Object); ok {
		if m, ok := r.messages[o]; ok {
			i.message = m
		}
	}
	r.standing = append(r.standing, i)
}

// end records that the innermost iteration ends. The output of an iteration at a message becomes a Turn of the
// message.
func (r *run) end() {
	n := len(r.standing) - 1
	i := r.standing[n]
	r.standing = r.standing[:n]
	if to := len(i.out.text); i.message != NoMessage && to > i.from && !r.isStanding(i) {
		i.out.turns = append(i.out.turns, Turn{Message: i.message, Span: Span{i.from, to}})
	}
}

// isStanding reports whether an iteration around i is at the same message as i. If so, the outer
// iteration records the Turn, and i must not.
func (r *run) isStanding(i *iteration) bool {
	for _, outer := range r.standing {
		if outer.message == i.message {
			return true
		}
	}
	return false
}

// looked is called when the template has read items[index] and got item; `at` is the value of the
// expression index. A loop may run over numbers and read messages[i]. So if index is the innermost
// loop's number and item is a message, the iteration counts as being at this message from here on.
func (r *run) looked(index expr, at, item any) {
	n := len(r.standing)
	o, ok := item.(*Object)
	if n == 0 || !ok {
		return
	}
	i := r.standing[n-1]
	m, ok := r.messages[o]
	if !ok || i.message != NoMessage {
		return
	}
	switch index := index.(type) {
	case *nameExpr:
		target, ok := i.target.(*nameExpr)
		if ok && target.name == index.name && same(i.item, at) {
			i.message = m
		}
	case *attrExpr:
		base, ok := index.node.(*nameExpr)
		if ok && base.name == "loop" && index.name == "index0" {
			if _, number := i.item.(int64); number {
				i.message = m
			}
		}
	}
}

// macro is a macro together with the scope in which it was defined, whose variables its body sees.
type macro struct {
	*macroStmt
	name  string
	scope *scope
}

// args are the arguments of a call: pos by position, and named by keyword, with their names.
type args struct {
	pos   []any
	names []string
	named []any
}

// take removes the keyword argument called name and returns its value; false: it was not given.
func (a *args) take(name string) (any, bool) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return nil, false
	}
	v := a.named[i]
	a.names, a.named = slices.Delete(slices.Clone(a.names), i, i+1), slices.Delete(slices.Clone(a.named), i, i+1)
	return v, true
}

// keywords returns, as a dict, the keyword arguments that no parameter has taken.
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

// missing is the value of a parameter that got no argument.
type missing struct{}

// bind assigns the arguments of a call of the function name to its parameters params, and returns
// the arguments in the order of params. The first need parameters are required; the call fails
// without them. Another parameter that is not given gets the value missing{}.
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

// bound holds the arguments of one call in the order of the function's parameters; bind makes it.
type bound struct {
	r      *run
	name   string
	params []string
	vals   []any
}

func (b bound) has(i int) bool { return b.vals[i] != (missing{}) }

// or returns argument i, or v if the argument was not given.
func (b bound) or(i int, v any) any {
	if !b.has(i) {
		return v
	}
	return b.vals[i]
}

// optional returns argument i, or nil if the argument was not given.
func (b bound) optional(i int) any { return b.or(i, nil) }

func (b bound) int(i int, v int64) int64 { return typed(b, i, v, asInt, "an integer") }

func (b bound) str(i int, v string) string { return typed(b, i, v, asStr, "a string") }

// typed returns argument i, converted by as, or v if the argument was not given. If as cannot convert the argument,
// typed fails; the error says that a kind, such as an integer, was wanted.
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

// macroDepth is the number of nesting levels that one macro call counts as, beyond the first. A
// macro call takes more of Go's stack than an expression.
const macroDepth = 3

// callMacro runs the macro m with the arguments a and returns its output. It binds arguments to parameters by Jinja's
// rules.
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

// special sets the special names caller, kwargs and varargs in scope inner, if the macro's body reads them. It fails
// if arguments are left that no parameter takes. foundCaller reports that caller is one of the macro's parameters and
// already set.
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

// callBlock runs a {% call %} block: it calls a macro. If the macro calls caller(), it gets the output of the block's
// body.
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

// Limits of one rendering, so that no template runs forever. Chat templates take some hundred steps per message; a
// million steps take 0.1 to 0.5 s.
const (
	// The limits grow with the conversation. Each byte of text in the variables adds stepsPerByte to maxSteps,
	// and bytesPerByte to maxBytes and maxOutput.
	maxSteps     = 4_000_000
	stepsPerByte = 4
	maxBytes     = 64 << 20
	maxOutput    = 16 << 20
	bytesPerByte = 64
	// maxDepth is how deep macro calls, recursive loops and nested values may be nested together.
	maxDepth = 900
)

// run is the state of one rendering of a template. If the template fails, methods of run panic with
// a failure; pos is then the position in the source.
type run struct {
	t         *Template
	vars      map[string]any
	root      *scope
	now       func() time.Time
	out       *buffer
	pos       pos
	steps     int
	maxSteps  int
	bytes     int
	maxBytes  int
	maxOutput int
	depth     int
	// messages maps each message, by identity, to its index in the conversation. An element of a message's list
	// tool_responses maps to ToolResult.
	messages map[*Object]int
	// standing lists the loop iterations that are running, the innermost last.
	standing []*iteration
}

// failure is the panic value with which a failing template ends; Render turns it into an *Error.
type failure struct {
	msg    string
	raised bool
	limit  bool
}

func (r *run) fail(format string, args ...any) {
	panic(failure{msg: fmt.Sprintf(format, args...)})
}

// overrun fails since the rendering exceeds a limit; the error has Limit set.
func (r *run) overrun(format string, args ...any) {
	panic(failure{msg: fmt.Sprintf(format, args...), limit: true})
}

// stopped is the panic value that ends a rendering when Template.Stop returns true.
type stopped struct{}

// askEvery sets how often Template.Stop is called: every 2^askEvery steps, which take a millisecond
// or less.
const askEvery = 12

// step counts n steps and fails if the limit on steps is exceeded. Every 2^askEvery steps it calls
// Template.Stop, and ends the rendering if the result is true.
func (r *run) step(n int) {
	was := r.steps
	if r.steps -= n; r.steps < 0 {
		r.overrun("the template takes more than %d steps", r.maxSteps)
	}
	if r.steps>>askEvery != was>>askEvery && r.t.Stop != nil && r.t.Stop() {
		panic(stopped{})
	}
}

// message returns the index of the message that the innermost loop over messages is at; NoMessage: no such loop runs.
func (r *run) message() int {
	for _, i := range slices.Backward(r.standing) {
		if i.message >= 0 {
			return i.message
		}
	}
	return NoMessage
}

// read counts the steps for reading all of s: one for each 256 bytes.
func (r *run) read(s string) { r.step(len(s) >> 8) }

// grow counts n bytes against the limit on the bytes of values. It is called before a value of this size is made.
func (r *run) grow(n int) {
	if r.bytes -= n; r.bytes < 0 || n < 0 {
		r.overrun("the template makes more than %d bytes of values", r.maxBytes)
	}
}

// enter adds a level of nesting and fails if there are too many; leave ends the level.
func (r *run) enter() {
	if r.depth++; r.depth > maxDepth {
		r.fail("the template nests macros, loops or values more than %d deep", maxDepth)
	}
}

func (r *run) leave() { r.depth-- }

// scope holds the variables of a template, an iteration, a macro call or a block. A name that is not in a scope is
// looked up in outer, the scope around it.
type scope struct {
	names []string
	vals  []any
	outer *scope
}

func (s *scope) set(name string, v any) {
	for i, n := range s.names {
		if n == name {
			s.vals[i] = v
			return
		}
	}
	s.names, s.vals = append(s.names, name), append(s.vals, v)
}

// lookup returns the value of a name in scope s or the scopes around it; *undefined: the name has no value.
func (r *run) lookup(s *scope, name string) any {
	for ; s != nil; s = s.outer {
		for i, n := range s.names {
			if n == name {
				if s.vals[i] == (missing{}) {
					return &undefined{"'" + name + "' is undefined"}
				}
				return s.vals[i]
			}
		}
	}
	if v, ok := r.vars[name]; ok {
		return v
	}
	if v, ok := globals[name]; ok {
		return v
	}
	return &undefined{"'" + name + "' is undefined"}
}

// buffer collects output. It also records which spans {% generation %} blocks wrote, and which spans (turns) each
// message wrote.
type buffer struct {
	text  []byte
	gens  []Span
	turns []Turn
}

// spanned is text that a macro wrote, with the same records as buffer. If the text is printed
// unchanged, the records are kept; any other use turns it into a plain string.
type spanned struct {
	text  string
	gens  []Span
	turns []Turn
}

// write appends v to the output as text.
func (r *run) write(v any) {
	if s, ok := v.(*spanned); ok {
		at := len(r.out.text)
		for _, g := range s.gens {
			r.out.gens = append(r.out.gens, Span{g.From + at, g.To + at})
		}
		for _, t := range s.turns {
			r.out.turns = append(r.out.turns, Turn{Message: t.Message, Span: Span{t.From + at, t.To + at}})
		}
	}
	r.writeText(r.str(v))
}

func (r *run) writeText(text string) {
	if len(r.out.text)+len(text) > r.maxOutput {
		r.overrun("the template writes more than %d bytes", r.maxOutput)
	}
	r.out.text = append(r.out.text, text...)
}

// capture runs f and returns what f writes to the output: a string, or a *spanned if {% generation %} blocks or
// messages wrote parts of it.
func (r *run) capture(f func()) any {
	outer := r.out
	r.out = &buffer{}
	defer func() { r.out = outer }()
	f()
	r.grow(len(r.out.text))
	if len(r.out.gens) == 0 && len(r.out.turns) == 0 {
		return string(r.out.text)
	}
	return &spanned{string(r.out.text), r.out.gens, r.out.turns}
}

// plain returns the text of a *spanned, and any other v as it is.
func plain(v any) any {
	if s, ok := v.(*spanned); ok {
		return s.text
	}
	return v
}

// late returns the names that body sets before it reads them. As in Jinja, such a name is local to the template from
// the start. If a macro or loop reads the name too early, the name is undefined, even if the caller passed a variable
// of this name.
func late(body []stmt) []string {
	s := &symbols{known: map[string]bool{}}
	s.statements(body)
	return s.late
}

// symbols collects the names that the statements of one frame (a template, macro, loop or block) read and set. The
// bodies of loops, macros and blocks inside it are frames of their own.
type symbols struct {
	known map[string]bool // already read or set
	late  []string
}

func (s *symbols) store(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		if !s.known[t.name] {
			s.known[t.name] = true
			s.late = append(s.late, t.name)
		}
	case *nsExpr:
		s.known[t.name] = true
	case *listExpr:
		for _, item := range t.items {
			s.store(item)
		}
	}
}

func (s *symbols) statements(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *printStmt:
			s.load(st.exprs...)
		case *ifStmt:
			// Jinja looks a name up before a branch that sets it, so the name is not late.
			s.load(st.test)
			late := len(s.late)
			s.statements(st.body)
			s.statements(st.orElse)
			s.late = s.late[:late]
		case *forStmt:
			s.load(st.iter)
		case *setStmt:
			s.load(st.value)
			s.store(st.target)
		case *setBlockStmt:
			s.store(st.target)
		case *macroStmt:
			s.store(&nameExpr{st.pos, st.name})
		case *callStmt:
			s.load(st.call)
		case *filterStmt:
			s.load(st.filter)
		case *withStmt:
			s.load(st.values...)
		}
	}
}

func (s *symbols) load(list ...expr) {
	for _, e := range list {
		switch e := e.(type) {
		case *nameExpr:
			s.known[e.name] = true
		case *listExpr:
			s.load(e.items...)
		case *dictExpr:
			s.load(e.keys...)
			s.load(e.vals...)
		case *binaryExpr:
			s.load(e.left, e.right)
		case *logicExpr:
			s.load(e.left, e.right)
		case *unaryExpr:
			s.load(e.node)
		case *concatExpr:
			s.load(e.parts...)
		case *compareExpr:
			s.load(e.first)
			s.load(e.rest...)
		case *condExpr:
			s.load(e.test, e.yes, e.no)
		case *attrExpr:
			s.load(e.node)
		case *itemExpr:
			s.load(e.node, e.index)
		case *sliceExpr:
			s.load(e.start, e.stop, e.step)
		case *callExpr:
			s.load(e.fn)
			s.arguments(&e.args)
		case *filterExpr:
			s.load(e.node)
			s.arguments(&e.args)
		}
	}
}

func (s *symbols) arguments(a *argList) {
	s.load(a.args...)
	s.load(a.named...)
	s.load(a.star, a.stars)
}
