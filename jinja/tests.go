package jinja

import "math/big"

// tests are those of Jinja; each takes the value, then its arguments.
var tests map[string]filterFunc

// kindTest makes a test without arguments.
func kindTest(name string, f func(v any) bool) filterFunc {
	return func(r *run, v any, a *args) any {
		a.bind(r, name, 0)
		return f(v)
	}
}

// compareTest makes a test that compares.
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

// caseTest makes a test of the text of any value.
func caseTest(name string, f func(string) bool) filterFunc {
	return func(r *run, v any, a *args) any {
		a.bind(r, name, 0)
		return f(r.str(v))
	}
}

// restTest says that v modulo by is rest.
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

// isSequence says that v has a length and items.
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
