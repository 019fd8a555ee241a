package jinja

// loop is the variable "loop" of a for loop.
type loop struct {
	items       *iterator
	count       int64 // -1: not known yet
	index0      int64
	before, now any
	ahead       []any // read from items, but not reached by the loop yet
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

// peek is the next item, if there is one.
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

// advance goes on to the next item.
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

// length is the number of items. Where that is not known, it reads all items to count them.
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

// attr is an attribute of the variable loop.
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

// iteration is one turn of a loop's body that is being run.
type iteration struct {
	item any
	// message is the message that the loop stands at, NoMessage where it stands at none.
	// from is where the output of this turn begins in out.
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

// recursiveLoop runs a loop whose body may call loop(items).
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
		// as in Jinja, an iteration that ends with continue does not count
		none = none && sig != ended
	}
	if none {
		return r.exec(st.none, &scope{outer: s})
	}
	return ended
}

// filteredItems gives those items for which the loop's test holds.
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

// packed is item as the variables in target hold it: a tuple where there are several of them,
// even if item was a list, as in Jinja when a loop has a test.
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

// begin notes that a turn of the loop begins, at item.
func (r *run) begin(st *forStmt, item any) {
	i := &iteration{item: item, message: NoMessage, from: len(r.out.text), out: r.out, target: st.target}
	if o, ok := item.(*Object); ok {
		if m, ok := r.messages[o]; ok {
			i.message = m
		}
	}
	r.standing = append(r.standing, i)
}

// end notes what the turn wrote, if it stood at a message.
func (r *run) end() {
	n := len(r.standing) - 1
	i := r.standing[n]
	r.standing = r.standing[:n]
	if to := len(i.out.text); i.message != NoMessage && to > i.from && !r.isStanding(i) {
		i.out.turns = append(i.out.turns, Turn{Message: i.message, Span: Span{i.from, to}})
	}
}

// isStanding tells whether a loop around i stands at the same message.
func (r *run) isStanding(i *iteration) bool {
	for _, outer := range r.standing {
		if outer.message == i.message {
			return true
		}
	}
	return false
}

// looked notes that items[index] gave item. Where item is a message and index is the number
// that the innermost loop stands at, the loop stands at that message from now on.
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
