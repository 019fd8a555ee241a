package jinja

import (
	"cmp"
	"math"
	"math/big"
	"strings"
)

// Values are: nil (None), bool, int64, *big.Int (an integer that int64 does not
// hold), float64, string, markup, []any (a list), tuple, *Object (a dict), and the
// types below.
type (
	// markup is a string that the filters safe and escape made. A string that is joined to
	// it is escaped first.
	markup string
	tuple  []any
	// group is a pair that groupby makes.
	group struct{ grouper, list any }
	// undefined is the value of a name or an attribute that does not exist; hint says why.
	// Printing it writes nothing, and using it fails with hint.
	undefined struct{ hint string }
	namespace struct{ attrs *Object }
	intRange  struct{ start, stop, step int64 }
	// view is what a dict's keys(), values() and items() give.
	view struct {
		kind string
		obj  *Object
	}
	// function is something that can be called.
	function struct {
		name string
		call func(r *run, a *args) any
	}
	// iterator gives values once, one by one.
	iterator struct {
		name string
		next func() (any, bool)
	}
)

// typeName is Python's name for v's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case []any:
		return "list"
	case tuple, group:
		return "tuple"
	case *Object:
		return "dict"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case intRange:
		return "range"
	case *view:
		return "dict_" + v.kind
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case *iterator:
		return v.name
	case *cycler:
		return "Cycler"
	case *spanned:
		return "str"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case *Object:
		return v.Len() > 0
	case intRange:
		return v.len() > 0
	case *view:
		return v.obj.Len() > 0
	case *loop:
		return v.length() > 0
	case *spanned:
		return v.text != ""
	}
	return true
}

// shrink is b as int64 where that holds it.
func shrink(b *big.Int) any {
	if b.IsInt64() {
		return b.Int64()
	}
	return b
}

// asStr is the text of a string.
func asStr(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// asInt is the value of an integer; True is 1.
func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// asFloat is the value of a number of any type.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	i, ok := asInt(v)
	return float64(i), ok
}

// asBig is the value of an integer of any size.
func asBig(v any) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	i, ok := asInt(v)
	if !ok {
		return nil, false
	}
	return big.NewInt(i), true
}

// compareInts compares two integers of any size.
func compareInts(a, b any) (int, bool) {
	x, okA := asInt(a)
	y, okB := asInt(b)
	if okA && okB {
		return cmp.Compare(x, y), true
	}
	p, okA := asBig(a)
	q, okB := asBig(b)
	if !okA || !okB {
		return 0, false
	}
	return p.Cmp(q), true
}

// asSeq is the items of a list or a tuple.
func asSeq(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case tuple:
		return v, true
	case group:
		return []any{v.grouper, v.list}, true
	}
	return nil, false
}

// like is s as a string of v's type: markup where v is markup.
func like(v any, s string) any {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

func isTuple(v any) bool {
	switch v.(type) {
	case tuple, group:
		return true
	}
	return false
}

// none is the hash key of None, bigKey that of an integer that int64 does not hold.
type (
	none   struct{}
	bigKey string
)

// hashKey is a comparable value that is the same for all values that Python takes for the
// same key of a dict. Where v cannot be a key, ok is false and the result is the name of the
// type that cannot.
func hashKey(v any) (any, bool) {
	left := maxTuple * maxTuple
	return hashAt(v, 0, &left)
}

// maxTuple bounds how deep tuples that are keys may nest and how long each may be; its square
// bounds how many items they may have in all.
const maxTuple = 50

func hashAt(v any, depth int, left *int) (any, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return none{}, true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), true
		}
		return v, true
	case *big.Int:
		return bigKey(v.String()), true
	case *Object, []any, *view:
		return typeName(v), false
	case *undefined:
		return (*undefined)(nil), true
	case intRange:
		return v, true
	}
	if s, ok := asStr(v); ok {
		return s, true
	}
	if i, ok := asInt(v); ok {
		return i, true
	}
	if items, ok := asSeq(v); ok {
		return tupleKey(items, depth+1, left)
	}
	return v, true
}

// pairKey is the hash key of a tuple: that of the tuple without its last item, and that of the
// last item.
type pairKey struct{ first, last any }

func tupleKey(items []any, depth int, left *int) (any, bool) {
	if *left -= len(items); depth > maxTuple || len(items) > maxTuple || *left < 0 {
		return "large tuple", false
	}
	var key any = pairKey{}
	for _, item := range items {
		h, ok := hashAt(item, depth, left)
		if !ok {
			return h, false
		}
		key = pairKey{key, h}
	}
	return key, true
}

// equal is Python's a == b.
func (r *run) equal(a, b any) bool {
	r.enter()
	defer r.leave()
	r.step(1)
	if s, ok := asStr(a); ok {
		t, ok := asStr(b)
		if ok && len(s) == len(t) {
			r.read(s)
		}
		return ok && s == t
	}
	if c, ok := compareInts(a, b); ok {
		return c == 0
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y
	}
	if x, ok := asSeq(a); ok {
		y, ok := asSeq(b)
		return ok && isTuple(a) == isTuple(b) && r.equalSeq(x, y)
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case *Object:
		b, ok := b.(*Object)
		return ok && r.equalObject(a, b)
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case intRange:
		b, ok := b.(intRange)
		return ok && a.same(b)
	case *view:
		b, ok := b.(*view)
		return ok && a.kind == b.kind && (a == b || a.kind != "values" && r.equalViews(a, b))
	}
	switch b.(type) {
	case nil, bool, int64, float64, string, markup, []any, tuple, group, *Object, *undefined, intRange, *view, *big.Int:
		return false
	}
	return a == b
}

func (r *run) equalSeq(x, y []any) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !r.equal(x[i], y[i]) {
			return false
		}
	}
	return true
}

func (r *run) equalObject(a, b *Object) bool {
	if a == b {
		return true
	}
	if a.Len() != b.Len() {
		return false
	}
	for i, k := range a.keys {
		h, _ := hashKey(k)
		v, ok := b.get(h)
		if !ok || !r.equal(a.vals[i], v) {
			return false
		}
	}
	return true
}

// equalViews compares the keys, or the items, of two dicts as sets.
func (r *run) equalViews(a, b *view) bool {
	if a.kind == "items" {
		return r.equalObject(a.obj, b.obj)
	}
	if a.obj.Len() != b.obj.Len() {
		return false
	}
	for _, k := range a.obj.keys {
		h, _ := hashKey(k)
		if _, ok := b.obj.get(h); !ok {
			return false
		}
	}
	return true
}

// same is Python's a is b, as far as it can be told.
func same(a, b any) bool {
	if isTuple(a) || isTuple(b) {
		return false
	}
	if x, ok := a.([]any); ok {
		y, ok := b.([]any)
		return ok && len(x) == len(y) && len(x) > 0 && &x[0] == &y[0]
	}
	if _, ok := b.([]any); ok {
		return false
	}
	return a == b
}

// less is Python's a < b; it fails where the two have no order.
func (r *run) less(op string, a, b any) bool {
	order, ok := r.order(a, b)
	if !ok {
		r.ordered(op, a, b)
	}
	switch op {
	case "<":
		return order == -1
	case "<=":
		return order == -1 || order == 0
	case ">":
		return order == 1
	}
	return order == 1 || order == 0
}

// ordered fails since op does not stand between a and b.
func (r *run) ordered(op string, a, b any) {
	r.usable(a)
	r.usable(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

// order compares a and b: -1, 0, 1, or 2 where neither is less nor equal (NaN). ok is false
// where they have no order.
func (r *run) order(a, b any) (int, bool) {
	r.enter()
	defer r.leave()
	r.step(1)
	if s, ok := asStr(a); ok {
		t, ok := asStr(b)
		r.read(s[:min(len(s), len(t))])
		return strings.Compare(s, t), ok
	}
	if c, ok := compareInts(a, b); ok {
		return c, true
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		switch {
		case x < y:
			return -1, ok
		case x > y:
			return 1, ok
		case x == y:
			return 0, ok
		}
		return 2, ok
	}
	x, ok := asSeq(a)
	y, ok2 := asSeq(b)
	if !ok || !ok2 || isTuple(a) != isTuple(b) {
		return 0, false
	}
	for i := range min(len(x), len(y)) {
		if !r.equal(x[i], y[i]) {
			return r.order(x[i], y[i])
		}
	}
	switch {
	case len(x) < len(y):
		return -1, true
	case len(x) > len(y):
		return 1, true
	}
	return 0, true
}
