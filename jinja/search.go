package jinja

import "strings"

// window is the part of s from character start up to character stop, cut as a slice is, and
// the place of its first character. ok is false where start lies after the end of s.
func (r *run) window(s string, start, stop any) (string, int64, bool) {
	n := int64(runeCount(s))
	r.grow(len(s) / 16)
	at := r.bounds(n, [3]any{start, stop, nil})
	if start != nil && r.bound(start, 0) > n {
		return "", 0, false
	}
	if at.len() == 0 {
		return "", at.start, at.start <= at.stop
	}
	from := byteOffset(s, at.start)
	return s[from : from+byteOffset(s[from:], at.stop-at.start)], at.start, true
}

// byteOffset is where the n-th character of s begins.
func byteOffset(s string, n int64) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// affixMethod makes a method that asks whether a part of a string begins, or ends, with a
// given string or with one of a tuple of strings.
func affixMethod(name string, has func(s, affix string) bool) method {
	return func(r *run, self any, a *args) any {
		b := a.bind(r, name, 1, "affix", "start", "end")
		s, _ := asStr(self)
		part, ok := s, true
		if b.optional(1) != nil || b.optional(2) != nil {
			part, _, ok = r.window(s, b.optional(1), b.optional(2))
		}
		affixes, isTuple := b.vals[0].(tuple)
		if !isTuple {
			affixes = tuple{b.vals[0]}
		}
		for _, v := range affixes {
			affix, isStr := asStr(v)
			if !isStr {
				r.usable(v)
				r.fail("%s first arg must be str or a tuple of str, not %s", name, typeName(v))
			}
			if ok && has(part, affix) {
				return true
			}
		}
		return false
	}
}

func findMethod(name string, index func(s, sub string) int) method {
	return func(r *run, self any, a *args) any {
		b := a.bind(r, name, 1, "sub", "start", "end")
		s, _ := asStr(self)
		sub := b.str(0, "")
		part, first, ok := r.window(s, b.optional(1), b.optional(2))
		at := -1
		if ok {
			at = index(part, sub)
		}
		if at < 0 {
			if strings.HasSuffix(name, "index") {
				r.fail("substring not found")
			}
			return int64(-1)
		}
		return first + int64(runeCount(part[:at]))
	}
}

func countMethod(r *run, self any, a *args) any {
	b := a.bind(r, "count", 1, "sub", "start", "end")
	s, _ := asStr(self)
	part, _, ok := r.window(s, b.optional(1), b.optional(2))
	sub := b.str(0, "")
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(part, sub))
}

// sequenceMethods are those of lists, tuples and ranges; listMethods adds what
// lists alone have.
var sequenceMethods, listMethods, dictMethods map[string]method

func init() {
	sequenceMethods = map[string]method{
		"index": func(r *run, self any, a *args) any {
			b := a.bind(r, "index", 1, "value", "start", "stop")
			items := r.collect(self)
			at := r.bounds(int64(len(items)), [3]any{b.optional(1), b.optional(2), nil})
			for i := at.start; i < at.stop; i++ {
				if r.equal(items[i], b.vals[0]) {
					return i
				}
			}
			r.fail("%s is not in list", r.reprOf(b.vals[0]))
			return nil
		},
		"count": func(r *run, self any, a *args) any {
			n := int64(0)
			want := a.bind(r, "count", 1, "value").vals[0]
			for _, item := range r.collect(self) {
				if r.equal(item, want) {
					n++
				}
			}
			return n
		},
	}
	listMethods = map[string]method{
		"copy": func(r *run, self any, a *args) any {
			a.bind(r, "copy", 0)
			return r.collect(self)
		},
	}
	for name, m := range sequenceMethods {
		listMethods[name] = m
	}
	dictMethods = map[string]method{
		"get": func(r *run, self any, a *args) any {
			b := a.bind(r, "get", 1, "key", "default")
			a.noKeywords(r, "get")
			if v, ok := self.(*Object).get(r.hash(b.vals[0])); ok {
				return v
			}
			return b.optional(1)
		},
		"copy": func(r *run, self any, a *args) any {
			a.bind(r, "copy", 0)
			r.grow(64 * self.(*Object).Len())
			return self.(*Object).clone()
		},
	}
	for _, kind := range []string{"keys", "values", "items"} {
		dictMethods[kind] = func(r *run, self any, a *args) any {
			a.bind(r, kind, 0)
			return &view{kind, self.(*Object)}
		}
	}
}
