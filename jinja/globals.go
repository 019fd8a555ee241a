package jinja

// maxRange is the length of the longest range that the sandbox makes.
const maxRange = 100000

// cycler gives its items one after the other, again and again.
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

// globals are the names that every template has: those of Jinja and the two that
// Transformers adds.
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

// newDict is dict(mapping or pairs, **more).
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

// newJoiner gives a function that is empty at its first call and then sep.
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
