package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode"
)

// filterFunc is a filter or a test. v is the value that it is applied to, and a holds its further arguments.
type filterFunc func(r *run, v any, a *args) any

// filters are Jinja's filters by name. The map lacks random, whose results differ between runs, and
// filters that turn text into HTML.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": absolute, "attr": attrFilter, "batch": batch, "capitalize": textFilter(capitalize),
		"center": centerFilter, "count": length, "d": defaultTo, "default": defaultTo, "dictsort": dictSort,
		"e": escapeFilter, "escape": escapeFilter, "first": first, "float": toFloat, "forceescape": forceEscape,
		"format": formatFilter, "groupby": groupBy, "indent": indentFilter, "int": toInt, "items": itemsFilter,
		"join": joinFilter, "last": last, "length": length, "list": listFilter, "lower": textFilter(lower),
		"map": mapFilter, "max": extreme("max", ">"), "min": extreme("min", "<"), "reject": selectFilter(false, false),
		"rejectattr": selectFilter(false, true), "replace": replaceFilter, "reverse": reverse, "round": round,
		"safe": safe, "select": selectFilter(true, false), "selectattr": selectFilter(true, true),
		"slice": sliceFilter, "sort": sortFilter, "string": stringFilter, "sum": sum, "title": textFilter(titleFilter),
		"tojson": toJSON, "trim": trim, "truncate": truncate, "unique": unique, "upper": textFilter(upper),
		"wordcount": wordCount,
	}
}

// named returns the filter called name or, with test set, the test. If there is none, missing is an error message
// that says so.
func named(name string, test bool) (f filterFunc, missing string) {
	table, kind := filters, "filter"
	if test {
		table, kind = tests, "test"
	}
	f, ok := table[name]
	if !ok {
		missing = "there is no " + kind + " '" + name + "'"
	}
	return f, missing
}

// filter returns the value v after the filter e, or the result of the test e on v. Arguments are
// evaluated in scope s.
func (r *run) filter(e *filterExpr, v any, s *scope) any {
	a := r.arguments(&e.args, s)
	r.pos = e.pos
	return r.apply(e.name, e.test, v, a)
}

func (r *run) apply(name string, test bool, v any, a *args) any {
	f, missing := named(name, test)
	if missing != "" {
		r.fail("%s", missing)
	}
	return f(r, v, a)
}

// soft returns v as text, for filters that accept any value. A markup (a string that is already
// escaped for HTML) stays a markup.
func (r *run) soft(v any) any {
	switch v.(type) {
	case string, markup:
		return v
	}
	return r.str(v)
}

// textFilter returns a filter without arguments that applies f to any value, converted to text.
func textFilter(f func(string) string) filterFunc {
	m := plainText("filter", f)
	return func(r *run, v any, a *args) any { return m(r, r.soft(v), a) }
}

func stringFilter(r *run, v any, a *args) any {
	a.bind(r, "string", 0)
	return r.soft(v)
}

func trim(r *run, v any, a *args) any {
	return stringMethods["strip"](r, r.soft(v), a)
}

func centerFilter(r *run, v any, a *args) any {
	width := a.bind(r, "center", 0, "width").int(0, 80)
	return stringMethods["center"](r, r.soft(v), &args{pos: []any{width}})
}

// titleFilter is the filter title. Unlike Python's method title, it sees the start of a word only after white space,
// hyphens and opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(c rune) bool { return strings.ContainsRune("-({[<", c) || isSpace(c) })
		if end == 0 {
			word := strings.TrimLeftFunc(s, func(c rune) bool { return strings.ContainsRune("-({[<", c) || isSpace(c) })
			b.WriteString(s[:len(s)-len(word)])
			s = word
			continue
		}
		if end < 0 {
			end = len(s)
		}
		first := byteOffset(s[:end], 1)
		b.WriteString(upper(s[:first]) + lower(s[first:end]))
		s = s[end:]
	}
	return b.String()
}

func safe(r *run, v any, a *args) any {
	a.bind(r, "safe", 0)
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(r.str(v))
}

func escapeFilter(r *run, v any, a *args) any {
	a.bind(r, "escape", 0)
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(r.escaped(r.str(v)))
}

func forceEscape(r *run, v any, a *args) any {
	a.bind(r, "forceescape", 0)
	return markup(r.escaped(r.str(v)))
}

func (r *run) escaped(s string) string {
	r.grow(6 * len(s))
	return escapeHTML(s)
}

func defaultTo(r *run, v any, a *args) any {
	b := a.bind(r, "default", 0, "default_value", "boolean")
	if _, ok := v.(*undefined); ok || b.bool(1) && !truth(v) {
		return b.or(0, "")
	}
	return v
}

func length(r *run, v any, a *args) any {
	a.bind(r, "length", 0)
	n, ok := r.tryLen(v)
	if !ok {
		r.fail("object of type '%s' has no len()", typeName(v))
	}
	return n
}

func listFilter(r *run, v any, a *args) any {
	a.bind(r, "list", 0)
	return r.collect(v)
}

func itemsFilter(r *run, v any, a *args) any {
	a.bind(r, "items", 0)
	if _, ok := v.(*undefined); ok {
		return overSlice("generator", nil)
	}
	o, isObject := v.(*Object)
	inner := (*iterator)(nil)
	return &iterator{"generator", func() (any, bool) {
		if !isObject {
			r.fail("can only get item pairs from a mapping, not from %s", typeName(v))
		}
		if inner == nil {
			inner = r.iter(&view{"items", o})
		}
		return inner.next()
	}}
}

func replaceFilter(r *run, v any, a *args) any {
	b := a.bind(r, "replace", 2, "old", "new", "count")
	count := int64(-1)
	if b.optional(2) != nil {
		count = b.int(2, -1)
	}
	return r.replace(r.str(v), r.str(b.vals[0]), r.str(b.vals[1]), count)
}

func attrFilter(r *run, v any, a *args) any {
	name := a.bind(r, "attr", 1, "name").str(0, "")
	r.usable(v)
	if v, ok := r.attribute(v, name); ok {
		return v
	}
	return &undefined{"'" + objectName(v) + "' has no attribute '" + name + "'"}
}

func formatFilter(r *run, v any, a *args) any {
	if len(a.pos) > 0 && len(a.names) > 0 {
		r.fail("format: can't handle positional and keyword arguments at the same time")
	}
	var arg any = tuple(a.pos)
	if len(a.names) > 0 {
		arg = a.keywords()
	}
	text := r.soft(v)
	s, _ := asStr(text)
	return r.formatMarkup(text, s, arg)
}

func joinFilter(r *run, v any, a *args) any {
	b := a.bind(r, "join", 0, "d", "attribute")
	get := r.getter(b.optional(1), nil)
	sep := r.str(b.or(0, ""))
	var out strings.Builder
	for i, item := range r.collect(v) {
		text := r.str(get(item))
		r.grow(len(text) + len(sep))
		if i > 0 {
			out.WriteString(sep)
		}
		out.WriteString(text)
	}
	return out.String()
}

func indentFilter(r *run, v any, a *args) any {
	b := a.bind(r, "indent", 0, "width", "first", "blank")
	s, ok := asStr(v)
	if !ok {
		r.usable(v)
		r.fail("indent: a string is needed, not %s", typeName(v))
	}
	pad, ok := asStr(b.or(0, int64(4)))
	if !ok {
		pad = strings.Repeat(" ", int(min(max(b.int(0, 4), 0), maxWidth)))
	}
	lines := splitLines(s+"\n", false)
	r.grow(len(s) + len(lines)*len(pad))
	for i, line := range lines {
		if i == 0 && b.bool(1) || i > 0 && (line != "" || b.bool(2)) {
			lines[i] = pad + line
		}
	}
	return like(v, strings.Join(lines, "\n"))
}

func truncate(r *run, v any, a *args) any {
	b := a.bind(r, "truncate", 0, "length", "killwords", "end", "leeway")
	n, end, leeway := b.int(0, 255), b.str(2, "..."), int64(5)
	if b.optional(3) != nil {
		leeway = b.int(3, 5)
	}
	keep := n - int64(runeCount(end))
	if keep < 0 || leeway < 0 {
		r.fail("truncate: a length of at least %d and a leeway of at least 0 are needed", runeCount(end))
	}
	if have, ok := r.tryLen(v); ok && have <= n+leeway {
		return v
	}
	s, ok := asStr(v)
	if !ok {
		r.fail("truncate: a string is needed, not %s", typeName(v))
	}
	cut := s[:byteOffset(s, keep)]
	if i := strings.LastIndexByte(cut, ' '); i >= 0 && !b.bool(1) {
		cut = cut[:i]
	}
	return cut + end
}

func wordCount(r *run, v any, a *args) any {
	a.bind(r, "wordcount", 0)
	s := r.str(v)
	r.grow(8 * len(s))
	words := strings.FieldsFunc(s, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) })
	return int64(len(words))
}

func absolute(r *run, v any, a *args) any {
	a.bind(r, "abs", 0)
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	b, ok := asBig(v)
	if !ok {
		r.usable(v)
		r.fail("bad operand type for abs(): '%s'", typeName(v))
	}
	return shrink(new(big.Int).Abs(b))
}

// tests are Jinja's tests. Each takes the value, then its arguments.
var tests map[string]filterFunc

// kindTest returns a test without arguments, whose result is f of the value. name is the test's
// name, for errors.
func kindTest(name string, f func(v any) bool) filterFunc {
	return func(r *run, v any, a *args) any {
		a.bind(r, name, 0)
		return f(v)
	}
}

// compareTest returns the test that compares its value to its argument by op, such as == or <.
func compareTest(op string) filterFunc {
	return func(r *run, v any, a *args) any {
		b := a.bind(r, op, 1, "other").vals[0]
		switch op {
		case "==":
			return r.equal(v, b)
		case "!=":
			return !r.equal(v, b)
		}
		return r.less(op, v, b)
	}
}

// caseTest returns a test without arguments, whose result is f of the value's text. name is the
// test's name, for errors.
func caseTest(name string, f func(string) bool) filterFunc {
	return func(r *run, v any, a *args) any {
		a.bind(r, name, 0)
		return f(r.str(v))
	}
}

// restTest reports whether v modulo by equals rest, for the tests even, odd and divisibleby.
func restTest(r *run, v any, by any, rest int64) bool {
	return r.equal(r.binary("%", v, by), rest)
}

func init() {
	eq, ne, lt, le, gt, ge := compareTest("=="), compareTest("!="), compareTest("<"), compareTest("<="), compareTest(">"), compareTest(">=")
	tests = map[string]filterFunc{
		"==": eq, "eq": eq, "equalto": eq, "!=": ne, "ne": ne, "<": lt, "lt": lt, "lessthan": lt, "<=": le, "le": le,
		">": gt, "gt": gt, "greaterthan": gt, ">=": ge, "ge": ge,
		"defined":   kindTest("defined", func(v any) bool { return !isUndefined(v) }),
		"undefined": kindTest("undefined", isUndefined),
		"none":      kindTest("none", func(v any) bool { return v == nil }),
		"boolean":   kindTest("boolean", isBool),
		"true":      kindTest("true", func(v any) bool { b, ok := v.(bool); return ok && b }),
		"false":     kindTest("false", func(v any) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   kindTest("integer", func(v any) bool { _, ok := asBig(v); return ok && !isBool(v) }),
		"float":     kindTest("float", func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kindTest("number", isNumber),
		"string":    kindTest("string", func(v any) bool { _, ok := asStr(v); return ok }),
		"mapping":   kindTest("mapping", func(v any) bool { _, ok := v.(*Object); return ok }),
		"sequence": func(r *run, v any, a *args) any {
			a.bind(r, "sequence", 0)
			return r.isSequence(v)
		},
		"iterable": func(r *run, v any, a *args) any {
			a.bind(r, "iterable", 0)
			_, ok := r.tryIter(v)
			return ok
		},
		"callable": kindTest("callable", isCallable),
		"escaped":  kindTest("escaped", func(v any) bool { _, ok := v.(markup); return ok }),
		"lower":    caseTest("lower", isLower),
		"upper":    caseTest("upper", isUpper),
		"odd":      func(r *run, v any, a *args) any { a.bind(r, "odd", 0); return restTest(r, v, int64(2), 1) },
		"even":     func(r *run, v any, a *args) any { a.bind(r, "even", 0); return restTest(r, v, int64(2), 0) },
		"divisibleby": func(r *run, v any, a *args) any {
			return restTest(r, v, a.bind(r, "divisibleby", 1, "num").vals[0], 0)
		},
		"sameas": func(r *run, v any, a *args) any { return same(v, a.bind(r, "sameas", 1, "other").vals[0]) },
		"in":     func(r *run, v any, a *args) any { return r.contains(a.bind(r, "in", 1, "seq").vals[0], v) },
		"filter": func(r *run, v any, a *args) any {
			a.bind(r, "filter", 0)
			r.hash(v)
			name, _ := asStr(v)
			return filters[name] != nil
		},
		"test": func(r *run, v any, a *args) any {
			a.bind(r, "test", 0)
			r.hash(v)
			name, _ := asStr(v)
			return tests[name] != nil
		},
	}
}

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func isBool(v any) bool {
	_, ok := v.(bool)
	return ok
}

func isNumber(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// isSequence reports whether v counts as a sequence for Jinja's test sequence: it has a length and items.
func (r *run) isSequence(v any) bool {
	switch v.(type) {
	case *view, *loop:
		return false
	}
	_, ok := r.tryLen(v)
	return ok
}

func isCallable(v any) bool {
	switch v.(type) {
	case *macro, *function, *loop, *undefined:
		return true
	}
	return false
}

// maxRange is the largest number of items of range(), as in Jinja's sandbox.
const maxRange = 100000

// cycler is the value of cycler(…): it returns its items in turn and starts again after the last one.
type cycler struct {
	items []any
	at    int
}

var cyclerMethods = map[string]method{
	"next": func(r *run, self any, a *args) any {
		a.bind(r, "next", 0)
		c := self.(*cycler)
		v := c.items[c.at]
		c.at = (c.at + 1) % len(c.items)
		return v
	},
	"reset": func(r *run, self any, a *args) any {
		a.bind(r, "reset", 0)
		self.(*cycler).at = 0
		return nil
	},
}

// globals are the names defined in every template: Jinja's, and Transformers' raise_exception and strftime_now.
var globals map[string]any

func init() {
	globals = map[string]any{}
	for name, f := range map[string]func(r *run, a *args) any{
		"range": newRange, "dict": newDict, "namespace": newNamespace, "cycler": newCycler, "joiner": newJoiner,
		"raise_exception": func(r *run, a *args) any {
			panic(failure{msg: r.str(a.bind(r, "raise_exception", 1, "message").vals[0]), raised: true})
		},
		"strftime_now": func(r *run, a *args) any {
			return r.strftime(r.now(), a.bind(r, "strftime_now", 1, "format").str(0, ""))
		},
		"lipsum": func(r *run, a *args) any {
			r.fail("lipsum() makes random text, which is refused")
			return nil
		},
	} {
		globals[name] = &function{name, f}
	}
}

func newRange(r *run, a *args) any {
	b := a.bind(r, "range", 1, "start", "stop", "step")
	a.noKeywords(r, "range")
	g := intRange{0, b.int(0, 0), b.int(2, 1)}
	if b.has(1) {
		g.start, g.stop = g.stop, b.int(1, 0)
	}
	const most = 1 << 60
	if g.step == 0 || g.step > most || g.step < -most || g.start > most || g.start < -most || g.stop > most || g.stop < -most {
		r.fail("range(%d, %d, %d) is none", g.start, g.stop, g.step)
	}
	if n := g.len(); n > maxRange {
		r.fail("a range of %d numbers; the sandbox makes none of more than %d", n, maxRange)
	}
	return g
}

// newDict is the template's global function dict(mapping or pairs, **more).
func newDict(r *run, a *args) any { return r.dictOf("dict", a) }

func (r *run) dictOf(name string, a *args) *Object {
	o := &Object{}
	switch {
	case len(a.pos) > 1:
		r.fail("%s expected at most 1 argument, got %d", name, len(a.pos))
	case len(a.pos) == 1:
		if from, ok := a.pos[0].(*Object); ok {
			r.grow(64 * from.Len())
			o = from.clone()
			break
		}
		for it := r.iter(a.pos[0]); ; {
			item, ok := it.next()
			if !ok {
				break
			}
			pair := r.collect(item)
			if len(pair) != 2 {
				r.fail("%s: an element has length %d; 2 is required", name, len(pair))
			}
			r.grow(64)
			o.set(r.hash(pair[0]), pair[0], pair[1])
		}
	}
	for i, key := range a.names {
		o.Set(key, a.named[i])
	}
	return o
}

func newNamespace(r *run, a *args) any {
	o := r.dictOf("namespace", a)
	for _, key := range o.keys {
		if name, ok := asStr(key); ok {
			r.checkSpaceName(name)
		}
	}
	return &namespace{o}
}

func newCycler(r *run, a *args) any {
	a.noKeywords(r, "cycler")
	if len(a.pos) == 0 {
		r.fail("cycler: at least one item has to be provided")
	}
	return &cycler{items: a.pos}
}

// newJoiner is the template's global function joiner(sep). It returns a function whose first call
// returns "" and whose later calls return sep.
func newJoiner(r *run, a *args) any {
	sep := a.bind(r, "joiner", 0, "sep").or(0, ", ")
	used := false
	return &function{"joiner", func(r *run, a *args) any {
		a.bind(r, "joiner", 0)
		if !used {
			used = true
			return ""
		}
		return sep
	}}
}
