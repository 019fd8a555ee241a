package jinja

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// getter returns a function that looks up a path of attributes, such as "a.b.0", in an item. A nil
// path returns the item itself. If a part of the path is undefined and otherwise is not nil,
// otherwise is used in its place.
func (r *run) getter(path, otherwise any) func(any) any {
	var parts []any
	if s, ok := asStr(path); ok {
		for _, part := range strings.Split(s, ".") {
			if i, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	} else if path != nil {
		parts = []any{path}
	}
	return func(item any) any {
		r.step(1)
		for _, part := range parts {
			item = r.getitem(item, part)
			if _, ok := item.(*undefined); ok && otherwise != nil {
				item = otherwise
			}
		}
		return item
	}
}

// fold returns a string in lower case, for comparisons that ignore case. Other values are returned unchanged.
func fold(v any) any {
	if s, ok := asStr(v); ok {
		return lower(s)
	}
	return v
}

// keyed returns a function like getter's, whose result is a key for comparison: a string is turned into lower case,
// unless exact is set.
func (r *run) keyed(path, otherwise any, exact bool) func(any) any {
	get := r.getter(path, otherwise)
	if exact {
		return get
	}
	return func(item any) any {
		v := get(item)
		if s, ok := asStr(v); ok {
			r.grow(len(s))
		}
		return fold(v)
	}
}

// sorted returns items sorted by their keys, or from the largest key to the smallest with reverse. Items with equal
// keys keep their order.
func (r *run) sorted(items []any, key func(any) any, reverse bool) []any {
	r.grow(32 * len(items))
	keys, order := make([]any, len(items)), make([]int, len(items))
	for i, item := range items {
		keys[i], order[i] = key(item), i
	}
	sort.SliceStable(order, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return r.less("<", keys[order[i]], keys[order[j]])
	})
	out := make([]any, len(items))
	for i, o := range order {
		out[i] = items[o]
	}
	return out
}

func sortFilter(r *run, v any, a *args) any {
	b := a.bind(r, "sort", 0, "reverse", "case_sensitive", "attribute")
	paths := []any{b.optional(2)}
	if s, ok := asStr(paths[0]); ok {
		paths = nil
		for _, p := range strings.Split(s, ",") {
			paths = append(paths, p)
		}
	}
	var gets []func(any) any
	for _, p := range paths {
		gets = append(gets, r.keyed(p, nil, b.bool(1)))
	}
	key := func(item any) any {
		keys := make([]any, len(gets))
		for i, get := range gets {
			keys[i] = get(item)
		}
		return keys
	}
	return r.sorted(r.collect(v), key, b.bool(0))
}

func dictSort(r *run, v any, a *args) any {
	b := a.bind(r, "dictsort", 0, "case_sensitive", "by", "reverse")
	place := map[string]int{"key": 0, "value": 1}
	at, ok := place[b.str(1, "key")]
	if !ok {
		r.fail(`dictsort: you can only sort by either "key" or "value"`)
	}
	o, ok := v.(*Object)
	if !ok {
		r.usable(v)
		r.fail("dictsort: a dict is needed, not %s", typeName(v))
	}
	key := func(item any) any {
		if b.bool(0) {
			return item.(tuple)[at]
		}
		return fold(item.(tuple)[at])
	}
	return r.sorted((&view{"items", o}).items(), key, b.bool(2))
}

func unique(r *run, v any, a *args) any {
	b := a.bind(r, "unique", 0, "case_sensitive", "attribute")
	key := r.keyed(b.optional(1), nil, b.bool(0))
	seen := map[any]bool{}
	return r.lazy(func() func() (any, bool) {
		it := r.iter(v)
		return func() (any, bool) {
			for {
				item, ok := it.next()
				if !ok {
					return nil, false
				}
				r.step(1)
				if h := r.hash(key(item)); !seen[h] {
					r.grow(64)
					seen[h] = true
					return item, true
				}
			}
		}
	})
}

// extreme returns the filter called name, which returns the smallest (op "<", min) or largest (op ">", max) item.
// Among equal items, it returns the first.
func extreme(name, op string) filterFunc {
	return func(r *run, v any, a *args) any {
		b := a.bind(r, name, 0, "case_sensitive", "attribute")
		key := r.keyed(b.optional(1), nil, b.bool(0))
		items := r.collect(v)
		if len(items) == 0 {
			return &undefined{"No aggregated item, sequence was empty."}
		}
		best, bestKey := items[0], key(items[0])
		for _, item := range items[1:] {
			if k := key(item); r.less(op, k, bestKey) {
				best, bestKey = item, k
			}
		}
		return best
	}
}

func sum(r *run, v any, a *args) any {
	b := a.bind(r, "sum", 0, "attribute", "start")
	get := r.getter(b.optional(0), nil)
	total := b.or(1, int64(0))
	if _, ok := asStr(total); ok {
		r.fail("sum() can't sum strings")
	}
	for _, item := range r.collect(v) {
		total = r.binary("+", total, get(item))
	}
	return total
}

func first(r *run, v any, a *args) any {
	a.bind(r, "first", 0)
	if item, ok := r.iter(v).next(); ok {
		return item
	}
	return &undefined{"No first item, sequence was empty."}
}

func last(r *run, v any, a *args) any {
	a.bind(r, "last", 0)
	if s, ok := v.(*undefined); ok {
		return s
	}
	it, ok := r.reversed(v)
	if !ok {
		r.fail("'%s' object is not reversible", typeName(v))
	}
	if item, ok := it.next(); ok {
		return item
	}
	return &undefined{"No last item, sequence was empty."}
}

// reversed is Python's reversed(v); false: v cannot be read in reverse.
func (r *run) reversed(v any) (*iterator, bool) {
	switch v.(type) {
	case *iterator, *undefined, *loop:
		return nil, false
	}
	if _, ok := r.tryLen(v); !ok {
		return nil, false
	}
	items := r.collect(v)
	i := len(items)
	return &iterator{"list_reverseiterator", func() (any, bool) {
		if i == 0 {
			return nil, false
		}
		i--
		return items[i], true
	}}, true
}

func reverse(r *run, v any, a *args) any {
	a.bind(r, "reverse", 0)
	if s, ok := asStr(v); ok {
		r.grow(4 * len(s))
		chars := []rune(s)
		slices.Reverse(chars)
		return like(v, string(chars))
	}
	if it, ok := r.reversed(v); ok {
		return it
	}
	items := r.collect(v)
	slices.Reverse(items)
	return items
}

// lazy returns an iterator that calls begin only when its first value is requested. begin returns the function that
// yields the values.
func (r *run) lazy(begin func() func() (any, bool)) *iterator {
	var next func() (any, bool)
	return &iterator{"generator", func() (any, bool) {
		if next == nil {
			next = begin()
		}
		r.enter()
		defer r.leave()
		return next()
	}}
}

func batch(r *run, v any, a *args) any {
	b := a.bind(r, "batch", 1, "linecount", "fill_with")
	return r.lazy(func() func() (any, bool) {
		it := r.iter(v)
		return func() (any, bool) {
			var row []any
			size, isInt := asInt(b.vals[0])
			for !isInt || int64(len(row)) != size || len(row) == 0 {
				item, ok := it.next()
				if !ok {
					break
				}
				r.grow(16)
				row = append(row, item)
			}
			if fill := b.optional(1); fill != nil && len(row) > 0 && int64(len(row)) < b.int(0, 0) {
				r.grow(16 * int(min(b.int(0, 0), 1<<40)))
				for int64(len(row)) < b.int(0, 0) {
					row = append(row, fill)
				}
			}
			return row, len(row) > 0
		}
	})
}

func sliceFilter(r *run, v any, a *args) any {
	b := a.bind(r, "slice", 1, "slices", "fill_with")
	return r.lazy(func() func() (any, bool) {
		items, n := r.collect(v), b.int(0, 0)
		if n == 0 {
			r.fail("integer division or modulo by zero")
		}
		i, offset, each, extra := int64(0), int64(0), int64(0), int64(0)
		if n > 0 {
			each, extra = int64(len(items))/n, int64(len(items))%n
		}
		return func() (any, bool) {
			if i >= n {
				return nil, false
			}
			r.step(1)
			from := offset + i*each
			if i < extra {
				offset++
			}
			row := append([]any{}, items[from:offset+(i+1)*each]...)
			if fill := b.optional(1); fill != nil && i >= extra {
				row = append(row, fill)
			}
			i++
			return row, true
		}
	})
}

func groupBy(r *run, v any, a *args) any {
	b := a.bind(r, "groupby", 1, "attribute", "default", "case_sensitive")
	key := r.keyed(b.vals[0], b.optional(1), b.bool(2))
	get := r.getter(b.vals[0], b.optional(1))
	groups := []any{}
	var now any
	for i, item := range r.sorted(r.collect(v), key, false) {
		k := key(item)
		if i == 0 || !r.equal(k, now) {
			now = k
			groups = append(groups, group{get(item), []any{}})
		}
		g := groups[len(groups)-1].(group)
		groups[len(groups)-1] = group{g.grouper, append(g.list.([]any), item)}
	}
	return groups
}

func mapFilter(r *run, v any, a *args) any {
	if !truth(v) {
		return overSlice("generator", nil)
	}
	return r.lazy(func() func() (any, bool) {
		f := r.mapped(a)
		it := r.iter(v)
		return func() (any, bool) {
			item, ok := it.next()
			if !ok {
				return nil, false
			}
			r.step(1)
			return f(item), true
		}
	})
}

// mapped returns the function that the filter map applies to each item. The arguments a name an attribute to look up
// or a filter.
func (r *run) mapped(a *args) func(any) any {
	if len(a.pos) == 0 && slices.Contains(a.names, "attribute") {
		b := a.bind(r, "map", 0, "", "attribute", "default")
		return r.getter(b.vals[1], b.optional(2))
	}
	if len(a.pos) == 0 {
		r.fail("map requires a filter argument")
	}
	name, ok := asStr(a.pos[0])
	if !ok {
		r.fail("map: a filter's name must be a string, not %s", typeName(a.pos[0]))
	}
	rest := &args{a.pos[1:], a.names, a.named}
	return func(item any) any { return r.apply(name, false, item, rest) }
}

// selectFilter returns the filter select (keep true) or reject. With attr it returns selectattr or rejectattr, which
// test an attribute of each item.
func selectFilter(keep, attr bool) filterFunc {
	return func(r *run, v any, a *args) any {
		if !truth(v) {
			return overSlice("generator", nil)
		}
		return r.lazy(func() func() (any, bool) {
			test := r.selector(a, attr)
			it := r.iter(v)
			return func() (any, bool) {
				for {
					item, ok := it.next()
					if !ok {
						return nil, false
					}
					r.step(1)
					if test(item) == keep {
						return item, true
					}
				}
			}
		})
	}
}

// selector returns the test that the arguments a of select or, with attr, of selectattr describe.
func (r *run) selector(a *args, attr bool) func(any) bool {
	pos, get := a.pos, r.getter(nil, nil)
	if attr {
		if len(pos) == 0 {
			r.fail("missing parameter for attribute name")
		}
		get, pos = r.getter(pos[0], nil), pos[1:]
	}
	if len(pos) == 0 {
		return func(item any) bool { return truth(get(item)) }
	}
	name, ok := asStr(pos[0])
	if !ok {
		r.fail("a test's name must be a string, not %s", typeName(pos[0]))
	}
	rest := &args{pos[1:], a.names, a.named}
	return func(item any) bool { return truth(r.apply(name, true, get(item), rest)) }
}
