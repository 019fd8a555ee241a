package jinja

import (
	"strings"
	"unicode/utf8"
)

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

// items are what the view shows now.
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

// overSlice gives the items of a slice.
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

// overString gives the characters of s.
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

// tryIter is Python's iter(v); not ok where v cannot be iterated.
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

// iter is Python's iter(v); it fails where v cannot be iterated.
func (r *run) iter(v any) *iterator {
	it, ok := r.tryIter(v)
	if !ok {
		r.fail("'%s' object is not iterable", typeName(v))
	}
	return it
}

// collect is Python's list(v), a slice of its own.
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

// tryLen is Python's len(v).
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

// contains is Python's v in seq.
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

// hash is key's hash key; it fails where it cannot be a dict's key.
func (r *run) hash(key any) any {
	h, ok := hashKey(key)
	if !ok {
		r.fail("unhashable type: '%s'", h)
	}
	return h
}
