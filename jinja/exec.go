package jinja

// signal says how statements ended.
type signal uint8

const (
	ended signal = iota
	broken
	continued
)

// exec runs statements up to a break or continue.
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

// captured is what body writes, after the filters of filter if that is not nil. It is nil
// where body ends with a break or continue.
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

// filtered applies the filters of a filter block or a set block to v.
func (r *run) filtered(e expr, v any, s *scope) any {
	f := e.(*filterExpr)
	if f.node != nil {
		v = r.filtered(f.node, v, s)
	}
	return r.filter(f, v, s)
}

// namedBlock runs a block. The block sees the template's own variables; a scoped one also
// sees those of the loops and blocks around it.
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

// assign gives each name in target its part of v.
func (r *run) assign(target expr, v any, s *scope) {
	switch t := target.(type) {
	case *nameExpr:
		s.set(t.name, v)
	case *nsExpr:
		ns, ok := r.lookup(s, t.name).(*namespace)
		if !ok { // a set block's target, which is not looked at before
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

// checkSpaces fails where target is an attribute of something that is not a namespace.
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

// checkSpaceName refuses names that Transformers keeps out of namespaces.
func (r *run) checkSpaceName(name string) {
	if name != "" && name[0] == '_' {
		r.fail("a namespace cannot store '%s', whose name begins with an underscore", name)
	}
}
