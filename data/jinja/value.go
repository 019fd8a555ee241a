package jinja

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The types of a template's values are nil (None), bool, int64, *big.Int (an integer beyond int64), float64,
// string, markup, []any (a list), tuple, *Object (a dict), and the types below.
type (
	// markup is a string that is already escaped for HTML: the filters safe and escape return it. A string that
	// is joined to a markup is escaped first.
	markup string
	tuple  []any
	// group is one element of groupby's result: a key (grouper) and the list of items with this key.
	group struct{ grouper, list any }
	// undefined is the value of a name or attribute that does not exist. Printing it writes nothing; any other
	// use fails with the message hint.
	undefined struct{ hint string }
	namespace struct{ attrs *Object }
	intRange  struct{ start, stop, step int64 }
	// view is the result of a dict's keys(), values() or items().
	view struct {
		kind string
		obj  *Object
	}
	// function is a value that a template can call.
	function struct {
		name string
		call func(r *run, a *args) any
	}
	// iterator yields its values once; next returns false after the last.
	iterator struct {
		name string
		next func() (any, bool)
	}
)

// typeName returns Python's name for v's type.
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

// truth is Python's bool(v): false for None, 0, "" and empty lists or dicts.
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

// shrink returns b as an int64 if it fits, otherwise b itself. A template's integer is a *big.Int only beyond int64.
func shrink(b *big.Int) any {
	if b.IsInt64() {
		return b.Int64()
	}
	return b
}

// asStr returns the text of v if v is a string or markup; false: it is neither.
func asStr(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// asInt returns the value of v if v is an int64 or a bool, where True is 1; false: it is neither.
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

// asFloat returns the value of v if v is a number of any type; false: it is none.
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

// asBig returns the value of v if v is an integer of any size; false: it is none.
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

// compareInts returns -1, 0 or 1 for a < b, a = b, a > b, if both are integers of any size; false: one is not.
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

// asSeq returns the items of v if v is a list or a tuple; false: it is neither.
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

// like returns s as markup (a string already escaped for HTML) if v is markup, otherwise as a string.
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

// none is the hash key of None, and bigKey of an integer beyond int64 (see hashKey).
type (
	none   struct{}
	bigKey string
)

// hashKey returns a Go value that can be a map's key. It is equal for all values that are the same dict key in
// Python, such as 1 and 1.0. If v cannot be a key, it returns false, and the name of the type that is at fault.
func hashKey(v any) (any, bool) {
	left := maxTuple * maxTuple
	return hashAt(v, 0, &left)
}

// maxTuple limits the nesting and the length of a tuple that is a dict key. Its square limits the number of items in
// all nested tuples together.
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

// pairKey is the hash key of a tuple: first is the hash key of the tuple without its last item, and last is the hash
// key of the last item.
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

// equal is Python's `a == b`.
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

// equalViews reports whether two views of dicts, both of keys or both of items, are equal as sets.
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

// same is Python's `a is b`, as far as Go can tell: tuples and empty lists count as never the same.
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

// less reports whether a op b holds, for op <, <=, > or >=. It fails if the types of a and b have no order.
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

// ordered fails with Python's error message that values of these types cannot be compared by op.
func (r *run) ordered(op string, a, b any) {
	r.usable(a)
	r.usable(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

// order returns -1, 0 or 1 for a < b, a = b, a > b. It returns 2 if none of these holds, as with
// NaN. If the types of a and b have no order, ok is false.
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

// Object is a JSON object that keeps the order of its keys, like Python's dict. Messages, tools and their parts are
// Objects. Do not write to an Object while a template reads it.
type Object struct {
	keys, vals []any
	// index maps a key's hash key (see hashKey) to its position in keys. It exists only for objects with at least
	// indexFrom keys; in smaller ones, a search through all keys is faster.
	index map[any]int
}

const indexFrom = 9

// NewObject returns an Object with the given pairs: key, value, key, value. It panics on an odd number of arguments
// or a key that is not a string.
func NewObject(pairs ...any) *Object {
	if len(pairs)%2 != 0 {
		panic("template: NewObject: a key without a value")
	}
	o := &Object{}
	for i := 0; i < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// Len returns the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// Get returns the value of key, and whether key exists.
func (o *Object) Get(key string) (any, bool) { return o.get(key) }

// Set stores value under key. A new key goes to the end; an existing key keeps its position.
func (o *Object) Set(key string, value any) { o.set(key, key, value) }

// Keys returns the keys in order. Only templates can make keys that are not strings; Keys leaves these out.
func (o *Object) Keys() []string {
	keys := make([]string, 0, len(o.keys))
	for _, k := range o.keys {
		if s, ok := k.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

// MarshalJSON writes the string keys and their values in order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, k := range o.Keys() {
		b.WriteByte("{,"[min(i, 1)])
		if err := e.Encode(k); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		v, _ := o.Get(k)
		if err := e.Encode(v); err != nil {
			return nil, err
		}
	}
	if b.Len() == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// find returns the position of the key whose hash key (see hashKey) is h; -1: there is none.
func (o *Object) find(h any) int {
	if o.index != nil {
		if i, ok := o.index[h]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if s, ok := k.(string); ok {
			if s == h {
				return i
			}
		} else if kh, _ := hashKey(k); kh == h {
			return i
		}
	}
	return -1
}

// get returns the value of the key whose hash key (see hashKey) is h; false: there is none.
func (o *Object) get(h any) (any, bool) {
	if i := o.find(h); i >= 0 {
		return o.vals[i], true
	}
	return nil, false
}

// set stores value under key, whose hash key (see hashKey) is h.
func (o *Object) set(h, key, value any) {
	if i := o.find(h); i >= 0 {
		o.vals[i] = value
		return
	}
	o.keys, o.vals = append(o.keys, key), append(o.vals, value)
	if o.index != nil {
		o.index[h] = len(o.keys) - 1
	} else if len(o.keys) >= indexFrom {
		o.index = make(map[any]int, 2*len(o.keys))
		for i, k := range o.keys {
			kh, _ := hashKey(k)
			o.index[kh] = i
		}
	}
}

// clone returns a copy of o that shares its values.
func (o *Object) clone() *Object {
	c := &Object{}
	for i, k := range o.keys {
		h, _ := hashKey(k)
		c.set(h, k, o.vals[i])
	}
	return c
}

func (g intRange) len() int64 {
	if g.step > 0 && g.start < g.stop {
		return (g.stop-g.start-1)/g.step + 1
	}
	if g.step < 0 && g.start > g.stop {
		return (g.start-g.stop-1)/-g.step + 1
	}
	return 0
}

func (g intRange) same(h intRange) bool {
	n := g.len()
	return n == h.len() && (n == 0 || g.start == h.start && (n == 1 || g.step == h.step))
}

// items returns the view's current items.
func (v *view) items() []any {
	switch v.kind {
	case "keys":
		return v.obj.keys
	case "values":
		return v.obj.vals
	}
	items := make([]any, v.obj.Len())
	for i, k := range v.obj.keys {
		items[i] = tuple{k, v.obj.vals[i]}
	}
	return items
}

// overSlice returns an iterator over items. name is the iterator's type in Python, for errors.
func overSlice(name string, items []any) *iterator {
	i := 0
	return &iterator{name, func() (any, bool) {
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}}
}

// overString returns an iterator over the characters of s, each a string.
func overString(s string) *iterator {
	return &iterator{"str_iterator", func() (any, bool) {
		if s == "" {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return c, true
	}}
}

// tryIter is Python's iter(v); false: v is not iterable.
func (r *run) tryIter(v any) (*iterator, bool) {
	if items, ok := asSeq(v); ok {
		return overSlice("list_iterator", items), true
	}
	if s, ok := asStr(v); ok {
		return overString(s), true
	}
	switch v := v.(type) {
	case *Object:
		return overSlice("dict_keyiterator", v.keys), true
	case *view:
		r.step(v.obj.Len() >> 4)
		return overSlice("dict_"+v.kind+"iterator", v.items()), true
	case *undefined:
		return overSlice("generator", nil), true
	case *iterator:
		return v, true
	case intRange:
		i, n := int64(0), v.len()
		return &iterator{"range_iterator", func() (any, bool) {
			if i >= n {
				return nil, false
			}
			i++
			return v.start + (i-1)*v.step, true
		}}, true
	case *loop:
		return &iterator{"LoopContext", func() (any, bool) {
			item, ok := v.advance()
			return tuple{item, v}, ok
		}}, true
	}
	return nil, false
}

// iter is Python's iter(v). It fails if v is not iterable.
func (r *run) iter(v any) *iterator {
	it, ok := r.tryIter(v)
	if !ok {
		r.fail("'%s' object is not iterable", typeName(v))
	}
	return it
}

// collect is Python's list(v). The result is a new slice that shares no memory with v.
func (r *run) collect(v any) []any {
	if items, ok := asSeq(v); ok {
		r.grow(16 * len(items))
		return append(make([]any, 0, len(items)), items...)
	}
	items := []any{}
	for it := r.iter(v); ; {
		item, ok := it.next()
		if !ok {
			return items
		}
		r.step(1)
		r.grow(16)
		items = append(items, item)
	}
}

// tryLen is Python's len(v); false: v has no length.
func (r *run) tryLen(v any) (int64, bool) {
	if items, ok := asSeq(v); ok {
		return int64(len(items)), true
	}
	if s, ok := asStr(v); ok {
		r.read(s)
		return int64(runeCount(s)), true
	}
	switch v := v.(type) {
	case *Object:
		return int64(v.Len()), true
	case *view:
		return int64(v.obj.Len()), true
	case intRange:
		return v.len(), true
	case *undefined:
		return 0, true
	case *loop:
		return v.length(), true
	}
	return 0, false
}

// contains is Python's `v in seq`. It fails if seq cannot contain anything, such as a number.
func (r *run) contains(seq, v any) bool {
	if s, ok := asStr(seq); ok {
		sub, ok := asStr(v)
		if !ok {
			r.usable(v)
			r.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		r.read(s)
		return strings.Contains(s, sub)
	}
	switch seq := seq.(type) {
	case *Object:
		return r.hasKey(seq, v)
	case *view:
		if seq.kind == "keys" {
			return r.hasKey(seq.obj, v)
		}
	}
	it, ok := r.tryIter(seq)
	if !ok {
		r.fail("argument of type '%s' is not iterable", typeName(seq))
	}
	for {
		item, ok := it.next()
		if !ok {
			return false
		}
		if r.equal(item, v) {
			return true
		}
	}
}

func (r *run) hasKey(o *Object, key any) bool {
	_, ok := o.get(r.hash(key))
	return ok
}

// hash returns the hash key of key (see hashKey). It fails if key cannot be a dict key.
func (r *run) hash(key any) any {
	h, ok := hashKey(key)
	if !ok {
		r.fail("unhashable type: '%s'", h)
	}
	return h
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f || r > 0x7f && unicode.IsSpace(r)
}

// str is Python's str(v): v as text.
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	case *spanned:
		return v.text
	case int64:
		return strconv.FormatInt(v, 10)
	}
	b := &strings.Builder{}
	r.repr(b, v)
	return b.String()
}
